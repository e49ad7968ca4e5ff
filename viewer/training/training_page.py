"""The page of a training run: how far it is, what was rewarded, designed, learned and spent, and what went wrong.

Reads reports of steps and a bounded part of the traces; the pages of single steps are `viewer.training.step_page`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import get_args

from trainer.credit import active_roles
from trainer.run import StepReport, generated_tokens
from viewer.html import one_line, render
from viewer.means import mean
from viewer.sites import Page, link
from viewer.training.step_page import question_route, run_route
from viewer.training.step_traces import QuestionSummary
from viewer.training.training_charts import mean_of, sections
from viewer.training.training_data import Stage, TrainingRun
from viewer.training.training_panels import Panels
from workflow.failures import FailureKind

STEPS_SHOWN = 40
"""Last steps in the table."""
STAGES_SHOWN = 40
PACE = 8
"""Last steps by whose mean it is told how long the rest takes."""
MOST_WARNINGS = 30
MOST_EXAMPLES = 3
"""Of a kind of failure."""
STEPS_SEARCHED = 3
"""For examples of a kind of failure, the newest ones that have any."""
SAMPLED_STEPS, SAMPLED_RUNS = 20, 24
"""In which tool calls are counted, and runs of each."""

ReadStep = Callable[[int], Sequence[QuestionSummary]]
"""What a step's traces say; raises OSError."""
CountTools = Callable[[int, int], float | None]
"""Tool calls per run of a step, in at most so many runs; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Example:
    """A run that failed, or a design that could not run."""

    route: str
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class FailureRow:
    kind: str
    runs: int
    steps: int
    """In how many steps."""
    examples: Sequence[Example]


@dataclass(frozen=True, slots=True)
class Warnings:
    """The same words at steps in a row."""

    first: int
    last: int
    text: str


@dataclass(frozen=True, slots=True)
class StageRow:
    stage: Stage
    reward: float | None
    correct: float | None
    solved: float | None
    change: float | None
    """Of the mean reward, to the stage before."""


def training_page(run: TrainingRun, read_step: ReadStep, count_tools: CountTools) -> Page:
    tools = tool_calls(run, count_tools)
    last, told = run.steps[-1] if run.steps else None, warnings(run.steps)
    panels, rows = Panels(run), stage_rows(run)
    body = render(
        "training.html",
        run=run,
        link=link,
        last=last,
        next_roles=_next_roles(run),
        left_s=_left_s(run),
        spent_s=sum(took(report, run.side_by_side) for report in run.steps),
        took=lambda report: took(report, run.side_by_side),
        stages=rows[-STAGES_SHOWN:],
        stages_left=max(0, len(rows) - STAGES_SHOWN),
        sections=sections(panels, tools),
        window=panels.windows.size,
        shaded=bool(panels.stages),
        failures=failure_rows(run, read_step),
        warnings=told[-MOST_WARNINGS:],
        warnings_left=max(0, len(told) - MOST_WARNINGS),
        shown=list(reversed(run.steps[-STEPS_SHOWN:])),
        traced=frozenset(run.traced),
        under_way=[step for step in run.traced if step >= run.done],
    )
    return Page(title=f"Training run {one_line(run.name)}", body=body)


def tool_calls(run: TrainingRun, count: CountTools) -> dict[int, float]:
    """Per run, of some steps that are done and whose traces are kept."""
    done = {report.step for report in run.steps}
    traced = [step for step in run.traced if step in done]
    every = max(1, -(-len(traced) // SAMPLED_STEPS))
    found = {step: count(step, SAMPLED_RUNS) for step in traced[::-every]}
    return {step: calls for step, calls in found.items() if calls is not None}


def stage_rows(run: TrainingRun) -> list[StageRow]:
    rows: list[StageRow] = []
    for stage in run.stages:
        reward = mean_of(stage, lambda report: report.reward)
        before = rows[-1].reward if rows else None
        rows.append(
            StageRow(
                stage=stage,
                reward=reward,
                correct=mean_of(stage, lambda report: report.correct),
                solved=mean_of(stage, lambda report: report.solved),
                change=None if reward is None or before is None else reward - before,
            )
        )
    return rows


def warnings(steps: Sequence[StepReport]) -> list[Warnings]:
    """In the order in which they began."""
    at: dict[str, list[int]] = {}
    for place, report in enumerate(steps):
        for text in report.warnings:
            at.setdefault(text, []).append(place)
    found = []
    for text, places in at.items():
        for _, row in groupby(enumerate(places), key=lambda each: each[1] - each[0]):
            run = [place for _, place in row]
            found.append(Warnings(steps[run[0]].step, steps[run[-1]].step, text))
    return sorted(found, key=lambda each: (each.first, each.last))


def failure_rows(run: TrainingRun, read_step: ReadStep) -> list[FailureRow]:
    """The kinds that occurred, and for each some examples among the newest steps whose traces are kept."""
    rows = []
    for kind in get_args(FailureKind):
        having = [report for report in run.steps if report.failures.get(kind)]
        if having:
            count = sum(report.failures[kind] for report in having)
            rows.append(FailureRow(kind, count, len(having), _examples(kind, having, run.traced, read_step)))
    return sorted(rows, key=lambda row: -row.runs)


def _examples(kind: str, having: Sequence[StepReport], traced: Sequence[int], read_step: ReadStep) -> list[Example]:
    kept = frozenset(traced)
    found: list[Example] = []
    for step in [report.step for report in reversed(having) if report.step in kept][:STEPS_SEARCHED]:
        try:
            questions = read_step(step)
        except OSError:
            continue
        for question in questions:
            found += _in_question(kind, step, question)
            if len(found) >= MOST_EXAMPLES:
                return found[:MOST_EXAMPLES]
    return found


def _in_question(kind: str, step: int, question: QuestionSummary) -> list[Example]:
    """One of each question, so that examples differ."""
    place = f"step {step}, question {question.number}"
    for run in question.runs:
        if run.failure == kind:
            name = f"{place}, design {run.design}, execution {run.execution}"
            return [Example(run_route(step, question.number, run.name), name, run.message)]
    for design in question.not_run:
        if design.failure == kind:
            return [Example(question_route(step, question.number), f"{place}, design {design.design}", design.message)]
    return []


def _next_roles(run: TrainingRun) -> list[str]:
    """Who learns at the next step; empty where there is none, or it is not known."""
    config = run.config
    if config is None or run.total is None or run.done >= run.total:
        return []
    return sorted(active_roles(run.done, config.schedule, config.stage_length))


def took(report: StepReport, side_by_side: bool) -> float:
    """Seconds of a step: of its rollout and its update, or of the longer one of the two where they went on side by
    side (`trainer.predict.simulate` counts so), then of what came after them."""
    spent = report.timings
    both, after = _finite(spent.rollout_s, spent.update_s), _finite(spent.save_s, spent.sync_s)
    return (max(both, default=0.0) if side_by_side else sum(both)) + sum(after)


def _finite(*seconds: float) -> list[float]:
    return [each for each in seconds if math.isfinite(each)]


def _left_s(run: TrainingRun) -> float | None:
    """Seconds of the steps that are to come, by those of the last ones."""
    last = run.steps[-PACE:]
    if run.total is None or not last or run.done >= run.total:
        return None
    steps = float(run.total - run.done)
    each = mean([generated_tokens(report.usage, report.active) for report in last])
    if run.budget is not None and each:
        steps = min(steps, (run.budget - run.generated) / each)
    return mean([took(report, run.side_by_side) for report in last]) * steps
