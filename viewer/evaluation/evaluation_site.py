"""The pages of an evaluation's folder, and of what changed since another one, by their routes.

    evaluation                           the attempts as a whole
    attempts?words=..&right=..&page=..   a table of them
    attempt/LINE                         one of them, by its line in `results.jsonl`
    run/TRACE?from=N                     its run, by the trace's path in the folder
    before/...                           the same of the other evaluation
    changes, changed?outcome=..&page=..  what changed, and the attempts that did
    compare?left=..&right=..             two runs side by side: traces of the other folder, if any, and of this one

What the pages say is decided by the modules that make them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from trainer.evaluate import RESULTS
from viewer.evaluation.attempt_pages import Other, attempt_page, attempts_page
from viewer.evaluation.attempt_rows import Row
from viewer.evaluation.changes import Changes, compare
from viewer.evaluation.changes_page import Both, changed_page, changes_page
from viewer.evaluation.evaluation_data import Evaluation, EvaluationReader
from viewer.evaluation.evaluation_page import Place, evaluation_page
from viewer.evaluation.evaluation_routes import routes_of, routes_of_changes
from viewer.evaluation.listing import number_in, split_route
from viewer.html import render
from viewer.reading import read_run
from viewer.run import KeptRuns, Words, compare_page, run_page, stamp_of
from viewer.sites import NoSuchPage, Page, link

BEFORE = "before/"
RUN_FROM = "?from="
"""Before the place at which the page of a long run goes on."""
MOST_KEPT = 8
"""Pages that are not made again while the folders stay as they are."""


class EvaluationSite:
    """The evaluation in `folder`; with `before` also that one, and what changed from it. Folders are read when a page
    is asked for."""

    def __init__(self, folder: Path, before: Path | None = None, words: Words | None = None) -> None:
        """`words` gives the texts of tokens."""
        self._words = words
        self._runs = KeptRuns()
        self.home = "evaluation" if before is None else "changes"
        self._reader = EvaluationReader(folder)
        self._other = None if before is None else EvaluationReader(before)
        self._names = names_of(folder, before)
        self._lock = threading.RLock()  # a server asks from several threads
        self._changes: tuple[Evaluation, Evaluation, Changes] | None = None
        self._kept: dict[str, tuple[str, Page]] = {}

    def page(self, route: str) -> Page:
        with self._lock:
            version = self.version(route)
            kept = self._kept.get(route)
            if kept is None or kept[0] != version:
                kept = version, self._page(route)
                while len(self._kept) >= MOST_KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[route] = kept
            return kept[1]

    def version(self, route: str) -> str:
        reader, base, inside = self._side(route)
        if inside.startswith("run/"):  # follows its trace, and what is said of its attempt, but no other attempt
            path = inside.removeprefix("run/").partition(RUN_FROM)[0]
            with self._lock:
                row = reader.read().of_trace(path)
            return f"{stamp_of(trace_in(reader.folder, path))} {row}"
        versions = [each.version() for each in (self._reader, self._other) if each is not None]
        page, asked = split_route(inside)
        if page == "compare" and not base:
            versions += map(stamp_of, self._traces(asked.get("left", ""), asked.get("right", "")))
        return " | ".join(versions)

    def routes(self) -> Iterator[str]:
        evaluation = self._reader.read()
        main = [self.home, "evaluation", "attempts"]
        if self._other is None:
            wanted = [*main, *routes_of(evaluation)]
        else:
            other = self._other.read()
            wanted = [
                *main,
                *(BEFORE + page for page in main[1:]),
                *routes_of_changes(self._compared()),
                *routes_of(evaluation),
                *routes_of(other, BEFORE),
            ]
        yield from dict.fromkeys(wanted)

    def close(self) -> None:
        pass

    def _side(self, route: str) -> tuple[EvaluationReader, str, str]:
        """Whose page it is, what stands before the routes of its pages, and the page."""
        if not route.startswith(BEFORE):
            return self._reader, "", route
        if self._other is None:
            raise NoSuchPage("there is no other evaluation. Fix: name the one to compare with")
        return self._other, BEFORE, route.removeprefix(BEFORE)

    def _page(self, route: str) -> Page:
        reader, base, inside = self._side(route)
        place = self._place(base, route)
        if inside.startswith("run/"):
            return self._run(reader, place, inside.removeprefix("run/"))
        page, asked = split_route(inside)
        if page == "evaluation":
            return evaluation_page(reader.read(), place)
        if page == "attempts":
            return attempts_page(reader.read(), asked, place)
        if page.startswith("attempt/"):
            return self._attempt(reader, place, page.removeprefix("attempt/"))
        if page == "compare" and not base:
            return self._beside(asked.get("left", ""), asked.get("right", ""), route)
        if page in ("changes", "changed") and not base and self._other is not None:
            changes, both = self._compared(), self._both(route)
            return changes_page(changes, both) if page == "changes" else changed_page(changes, asked, both)
        raise NoSuchPage(f"there is no page {route[:200]!r}")

    def _place(self, base: str, here: str = "") -> Place:
        pages = [("Evaluation", "evaluation"), ("Attempts", "attempts")]
        if self._other is not None:
            after, before = self._names
            pages = [("What changed", "changes")]
            pages += [(after, "evaluation"), (f"attempts of {after}", "attempts")]
            pages += [(before, f"{BEFORE}evaluation"), (f"attempts of {before}", f"{BEFORE}attempts")]
        links = tuple((name, link(route), route == here) for name, route in pages)
        return Place(name=self._names[1 if base else 0], base=base, links=links)

    def _both(self, here: str = "") -> Both:
        assert self._other is not None
        return Both(
            before=self._other.read(),
            after=self._reader.read(),
            before_place=self._place(BEFORE, here),
            after_place=self._place("", here),
        )

    def _compared(self) -> Changes:
        assert self._other is not None
        before, after = self._other.read(), self._reader.read()
        if self._changes is None or self._changes[0] is not before or self._changes[1] is not after:
            self._changes = before, after, compare(before.rows, after.rows)
        return self._changes[2]

    def _attempt(self, reader: EvaluationReader, place: Place, line: str) -> Page:
        evaluation = reader.read()
        row = _row_of(evaluation, line)
        try:
            attempt = reader.attempt(row)
        except ValueError as error:
            raise NoSuchPage(str(error)) from None
        return attempt_page(attempt, row, evaluation, place, self._same_elsewhere(row, place))

    def _same_elsewhere(self, row: Row, place: Place) -> Other | None:
        """The attempt in the other one of the two evaluations."""
        if self._other is None:
            return None
        both = self._both()
        there, where = (both.after, both.after_place) if place.base else (both.before, both.before_place)
        found = next((each for each in there.of_problem(row.problem) if each.attempt == row.attempt), None)
        if found is None or found.digest != row.digest:
            return None
        before, after = (row, found) if place.base else (found, row)
        return Other(found, where, both.beside(before, after))

    def _run(self, reader: EvaluationReader, place: Place, path: str) -> Page:
        path, _, first = path.partition(RUN_FROM)
        file = trace_in(reader.folder, path)
        row = reader.read().of_trace(path)
        try:
            attempt = reader.attempt(row) if row is not None else None
        except ValueError:  # its line has just become another one
            attempt = None
        page = run_page(
            self._runs.of(file),
            graph=attempt.graph if attempt is not None else None,
            graph_of=attempt.program if attempt is not None else None,
            words=self._words,
            base=place.route(f"run/{path}"),
            first=number_in(first),
            correct=row.correct if row is not None else None,
        )
        return Page(title=page.title, body=render("evaluation_run.html", place=place, row=row, body=page.body))

    def _traces(self, left: str, right: str) -> tuple[Path, Path]:
        """That are compared. Raises `NoSuchPage`."""
        return trace_in((self._other or self._reader).folder, left), trace_in(self._reader.folder, right)

    def _beside(self, left: str, right: str, route: str) -> Page:
        before, after = self._traces(left, right)
        names = (left, right) if self._other is None else (self._names[1], self._names[0])
        routes = (f"{BEFORE if self._other is not None else ''}run/{left}", f"run/{right}")
        row, other = self._reader.read().of_trace(right), (self._other or self._reader).read().of_trace(left)
        correct = other.correct if other is not None else None, row.correct if row is not None else None
        page = compare_page(read_run(before), read_run(after), names=names, routes=routes, correct=correct)
        body = render("evaluation_run.html", place=self._place("", route), row=row, body=page.body)
        return Page(title=page.title, body=body)


def names_of(folder: Path, before: Path | None) -> tuple[str, str]:
    """What to call the two: the last part of their paths in which they differ."""
    one = list(folder.resolve().parts)
    other = list((before or folder).resolve().parts)
    if before is not None and one != other:
        while len(one) > 1 and len(other) > 1 and one[-1] == other[-1]:
            del one[-1], other[-1]
    return one[-1], other[-1]


def trace_in(folder: Path, path: str) -> Path:
    """A trace's file, which lies in the folder. Raises `NoSuchPage`."""
    try:
        root = folder.resolve()
        found = (root / path).resolve()
        if path.endswith(".jsonl") and path != RESULTS and found.is_relative_to(root) and found.is_file():
            return found
    except (OSError, ValueError, RuntimeError):  # no name of a file, or links that lead in a circle
        pass
    raise NoSuchPage(f"there is no trace {path[:200]!r} in {folder}")


def _row_of(evaluation: Evaluation, line: str) -> Row:
    number = number_in(line)
    place = bisect_left(evaluation.rows, number, key=lambda row: row.line)
    if place < len(evaluation.rows) and evaluation.rows[place].line == number:
        return evaluation.rows[place]
    raise NoSuchPage(f"no attempt is on line {line[:20]!r} of {evaluation.folder}")
