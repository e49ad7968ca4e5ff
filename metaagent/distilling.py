"""Distils rows out of engines and shows what came of it: what `metaagent distill` does.

Reads tasks, opens engines and sandbox, shows progress; designs, runs, rows and all sums are `trainer.distill`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel
from rich.console import Console
from rich.progress import TaskID
from rich.text import Text

from metaagent.console import fields, heading, note, safe, stderr, usage_error
from metaagent.evaluating import BANK, print_table, read_tasks
from metaagent.progress import counting_bar
from metaagent.running import open_engine, open_sandbox
from metaagent.transcript import print_shares, totals
from tasks import Problem
from trainer.distill import DistillSettings, distill
from trainer.distill_log import ROWS, DistillReport
from workflow.failures import MetaAgentError

LINES = 10
"""Lines of progress in a pipe."""


class Distillation(BaseModel):
    """What `distill --json` prints."""

    tasks: list[str]
    engine: str
    designer: str
    """The engine's name, or `bank`."""
    settings: DistillSettings
    report: DistillReport
    wall_s: float
    """Seconds that this command took; what was kept from before took its own then."""
    rows: Path
    """The file."""


def run(
    tasks: Sequence[str],
    limit: int | None,
    spec: str,
    designer: str | None,
    settings: DistillSettings,
    *,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path,
    resume: bool,
) -> Distillation:
    """Distil, with live progress on stderr. `designer` None is the bank. What is done when it is broken off is kept."""
    problems = read_tasks(tasks, limit)
    with DistillProgress(sum(map(len, problems.values()))) as progress:
        try:
            return asyncio.run(
                _distill(problems, spec, designer, settings, sandbox_name, cache, folder, resume, progress)
            )
        except (MetaAgentError, KeyboardInterrupt):
            done = progress.report
            note(
                f"{done.questions} of {progress.total} questions are done and kept in {folder}: the same command with "
                "--resume goes on from there"
            )
            raise
        except OSError as error:
            usage_error(f"cannot write to {error.filename or folder}: {error.strerror}")


async def _distill(
    problems: Mapping[str, Sequence[Problem]],
    spec: str,
    designer: str | None,
    settings: DistillSettings,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path,
    resume: bool,
    progress: DistillProgress,
) -> Distillation:
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(open_engine(spec, cache))
        teacher = None
        if designer is not None:
            teacher = executor if designer == spec else await stack.enter_async_context(open_engine(designer, cache))
        sandbox = await stack.enter_async_context(open_sandbox(sandbox_name, grading=True))
        try:
            report = await distill(
                [problem for each in problems.values() for problem in each],
                executor=executor,
                sandbox=sandbox,
                folder=folder,
                designer=teacher,
                settings=settings,
                tasks={problem.id: task for task, each in problems.items() for problem in each},
                resume=resume,
                watch=progress,
            )
        except ValueError as error:  # a folder of another distillation
            usage_error(str(error))
    return Distillation(
        tasks=list(problems),
        engine=executor.name,
        designer=teacher.name if teacher is not None else BANK,
        settings=settings,
        report=report,
        wall_s=round(progress.elapsed_s, 3),
        rows=folder / ROWS,
    )


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
        self._progress.update(self._task, completed=report.questions, description=safe(f"Distilling: {said}"))
        if not self._console.is_terminal and self._tenth(report) > self._tenth(before):
            self._console.print(Text(f"{report.questions} of {self.total} questions: {said}"))

    def _tenth(self, report: DistillReport) -> int:
        return LINES * report.questions // max(self.total, 1)


def print_distillation(console: Console, distillation: Distillation) -> None:
    """The report for people; notes go to stderr."""
    report = distillation.report
    heading(console, "Result")
    rows = ", ".join(f"{count:,} {role}" for role, count in report.rows.items())
    same = f"; {report.duplicates:,} more were the same as one of them" if report.duplicates else ""
    fields(
        console,
        [
            ("Engine", distillation.engine),
            ("Designer", distillation.designer),
            ("Questions", f"{report.questions:,}, of which {report.solved:,} have a design that is kept"),
            ("Designs", f"{report.designs:,}, of which {report.designs_kept:,} are kept"),
            ("Runs", f"{report.runs:,}, of which {report.runs_correct:,} correct, {report.runs_kept:,} kept"),
            ("Rows", f"{rows}{same}"),
            ("Usage", totals(report.usage.usage)),
            ("Time", f"{distillation.wall_s:.1f} s"),
            ("Kept in", str(distillation.rows)),
        ],
    )
    dropped = [("designs", report.designs_dropped), ("runs", report.runs_dropped)]
    reasons = [(f"{what}: {why.replace('_', ' ')}", str(n)) for what, counts in dropped for why, n in counts.items()]
    if reasons:
        heading(console, "Dropped")
        print_table(console, ("reason", "count"), reasons)
    heading(console, "Structures")
    shares = [
        (
            name,
            str(count.designs),
            f"{count.designs / sum(each.designs for each in report.structures.values()):.1%}",
            str(count.kept),
            f"{count.kept / max(report.designs_kept, 1):.1%}",
        )
        for name, count in sorted(report.structures.items(), key=lambda item: -item[1].designs)
    ]
    print_table(console, ("structure", "designs", "share", "kept", "share of kept"), shares)
    print_shares(console, "By role", report.usage_by_role)
    if not report.rows:
        note("nothing was kept: there are no rows to learn from")
