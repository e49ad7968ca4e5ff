"""Which of a folder's traces are asked for, in which order: from a route to a condition with bound values, and back.

No text of anybody's becomes SQL here. The tables are `viewer.runs.index_file`'s; who asks is `viewer.runs.trace_index`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, get_args
from urllib.parse import parse_qsl, urlencode

from viewer.html import folded
from viewer.reading import STOPPED
from viewer.sites import NoSuchPage
from workflow.failures import FailureKind

FAILURES: tuple[str, ...] = (*get_args(FailureKind), STOPPED, "any", "none")
ORDERS = {
    "newest": "mtime_ns DESC, path",
    "oldest": "mtime_ns, path",
    "path": "path",
    "place": "step IS NULL, step, number, design, execution, path",
    "best": "reward IS NULL, reward DESC, path",
    "worst": "reward IS NULL, reward, path",
    "longest": "seconds IS NULL, seconds DESC, path",
    "most-tokens": "tokens IS NULL, tokens DESC, path",
    "largest": "size DESC, path",
}
"""Names of orders, and what they are in SQL."""
LONGEST = 2_000
"""Characters of a value."""
MOST_WORDS = 16
MOST_NUMBER = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """Empty or None: whichever. Its fields are those of the query of a route."""

    q: str = ""
    """Words, all of which stand in the question, the answer, the agents' names or the failure's message, without regard
    to case and accents."""
    failure: str = ""
    """A kind, or `stopped`; `any` for some failure, `none` for a run that ended without one."""
    state: str = ""
    """`ended`, `unfinished` or `broken`; `not-whole` for the last two and for those whose last line is cut short."""
    correct: str = ""
    """`yes`, `no`, or `unknown` for no such reward."""
    least: float | None = None
    """Reward, and so `most`."""
    most: float | None = None
    step: int | None = None
    question: int | None = None
    """Its number within its step."""
    asked: str = ""
    """Digest of a question's text: `TraceSummary.asked`."""
    program: str = ""
    """Digest of a program."""
    message: str = ""
    """Of a failure, or what is broken, as a whole."""
    order: str = "newest"
    page: int = 1

    @property
    def is_empty(self) -> bool:
        """Whether it is met by all."""
        return replace(self, order="newest", page=1) == TraceFilter()

    def without(self, *names: str) -> TraceFilter:
        return replace(self, page=1, **{each.name: each.default for each in fields(self) if each.name in names})

    def having(self, **values: Any) -> TraceFilter:
        """With other values, from the first page on."""
        return replace(self, **{"page": 1, **values})

    @property
    def query(self) -> str:
        """As the query of a route, with what is not as it is anyway."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        defaults = {each.name: each.default for each in fields(self)}
        return urlencode({name: _told(value) for name, value in values.items() if value != defaults[name]})

    @property
    def given(self) -> list[tuple[str, str]]:
        """Name and value of what it asks for."""
        kept = [each.name for each in fields(self) if each.name not in ("order", "page")]
        return [(name, _told(getattr(self, name))) for name in kept if getattr(self, name) not in ("", None)]

    def told(self, name: str) -> str:
        """The value of a field as a form has it; empty where none is given."""
        value = getattr(self, name)
        return "" if value is None else _told(value)

    def condition(self) -> tuple[str, list[Any]]:
        """What stands behind WHERE, and the values of its question marks."""
        parts = [(text, values) for text, values in self._conditions() if text]
        return " AND ".join(text for text, _ in parts) or "1", [value for _, values in parts for value in values]

    def _conditions(self) -> Iterator[tuple[str, list[Any]]]:
        for word in folded(self.q).split()[:MOST_WORDS]:
            like = f"%{_literal(word)}%"
            asked = "asked IN (SELECT asked FROM questions WHERE words LIKE ? ESCAPE '\\')"
            yield f"(words LIKE ? ESCAPE '\\' OR {asked})", [like, like]
        if self.failure == "any":
            yield "failure IS NOT NULL", []
        elif self.failure == "none":
            yield "failure IS NULL AND state = 'ended'", []
        elif self.failure:
            yield "failure = ?", [self.failure]
        if self.state == "not-whole":
            yield "(state != 'ended' OR wrong != '')", []
        elif self.state:
            yield "state = ?", [self.state]
        if self.correct == "unknown":
            yield "correct IS NULL", []
        elif self.correct:
            yield "correct = ?", [int(self.correct == "yes")]
        if self.message:
            yield "(message = ? OR wrong = ?)", [self.message, self.message]
        for column, value in (("asked", self.asked), ("program", self.program)):
            if value:
                yield f"{column} = ?", [value]
        for column, sign, number in (
            ("reward", ">=", self.least),
            ("reward", "<=", self.most),
            ("step", "=", self.step),
            ("number", "=", self.question),
        ):
            if number is not None:
                yield f"{column} {sign} ?", [number]


def _literal(word: str) -> str:
    """A word in a pattern of LIKE."""
    return "".join(f"\\{each}" if each in "\\%_" else each for each in word.replace("\0", ""))


def _told(value: Any) -> str:
    """A value as `parsed` reads it: the very same number."""
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def parsed(query: str) -> TraceFilter:
    """The filter that the query of a route says. Raises `NoSuchPage`, naming what is wrong."""
    values: dict[str, Any] = {}
    for name, text in parse_qsl(query, max_num_fields=64, errors="replace"):
        read = _READ.get(name)
        if read is None:
            raise NoSuchPage(f"there is no filter {name[:40]!r}. Fix: one of {', '.join(_READ)}")
        values[name] = read(name, text[:LONGEST])
    return TraceFilter(**values)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise NoSuchPage(f"{name}={text[:40]!r} is no number. Fix: such as {name}=0.5")
    return value


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= MOST_NUMBER):
        raise NoSuchPage(f"{name}={text[:40]!r} is no count. Fix: such as {name}=3")
    return int(text)


def _page(name: str, text: str) -> int:
    return max(1, _count(name, text))


def _one_of(*known: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in known:
            raise NoSuchPage(f"{name}={text[:40]!r} is not known. Fix: one of {', '.join(known)}")
        return text

    return read


def _as_it_is(name: str, text: str) -> str:
    return text.encode(errors="replace").decode()


_READ: dict[str, Callable[[str, str], Any]] = {
    "q": _as_it_is,
    "failure": _one_of(*FAILURES),
    "state": _one_of("ended", "unfinished", "broken", "not-whole"),
    "correct": _one_of("yes", "no", "unknown"),
    "least": _number,
    "most": _number,
    "step": _count,
    "question": _count,
    "asked": _as_it_is,
    "program": _as_it_is,
    "message": _as_it_is,
    "order": _one_of(*ORDERS),
    "page": _page,
}
