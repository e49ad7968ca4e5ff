"""Supervised fine-tuning: epochs over conversations, with checkpoints from which a run goes on as if never stopped.

The loop over a `trainer.update.backend.Backend`. What is learned at which step is a pure function of settings and data,
so a checkpoint holds weights, optimizer and the number of steps. Nothing here makes a backend, renders chat or prints.

    out/
      model/          the result: plain transformers loads it
      metrics.jsonl   a `StepMetrics` per line
      checkpoints/    see `trainer.disk.checkpoint`; each has a `model/` as well
"""

from __future__ import annotations

import hashlib
import math
import random
import shutil
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.disk import Checkpoint, CheckpointError, checkpoint, metrics_file
from trainer.samples import Sample
from trainer.update import Backend, ImitationObjective

CHECKPOINTS, METRICS, MODEL = "checkpoints", "metrics.jsonl", "model"

Rows = Sequence[Sequence[Sample]]
"""The samples of each conversation, as `trainer.sft.chat_samples` makes them."""


class SFTSettings(BaseModel):
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


class SFTState(BaseModel):
    """What a checkpoint says besides weights and optimizer."""

    model_config = ConfigDict(extra="forbid")

    step: int
    settings: SFTSettings
    data: str
    """Digest of all rows."""


class StepMetrics(BaseModel):
    """One line of `metrics.jsonl`."""

    step: int
    """Optimizer steps taken; 0 is before the first."""
    epoch: float
    """Epochs done."""
    loss: float | None = None
    """Mean negative log-likelihood, in nats, of the reply tokens of this step's rows."""
    held_out_loss: float | None = None
    """The same over all rows held out: before the first step and after each epoch."""
    learning_rate: float | None = None
    gradient_norm: float | None = None
    tokens: int = 0
    """Of this step's rows, prompts included."""
    reply_tokens: int = 0
    duration_s: float = 0.0


class SFTResult(BaseModel):
    model: Path
    steps: int
    rows: int
    """Learned from."""
    held_out_rows: int
    resumed_from: int | None
    """The step of the checkpoint that was gone on from."""


Watch = Callable[[StepMetrics, int], None]
"""Called after each step with its metrics and the number of all steps."""


def train(
    backend: Backend,
    rows: Rows,
    settings: SFTSettings,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_every: int = 200,
    keep: int = checkpoint.KEEP,
    watch: Watch = lambda metrics, steps: None,
    passed_over: Callable[[str, str], None] = lambda name, wrong: None,
) -> SFTResult:
    """Learn from `rows` and write the result into `out`.

    A checkpoint is written every `checkpoint_every` steps and after the last. With `resume` the run goes on from the
    newest whole one in `out`, if there is any: the weights are bit for bit those of a run that was never stopped where
    the backend's arithmetic repeats (on CPUs it does). `passed_over` is called with the name of each damaged newer one
    and what is wrong with it. Raises `CheckpointError` where `out` holds a run that is not to be resumed or has other
    settings or data, or where a checkpoint cannot be written; `UpdateFailed` where the loss is not finite; ValueError
    where no row is left to learn from. What was saved stays in each case.
    """
    learned, held = split(len(rows), settings)
    if not learned:
        raise ValueError(f"no row to learn from: there are {len(rows)}, held out are {len(held)}")
    per_epoch = math.ceil(len(learned) / settings.batch)
    steps = settings.epochs * per_epoch
    state = SFTState(step=0, settings=settings, data=digest(rows))
    folder = out / CHECKPOINTS
    held_samples = [sample for row in held for sample in rows[row]]
    with checkpoint.writing(folder):
        start = checkpoint.latest(folder)
        if start is not None:
            _check(start, state, resume)
            for name, wrong in start.passed_over.items():
                passed_over(name, wrong)
            backend.load(start.folder)
        if start is None:
            _check_unclaimed(out)
        first, newest = (start.step, start.folder) if start else (0, None)
        metrics_file.cut(out / METRICS, first if start else -1)

        def note(metrics: StepMetrics) -> None:
            metrics_file.append(out / METRICS, metrics)
            watch(metrics, steps)

        if start is None:
            note(StepMetrics(step=0, epoch=0.0, held_out_loss=held_out_loss(backend, held_samples)))
        order: list[int] = []
        for step in range(first, steps):
            epoch, part = divmod(step, per_epoch)
            if not order or part == 0:
                order = shuffled(learned, settings.seed, epoch)
            batch = order[part * settings.batch : (part + 1) * settings.batch]
            backend.learning_rate = learning_rate(step, steps, settings)
            metrics = _step(backend, [sample for row in batch for sample in rows[row]])
            metrics.step, metrics.epoch = step + 1, (step + 1) / per_epoch
            if part + 1 == per_epoch:
                metrics.held_out_loss = held_out_loss(backend, held_samples)
            note(metrics)
            if (step + 1) % checkpoint_every == 0 or step + 1 == steps:
                state = state.model_copy(update={"step": step + 1})
                newest = checkpoint.save(folder, step + 1, backend.save, state, keep)
        assert newest is not None
        _publish(newest / MODEL, out / MODEL)
    return SFTResult(
        model=out / MODEL,
        steps=steps,
        rows=len(learned),
        held_out_rows=len(held),
        resumed_from=start.step if start else None,
    )


# Pure parts


def split(count: int, settings: SFTSettings) -> tuple[list[int], list[int]]:
    """Indices of the rows to learn from and of those held out, both rising; a function of count, share and seed."""
    held = set(random.Random(f"held out {settings.seed}").sample(range(count), round(count * settings.held_out)))
    return [row for row in range(count) if row not in held], sorted(held)


def shuffled(rows: Sequence[int], seed: int, epoch: int) -> list[int]:
    """The order of rows in an epoch, counted from 0."""
    order = list(rows)
    random.Random(f"epoch {epoch} {seed}").shuffle(order)
    return order


def learning_rate(step: int, steps: int, settings: SFTSettings) -> float:
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


def digest(rows: Rows) -> str:
    """Names the tokens and masks of all rows."""
    found = hashlib.sha256()
    for row in rows:
        for sample in row:
            for values in (sample.token_ids, sample.loss_mask):
                found.update(array("q", [len(row), len(values), *values]).tobytes())
    return found.hexdigest()


# The loop's parts


def held_out_loss(backend: Backend, samples: Sequence[Sample]) -> float | None:
    """Mean negative log-likelihood of the reply tokens, in nats; None where there are no samples."""
    if not samples:
        return None
    count = sum(sum(sample.loss_mask) for sample in samples)
    return -math.fsum(value for values in backend.logprobs(samples) for value in values) / count


def _step(backend: Backend, samples: Sequence[Sample]) -> StepMetrics:
    began = time.perf_counter()
    report = backend.update(samples, ImitationObjective())
    return StepMetrics(
        step=0,
        epoch=0.0,
        loss=report.loss,
        learning_rate=backend.learning_rate,
        gradient_norm=report.gradient_norm,
        tokens=sum(len(sample.token_ids) for sample in samples),
        reply_tokens=report.tokens,
        duration_s=time.perf_counter() - began,
    )


def _check_unclaimed(out: Path) -> None:
    """Raise `CheckpointError` where `out`, without a checkpoint, has what this run would remove and has not made."""
    there = out / MODEL if (out / MODEL).exists() else None
    try:
        for line in (out / METRICS).read_bytes().splitlines(keepends=True) if (out / METRICS).exists() else ():
            if line.endswith(b"\n"):
                StepMetrics.model_validate_json(line)
    except ValidationError:
        there = out / METRICS
    if there is not None:
        raise CheckpointError(f"{there} is there already, and of no run. Fix: choose another folder")


def _check(start: Checkpoint, mine: SFTState, resume: bool) -> None:
    """Raise `CheckpointError` unless the run that wrote `start` may be gone on with."""
    out = start.folder.parent.parent
    if not resume:
        raise CheckpointError(f"{out} holds a run, at step {start.step}. Fix: resume it, or choose another folder")
    theirs = start.state(SFTState)
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
