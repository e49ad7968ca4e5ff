"""What can be looked at: a site answers routes with pages, whether they are asked for one by one or put into one file.

A route names a page within its site, such as `run/step-000003/question-0001/design-00-execution-02.jsonl`. Links in
pages are `#/` and a route. Nothing here reads what the pages are about: see `viewer.run.run_site` and its like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from markupsafe import Markup


class NoSuchPage(Exception):
    """A route that leads nowhere, and why, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    title: str
    body: Markup


class Site(Protocol):
    home: str
    """Route of the page that is shown first."""

    def page(self, route: str) -> Page:
        """Raises `NoSuchPage`, and OSError where its files cannot be read."""
        ...

    def version(self, route: str) -> str:
        """Another text once the page would be another one; cheap to ask for. Raises what `page` raises."""
        ...

    def routes(self) -> Iterator[str]:
        """Of the pages that are worth having in one file, the more important ones first. There may be more pages."""
        ...

    def close(self) -> None: ...


def link(route: str) -> str:
    """The address of a route within its document."""
    return "#/" + quote(route, safe="/=&?,.", errors="replace")
