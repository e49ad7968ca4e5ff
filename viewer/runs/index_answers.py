"""What the index of a folder of traces can be asked: rows of a page, totals, how runs failed; and its rows as SQL.

Functions over a connection. Which traces are wanted is said by `viewer.runs.trace_filter`; `viewer.runs.trace_index`
fills.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from viewer.html import folded
from viewer.reading import TraceSummary
from viewer.runs.trace_filter import MOST_NUMBER, ORDERS, TraceFilter

PER_PAGE = 50
EXAMPLES = 3
LONG_QUESTION = 1_000
"""Characters beyond which a question is kept apart from the traces that ask it."""
_PLACE = re.compile(r"(?:.*/)?step-(\d{1,12})/question-(\d{1,12})/design-(\d{1,12})-execution-(\d{1,12})\.jsonl")
_SUMMARY = [each.name for each in fields(TraceSummary) if each.compare]
_COLUMNS = ["path", "step", "number", "design", "execution", *_SUMMARY]
PUT = (
    f"INSERT OR REPLACE INTO traces ({', '.join([*_COLUMNS, 'words'])}) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"
)


@dataclass(frozen=True, slots=True)
class Indexed:
    """A trace of the folder. `path` is relative to it, with `/`; the other figures are those of a training run's tree,
    None for any other trace."""

    path: str
    step: int | None
    number: int | None
    """Of the question in its step."""
    design: int | None
    execution: int | None
    summary: TraceSummary


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of an answer."""

    rows: list[Indexed]
    count: int
    """Traces on all pages."""
    page: int
    """From 1."""
    pages: int


@dataclass(frozen=True, slots=True)
class Example:
    message: str
    count: int
    """How often it was said."""
    path: str
    """Of a trace that says it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How often runs ended in one way."""

    name: str
    """Kind of failure; `broken` and `unfinished` for traces that say no end."""
    count: int
    examples: list[Example]
    """The commonest ones first."""


@dataclass(frozen=True, slots=True)
class Totals:
    traces: int = 0
    rewarded: int = 0
    reward: float | None = None
    """Mean over those that have one."""
    graded: int = 0
    """That have a term `correct`."""
    correct: int = 0
    tokens: int = 0


def page(sql: sqlite3.Connection, wanted: TraceFilter, per_page: int = PER_PAGE) -> Listed:
    """Page `wanted.page` of what is wanted; the last one where there are fewer."""
    where, values = wanted.condition()
    count = sql.execute(f"SELECT count(*) FROM traces WHERE {where}", values).fetchone()[0]
    pages = max(1, -(-count // per_page))
    number = min(wanted.page, pages)
    found = sql.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM traces WHERE {where} ORDER BY {ORDERS[wanted.order]} LIMIT ? OFFSET ?",
        [*values, per_page, (number - 1) * per_page],
    )
    return Listed([_indexed(row) for row in found.fetchall()], count, number, pages)


def kinds(sql: sqlite3.Connection, wanted: TraceFilter, examples: int = EXAMPLES) -> list[Kind]:
    """How the wanted runs failed, the commonest first; unfinished and broken traces are kinds of their own."""
    where, values = wanted.condition()
    found = sql.execute(
        "SELECT kind, said, count(*) AS often, min(path) FROM (SELECT coalesce(failure, state) AS kind, "
        "CASE WHEN failure IS NULL THEN wrong ELSE message END AS said, path FROM traces "
        f"WHERE ({where}) AND (failure IS NOT NULL OR state != 'ended')) "
        "GROUP BY kind, said ORDER BY often DESC, said",
        values,
    )
    counts: dict[str, int] = {}
    shown: dict[str, list[Example]] = {}
    for kind, said, often, path in found:
        counts[kind] = counts.get(kind, 0) + often
        if len(shown.setdefault(kind, [])) < examples:
            shown[kind].append(Example(said, often, path))
    return [Kind(kind, counts[kind], shown[kind]) for kind in sorted(counts, key=lambda kind: (-counts[kind], kind))]


def totals(sql: sqlite3.Connection, wanted: TraceFilter) -> Totals:
    where, values = wanted.condition()
    row = sql.execute(
        "SELECT count(*), count(reward), avg(reward), count(correct), total(correct), total(tokens) "
        f"FROM traces WHERE {where}",
        values,
    ).fetchone()
    traces, rewarded, reward, graded, correct, tokens = row
    return Totals(traces, rewarded, reward, graded, round(correct), round(tokens))


def graded(sql: sqlite3.Connection, path: str) -> bool | None:
    """What an evaluation says of a trace; None where none does."""
    found = sql.execute("SELECT correct FROM graded WHERE path = ?", (path,)).fetchone()
    return None if found is None else bool(found[0])


def row_of(path: str, summary: TraceSummary) -> list[Any]:
    """The values of `PUT`."""
    place = _PLACE.fullmatch(path)
    figures = [int(each) for each in place.groups()] if place else [None] * 4
    said = [_stored(getattr(summary, name)) for name in _SUMMARY]
    question = "" if _is_long(summary) else summary.whole_question or summary.question
    return [
        path,
        *figures,
        *said,
        _words(question, summary.said, summary.whole_message, summary.message, summary.wrong),
    ]


def question_of(summary: TraceSummary) -> dict[str, str]:
    """A long question by its digest, to search in: many runs are asked the same, and it is kept once."""
    return {summary.asked: _words(summary.whole_question)} if _is_long(summary) else {}


def _is_long(summary: TraceSummary) -> bool:
    return len(summary.whole_question) > LONG_QUESTION


def _words(*texts: str) -> str:
    return folded(" ".join(filter(None, texts))).replace("\0", " ")


def _stored(value: Any) -> Any:
    return max(-MOST_NUMBER, min(value, MOST_NUMBER)) if isinstance(value, int) and abs(value) > 2**62 else value


def _indexed(row: Sequence[Any]) -> Indexed:
    path, step, number, design, execution, *said = row
    summary = TraceSummary(**dict(zip(_SUMMARY, said, strict=True)))
    summary.timed_out = bool(summary.timed_out)
    summary.correct = None if summary.correct is None else bool(summary.correct)
    return Indexed(path, step, number, design, execution, summary)
