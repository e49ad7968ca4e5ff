"""`metaagent simulate`: predicts what a step takes on so many nodes, and how their GPUs are best divided.

Everything that it prints is a prediction; what it is made of is in `trainer.predict`. Nothing is run or asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    from trainer.predict import Divided, Fit, Prediction, Workload
    from trainer.run import Gpu, ModelSize

MOST_NODES = 4096


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
    from trainer.cluster import Unplaceable
    from trainer.predict import NeverDone, best_division

    resolved = read_configuration(config, overrides or [])
    counts = _counts(nodes)
    known = _known(resolved, gpu, fit)
    seen = known.fit.seen if known.fit and known.same_kind else None
    try:
        own = _own(resolved, known)
        best = [best_division(resolved, count, known.sizes, known.gpu, known.workload, seen) for count in counts]
    except (NeverDone, Unplaceable) as error:
        usage_error(str(error))
    if as_json:
        print_json(_document(resolved, known, own, dict(zip(counts, best, strict=True))))
    else:
        _show(resolved, known, own, dict(zip(counts, best, strict=True)))
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Known:
    """What predictions rest on."""

    sizes: dict[str, ModelSize]
    gpu: Gpu
    workload: Workload
    fit: Fit | None
    same_kind: bool
    """Whether the fitted run had GPUs if these nodes have."""

    @property
    def fitted(self) -> list[str]:
        if self.fit is None:
            return []
        from trainer.predict import PARAMETERS

        return [name for name in self.fit.fitted if self.same_kind or name not in PARAMETERS]

    @property
    def assumed(self) -> list[str]:
        from trainer.predict import PARAMETERS, WORKLOAD

        named = [*PARAMETERS, *WORKLOAD, "exchanges between ranks", "GPUs changing hands", "failures"]
        return [name for name in named if name not in self.fitted]


def _counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= count <= MOST_NODES for count in counts):
        usage_error(f"--nodes {text}: these are no numbers of nodes from 1 to {MOST_NODES}. Fix: such as 1,2,4")
    return sorted(set(counts))


def _known(config: TrainConfig, gpu: str, run: Path | None) -> _Known:
    from trainer.predict import CPU_CORE, NotFittable, assumed_workload, read_run
    from trainer.predict import fit as fitted
    from trainer.run import GPUS

    if gpu not in GPUS:
        usage_error(f"--gpu {gpu}: there is no such kind here. Fix: one of {', '.join(GPUS)}")
    sizes, used = _sizes(config), GPUS[gpu] if config.cluster.gpus_per_node else CPU_CORE
    if run is None:
        return _Known(sizes, used, assumed_workload(config), None, False)
    try:
        ran, reports = read_run(run)
        hardware = CPU_CORE if _on_cpus(ran) else GPUS[gpu]
        found = fitted(ran, reports, _sizes(ran), hardware)
    except NotFittable as error:
        usage_error(str(error))
    return _Known(sizes, used, found.workload, found, hardware is used)


def _on_cpus(config: TrainConfig) -> bool:
    if config.cluster.layout == "one-process":
        return all(policy.device == "cpu" for policy in config.policies.values())
    return config.cluster.gpus_per_node == 0


def _sizes(config: TrainConfig) -> dict[str, ModelSize]:
    from trainer.run import known_sizes

    sizes = known_sizes(config)
    for name, policy in config.policies.items():
        if name not in sizes:
            usage_error(
                f"policies.{name}.model: the size of {policy.model} is not known here. Fix: a model's folder, or "
                f"`hf download {policy.model} config.json` (a kilobyte; hf comes with huggingface_hub)"
            )
    return sizes


def _own(config: TrainConfig, known: _Known) -> Prediction | None:
    """Of the configuration as it is; None for one process. Raises `Unplaceable`, `NeverDone`."""
    from trainer.cluster import Unplaceable
    from trainer.predict import costs_of, simulate, unplaceable

    if config.cluster.layout == "one-process":
        return None
    if wrong := unplaceable(config):
        raise Unplaceable(wrong)
    seen = known.fit.seen if known.fit and known.same_kind else None
    return simulate(config, costs_of(config, known.sizes, known.gpu, known.workload, seen), known.workload)


# Shown


def _document(
    config: TrainConfig, known: _Known, own: Prediction | None, best: dict[int, Divided]
) -> dict[str, object]:
    """All figures are predictions."""
    return {
        "predicted": {
            "as_configured": own,
            "best": [
                {
                    "nodes": nodes,
                    "layout": divided.config.cluster.layout,
                    "policies": {
                        name: {
                            "ranks": policy.update.ranks,
                            "engines": policy.engine.replicas,
                            "tensor_parallel": policy.engine.tensor_parallel,
                        }
                        for name, policy in divided.config.policies.items()
                    },
                    "compared": divided.compared,
                    "idle_gpus": divided.idle,
                    "prediction": divided.prediction,
                }
                for nodes, divided in best.items()
            ],
        },
        "hardware": known.gpu.name,
        "fit": known.fit,
        "fitted": known.fitted,
        "assumed": known.assumed,
        "workload": known.workload,
        "settings": _settings(config),
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


def _show(config: TrainConfig, known: _Known, own: Prediction | None, best: dict[int, Divided]) -> None:
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
        fields(console, prediction_fields(own))
    heading(console, "The fastest division found of so many nodes")
    first = next(iter(best.values())).prediction.step_s
    pools = next(iter(best.values())).prediction.idle
    names = [f"idle {pool.replace('_', ' ')}" for pool in pools]
    header = ["nodes", "step", "rollout", "update", "sync", *names, "times as fast", "division"]
    print_table(console, header, [_row(nodes, divided, first) for nodes, divided in best.items()])
    heading(console, "What this rests on")
    run = (
        "" if known.fit is None else f"{known.fit.steps} steps, whose rollouts are met within {known.fit.deviation:.0%}"
    )
    fields(
        console,
        [("Run", run), ("Fitted", _words(known.fitted)), ("Assumed", _words(known.assumed))],
    )


def _words(names: list[str]) -> str:
    from trainer.predict import PARAMETERS

    return ", ".join(PARAMETERS.get(name, name) for name in names)


def _row(nodes: int, divided: Divided, first: float) -> list[str]:
    from trainer.predict import described

    found = divided.prediction
    seconds = [shown_seconds(each) for each in (found.step_s, found.rollout_s, found.update_s, found.sync_s)]
    idle = [f"{share:.0%}" for share in found.idle.values()]
    return [str(nodes), *seconds, *idle, f"{first / found.step_s:.2f}", described(divided.config, divided.idle)]
