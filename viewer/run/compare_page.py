"""Two runs side by side: how each ended, and where they part.

What they have in common before that is folded. How two runs are compared is `viewer.run.first_difference`'s.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from viewer.html import Markup, figure, one_line, render, shown
from viewer.reading import ReadRun, outcome_of
from viewer.run.bounded_text import BoundedTexts
from viewer.run.first_difference import Comparison, Difference, compared, identities
from viewer.run.run_agents import cast_of
from viewer.run.run_facts import facts_of
from viewer.run.run_rows import Row, Rows, row_groups
from viewer.run.turn_rows import turns_of
from viewer.sites import Page, link
from viewer.source_lines import source_lines
from workflow.trace import AgentTurn, CandidateDrawn, Trace, TurnRewarded, Valued

MOST_ROWS = 60
"""Events of either run that are shown from the first difference on, and of those before it."""
MOST_LINES = 3_000
"""Of a program that is compared line by line."""
_AROUND = 200
"""Characters before and behind a difference in a text."""
_MARKED = 4_000


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


@dataclass(frozen=True, slots=True)
class Line:
    """Of two programs side by side. A number is 0 where there is no line."""

    left: int
    left_text: str
    right: int
    right_text: str
    state: str
    """`same`, `differs`, or `gap` for lines left out between."""


def compare_page(
    left: ReadRun,
    right: ReadRun,
    *,
    names: tuple[str, str] = ("left", "right"),
    routes: tuple[str, str] = ("", ""),
    correct: tuple[bool | None, bool | None] = (None, None),
) -> Page:
    """`names` are what to call the runs, `routes` those of their own pages, `correct` what an evaluation says of them.
    Never raises for what is in a trace."""
    traces = left.trace, right.trace
    found = compared(*traces)
    starts = _starts(found, traces)
    texts = BoundedTexts()
    first = found.first
    a, b = left.trace.started, right.trace.started
    values = {
        "names": names,
        "links": [link(route) if route else "" for route in routes],
        "reads": (left, right),
        "told": _told(found, names),
        "marked": _marked(first, texts) if first is not None else None,
        "facts": _facts((left, right), correct),
        "question": texts.block(a.question, 600) if a is not None and found.question is None else None,
        "program": _side_by_side(a.program if a else "", b.program if b else "") if found.program else None,
        "same_program": bool(a is not None and a.program and found.program is None),
        "most_lines": MOST_LINES if found.program else 0,
        "events": _told_of(found.events, names) if found.events is not None and found.events is not first else None,
        "events_marked": _marked(found.events, texts)
        if found.events is not None and found.events is not first
        else None,
        "same": found.same,
        "most": MOST_ROWS,
        "before": _before(traces, starts, texts),
        "after": [_after(trace, start, texts) for trace, start in zip(traces, starts, strict=True)],
    }
    title = " and ".join(one_line(name, 60) for name in names)
    return Page(title=f"{title} compared", body=render("run_compare.html", **values))


def _told(found: Comparison, names: tuple[str, str]) -> str:
    if found.first is None:
        return (
            "What was asked, said, done and earned is the same in both. What they ran on, with which limits, seeds, "
            "models and weights, and how long that took is not compared but in the facts."
        )
    return _told_of(found.first, names)


def _told_of(found: Difference, names: tuple[str, str]) -> str:
    told = found.in_words(names)
    return told[:1].upper() + told[1:] + "."


def _marked(found: Difference, texts: BoundedTexts) -> list[Markup]:
    """Both texts from a little before they part."""
    a, b = found.left_text, found.right_text
    same = common(a, b) if a is not None and b is not None else 0
    return [_from(text, same, texts) for text in (a, b)]


def common(left: str, right: str) -> int:
    """Characters with which both begin."""
    if left == right:
        return len(left)
    low, high = 0, min(len(left), len(right))
    while low < high:  # halves are compared whole: texts may be long
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def _from(text: str | None, same: int, texts: BoundedTexts) -> Markup:
    if text is None:
        return Markup('<p class="note">(nothing)</p>')
    start = max(0, same - _AROUND)
    before = Markup('<span class="less">{}</span>').format(f"… {start:,} characters as there …\n") if start else ""
    rest = text[same : same + _MARKED]
    left = len(text) - same - len(rest)
    after = Markup('\n<span class="less">{}</span>').format(f"… {left:,} characters more …") if left > 0 else ""
    mark = Markup("<mark>{}</mark>").format(shown(rest)) if rest else Markup('<mark title="it ends here"> </mark>')
    return texts.spend(Markup('<pre class="text">{}{}{}{}</pre>').format(before, shown(text[start:same]), mark, after))


def _facts(reads: tuple[ReadRun, ReadRun], correct: tuple[bool | None, bool | None]) -> list[Fact]:
    tables: list[dict[str, str]] = []
    for read, right in zip(reads, correct, strict=True):
        outcome, reward = outcome_of(read).graded_as(right), read.trace.reward
        told = {"how it ended": outcome.headline}
        if outcome.answer is not None:
            told["answer"] = outcome.graded or outcome.answer
            told["from"] = outcome.from_agent or "no agent"
        if outcome.failure is not None:
            told["failure"] = outcome.failure.message
        if reward is not None:
            told["reward"] = figure(reward.total)
            told |= {f"· {term.name}": f"{figure(term.value)} × {figure(term.weight)}" for term in reward.terms[:12]}
        tables.append(told | dict(facts_of(read.trace)))
    order = list(dict.fromkeys([*tables[0], *tables[1]]))
    return [Fact(name, *(table.get(name, "–") for table in tables)) for name in order]


def _side_by_side(left: str, right: str) -> list[Line]:
    """Lines that differ, with three around them."""
    a, b = source_lines(left)[:MOST_LINES], source_lines(right)[:MOST_LINES]
    lines: list[Line] = []
    for group in difflib.SequenceMatcher(None, a, b).get_grouped_opcodes(3):
        if lines:
            lines.append(Line(0, "", 0, "", "gap"))
        for tag, start, stop, other, end in group:
            for place in range(max(stop - start, end - other)):
                i, j = start + place, other + place
                mine, theirs = (i + 1, a[i]) if i < stop else (0, ""), (j + 1, b[j]) if j < end else (0, "")
                lines.append(Line(*mine, *theirs, "same" if tag == "equal" else "differs"))
    return lines


def _starts(found: Comparison, traces: Sequence[Trace]) -> list[int]:
    """From which event on the runs are shown side by side. What stands at an agent's turn is where the turn is."""
    places: list[int] = []
    given = (None, None) if found.events is None else (found.events.left, found.events.right)
    for trace, at in zip(traces, given, strict=True):
        at = len(trace.events) if at is None else at
        event = trace.events[at] if at < len(trace.events) else None
        if isinstance(event, (CandidateDrawn, TurnRewarded, Valued)):
            turns = (i for i, each in enumerate(trace.events) if isinstance(each, AgentTurn) and each.key == event.key)
            at = min(at, next(turns, at))
        places.append(at)
    return places


def _rows(trace: Trace, groups: list[list[int]], texts: BoundedTexts) -> list[Row]:
    rows = Rows(trace, cast_of(trace), turns_of(trace), texts, goto=lambda index: None)
    return [rows.row(group) for group in groups]


def _before(traces: Sequence[Trace], starts: Sequence[int], texts: BoundedTexts) -> list[Row]:
    """What both did before they part, as it is in the left run."""
    left, right = map(identities, traces)
    same = {i for each, i in left.items() if i < starts[0] and each in right and right[each] < starts[1]}
    groups = [group for group in row_groups(traces[0]) if same.issuperset(group)]
    return _rows(traces[0], groups[:MOST_ROWS], texts)


def _after(trace: Trace, start: int, texts: BoundedTexts) -> tuple[list[Row], int]:
    """From the first difference on, and how many are left out."""
    groups = [group for group in row_groups(trace) if group[-1] >= start]
    return _rows(trace, groups[:MOST_ROWS], texts), max(0, len(groups) - MOST_ROWS)
