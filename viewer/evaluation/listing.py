"""Long lists, a page at a time: what is asked for in a route, and which part of the list that is.

Pure functions; which fields a list can be narrowed by is decided by its page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import parse_qsl

from viewer.html import folded
from workflow.labels import visible

Item = TypeVar("Item")
PER_PAGE = 200
MOST_FIELDS = 20


def split_route(route: str) -> tuple[str, dict[str, str]]:
    """The page of a route, and what stands behind its `?`; of a field that is given twice the last value."""
    page, _, query = route.partition("?")
    try:
        return page, dict(parse_qsl(query, max_num_fields=MOST_FIELDS, errors="replace"))
    except ValueError:  # too many fields
        return page, {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[Item]):
    """One page of a list."""

    items: Sequence[Item]
    first: int
    """Place of the first item, from 1; 0 where there is none."""
    total: int
    """Items on all pages."""
    page: int
    """From 1."""
    pages: int

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1 if self.items else 0


def listed(items: Sequence[Item], asked: Mapping[str, str], per_page: int = PER_PAGE) -> Listed[Item]:
    """The page that is asked for, or the nearest that there is."""
    pages = max(-(-len(items) // per_page), 1)
    page = min(max(number_in(asked.get("page", "")), 1), pages)
    begin = (page - 1) * per_page
    part = items[begin : begin + per_page]
    return Listed(items=part, first=begin + 1 if part else 0, total=len(items), page=page, pages=pages)


def number_in(text: str) -> int:
    """The whole number that the text is, 0 where it is none or a very long one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def equals(text: str, wanted: str) -> bool:
    """Whether the text is the wanted one, as it is or as a form shows it."""
    return text == wanted or visible(text) == visible(wanted)


def holds(text: str, words: str) -> bool:
    """Whether all words stand in the text as it is shown, in any order, whatever their case and accents."""
    text = folded(visible(text))
    return all(word in text for word in folded(visible(words)).split())
