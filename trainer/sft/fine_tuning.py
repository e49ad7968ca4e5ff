"""Supervised fine-tuning: epochs over conversations (`trainer.sft.epochs`), with the loss on their replies.

What is held out is a share of the rows, drawn by the seed. Nothing here makes a backend, renders chat or prints.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel

from trainer.disk import checkpoint
from trainer.samples import Sample
from trainer.sft.epochs import MODEL, EpochMetrics, EpochSettings, EpochState, Lesson, run_epochs
from trainer.update import Backend, ImitationObjective

Rows = Sequence[Sequence[Sample]]
"""The samples of each conversation, as `trainer.sft.chat_samples` makes them."""


class SFTSettings(EpochSettings):
    """All that the course of a run depends on besides model and data."""


SFTState = EpochState[SFTSettings]


class StepMetrics(EpochMetrics):
    """One line of `metrics.jsonl`. `loss` is the mean negative log-likelihood, in nats, of the reply tokens of this
    step's rows."""

    held_out_loss: float | None = None
    """The same over all rows held out: before the first step and after each epoch."""
    reply_tokens: int = 0


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
    """Learn from `rows` and write the result into `out`; see `run_epochs`. Raises ValueError where no row is left to
    learn from."""
    learned, held = split(len(rows), settings)
    if not learned:
        raise ValueError(f"no row to learn from: there are {len(rows)}, held out are {len(held)}")
    held_samples = [sample for row in held for sample in rows[row]]

    def learn(batch: Sequence[int], line: StepMetrics) -> None:
        _learn(backend, [sample for row in batch for sample in rows[row]], line)

    def measure(line: StepMetrics) -> None:
        line.held_out_loss = held_out_loss(backend, held_samples)

    course = run_epochs(
        backend,
        Lesson(rows=learned, line=StepMetrics, learn=learn, measure=measure, save=backend.save),
        SFTState(step=0, settings=settings, data=digest(rows)),
        out,
        resume=resume,
        checkpoint_every=checkpoint_every,
        keep=keep,
        watch=watch,
        passed_over=passed_over,
    )
    return SFTResult(
        model=out / MODEL,
        steps=course.steps,
        rows=len(learned),
        held_out_rows=len(held),
        resumed_from=course.resumed_from,
    )


# Pure parts


def split(count: int, settings: SFTSettings) -> tuple[list[int], list[int]]:
    """Indices of the rows to learn from and of those held out, both rising; a function of count, share and seed."""
    held = set(random.Random(f"held out {settings.seed}").sample(range(count), round(count * settings.held_out)))
    return [row for row in range(count) if row not in held], sorted(held)


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


def _learn(backend: Backend, samples: Sequence[Sample], line: StepMetrics) -> None:
    began = time.perf_counter()
    report = backend.update(samples, ImitationObjective())
    line.loss, line.gradient_norm = report.loss, report.gradient_norm
    line.tokens = sum(len(sample.token_ids) for sample in samples)
    line.reply_tokens = report.tokens
    line.duration_s = time.perf_counter() - began
