"""Numbers that somebody may have made up: their mean, and which of them cannot be counts of anything.

Not here: how numbers are shown (`viewer.html`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from statistics import fmean
from typing import Any

from pydantic import BaseModel

MOST = 2**53
"""Counts from here on have no floats of their own, and those of many digits none at all."""


def mean(values: Sequence[float]) -> float:
    """As `fmean`, also where the sum is beyond all floats. Raises ValueError for none."""
    try:
        return fmean(values)
    except OverflowError:
        return sum(value / len(values) for value in values)


def no_count(record: Any) -> str:
    """Which whole number in a record, all of whose whole numbers are counts, is negative or absurdly large, in words;
    empty where none is."""
    for place, value in _whole_numbers(record, ()):
        if not 0 <= value < MOST:
            return f"{'a negative number' if value < 0 else 'a number of 2^53 or more'} is no count at {place}"
    return ""


def _whole_numbers(value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield ".".join(place), value
        return
    inner: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, BaseModel):
        inner = iter(value)
    elif is_dataclass(value):
        inner = ((each.name, getattr(value, each.name)) for each in fields(value))
    elif isinstance(value, Mapping):
        inner = iter(value.items())
    elif isinstance(value, (list, tuple)):
        inner = iter(enumerate(value))
    for name, each in inner:
        yield from _whole_numbers(each, (*place, str(name)))
