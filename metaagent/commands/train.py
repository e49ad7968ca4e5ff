"""`metaagent train`: reads a configuration, shows what a run will do and need, and runs it.

What is shown is worked out in `trainer.run.planning`, a run is `trainer.run.loop`'s; here are only options, words and
exit codes.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from metaagent.opening import open_sandbox
from metaagent.terminal import (
    ExitCode,
    Stop,
    TrainingView,
    Writers,
    fields,
    heading,
    note,
    print_json,
    raw,
    stderr,
    stdout,
    usage_error,
)
from recipes import recipe_path

if TYPE_CHECKING:
    from trainer.config import TrainConfig
    from trainer.run import Memory, Plan, PolicyPlan, Runtime, SourcePlan

STAGES_SHOWN = 6


def main(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG.toml|RECIPE", help="The configuration: a file, or a name that `metaagent recipes` lists."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it, such as rollout.designs=8.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="Metrics, traces, checkpoints.", file_okay=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on from the newest checkpoint in the folder.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what was resolved and what a run will need.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves to FOLDER/tensorboard too; needs tensorboard.")
    ] = False,
    wandb: Annotated[
        str, typer.Option(metavar="PROJECT", help="Send curves to Weights & Biases too; needs wandb.")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per step; of a dry run, one in all.")
    ] = False,
) -> ExitCode:
    """Train Designer and Executor.

    The configuration is a TOML file; what it leaves out is the paper's setting. Ctrl-C or SIGTERM stop a run; --resume
    goes on with it.
    """
    from trainer.config import ConfigError, read_config

    try:
        resolved = read_config(_file(config), overrides or [])
    except ConfigError as error:
        usage_error(str(error))
    planned = _planned(resolved)
    if dry_run:
        _show(resolved, planned, config, as_json)
        return ExitCode.USAGE if _lacking(planned, as_json) else ExitCode.OK
    if out is None:
        usage_error("a run needs a folder. Fix: add --out FOLDER, or --dry-run to see what it will need")

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' own bars would run through the view
    view = TrainingView(resolved, as_json)
    try:
        with Writers(resolved, out, tensorboard=tensorboard, wandb=wandb) as writers, view:
            asyncio.run(_run(resolved, out, resume, view, writers))
    except ModuleNotFoundError as error:
        package = error.name if error.name in ("tensorboard", "wandb") else '"metaagent[train]"'
        usage_error(f"{error.name} is not installed. Fix: pip install {package}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        again = ["metaagent", "train", config, *(overrides or []), "--out", str(out), "--resume"]
        again += ["--tensorboard"] * tensorboard + ["--wandb", wandb] * bool(wandb) + ["--json"] * as_json
        raise Stop(f"stopped at {view.place}. To go on:", ExitCode.INTERRUPTED, shlex.join(again)) from None
    return ExitCode.OK


def _file(config: str) -> Path:
    """A file that there is, else the recipe of that name."""
    if (path := Path(config)).is_file():
        return path
    try:
        return recipe_path(config)
    except ValueError as error:
        usage_error(f"there is no file {config}, and {error}")


def _lacking(planned: Plan, as_json: bool) -> bool:
    """Whether data or a model is not here; told on stderr."""
    lacking = [f"{source.name}: {source.unknown}" for source in planned.sources if source.unknown]
    lacking += [f"policies.{policy.name}.model: {policy.unknown}" for policy in planned.policies if policy.missing]
    if not as_json:
        for each in lacking:
            stderr().print(Text.assemble(("error: ", "bold red"), each))
    return bool(lacking)


def _planned(config: TrainConfig) -> Plan:
    """What is wrong with the data is told here, before anything is loaded."""
    from trainer.run import plan

    with warnings.catch_warnings(record=True) as left_out:
        warnings.simplefilter("always")
        try:
            planned = plan(config)
        except (ValueError, OSError) as error:
            usage_error(str(error))
    for warning in left_out:
        note(str(warning.message))
    return planned


async def _run(config: TrainConfig, out: Path, resume: bool, view: TrainingView, writers: Writers) -> None:
    from trainer.cluster import ClusterError
    from trainer.disk import CheckpointError
    from trainer.run import Phase, StepReport, StepsLost
    from trainer.run import train as run
    from trainer.trees import DesignResult, Execution
    from trainer.update import UpdateFailed

    def watch(event: Phase | DesignResult | Execution | StepReport) -> None:
        view(event)
        writers(event)

    if (task := asyncio.current_task()) is not None:  # SIGINT cancels it already
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with _runtime(config) as runtime:
        try:
            await run(runtime, out, resume=resume, watch=watch)
        except ValueError as error:  # another run's folder, a model, data or a configuration that cannot be used
            usage_error(str(error))
        except (CheckpointError, ClusterError, StepsLost, UpdateFailed, OSError) as error:  # OSError: a full disk
            raise Stop(str(error), ExitCode.FAILED) from error


@asynccontextmanager
async def _runtime(config: TrainConfig) -> AsyncIterator[Runtime]:
    """One process with its sandbox, or a cluster, whose run workers have theirs."""
    from trainer.cluster import ClusterRuntime
    from trainer.run import OneProcess

    if config.cluster.layout == "one-process":
        async with open_sandbox(config.rollout.sandbox, grading=True) as sandbox:
            yield OneProcess(config, sandbox)
    else:
        yield ClusterRuntime(config)


# The dry run


def _show(config: TrainConfig, planned: Plan, name: str, as_json: bool) -> None:
    from trainer.config import to_toml

    if as_json:
        print_json({"config": config.model_dump(mode="json"), "plan": planned.model_dump(mode="json")})
        return
    heading(stdout(), "Configuration", name)
    raw(stdout(), to_toml(config))
    print_plan(stdout(), planned)


def print_plan(console: Console, planned: Plan) -> None:
    """One block per policy, one for the steps, one for the data. What the figures mean is said in
    `trainer.run.planning`."""
    for policy in planned.policies:
        heading(console, f"Policy {policy.name}", " and ".join(policy.roles))
        fields(console, _policy(policy))
    heading(console, "Each step")
    tokens = planned.tokens
    at_most = tokens.designer_at_most + tokens.executor_at_most
    single = tokens.designer_at_most + tokens.executor_single_turn
    fields(
        console,
        [
            ("Designs", f"{planned.designs_per_step:,}"),
            ("Runs", f"{planned.runs_per_step:,}"),
            (
                "Tokens at most",
                f"{at_most:,}; to design {tokens.designer_at_most:,}, in runs {tokens.executor_at_most:,}",
            ),
            ("With one agent call per run", f"{single:,} at most, of these {tokens.generated_single_turn:,} generated"),
        ],
    )
    heading(console, "All steps")
    stages = [f"{' and '.join(stage.roles)} {stage.steps}" for stage in planned.stages]
    more = [f"... ({len(stages)} stages)"] if len(stages) > STAGES_SHOWN else []
    disk = "unknown" if planned.disk_bytes is None else _size(planned.disk_bytes)
    fields(
        console,
        [
            ("Steps", f"{sum(stage.steps for stage in planned.stages):,}"),
            ("Stages", ", ".join(stages[:STAGES_SHOWN] + more)),
            (
                "Memory",
                "unknown" if planned.device_bytes is None else f"about {_size(planned.device_bytes)} on one device",
            ),
            ("Disk", f"{disk} for {planned.checkpoints} checkpoints at once"),
        ],
    )
    heading(console, "Data")
    fields(console, [(source.name, _source(source)) for source in planned.sources])


def _policy(policy: PolicyPlan) -> list[tuple[str, str]]:
    if policy.unknown is not None or policy.memory is None:
        return [("Model", policy.model), ("Size", policy.unknown or "")]
    request = _size(policy.cache_bytes_per_request)
    trained = "all learn" if policy.trained == policy.parameters else f"{policy.trained:,} in adapters learn"
    return [
        ("Model", policy.model),
        ("Parameters", f"{policy.parameters:,}, {trained}"),
        ("Memory", f"about {_size(policy.memory.total)} on one device, and the engine's cache"),
        *_memory(policy.memory),
        ("Engine's cache", f"{_size(policy.cache_bytes_per_token)} per token, {request} per request of full length"),
        ("Checkpoint", _size(policy.checkpoint_bytes)),
    ]


def _memory(memory: Memory) -> list[tuple[str, str]]:
    names = {
        "weights": "weights",
        "masters": "float32 copies of them",
        "gradients": "gradients",
        "moments": "AdamW's moments",
        "reference": "reference policy",
        "activations": "activations",
        "logits": "logits",
        "engine_weights": "the engine's weights",
    }
    figures = memory.model_dump()
    return [(f"  {shown}", _size(figures[name])) for name, shown in names.items() if figures[name]]


def _source(source: SourcePlan) -> str:
    if source.unknown is not None:
        return f"{source.per_step} per step; {source.unknown}"
    return f"{source.per_step} per step of {source.problems:,} problems: {source.epochs:.3g} epochs"


def _size(count: int | None) -> str:
    """A number of bytes in the unit that suits it."""
    size, unit = float(count or 0), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.1f} {unit}"
