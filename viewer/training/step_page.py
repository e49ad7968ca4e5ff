"""The page of one step of a training run: what it was like, and its questions with their best and worst runs.

Not here: the tree of a question (`viewer.runs.tree_page`), and single runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewer.html import render
from viewer.means import mean
from viewer.sites import NoSuchPage, Page, link
from viewer.training.step_traces import QuestionSummary, RunSummary
from viewer.training.training_data import TrainingRun

MOST_QUESTIONS = 500


def question_route(step: int, question: int) -> str:
    return f"tree/step-{step:06}/question-{question:04}"


def run_route(step: int, question: int, name: str) -> str:
    """`name`: of the trace's file."""
    return f"run/step-{step:06}/question-{question:04}/{name}"


@dataclass(frozen=True, slots=True)
class Linked:
    route: str
    reward: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow:
    number: int
    route: str
    text: str
    reward: float | None
    correct: int
    rewarded: int
    """Runs, those of designs that could not run included."""
    best: Linked | None
    worst: Linked | None
    failed: str
    """How many runs and designs did."""
    open: int
    """Runs that have not ended."""
    unread: int
    tool_calls: float | None


def step_page(run: TrainingRun, step: int, questions: Sequence[QuestionSummary] | None) -> Page:
    """`questions` are None where no traces are kept. Raises `NoSuchPage` where nothing is known of the step."""
    report = next((report for report in run.steps if report.step == step), None)
    if report is None and questions is None:
        raise NoSuchPage(f"{run.folder} has no step {step}, and no traces of it")
    known = sorted({report.step for report in run.steps} | set(run.traced))
    rows = [question_row(step, each, executions(run, step)) for each in (questions or [])[:MOST_QUESTIONS]]
    body = render(
        "step.html",
        run=run,
        step=step,
        last=report,
        link=link,
        rows=rows,
        problem="" if questions is not None else "Traces of this step are not kept: see traces_kept in config.toml.",
        left_out=max(0, len(questions or []) - MOST_QUESTIONS),
        before=max((each for each in known if each < step), default=None),
        after=min((each for each in known if each > step), default=None),
    )
    return Page(title=f"Step {step}", body=body)


def executions(run: TrainingRun, step: int) -> int:
    """N: runs of a design."""
    report = next((report for report in run.steps if report.step == step and report.designs), None)
    if report is not None:
        return round(report.executions / report.designs)
    return run.config.rollout.executions if run.config is not None else 1


def question_row(step: int, question: QuestionSummary, runs_of_a_design: int) -> QuestionRow:
    rewards = question.rewards(runs_of_a_design)
    failed = sum(bool(run.failure) for run in question.runs)
    told = [f"{failed} run{'s' * (failed != 1)}"] if failed else []
    not_run = len(question.not_run)
    told += [f"{not_run} design{'s' * (not_run != 1)}"] if not_run else []

    def linked(run: RunSummary | None) -> Linked | None:
        return None if run is None else Linked(run_route(step, question.number, run.name), run.reward)

    return QuestionRow(
        number=question.number,
        route=question_route(step, question.number),
        text=question.text,
        reward=mean(rewards) if rewards else None,
        correct=sum(run.correct for run in question.runs),
        rewarded=len(rewards),
        best=linked(question.best),
        worst=linked(question.worst),
        failed=", ".join(told),
        open=sum(not run.ended and not run.unreadable for run in question.runs),
        unread=sum(bool(run.unreadable) for run in question.runs),
        tool_calls=question.tool_calls,
    )
