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
from rich.text import Text

from metaagent.commands.inputs import read_configuration
from metaagent.commands.options import View
from metaagent.opening import open_sandbox
from metaagent.serving_pages import viewing_training
from metaagent.terminal import (
    ExitCode,
    Stop,
    TrainingView,
    Writers,
    heading,
    note,
    print_json,
    print_plan,
    raw,
    stderr,
    stdout,
    usage_error,
)

if TYPE_CHECKING:
    from trainer.config import TrainConfig
    from trainer.predict import Prediction
    from trainer.run import Plan, Runtime


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
    view: View = False,
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
    resolved = read_configuration(config, overrides or [])
    planned = _planned(resolved)
    if dry_run:
        _show(resolved, planned, config, as_json)
        return ExitCode.USAGE if _lacking(planned, as_json) else ExitCode.OK
    for source in planned.sources:
        if source.unknown:
            usage_error(f"{source.name}: {source.unknown}")
    if out is None:
        usage_error("a run needs a folder. Fix: add --out FOLDER, or --dry-run to see what it will need")

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' own bars would run through the view
    if not Path("/dev/nvidiactl").exists():  # transformers loads DeepSpeed where it is, which would say so on stdout
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    shown = TrainingView(resolved, as_json)
    try:
        with (
            viewing_training(view, out, as_json=as_json),
            Writers(resolved, out, tensorboard=tensorboard, wandb=wandb) as writers,
            shown,
        ):
            asyncio.run(_run(resolved, out, resume, shown, writers))
    except ModuleNotFoundError as error:
        package = error.name if error.name in ("tensorboard", "wandb") else '"metaagent[train]"'
        usage_error(f"{error.name} is not installed. Fix: pip install {package}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        again = ["metaagent", "train", config, *(overrides or []), "--out", str(out), "--resume"]
        again += ["--tensorboard"] * tensorboard + ["--wandb", wandb] * bool(wandb) + ["--json"] * as_json
        raise Stop(f"stopped at {shown.place}. To go on:", ExitCode.INTERRUPTED, shlex.join(again)) from None
    return ExitCode.OK


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
    for source in planned.sources:
        if source.math500:
            note(
                f"{source.math500:,} of {source.problems or 0:,} problems of {source.name} stand in MATH-500, so "
                "results on it would be no test"
            )
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

    predicted = _predicted(config, planned)
    if as_json:
        document = {"config": config.model_dump(mode="json"), "plan": planned.model_dump(mode="json")}
        print_json(document | ({"predicted": predicted} if predicted else {}))
        return
    heading(stdout(), "Configuration", name)
    raw(stdout(), to_toml(config))
    print_plan(stdout(), planned, predicted)


def _predicted(config: TrainConfig, planned: Plan) -> dict[str, Prediction]:
    """By kind of GPU, of those that hold the run; none in one process. A layout that cannot be is told."""
    if config.cluster.layout == "one-process":
        return {}
    from trainer.predict import CPU_CORE, assumed_workload, costs_of, simulate, unplaceable
    from trainer.run import GPUS, known_sizes

    if wrong := unplaceable(config):
        usage_error(wrong)
    workload, sizes = assumed_workload(config), known_sizes(config)
    return {
        needs.gpu: simulate(config, costs_of(config, sizes, GPUS.get(needs.gpu, CPU_CORE), workload), workload)
        for needs in planned.cluster
        if not needs.lacking
    }
