"""Epochs over rows, with checkpoints from which a run goes on as if never stopped: what fine-tuning and the training of
models of values share.

What is learned at which step is a pure function of settings and data, so a checkpoint holds weights, optimizer and the
number of steps. Not here: what a row is, what is learned from it and what is measured (`Lesson`); nothing here makes a
backend or prints.

    out/
      model/          the result: plain transformers loads it
      metrics.jsonl   an `EpochMetrics` per line
      checkpoints/    see `trainer.disk.checkpoint`; each has a `model/` as well
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.disk import Checkpoint, CheckpointError, Written, checkpoint, metrics_file
from trainer.update import Backend

CHECKPOINTS, METRICS, MODEL = "checkpoints", "metrics.jsonl", "model"


class EpochSettings(BaseModel):
    """All that the course of a run depends on besides model and data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(default=1, ge=1)
    batch: int = Field(default=16, ge=1)
    """Rows per optimizer step; the last step of an epoch takes those that are left."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Its highest value."""
    warmup: float = Field(default=0.03, ge=0, le=1)
    """Share of all steps over which it rises linearly."""
    decay: Literal["cosine", "constant"] = "cosine"
    seed: int = Field(default=0, ge=0)
    held_out: float = Field(default=0.05, ge=0, lt=1)
    """Share of the rows that are not learned from, on which the loss is measured."""


Settings = TypeVar("Settings", bound=EpochSettings)


class EpochState(BaseModel, Generic[Settings]):
    """What a checkpoint says besides weights and optimizer."""

    model_config = ConfigDict(extra="forbid")

    step: int
    settings: Settings
    data: str
    """Digest of all rows."""


class EpochMetrics(BaseModel):
    """One line of `metrics.jsonl`."""

    step: int
    """Optimizer steps taken; 0 is before the first."""
    epoch: float
    """Epochs done."""
    loss: float | None = None
    """Of this step's rows; None before the first."""
    learning_rate: float | None = None
    gradient_norm: float | None = None
    tokens: int = 0
    """Of this step's rows, prompts included."""
    duration_s: float = 0.0


Metrics = TypeVar("Metrics", bound=EpochMetrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson(Generic[Metrics]):
    """What is learned in a run. Each function is given a line to fill in."""

    rows: Sequence[int]
    """Numbers of those that are learned from."""
    line: type[Metrics]
    learn: Callable[[Sequence[int], Metrics], None]
    """One optimizer step on these rows."""
    measure: Callable[[Metrics], None]
    """On what is held out: before the first step and after each epoch."""
    save: Callable[[Path], Iterable[Written] | None]
    """`Backend.save`, or with more files in `model/`."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a run went."""

    steps: int
    resumed_from: int | None
    """The step of the checkpoint that was gone on from."""


def run_epochs(
    backend: Backend,
    lesson: Lesson[Metrics],
    state: EpochState[Settings],
    out: Path,
    *,
    resume: bool = False,
    checkpoint_every: int = 200,
    keep: int = checkpoint.KEEP,
    watch: Callable[[Metrics, int], None] = lambda metrics, steps: None,
    passed_over: Callable[[str, str], None] = lambda name, wrong: None,
) -> Course:
    """Learn `lesson` and write the result into `out`; `state` is that of step 0.

    A checkpoint is written every `checkpoint_every` steps and after the last. With `resume` the run goes on from the
    newest whole one in `out`, if there is any: the weights are bit for bit those of a run that was never stopped where
    the backend's arithmetic repeats (on CPUs it does). `watch` is called after each step with its metrics and the
    number of all steps, `passed_over` with the name of each damaged newer checkpoint and what is wrong with it. Raises
    `CheckpointError` where `out` holds a run that is not to be resumed or has other settings or data, or where a
    checkpoint cannot be written; `UpdateFailed` where the loss is not finite. What was saved stays in each case.
    """
    settings = state.settings
    per_epoch = math.ceil(len(lesson.rows) / settings.batch)
    steps = settings.epochs * per_epoch
    folder = out / CHECKPOINTS
    with checkpoint.writing(folder):
        start = checkpoint.latest(folder)
        if start is not None:
            _check(start, state, resume)
            for name, wrong in start.passed_over.items():
                passed_over(name, wrong)
            backend.load(start.folder)
        if start is None:
            check_unclaimed(out)
        first, newest = (start.step, start.folder) if start else (0, None)
        metrics_file.cut(out / METRICS, first if start else -1)

        def note(metrics: Metrics) -> None:
            metrics_file.append(out / METRICS, metrics)
            watch(metrics, steps)

        if start is None:
            line = lesson.line(step=0, epoch=0.0)
            lesson.measure(line)
            note(line)
        order: list[int] = []
        for step in range(first, steps):
            epoch, part = divmod(step, per_epoch)
            if not order or part == 0:
                order = shuffled(lesson.rows, settings.seed, epoch)
            backend.learning_rate = learning_rate(step, steps, settings)
            line = lesson.line(step=step + 1, epoch=(step + 1) / per_epoch, learning_rate=backend.learning_rate)
            lesson.learn(order[part * settings.batch : (part + 1) * settings.batch], line)
            if part + 1 == per_epoch:
                lesson.measure(line)
            note(line)
            if (step + 1) % checkpoint_every == 0 or step + 1 == steps:
                state = state.model_copy(update={"step": step + 1})
                newest = checkpoint.save(folder, step + 1, lesson.save, state, keep)
        assert newest is not None
        _publish(newest / MODEL, out / MODEL)
    return Course(steps, start.step if start else None)


# Pure parts


def shuffled(rows: Sequence[int], seed: int, epoch: int) -> list[int]:
    """The order of rows in an epoch, counted from 0."""
    order = list(rows)
    random.Random(f"epoch {epoch} {seed}").shuffle(order)
    return order


def learning_rate(step: int, steps: int, settings: EpochSettings) -> float:
    """Of the optimizer step `step`, counted from 0, of `steps`.

    It rises linearly over ceil(warmup * steps) steps, reaching its highest value with the last of them; then stays, or
    falls along half a cosine (Loshchilov and Hutter, 2017, Eq. 5) that reaches 0 one step after the last.
    """
    rising = math.ceil(settings.warmup * steps)
    if step < rising:
        return settings.learning_rate * ((step + 1) / rising)
    if settings.decay == "constant":
        return settings.learning_rate
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


# Files


def check_unclaimed(out: Path) -> None:
    """Raise `CheckpointError` where `out`, without a checkpoint, has what this run would remove and has not made."""
    there = out / MODEL if (out / MODEL).exists() else None
    try:
        for line in (out / METRICS).read_bytes().splitlines(keepends=True) if (out / METRICS).exists() else ():
            if line.endswith(b"\n"):
                EpochMetrics.model_validate_json(line)
    except ValidationError:
        there = out / METRICS
    if there is not None:
        raise CheckpointError(f"{there} is there already, and of no run. Fix: choose another folder")


def _check(start: Checkpoint, mine: EpochState[Settings], resume: bool) -> None:
    """Raise `CheckpointError` unless the run that wrote `start` may be gone on with."""
    out = start.folder.parent.parent
    if not resume:
        raise CheckpointError(f"{out} holds a run, at step {start.step}. Fix: resume it, or choose another folder")
    theirs = start.state(type(mine))
    here, there = mine.settings.model_dump(), theirs.settings.model_dump()
    other = [f"{name} {there[name]}, not {here[name]}" for name in here if here[name] != there[name]]
    if mine.data != theirs.data:
        other.append("other data")
    if other:
        raise CheckpointError(
            f"the run in {out} has {'; '.join(other)}. Fix: resume it alike, or choose another folder"
        )


def _publish(source: Path, model: Path) -> None:
    """Copy a model, whole or not at all."""
    beside = model.with_name(f".tmp-{model.name}")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        shutil.copytree(source, beside)
        shutil.rmtree(model, ignore_errors=True)
        beside.rename(model)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise CheckpointError(
            f"cannot write {model}: {error}. Fix: make room and resume; the trained model is in {source}, too"
        ) from error
