"""The attempts of an evaluation as a table that is searched, and the page of one attempt.

What an attempt's run was like is the run's page's business (`viewer.run.run_page`). Nothing here reads a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.evaluate import Attempt
from viewer.evaluation.attempt_rows import Row
from viewer.evaluation.evaluation_data import Evaluation
from viewer.evaluation.evaluation_page import Place
from viewer.evaluation.listing import Listed, equals, holds, listed
from viewer.html import one_line, render
from viewer.sites import Page

MOST_OPTIONS = 60
"""Tasks or verdicts to choose from."""
MOST_OTHERS = 32
"""Further attempts at the problem that the page of an attempt names."""
ORDERS: dict[str, Callable[[Row], Any]] = {
    "problem": lambda row: (row.problem, row.attempt),
    "tokens": lambda row: -row.tokens,
    "calls": lambda row: -row.calls,
    "seconds": lambda row: -row.seconds,
}
"""Beside the order in which they were made; the last three begin with the largest."""
_FIELDS: dict[str, Callable[[Row], str]] = {
    "right": lambda row: "yes" if row.correct else "no",
    "task": lambda row: row.task,
    "domain": lambda row: row.domain,
    "structure": lambda row: row.structure_name,
    "verdict": lambda row: row.verdict,
    "problem": lambda row: row.problem,
}
_CHOICES = ("task", "domain", "structure", "verdict")
_LINE = re.compile(r"\bline (\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class Choice:
    """A field to narrow the list by, and the values that it has, the most frequent first."""

    field: str
    values: Sequence[str]
    chosen: str


@dataclass(frozen=True, slots=True)
class Other:
    """The same attempt in another evaluation."""

    row: Row
    place: Place
    compare: str
    """Address of the two runs side by side; empty where one of them has no trace."""


def chosen(rows: Sequence[Row], asked: Mapping[str, str]) -> Sequence[Row]:
    """The attempts that are asked for: `words` that all stand in their row, values of `right` (yes or no), `task`,
    `domain`, `structure`, `verdict` and `problem`, and an `order`."""
    for name, value in _FIELDS.items():
        if wanted := asked.get(name):
            rows = [row for row in rows if equals(value(row), wanted)]
    if words := asked.get("words"):
        rows = [row for row in rows if holds(f"{row.problem} {row.task} {row.verdict} {row.structure_name}", words)]
    order = ORDERS.get(asked.get("order", ""))
    return rows if order is None else sorted(rows, key=order)


def attempts_page(evaluation: Evaluation, asked: Mapping[str, str], place: Place) -> Page:
    """The table, of what `chosen` takes; `asked` also has the number of a `page`, from 1."""
    rows: Listed[Row] = listed(chosen(evaluation.rows, asked), asked)
    choices = [_choice(evaluation.rows, name, asked.get(name, "")) for name in _CHOICES]
    body = render(
        "attempts.html",
        place=place,
        evaluation=evaluation,
        rows=rows,
        asked=dict(asked),
        orders=list(ORDERS),
        choices=[choice for choice in choices if len(choice.values) > 1],
        several=evaluation.report.attempts > evaluation.report.problems,
        costs=any(row.cost_usd is not None for row in rows.items),
    )
    return Page(title=f"{place.name}: attempts", body=body)


def _choice(rows: Sequence[Row], name: str, value: str) -> Choice:
    values = [each for each, _ in Counter(map(_FIELDS[name], rows)).most_common(MOST_OPTIONS) if each]
    return Choice(name, [*values, *([value] if value and value not in values else [])], value)


def attempt_page(attempt: Attempt, row: Row, evaluation: Evaluation, place: Place, other: Other | None = None) -> Page:
    """One attempt; `other` is the same one in the evaluation that this one is compared with."""
    others = [each for each in evaluation.of_problem(row.problem) if each.line != row.line]
    others.sort(key=lambda each: each.attempt)
    refused = attempt.failure in ("program_rejected", "program_failed")
    body = render(
        "attempt.html",
        place=place,
        attempt=attempt,
        row=row,
        other=other,
        others=others[:MOST_OTHERS],
        others_left=len(others) - len(others[:MOST_OTHERS]),
        marked=frozenset(map(int, _LINE.findall(attempt.message[:5000]))) if refused else frozenset(),
    )
    return Page(title=f"{one_line(attempt.problem, 80)}, attempt {attempt.attempt}: {place.name}", body=body)
