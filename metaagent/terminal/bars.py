"""How long work goes, shown on stderr while it happens: fine-tuning, attempts, distilling, preparing data."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from metaagent.terminal.console import stderr
from metaagent.terminal.progress import counting_bar
from metaagent.terminal.transcript import totals
from tasks.data import Progress as DataState
from trainer.distill import DistillReport
from trainer.evaluate import Attempt
from trainer.sft import EpochMetrics, StepMetrics
from trainer.values import ValueStep
from workflow.labels import visible


class EpochProgress:
    """Shows each step on stderr: a bar with figures on a terminal, a line per epoch everywhere."""

    def __init__(self) -> None:
        self._console = stderr()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("Learning", total=None)
        self._began = 0.0
        self._tokens = 0

    def __enter__(self) -> EpochProgress:
        self._progress.start()
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, metrics: EpochMetrics, steps: int) -> None:
        self._tokens += metrics.tokens
        speed = self._tokens / max(time.monotonic() - self._began, 1e-9)
        said = [f"epoch {metrics.epoch:.2f}", f"step {metrics.step}/{steps}"]
        said += [f"loss {metrics.loss:.4f}", f"{speed:,.0f} tokens/s"] if metrics.loss is not None else []
        self._progress.update(self._task, total=steps, completed=metrics.step, description="  ".join(said))
        held_out = _held_out(metrics)
        if held_out or metrics.step == steps:
            self._console.print(Text("  ".join([*said, *held_out])))


def _held_out(metrics: EpochMetrics) -> list[str]:
    if isinstance(metrics, StepMetrics) and metrics.held_out_loss is not None:
        return [f"held-out loss {metrics.held_out_loss:.4f}"]
    if isinstance(metrics, ValueStep) and metrics.held_out is not None:
        return [f"held-out RMSE {metrics.held_out.rmse:.4f}"]
    return []


class EvalProgress:
    """Is told of each attempt; shows done and total, the share of correct ones and the tokens on stderr."""

    def __init__(self, total: int) -> None:
        self.attempts: list[Attempt] = []
        self._total = total
        self._correct = self._tokens = 0
        self._progress = counting_bar(stderr())
        self._task = TaskID(0)

    @property
    def elapsed_s(self) -> float:
        return self._progress.tasks[0].elapsed or 0.0

    def __enter__(self) -> EvalProgress:
        self._progress.start()
        self._task = self._progress.add_task("Evaluating", total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        self._correct += attempt.correct
        self._tokens += sum(tally.usage.total_tokens for tally in attempt.usage.values())
        said = f"Evaluating: {self._correct / len(self.attempts):.1%} correct, {self._tokens:,} tokens"
        self._progress.update(self._task, advance=1, description=visible(said))


LINES = 10
"""Lines of progress in a pipe."""


class DistillProgress:
    """Is told the sums after each question; shows questions, kept runs and tokens on stderr: a bar on a terminal, a
    line for every tenth of the questions in a pipe."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.report = DistillReport()
        self._console = stderr()
        self._progress = counting_bar(self._console)
        self._task = TaskID(0)

    @property
    def elapsed_s(self) -> float:
        return self._progress.tasks[0].elapsed or 0.0

    def __enter__(self) -> DistillProgress:
        self._progress.start()
        self._task = self._progress.add_task("Distilling", total=self.total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, report: DistillReport) -> None:
        before, self.report = self.report, report
        rows = sum(report.rows.values())
        said = f"{report.runs_kept} of {report.runs} runs kept, {rows:,} rows, {totals(report.usage.usage)}"
        self._progress.update(self._task, completed=report.questions, description=visible(f"Distilling: {said}"))
        if not self._console.is_terminal and self._tenth(report) > self._tenth(before):
            self._console.print(Text(f"{report.questions} of {self.total} questions: {said}"))

    def _tenth(self, report: DistillReport) -> int:
        return LINES * report.questions // max(self.total, 1)


class DataProgress:
    """Is told of each row; shows how much of the source is read and how many rows are written on stderr: a bar on a
    terminal, a line for every tenth in a pipe."""

    def __init__(self) -> None:
        self._console = stderr()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("Preparing", total=1.0)
        self._tenths = 0

    def __enter__(self) -> DataProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, state: DataState) -> None:
        said = f"{state.file}, row {state.read:,}: {state.kept:,} written"
        self._progress.update(self._task, completed=state.share, description=visible(f"Preparing: {said}"))
        if not self._console.is_terminal and int(LINES * state.share) > self._tenths:
            self._tenths = int(LINES * state.share)
            self._console.print(Text(f"{state.share:.0%} read, {said}"))

    def grading(self) -> None:
        """All rows are written; known answers are graded now."""
        self._progress.update(self._task, completed=1.0, description="Grading known answers")
