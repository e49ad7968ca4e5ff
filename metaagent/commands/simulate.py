"""`metaagent simulate`: predicts what a step takes on so many nodes, and how their GPUs are best divided.

Everything that it prints is a prediction; what it is made of is in `trainer.predict`. Nothing is run or asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from metaagent.commands.inputs import read_configuration
from metaagent.commands.options import AsJson
from metaagent.terminal import (
    ExitCode,
    fields,
    heading,
    prediction_fields,
    print_json,
    print_table,
    shown_seconds,
    stdout,
    usage_error,
)

if TYPE_CHECKING:
    from trainer.config import TrainConfig
    from trainer.predict import Divided, Fit, Prediction, Seen, Workload
    from trainer.run import Gpu, ModelSize

MOST_NODES = 4096
T = TypeVar("T")


def main(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG.toml|RECIPE", help="The configuration: a file, or a name that `metaagent recipes` lists."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Changes to it, such as cluster.staleness=1.", show_default=False
        ),
    ] = None,
    nodes: Annotated[str, typer.Option(metavar="N,N,...", help="Numbers of nodes to predict.")] = "1,2,4,8",
    gpu: Annotated[str, typer.Option(metavar="NAME", help="Kind of the nodes' GPUs: H100 or H200.")] = "H100",
    fit: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Folder of a run that shows what its parts take.", file_okay=False),
    ] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Predict a step's time on more nodes, and how to divide their GPUs.

    Without --fit, seconds are assumed from data sheets and typical lengths; with it, what the run shows takes their
    place where both are of one kind, GPUs or CPUs.
    """
    from trainer.predict import best_division

    resolved = read_configuration(config, overrides or [])
    if resolved.roles.agents:
        usage_error("roles.agents: a simulation knows one policy for all agents. Fix: leave it out")
    if resolved.rollout.branching is not None:
        usage_error('rollout.branching: a simulation knows runs that do not part. Fix: "none", and credit = "tree"')
    counts = _counts(nodes)
    known = _known(resolved, gpu, fit)
    own = _tried(lambda: _own(resolved, known))
    best = {
        count: _tried(
            lambda count=count: best_division(resolved, count, known.sizes, known.gpu, known.workload, known.seen)
        )
        for count in counts
    }
    if all(each is None or isinstance(each, str) for each in (own, *best.values())):
        usage_error(_reasons(own, best))
    if as_json:
        print_json(_document(resolved, known, own, best))
    else:
        _show(resolved, known, own, best)
    return ExitCode.OK


def _tried(predicts: Callable[[], T]) -> T | str:
    """What it returns, or why nothing can be predicted."""
    from trainer.cluster import Unplaceable
    from trainer.predict import NeverDone
    from trainer.run import BadOption

    try:
        return predicts()
    except (BadOption, NeverDone, Unplaceable) as error:
        return str(error)


def _reasons(own: object, best: Mapping[int, object]) -> str:
    """Each once, with what it holds for; alone where there is one."""
    those: dict[str, list[str]] = {}
    counts = ((f"on {count} node{'s' * (count > 1)}", why) for count, why in best.items())
    for what, why in (("as configured", own), *counts):
        if isinstance(why, str):
            those.setdefault(why, []).append(what)
    if len(those) == 1:
        return next(iter(those))
    return "\n".join(f"{', '.join(whats)}: {why}" for why, whats in those.items())


@dataclass(frozen=True, slots=True)
class _Known:
    """What predictions rest on."""

    sizes: dict[str, ModelSize]
    gpu: Gpu
    workload: Workload
    fit: Fit | None
    seen: Seen | None
    """Of the fit, if both the run and these nodes have GPUs, or neither has."""
    named: list[str]
    """All that there is to fit or to assume."""

    @property
    def fitted(self) -> list[str]:
        if self.fit is None:
            return []
        from trainer.predict import PARAMETERS

        return [name for name in self.fit.fitted if self.seen or name not in PARAMETERS]

    @property
    def assumed(self) -> list[str]:
        return [name for name in self.named if name not in self.fitted]


def _counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= count <= MOST_NODES for count in counts):
        usage_error(f"--nodes {text}: these are no numbers of nodes from 1 to {MOST_NODES}. Fix: such as 1,2,4")
    return sorted(set(counts))


def _known(config: TrainConfig, gpu: str, run: Path | None) -> _Known:
    from trainer import predict
    from trainer.run import GPUS, BadOption

    if gpu not in GPUS:
        usage_error(f"--gpu {gpu}: there is no such kind here. Fix: one of {', '.join(GPUS)}")
    sizes, used = _sizes(config), GPUS[gpu] if config.cluster.gpus_per_node else predict.CPU_CORE
    work = predict.work_of(config)
    named = [*predict.PARAMETERS, *work, "exchanges between ranks", "GPUs changing hands", "failures"]
    if run is None:
        return _Known(sizes, used, predict.assumed_workload(config), None, None, named)
    try:
        ran, reports = predict.read_run(run)
    except predict.NotFittable as error:
        usage_error(str(error))
    try:
        hardware = GPUS[gpu] if predict.on_gpus(ran, reports) else predict.CPU_CORE
        found = predict.carried_over(predict.fit(ran, reports, _sizes(ran, run), hardware), ran, config)
    except (BadOption, predict.NotFittable) as error:
        usage_error(f"the run in {run}: {error}")
    return _Known(sizes, used, found.workload, found, found.seen if hardware is used else None, named)


def _sizes(config: TrainConfig, run: Path | None = None) -> dict[str, ModelSize]:
    """Of the recipe's models, or of those of a `run`, which no override changes."""
    from trainer.run import CONFIG, UnknownSize, model_folder, model_size

    where = "" if run is None else f"{run / CONFIG}, which no override changes: "
    found: dict[str, ModelSize] = {}
    for name, policy in config.policies.items():
        model, folder = policy.model, model_folder(policy.model)
        key = f"{where}policies.{name}.model"
        if folder is None:
            fix = "a model's folder" if run is None else "the model's folder, there again or named in that file"
            if not Path(model).is_absolute():
                fix += f", or `hf download {model} config.json` (a kilobyte; hf comes with huggingface_hub)"
            usage_error(f"{key}: the size of {model} is not known here. Fix: {fix}")
        try:
            found[name] = model_size(folder)
        except UnknownSize as error:
            usage_error(f"{key}: {error}. Fix: the folder of a dense model, with all that belongs to it")
    return found


def _own(config: TrainConfig, known: _Known) -> Prediction | None:
    """Of the configuration as it is; None for one process. Raises `Unplaceable`, `NeverDone`."""
    from trainer.cluster import Unplaceable
    from trainer.predict import costs_of, simulate, unplaceable
    from trainer.run import needs_on

    if config.cluster.layout == "one-process":
        return None
    lacking = needs_on(config, known.sizes, known.gpu.name, known.gpu.memory_bytes or None).lacking
    if wrong := unplaceable(config) or "".join(lacking[:1]):
        raise Unplaceable(wrong)
    return simulate(config, costs_of(config, known.sizes, known.gpu, known.workload, known.seen), known.workload)


# Shown


def _document(
    config: TrainConfig, known: _Known, own: Prediction | str | None, best: Mapping[int, Divided | str]
) -> dict[str, object]:
    """All figures are predictions. Where there is none, `why_not` says why."""
    return {
        "predicted": {
            "as_configured": None if isinstance(own, str) else own,
            "as_configured_why_not": own if isinstance(own, str) else None,
            "best": [{"nodes": nodes} | _entry(each) for nodes, each in best.items()],
        },
        "hardware": known.gpu.name,
        "fit": known.fit,
        "fitted": known.fitted,
        "assumed": known.assumed,
        "workload": known.workload,
        "settings": _settings(config),
    }


def _entry(divided: Divided | str) -> dict[str, object]:
    if isinstance(divided, str):
        return {"why_not": divided}
    return {
        "layout": divided.config.cluster.layout,
        "policies": {
            name: {
                "ranks": policy.update.ranks,
                "engines": policy.engine.replicas,
                "tensor_parallel": policy.engine.tensor_parallel,
            }
            for name, policy in divided.config.policies.items()
        },
        "unused": divided.idle,
        "compared": divided.compared,
        "prediction": divided.prediction,
    }


def _settings(config: TrainConfig) -> dict[str, object]:
    rollout = config.rollout
    return {
        "questions": rollout.questions,
        "designs": rollout.designs,
        "executions": rollout.executions,
        "stage_length": config.stage_length,
        "staleness": config.cluster.staleness,
        "shared": len(config.policies) == 1,
    }


def _show(config: TrainConfig, known: _Known, own: Prediction | str | None, best: Mapping[int, Divided | str]) -> None:
    from trainer.predict import described

    rollout, console = config.rollout, stdout()
    heading(console, "Predicted, not measured", known.gpu.name)
    policies = "one policy for both roles" if len(config.policies) == 1 else "a policy for each role"
    fields(
        console,
        [
            (
                "Each step",
                f"{rollout.questions} questions x {rollout.designs} designs x {rollout.executions} executions",
            ),
            ("Policies", f"{policies}, stages of {config.stage_length} steps, staleness {config.cluster.staleness}"),
        ],
    )
    if own is not None:
        heading(console, "As configured", described(config))
        fields(console, [("Not predicted", own)] if isinstance(own, str) else prediction_fields(own))
    heading(console, "The fastest division found of so many nodes")
    print_table(console, *_table(best))
    heading(console, "What this rests on")
    fields(console, [("Run", _run(known.fit)), ("Fitted", _words(known.fitted)), ("Assumed", _words(known.assumed))])


def _run(fit: Fit | None) -> str:
    if fit is None:
        return ""
    program = "" if fit.same_program else ", and which has another program"
    return f"{fit.steps} steps, whose rollouts are met within {fit.deviation:.0%}{program}"


def _words(names: list[str]) -> str:
    from trainer.predict import PARAMETERS

    return ", ".join(PARAMETERS.get(name, name) for name in names)


PARTS = {
    "step": "step_s",
    "rollout": "rollout_s",
    "update": "update_s",
    "sync": "sync_s",
    "GPUs changing hands": "turn_s",
}
POOLS = ("ranks", "engines", "run_workers")


def _table(best: Mapping[int, Divided | str]) -> tuple[list[str], list[list[str]]]:
    from trainer.predict import described

    header = ["nodes", *PARTS, *(f"idle {pool.replace('_', ' ')}" for pool in POOLS), "times as fast", "division"]
    rows: list[list[str]] = []
    first = 0.0
    for nodes, divided in best.items():
        if isinstance(divided, str):
            rows.append([str(nodes), *["-"] * (len(header) - 2), divided])
            continue
        found = divided.prediction
        first = first or found.step_s
        seconds = [shown_seconds(getattr(found, name)) for name in PARTS.values()]
        idle = [f"{found.idle[pool]:.0%}" for pool in POOLS]
        division = described(divided.config, divided.idle)
        rows.append([str(nodes), *seconds, *idle, f"{first / found.step_s:.2f}", division])
    return header, rows
