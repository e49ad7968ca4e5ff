"""Evaluates policies over tasks and shows the report: what `metaagent eval` does.

Reads tasks, opens engines and sandbox, shows progress; attempts are `trainer.evaluate`'s business and every number is
`trainer.evaluation_report`'s.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel
from rich.console import Console
from rich.progress import TaskID
from rich.table import Table

from metaagent.console import fields, heading, note, raw, safe, stderr, usage_error
from metaagent.inputs import read_text
from metaagent.progress import counting_bar
from metaagent.running import open_engine, open_sandbox
from metaagent.transcript import print_shares, totals
from tasks import DatasetError, Problem, read_task
from trainer.attempts import Attempt
from trainer.evaluate import EvalSettings, evaluate
from trainer.evaluation_report import EvalReport, report_of
from trainer.metrics import PassRate, Spread
from workflow.failures import MetaAgentError

BANK = "bank"


class Evaluation(BaseModel):
    """What `eval --json` prints."""

    tasks: list[str]
    engine: str
    designer: str
    """The engine's name, `bank`, or the program's file."""
    settings: EvalSettings
    report: EvalReport
    unreadable_golds: list[str] = []
    """Problems whose gold answer cannot be read as mathematics: nothing was graded with it."""
    wall_s: float = 0.0
    """Seconds that this command took; attempts that were kept from before took theirs then."""
    folder: str | None = None


def read_tasks(tasks: Sequence[str], limit: int | None) -> dict[str, list[Problem]]:
    """The first `limit` problems of each task, `FORMAT:FILE`."""
    read: dict[str, list[Problem]] = {}
    owner: dict[str, str] = {}
    for task in tasks:
        with warnings.catch_warnings(record=True) as left_out:
            warnings.simplefilter("always")
            try:
                read[task] = read_task(task)[:limit]
            except DatasetError as error:
                usage_error(str(error))
        for warning in left_out:
            note(str(warning.message))
        for problem in read[task]:
            other = owner.setdefault(problem.id, task)
            if other != task:
                usage_error(f"{other} and {task} both have a problem {problem.id!r}. Fix: evaluate them one by one")
    return read


def run(
    problems: Mapping[str, Sequence[Problem]],
    spec: str,
    designer: str,
    settings: EvalSettings,
    *,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path | None,
) -> Evaluation:
    """Evaluate, with live progress on stderr. What is done when it is broken off stays in the folder, and is said."""
    total = settings.k * sum(map(len, problems.values()))
    with EvalProgress(total) as progress:
        try:
            return asyncio.run(_evaluate(problems, spec, designer, settings, sandbox_name, cache, folder, progress))
        except (MetaAgentError, KeyboardInterrupt):
            kept = f"kept in {folder}: the same command goes on from there" if folder else "lost; --out keeps them"
            note(f"{len(progress.attempts)} of {total} attempts are done and {kept}")
            raise
        except OSError as error:
            usage_error(f"cannot write to {error.filename or folder}: {error.strerror}")


async def _evaluate(
    problems: Mapping[str, Sequence[Problem]],
    spec: str,
    designer: str,
    settings: EvalSettings,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path | None,
    progress: EvalProgress,
) -> Evaluation:
    program = read_text(Path(designer)) if designer.endswith(".py") else None
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(open_engine(spec, cache))
        policy = executor
        if designer == BANK or program is not None:
            policy = None
        elif designer != spec:
            policy = await stack.enter_async_context(open_engine(designer, cache))
        sandbox = await stack.enter_async_context(open_sandbox(sandbox_name, grading=True))
        try:
            attempts = await evaluate(
                [problem for each in problems.values() for problem in each],
                executor=executor,
                sandbox=sandbox,
                designer=policy,
                program=program,
                settings=settings,
                tasks={problem.id: task for task, each in problems.items() for problem in each},
                folder=folder,
                watch=progress,
            )
        except ValueError as error:  # a folder of another evaluation
            usage_error(str(error))
    unreadable = [attempt.problem for attempt in attempts if attempt.verdict == "gold_unparseable"]
    return Evaluation(
        tasks=list(problems),
        engine=executor.name,
        designer=policy.name if policy is not None else designer,
        settings=settings,
        report=report_of(attempts),
        unreadable_golds=list(dict.fromkeys(unreadable)),
        wall_s=round(progress.elapsed_s, 3),
        folder=None if folder is None else str(folder),
    )


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
        self._progress.update(self._task, advance=1, description=safe(said))


def print_evaluation(console: Console, evaluation: Evaluation) -> None:
    """The report for people; notes go to stderr."""
    report = evaluation.report
    diversity = report.diversity
    heading(console, "Result")
    prompts = f"{diversity.unique_prompts:.1%} of {diversity.agents} agents have a prompt that no other has"
    names = f"{diversity.role_names} role names in {diversity.designs} designs; {prompts}"
    passed = ", ".join(f"pass@{k} {value:.1%}" for k, value in report.pass_at.items() if k > 1)
    fields(
        console,
        [
            ("Engine", evaluation.engine),
            ("Designer", evaluation.designer),
            ("Attempts", f"{report.attempts} at {report.problems} problems"),
            ("Accuracy", rate_line(report.accuracy)),
            ("Any of k", passed),
            ("Answered", f"{report.answered:.1%}"),
            ("Failures", ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in report.failures.items())),
            ("Agents", names if diversity.designs else ""),
            *((f"{role.title()} replies", length_line(each)) for role, each in report.reply_tokens.items() if each.max),
            ("Usage", totals(report.usage.usage)),
            ("Time", f"{evaluation.wall_s:.1f} s; {report.attempt_s.mean:.1f} s per attempt"),
            ("Kept in", evaluation.folder or ""),
        ],
    )
    groups: list[tuple[str, Mapping[str, PassRate]]] = [("By task", report.by_task)]
    groups += [("By domain", {str(domain): rate for domain, rate in report.by_domain.items()})]
    for title, rates in groups:
        if len(rates) > 1:
            heading(console, title)
            fields(console, [(f"  {name}", rate_line(rate)) for name, rate in rates.items()])
    heading(console, "Structures")
    rows = [
        (name, f"{row.share:.1%}", str(row.attempts), f"{row.correct:.1%}") for name, row in report.structures.items()
    ]
    print_table(console, ("structure", "share", "attempts", "correct"), rows)
    print_shares(console, "By role", report.usage_by_role)
    if evaluation.unreadable_golds:
        shown = ", ".join(evaluation.unreadable_golds[:5])
        count = len(evaluation.unreadable_golds)
        note(f"{count} problem{' has' if count == 1 else 's have'} a gold answer that cannot be read: {shown}")


def rate_line(rate: PassRate | None) -> str:
    """The estimate with its interval; empty where there is none."""
    if rate is None:
        return ""
    return f"{rate.estimate:.1%} (95% interval {rate.low:.1%} to {rate.high:.1%}, {rate.problems} problems)"


def length_line(each: Spread) -> str:
    return f"{each.count}, with {each.mean:,.0f} tokens on average, 95% within {each.p95:,.0f}, longest {each.max:,.0f}"


def print_table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: the first column is a name, the others are numbers. Tab-separated in a pipe."""
    if not console.is_terminal:
        raw(console, "\n".join("\t".join(row) for row in [header, *rows]))
        return
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
