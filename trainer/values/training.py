"""Training of a model of values: epochs over rows (`trainer.sft`), and what it is measured by on held-out problems.

The backend is made by the caller, with the separator. Nothing here reads trees, renders states or prints.
"""

from __future__ import annotations

import hashlib
import math
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from trainer.disk import Written
from trainer.sft import MODEL, EpochMetrics, EpochSettings, EpochState, Lesson, run_epochs
from trainer.update import ValueObjective
from trainer.values.scorer_file import ScorerFile, write_scorer
from trainer.values.tree_rows import Row, TreeRows, held_out_problems
from trainer.values.value_metrics import ValueMetrics, value_metrics

if TYPE_CHECKING:
    from trainer.update import TorchBackend

WEIGHT_DECAY = 0.01
LORA_DROPOUT = 0.05
"""Of the backend, as in Appendix B.5."""


class ValueSettings(EpochSettings):
    """Defaults are those of MASPRM, Appendix B.5, where it has them: it is silent about `loss`'s delta, `warmup` and
    `decay`."""

    epochs: int = Field(default=5, ge=1)
    batch: int = Field(default=128, ge=1)
    """Rows per optimizer step: 8, accumulated 16 times."""
    held_out: float = Field(default=0.05, ge=0, lt=1)
    """Share of the problems that are not learned from, on which V is measured."""
    loss: Literal["huber", "mse", "bce"] = "huber"
    delta: float = Field(default=1.0, gt=0)
    weigh_visits: bool = False
    """Whether rows count by their visits, instead of alike."""


ValueState = EpochState[ValueSettings]


class ValueStep(EpochMetrics):
    """One line of `metrics.jsonl`. `loss` is the objective's, of this step's rows."""

    held_out: ValueMetrics | None = None
    """Of all rows of the held-out problems: before the first step and after each epoch."""


class ValueResult(BaseModel):
    model: Path
    steps: int
    rows: int
    """Learned from."""
    held_out_rows: int
    problems: int
    """Learned from, those without a row included."""
    held_out_problems: int
    resumed_from: int | None
    """The step of the checkpoint that was gone on from."""


def train_values(
    backend: TorchBackend,
    read: TreeRows,
    settings: ValueSettings,
    scorer: ScorerFile,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_every: int = 200,
    watch: Callable[[ValueStep, int], None] = lambda metrics, steps: None,
    passed_over: Callable[[str, str], None] = lambda name, wrong: None,
) -> ValueResult:
    """Learn from rows and write the result into `out`, each checkpoint with its `scorer.json`, which says what `scorer`
    does and whose rows were learned from; see `run_epochs`. Raises ValueError where no row is left to learn from."""
    held = held_out_problems(read.problems, settings.held_out, settings.seed)
    learned = [number for number, row in enumerate(read.rows) if row.problem not in held]
    tested = [row for row in read.rows if row.problem in held]
    if not learned:
        raise ValueError(
            f"no row to learn from: there are {len(read.rows)}, {len(tested)} of them of held-out problems. Fix: more "
            "trees, or a smaller held_out"
        )
    agents = Counter(read.rows[number].agent for number in learned)
    scorer = scorer.model_copy(update={"agents": dict(sorted(agents.items()))})
    objective = ValueObjective(loss=settings.loss, delta=settings.delta)
    mean = math.fsum(read.rows[number].visits for number in learned) / len(learned)

    def weight(row: Row) -> float:
        return row.visits / mean if settings.weigh_visits and mean else 1.0

    def learn(numbers: Sequence[int], line: ValueStep) -> None:
        began = time.perf_counter()
        rows = [read.rows[number] for number in numbers]
        report = backend.update([row.tokens.sample(row.target, weight(row)) for row in rows], objective)
        line.loss, line.gradient_norm = report.loss, report.gradient_norm
        line.tokens = sum(len(row.tokens.token_ids) for row in rows)
        line.duration_s = time.perf_counter() - began

    def measure(line: ValueStep) -> None:
        if tested:
            line.held_out = value_metrics(
                backend.values([row.tokens.sample() for row in tested]),
                [row.target for row in tested],
                [row.agent for row in tested],
                [row.depth for row in tested],
            )

    def save(folder: Path) -> list[Written]:
        backend.save(folder)
        return write_scorer(folder / MODEL, scorer)

    course = run_epochs(
        backend,
        Lesson(rows=learned, line=ValueStep, learn=learn, measure=measure, save=save),
        ValueState(step=0, settings=settings, data=digest(read, scorer)),
        out,
        resume=resume,
        checkpoint_every=checkpoint_every,
        watch=watch,
        passed_over=passed_over,
    )
    return ValueResult(
        model=out / MODEL,
        steps=course.steps,
        rows=len(learned),
        held_out_rows=len(tested),
        problems=len(read.problems) - len(held),
        held_out_problems=len(held),
        resumed_from=course.resumed_from,
    )


def digest(read: TreeRows, scorer: ScorerFile) -> str:
    """Names all that is learned from, and the model that begins."""
    found = hashlib.sha256(f"{read.problems} {scorer.model_dump_json()}".encode())
    for row in read.rows:
        found.update(f"{row.problem} {row.agent} {row.depth} {row.target!r} {row.visits} {row.tokens.action}".encode())
        found.update(array("q", [len(row.tokens.token_ids), *row.tokens.token_ids]).tobytes())
    return found.hexdigest()
