"""The page that lists a folder's traces: a search, how the runs ended, failures by kind with examples, and the rows.

What the index answers becomes what the template shows. Nothing is read from traces here; which routes there are is
`viewer.runs.runs_site`'s business.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import PurePosixPath

from viewer.html import count, figure, one_line, render, seconds
from viewer.reading import LOOKED_THROUGH, STOPPED, TraceSummary
from viewer.runs.index_answers import Indexed, Kind, Listed, Totals
from viewer.runs.trace_filter import FAILURES, ORDERS, TraceFilter
from viewer.runs.trace_index import Progress, TraceIndex
from viewer.sites import Page, link

LONGEST_SAID = 200
"""Characters of an answer or of a message in a row."""
_MARKS = {True: ("✓", "good", "correct"), False: ("✗", "bad", "wrong"), None: ("–", "less", "not graded")}
_FILTERS = {
    "q": "words",
    "failure": "failure",
    "state": "state",
    "correct": "correct",
    "least": "reward from",
    "most": "reward to",
    "step": "step",
    "question": "question",
    "asked": "asked the same",
    "program": "same program",
    "message": "message",
}
"""Fields of a filter, and what they are called."""


@dataclass(frozen=True, slots=True)
class Row:
    """One trace, as it is shown."""

    route: str
    title: str
    mark: str
    mark_class: str
    mark_means: str
    said: str
    said_class: str
    place: str
    tree: str | None
    """Route of the tree that it belongs to."""
    figures: list[str]
    reward: str | None
    same_question: str | None
    same_program: str | None
    """Routes of lists."""


@dataclass(frozen=True, slots=True)
class Chip:
    """One condition that holds, and the route without it."""

    name: str
    value: str
    route: str


def list_page(index: TraceIndex, wanted: TraceFilter, name: str, base: str = "") -> Page:
    """The list of what is wanted of a folder called `name`. `base` stands before all routes."""
    listed, kinds = index.page(wanted), index.kinds(wanted)
    body = render(
        "list.html",
        name=name,
        wanted=wanted,
        listed=listed,
        totals=_totals(index.totals(wanted), listed),
        rows=[row(each, base) for each in listed.rows],
        kinds=kinds,
        kind_names=dict.fromkeys([*(kind.name for kind in kinds), *FAILURES]),
        chips=[
            Chip(_FILTERS[field], one_line(value, 80), _list(wanted.without(field), base))
            for field, value in wanted.given
        ],
        told=[*_progress(index.progress), *([index.told] if index.told else [])],
        orders=list(ORDERS),
        pager=_pager(wanted, listed, base),
        list_route=f"{base}list",
        of_kind=lambda kind: _list(_of_kind(wanted, kind), base),
        of_message=lambda kind, said: _list(_of_kind(wanted, kind).having(message=said), base),
        run_route=lambda path: f"{base}run/{path}",
        link=link,
    )
    return Page(title=f"{name}: {listed.count:,} traces", body=body)


def row(found: Indexed, base: str = "") -> Row:
    summary = found.summary
    mark, mark_class, means = _mark(summary)
    said, said_class = _said(summary)
    tree = str(PurePosixPath(found.path).parent) if found.step is not None else None
    return Row(
        route=f"{base}run/{found.path}",
        title=summary.question or PurePosixPath(found.path).name,
        mark=mark,
        mark_class=mark_class,
        mark_means=means,
        said=said,
        said_class=said_class,
        place=found.path if tree is None else f"design {found.design}, execution {found.execution}{_above(found.path)}",
        tree=None if tree is None else f"{base}tree/{tree}",
        figures=_figures(summary),
        reward=None if summary.reward is None else figure(summary.reward),
        same_question=_list(TraceFilter(asked=summary.asked), base) if summary.asked else None,
        same_program=_list(TraceFilter(program=summary.program), base) if summary.program else None,
    )


def _above(path: str) -> str:
    """Where the folder of a training run's traces lies, if it is not the folder that is shown."""
    above = "/".join(path.split("/")[:-3])
    return f" · {above}" if above else ""


def _mark(summary: TraceSummary) -> tuple[str, str, str]:
    if summary.state == "broken":
        return "!", "bad", "this trace is broken"
    if summary.state == "unfinished":
        return "…", "warn", "this run has not ended"
    if summary.failure == STOPPED:
        return "…", "warn", "stopped from outside"
    if summary.failure is not None:
        return "✗", "bad", f"failed: {summary.failure}"
    return _MARKS[summary.correct]


def _said(summary: TraceSummary) -> tuple[str, str]:
    """What came of it, and how that is shown."""
    if summary.state != "ended":
        return summary.wrong, "bad" if summary.state == "broken" else "warn"
    torn, plain = (f" ({summary.wrong})", "warn") if summary.wrong else ("", "less")
    if summary.failure == STOPPED:
        return f"{STOPPED} from outside, as by Ctrl-C{torn}", "warn"
    if summary.failure is not None:
        left_out = ", left out of training" if summary.timed_out else ""
        return f"{summary.failure}{left_out}: {one_line(summary.message, LONGEST_SAID)}{torn}", "bad"
    if summary.answer is None:
        return f"no answer{torn}", plain
    return f"answer: {one_line(summary.answer, LONGEST_SAID)}{torn}", plain


def _figures(summary: TraceSummary) -> list[str]:
    told = [] if summary.tokens is None else [f"{summary.tokens:,} tokens"]
    told += [] if summary.seconds is None else [seconds(summary.seconds)]
    told += ["looked at at its ends alone"] if summary.size > LOOKED_THROUGH else []
    return [*told, bytes_told(summary.size), time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(summary.mtime_ns / 1e9))]


def bytes_told(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{figure(size / unit)} {name}"
    return f"{size} B"


def _totals(totals: Totals, listed: Listed) -> list[str]:
    told = [f"{count(listed.count)} trace{'' if listed.count == 1 else 's'}"]
    if totals.rewarded:
        told.append(f"mean reward {figure(totals.reward)}")
    if totals.graded:
        told.append(f"{totals.correct / totals.graded:.1%} of {count(totals.graded)} correct")
    return [*told, f"{count(totals.tokens)} tokens"] if totals.tokens else told


def _progress(progress: Progress) -> list[str]:
    """What has to be said of the index."""
    told = []
    if progress.looking and not progress.to_read:
        told.append(f"Looking through the folder: {progress.files:,} files so far.")
    elif progress.looking:
        told.append(f"Reading: {progress.read:,} of {progress.to_read:,} files are in the list, the newest first.")
    if progress.error:
        told.append(f"The list may be out of date: {progress.error}.")
    if progress.unread_folders:
        told.append(f"Folders that cannot be read and are left out: {progress.unread_folders:,}.")
    if progress.nameless:
        told.append(f"Files left out, as their names are no text in UTF-8: {progress.nameless:,}.")
    if progress.passed_over:
        told.append(f"Links and folders whose names begin with a dot are not followed: {progress.passed_over:,}.")
    return told


def _pager(wanted: TraceFilter, listed: Listed, base: str) -> list[tuple[str, str | None]]:
    """Labels and routes, None for where one is already."""
    if listed.pages == 1:
        return []
    here, last = listed.page, listed.pages
    near = sorted({1, last, *(number for number in range(here - 2, here + 3) if 1 <= number <= last)})
    steps: list[tuple[str, str | None]] = []
    for before, number in zip([0, *near], near, strict=False):
        if number > before + 1:
            steps.append(("…", None))
        steps.append((str(number), None if number == here else _list(wanted.having(page=number), base)))
    back = [("‹ before", _list(wanted.having(page=here - 1), base))] if here > 1 else []
    on = [("next ›", _list(wanted.having(page=here + 1), base))] if here < last else []
    return [*back, *steps, *on]


def _of_kind(wanted: TraceFilter, kind: str) -> TraceFilter:
    if kind in ("broken", "unfinished"):
        return wanted.having(state=kind)
    return wanted.having(failure=kind)


def _list(wanted: TraceFilter, base: str) -> str:
    return f"{base}list?{wanted.query}" if wanted.query else f"{base}list"


__all__ = ["Kind", "Row", "bytes_told", "list_page", "row"]
