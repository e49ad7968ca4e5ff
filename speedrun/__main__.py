"""The speedrun as one command: problems, cold start, SFT, stagewise RL, evaluation, report. Resumable at any moment.

    python -m speedrun.__main__ --out runs/speedrun [--seed 0] [--pretrained FOLDER] [KEY=VALUE ...]

KEY=VALUE changes the RL recipe (recipes/speedrun.toml), as for `metaagent train`. With --pretrained a language model
learns in place of a random one (`speedrun.pretrained` gets one), by recipes/speedrun_lm.toml. The steps are in
`speedrun.phases`.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from metaagent.opening import open_sandbox
from metaagent.terminal import (
    DistillProgress,
    EpochProgress,
    EvalProgress,
    ExitCode,
    Stop,
    TrainingView,
    command,
    fields,
    note,
    stderr,
    usage_error,
)

# Read when torch is loaded. Its threads spin while they wait: through the pauses between two operations of a small
# model (asleep they would be half as fast), but not for long, since the jails need the cores too.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they would run through ours

from speedrun import phases as stages
from speedrun.report import Measured, write_report
from speedrun.settings import SpeedrunSettings
from speedrun.starts import MADE_BY
from speedrun.variants import ALONE
from speedrun.versions import code_of_instrument
from trainer.disk import CheckpointError, agree, agree_on_settings, plain_files
from trainer.run import OneProcess, model_size
from trainer.update import UpdateFailed


class Clock:
    """Seconds that each step took, kept over resumptions in `times.json`, where the step under way is, too: of what is
    killed at most the last `EVERY_S` are lost."""

    EVERY_S = 5.0

    def __init__(self, path: Path) -> None:
        self.path = path
        self.took: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        note(name)
        before, began, over = self.took.get(name, 0.0), time.monotonic(), threading.Event()

        def keep() -> None:
            while True:
                ended = over.wait(self.EVERY_S)
                self.took[name] = round(before + time.monotonic() - began, 1)
                plain_files.replace(self.path, (json.dumps(self.took, indent=1) + "\n").encode())
                if ended:
                    return

        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()


async def speedrun(settings: SpeedrunSettings, out: Path) -> Path:
    """Run what is not done yet, and write `report.md` in `out`; returns its path.

    Raises ValueError where `out` holds a speedrun with other settings, or of another version of the code that makes
    problems, lessons and programs, and what the steps raise.
    """
    out.mkdir(parents=True, exist_ok=True)
    begun = (out / stages.SETTINGS).exists()
    agree_on_settings(out / stages.SETTINGS, settings)
    # What an earlier version taught is another start: the rest of it would be no result of either.
    agree(out / MADE_BY, {"code": code_of_instrument()}, begun=begun)
    clock = Clock(out / "times.json")
    data = out / "problems"
    with clock.step("problems"):
        cold, test = stages.write_all_problems(settings, data)
    async with open_sandbox("process", grading=True) as sandbox:
        with clock.step("cold start"), DistillProgress(len(cold)) as seen:
            await stages.cold_start(settings, cold, sandbox, out / "cold", seen)
        with clock.step("supervised fine-tuning"), EpochProgress() as progress:
            rows = stages.lessons(settings, out / "cold" / "rows.jsonl")
            start = stages.untrained(settings, rows, out / "untrained")
            tuned = (await asyncio.to_thread(stages.fine_tune, settings, start, rows, out / "sft", progress)).model
        with (
            clock.step("reinforcement learning"),
            TrainingView(settings.rl(tuned, data / "train.jsonl"), False) as view,
        ):
            runtime = OneProcess(settings.rl(tuned, data / "train.jsonl"), sandbox)
            trained = await stages.reinforce(runtime, out / "rl", view)
        roles = settings.rl(tuned, data / "train.jsonl").roles
        bank, measured = stages.programs(), []
        alone = dict(ALONE)
        if settings.pretrained is not None:  # every attempt of a language model takes seconds
            alone = {name: program for name, program in ALONE.items() if program == stages.SINGLE}
        with clock.step("evaluation"):
            for name, executor, designer, program in (
                *([] if settings.pretrained is None else [("before SFT", start, None, stages.SINGLE)]),
                *((name, tuned, None, program) for name, program in alone.items()),
                ("SFT", tuned, tuned, None),
                ("RL", trained[roles.executor], trained[roles.designer], None),
            ):
                with EvalProgress(len(test)) as bar:
                    attempts = await stages.measure(
                        settings,
                        test,
                        executor,
                        sandbox,
                        out / "evaluation" / name.replace(",", "").replace(" ", "-"),
                        bar,
                        designer=designer,
                        program=None if program is None else bank[program].program,
                        seed=settings.seed,
                    )
                measured.append(Measured(name, attempts))
    return write_report(out, settings, model_size(start).parameters, measured, clock.took)


@command
def main(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to recipes/speedrun.toml.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of everything that is made.")] = Path(
        "runs/speedrun"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Another one gives other problems, weights and samples.")] = 0,
    pretrained: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A language model to start from, by recipes/speedrun_lm.toml.")
    ] = None,
) -> ExitCode:
    """Train a Designer and an Executor from nothing and measure them; goes on with what was stopped."""
    try:
        changes = tuple(overrides or [])
        settings = SpeedrunSettings(seed=seed, overrides=changes)
        if pretrained is not None:
            if not (pretrained / "config.json").is_file():
                raise ValueError(f"{pretrained} holds no model. Fix: python -m speedrun.pretrained {pretrained}")
            settings = SpeedrunSettings.of_language_model(pretrained.resolve(), seed, changes)
        settings.rl(Path("model"), Path("problems.jsonl"))  # wrong overrides are told before anything is begun
        report = asyncio.run(speedrun(settings, out))
    except ValueError as error:
        usage_error(str(error))
    except (CheckpointError, UpdateFailed, OSError) as error:
        raise Stop(str(error), ExitCode.FAILED) from error
    except KeyboardInterrupt:
        raise Stop("stopped; the same command goes on", ExitCode.INTERRUPTED) from None
    fields(stderr(), [("Report", str(report))])
    return ExitCode.OK


if __name__ == "__main__":
    typer.run(main)
