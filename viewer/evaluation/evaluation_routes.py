"""Which pages of an evaluation are worth having in one file, the more important ones first: lists that pages lead to,
examples of failures, then attempts with their runs.

What fits into the file is decided where it is written (`viewer.document`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from viewer.evaluation.attempt_rows import Row
from viewer.evaluation.changes import Changes, Pair
from viewer.evaluation.evaluation_data import Evaluation
from viewer.evaluation.evaluation_page import Place

MOST_LISTS = 12
"""By task, and by verdict."""
MOST_PAGES = 10
"""Of the list of all attempts."""
MOST_PAIRS = 40
"""Of what was fixed, and of what was broken."""


def routes_of(evaluation: Evaluation, base: str = "") -> Iterator[str]:
    """Of an evaluation's pages, but its main ones. `base` stands before each."""
    place = Place(name="", base=base)
    rows = evaluation.rows
    for examples in evaluation.examples.values():
        yield from (place.route(f"attempt/{example.line}") for example in examples)
    for field, values in (
        ("structure", Counter(row.structure_name for row in rows)),
        ("domain", Counter(row.domain for row in rows)),
        ("task", Counter(row.task for row in rows if row.task)),
        ("verdict", Counter(row.verdict for row in rows if not row.correct)),
    ):
        yield from (place.route("attempts", **{field: value}) for value, _ in values.most_common(MOST_LISTS))
    yield from (place.route("attempts", page=number) for number in range(2, MOST_PAGES + 1))
    for row in rows:
        yield from _of_attempt(row, place)


def routes_of_changes(changes: Changes) -> Iterator[str]:
    """Of the pages of a comparison, but its main one."""
    place = Place(name="")
    for outcome in ("fixed", "broken"):
        yield place.route("changed", outcome=outcome)
        pairs = [pair for pair in changes.matched.pairs if pair.outcome == outcome]
        for pair in pairs[:MOST_PAIRS]:
            yield from _of_pair(pair)
    for name in changes.parts:
        yield place.route("changed", design=name)
        for outcome in ("fixed", "broken"):
            yield place.route("changed", design=name, outcome=outcome)
    yield from (place.route("changed", task=task) for task in list(changes.by_task)[:MOST_LISTS])
    yield from (place.route("changed", **{"from": one, "to": other}) for one, other in changes.flows)


def _of_pair(pair: Pair) -> Iterator[str]:
    before, after = pair.before, pair.after
    if before.trace and after.trace:
        yield Place(name="").route("compare", left=before.trace, right=after.trace)
    yield from _of_attempt(after, Place(name=""))
    yield from _of_attempt(before, Place(name="", base="before/"))


def _of_attempt(row: Row, place: Place) -> Iterator[str]:
    yield place.route(f"attempt/{row.line}")
    if row.trace:
        yield place.route(f"run/{row.trace}")
