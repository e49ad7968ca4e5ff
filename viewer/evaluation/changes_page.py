"""The pages of two evaluations of the same problems: what changed, which role brought it, and the attempts that did.

What changed is worked out in `viewer.evaluation.changes`. Nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainer.evaluate import Interval
from viewer.charts import Rate, rate_bars
from viewer.evaluation.attempt_rows import Row
from viewer.evaluation.changes import DESIGNS, OUTCOMES, Changes, Counts, Design, Pair
from viewer.evaluation.evaluation_data import Evaluation
from viewer.evaluation.evaluation_page import ALL, Group, Place, groups_of, most, settings
from viewer.evaluation.listing import Listed, equals, holds, listed
from viewer.html import render
from viewer.sites import Page

MOST_SHOWN = 20
"""Of what was fixed, of what was broken, and of problems; all of them are on a page of their own."""
MOST_RATES = 8
"""Attempts at a problem up to which problems are counted by how many of them are right."""
SAID: dict[Design, str] = {
    "same program": "same program",
    "same structure": "another program, same structure",
    "designer flip": "designer flip to another structure",
    "new program": "a program where there was none",
    "lost program": "no program where there was one",
    "no program": "no program either time",
}
_FIELDS: dict[str, Callable[[Pair], str]] = {
    "outcome": lambda pair: pair.outcome,
    "design": lambda pair: pair.design,
    "task": lambda pair: pair.after.task,
    "from": lambda pair: pair.before.structure_name,
    "to": lambda pair: pair.after.structure_name,
    "problem": lambda pair: pair.after.problem,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """The two evaluations of a comparison, and where their pages are."""

    before: Evaluation
    after: Evaluation
    before_place: Place
    after_place: Place

    @property
    def names(self) -> tuple[str, str]:
        return self.before_place.name, self.after_place.name

    def beside(self, before: Row, after: Row) -> str:
        """The address of both runs side by side; empty where one of them has no trace."""
        if not before.trace or not after.trace:
            return ""
        return self.after_place.to("compare", left=before.trace, right=after.trace)


def changes_page(changes: Changes, both: Both) -> Page:
    """All that changed."""
    pairs, place = changes.matched.pairs, both.after_place
    sides = [pair.before for pair in pairs], [pair.after for pair in pairs]
    structures = [groups_of(rows, lambda row: row.structure_name) for rows in sides]
    tasks, tasks_left = most(changes.by_task)
    body = render(
        "changes.html",
        changes=changes,
        both=both,
        place=place,
        names=both.names,
        said=SAID,
        part_chart=rate_bars(
            [
                _bar(SAID[name], part.gain, part.counts, place.route("changed", design=name))
                for name, part in changes.parts.items()
            ],
            "adds to the difference, percentage points",
            differences=True,
        ),
        tasks=tasks,
        tasks_left=tasks_left,
        task_chart=rate_bars(
            [_bar(name, each.gain, each.counts, place.route("changed", task=name)) for name, each in tasks.items()],
            "difference, percentage points",
            differences=True,
        ),
        taken=_taken(sides),
        costs=any(row.cost_usd is not None for rows in sides for row in rows),
        structures=[
            (name, *(each.get(name) for each in structures)) for name in dict.fromkeys([*structures[1], *structures[0]])
        ],
        flows=_square(changes.flows),
        rates=_rates(changes),
        risen=[each for each in changes.problems if each.gain > 0],
        fallen=[each for each in reversed(changes.problems) if each.gain < 0],
        lists={name: [pair for pair in pairs if pair.outcome == name] for name in ("fixed", "broken")},
        differing=_differing(both),
        most_shown=MOST_SHOWN,
    )
    return Page(title=f"{both.names[0]} to {both.names[1]}: what changed", body=body)


def changed_page(changes: Changes, asked: Mapping[str, str], both: Both) -> Page:
    """The pairs that are asked for: `words` that all stand in their row, an `outcome`, a `design`, a `task`, structures
    `from` and `to`, a `problem`, and the number of a `page`, from 1."""
    pairs: Sequence[Pair] = changes.matched.pairs
    for name, value in _FIELDS.items():
        if wanted := asked.get(name):
            pairs = [pair for pair in pairs if equals(value(pair), wanted)]
    if words := asked.get("words"):
        pairs = [pair for pair in pairs if holds(_text(pair), words)]
    rows: Listed[Pair] = listed(pairs, asked)
    body = render(
        "changed.html",
        both=both,
        place=both.after_place,
        names=both.names,
        said=SAID,
        asked=dict(asked),
        outcomes=OUTCOMES,
        designs=[name for name in DESIGNS if name in changes.parts],
        tasks=list(most(changes.by_task)[0]),
        rows=rows,
        total=len(changes.matched.pairs),
        several=changes.attempts_each > 1,
    )
    return Page(title=f"{both.names[0]} to {both.names[1]}: attempts that changed", body=body)


def _text(pair: Pair) -> str:
    rows = [text for row in (pair.before, pair.after) for text in (row.structure_name, row.verdict)]
    return " ".join([pair.after.problem, pair.after.task, pair.outcome, SAID[pair.design], *rows])


def _bar(name: str, gain: Interval, counts: Counts, route: str) -> Rate:
    told = (
        f"{name}: {100 * gain.mean:+.1f} points ({100 * gain.low:+.1f} to {100 * gain.high:+.1f}); "
        f"{counts.fixed:,} fixed, {counts.broken:,} broken of {counts.pairs:,}"
    )
    return Rate(name=name, value=gain.mean, low=gain.low, high=gain.high, told=told, route=route)


def _taken(sides: Iterable[Sequence[Row]]) -> list[Group]:
    """What the paired attempts took, before and after."""
    return [group for rows in sides for group in groups_of(rows, lambda row: ALL).values()]


def _square(flows: Mapping[tuple[str, str], Counts]) -> list[tuple[str, list[tuple[str, Counts | None]]]]:
    """Structures before as rows and after as columns, the frequent ones first."""
    names = list(dict.fromkeys(name for pair in flows for name in pair))
    return [(before, [(after, flows.get((before, after))) for after in names]) for before in names]


def _rates(changes: Changes) -> list[list[int]] | None:
    """How many problems have i right attempts before (rows) and j after. None unless all have as many, and several."""
    attempts = {each.attempts for each in changes.problems}
    if len(attempts) != 1 or not 1 < (k := attempts.pop()) <= MOST_RATES:
        return None
    table = [[0] * (k + 1) for _ in range(k + 1)]
    for each in changes.problems:
        table[each.before][each.after] += 1
    return table


def _differing(both: Both) -> list[tuple[str, str, str]]:
    """In what the attempts were made differently, as `evaluation.json` says: name, before, after."""
    before, after = settings(both.before.made_by), settings(both.after.made_by)
    return [
        (name, before.get(name, "–"), after.get(name, "–"))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
