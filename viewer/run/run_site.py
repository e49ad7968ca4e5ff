"""A site of one trace file: the page of its run, and those on which a long run goes on. It follows a file that grows.

Not here: sites of many runs, which show the same page at routes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

from viewer.run.known_run import KeptRuns, stamp_of
from viewer.run.program_graphs import Describe, Graphs
from viewer.run.run_page import MOST_ROWS, run_page
from viewer.run.token_heat import Words
from viewer.sites import NoSuchPage, Page

RUN = "run"


class RunSite:
    """`describe` gives the graph of a program, which a trace alone does not have; the file may come to hold the run of
    another one. `words` is as for `viewer.run.run_page.run_page`."""

    home = RUN

    def __init__(self, path: Path, *, describe: Describe | None = None, words: Words | None = None) -> None:
        self._path, self._words = path, words
        self._graphs = Graphs(describe) if describe is not None else None
        self._kept = KeptRuns()

    def page(self, route: str) -> Page:
        first = first_row(route)
        known = self._kept.of(self._path)
        started = known.read.trace.started
        graph = None
        if self._graphs is not None and started is not None and started.program and not first:
            graph = self._graphs.of(started.program)
        return run_page(known, graph=graph, words=self._words, base=RUN, first=first)

    def version(self, route: str) -> str:
        first_row(route)
        return stamp_of(self._path)

    def routes(self) -> Iterator[str]:
        yield RUN
        for first in range(MOST_ROWS, len(self._kept.of(self._path).groups), MOST_ROWS):
            yield f"{RUN}?from={first}"

    def close(self) -> None: ...


def first_row(route: str) -> int:
    """The first row of the page at a route. Raises `NoSuchPage`."""
    place, _, query = route.partition("?")
    given = parse_qs(query).get("from", ["0"])[0]
    if place != RUN or not (given.isascii() and given.isdigit() and len(given) < 10):
        raise NoSuchPage(f"there is no page {route[:200]!r}. Fix: {RUN}, or {RUN}?from={MOST_ROWS}")
    return int(given)
