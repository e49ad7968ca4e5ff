"""A folder of traces as a site: the list with its search, any run, two runs side by side, and the tree of a question.

    list?failure=program_failed&q=sum    see `viewer.runs.trace_filter`
    run/PATH                             a trace file, relative to the folder; a long one goes on at run/PATH?from=N
    compare?left=PATH&right=PATH
    tree/PATH                            the folder of a question, in the traces of a training run

No route leads out of the folder, neither by its parts nor by a link. What pages say is not decided here.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs

from designer.sample import Design
from trainer.disk import plain_files
from viewer.reading import read_run, stamp
from viewer.run import KeptRuns, Words, compare_page, run_page
from viewer.runs.list_page import list_page
from viewer.runs.matrix import best_and_worst
from viewer.runs.question_tree import design_of, read_tree
from viewer.runs.trace_filter import TraceFilter, parsed
from viewer.runs.trace_index import TraceIndex
from viewer.runs.tree_page import tree_page
from viewer.sites import NoSuchPage, Page

MOST_PAGES = 40
"""Pages of the list, and what they lead to, that are worth having in one file."""


_QUESTION = re.compile(r"question-\d{1,12}")


class RunsSite:
    """The traces in `folder` and below; `words` gives the texts of tokens. `routes` waits until all traces are in the
    index. Raises OSError for a folder that cannot be read."""

    home = "list"

    def __init__(self, folder: Path, words: Words | None = None) -> None:
        self.folder = folder.resolve()
        self.index = TraceIndex(self.folder)
        self._words = words
        self._kept = KeptRuns()

    def page(self, route: str) -> Page:
        kind, rest = _split(route)
        if kind == "list":
            return list_page(self.index, parsed(rest), self.folder.name or str(self.folder))
        if kind == "run":
            return self._run(rest)
        if kind == "compare":
            return self._compare(*_both(rest))
        if kind == "tree":
            return tree_page(read_tree(self._question(rest)), rest)
        raise NoSuchPage(
            f"there is no page {route[:200]!r}. Fix: list, run/PATH, compare?left=PATH&right=PATH, tree/PATH"
        )

    def version(self, route: str) -> str:
        kind, rest = _split(route)
        if kind == "list":
            parsed(rest)
            return self.index.version()
        if kind == "run":
            path = _from(rest)[0]
            file = self._trace(path)
            return f"{_stamp(file)} {_stamp_if_there(_record_beside(file))} {self.index.graded(path)}"
        if kind == "compare":
            return " ".join(f"{_stamp(self._trace(path))} {self.index.graded(path)}" for path in _both(rest))
        if kind == "tree":
            return _folder_stamp(self._question(rest))
        raise _nowhere(route)

    def routes(self) -> Iterator[str]:
        """The list, how runs failed with examples, then page by page the runs and the trees that they belong to, with
        comparisons that these propose."""
        self.index.wait()
        yield "list"
        for kind in self.index.kinds(TraceFilter()):
            states = kind.name in ("broken", "unfinished")
            yield "list?" + (TraceFilter(state=kind.name) if states else TraceFilter(failure=kind.name)).query
            for example in kind.examples:
                yield f"run/{example.path}"
        told: set[str] = set()
        for number in range(1, MOST_PAGES + 1):
            listed = self.index.page(TraceFilter(page=number))
            if number > listed.pages:
                return
            if number > 1:
                yield "list?" + TraceFilter(page=number).query
            for found in listed.rows:
                tree = f"tree/{PurePosixPath(found.path).parent}"
                if found.step is not None and tree not in told:
                    told.add(tree)
                    yield from self._routes_of_tree(tree.removeprefix("tree/"))
                yield f"run/{found.path}"

    def _routes_of_tree(self, place: str) -> Iterator[str]:
        """A tree, and of each design its best run beside its worst."""
        try:
            tree = read_tree(self._question(place))
        except (NoSuchPage, OSError):
            return  # gone meanwhile
        yield f"tree/{place}"
        yield from filter(None, (best_and_worst(design, place) for design in tree.designs))

    def close(self) -> None:
        self.index.close()

    def _run(self, path: str) -> Page:
        path, first = _from(path)
        file = self._trace(path)
        design = _design_beside(file)
        return run_page(
            self._kept.of(file),
            graph=design.graph if design is not None else None,
            graph_of=design.source if design is not None else None,
            words=self._words,
            base=f"run/{path}",
            first=first,
            correct=self.index.graded(path),
        )

    def _compare(self, left: str, right: str) -> Page:
        files = self._trace(left), self._trace(right)
        routes = f"run/{left}", f"run/{right}"
        correct = self.index.graded(left), self.index.graded(right)
        reads = read_run(files[0]), read_run(files[1])
        return compare_page(*reads, names=(left, right), routes=routes, correct=correct)

    def _trace(self, path: str) -> Path:
        """A trace file by the end of its route."""
        file = self._inside(path)
        if not path.endswith(".jsonl"):
            raise NoSuchPage(f"{path[:200]!r} is no trace: its name does not end with .jsonl")
        if not _is(stat.S_ISREG, file):
            raise NoSuchPage(f"there is no trace {path[:200]!r} in {self.folder}, or no longer")
        return file

    def _question(self, path: str) -> Path:
        """The folder of a question."""
        folder = self._inside(path)
        if not _is(stat.S_ISDIR, folder):
            raise NoSuchPage(f"there is no folder {path[:200]!r} in {self.folder}, or no longer")
        if not _QUESTION.fullmatch(folder.name):
            raise NoSuchPage(f"{path[:200]!r} is no question's folder. Fix: tree/step-000000/question-0000")
        return folder

    def _inside(self, path: str) -> Path:
        try:
            return plain_files.inside(self.folder, path)
        except (OSError, ValueError):
            raise NoSuchPage(f"{path[:200]!r} leads to nothing in {self.folder}") from None


def _nowhere(route: str) -> NoSuchPage:
    return NoSuchPage(
        f"there is no page {route[:200]!r}. Fix: list, run/PATH, compare?left=PATH&right=PATH or tree/PATH"
    )


def _split(route: str) -> tuple[str, str]:
    """What is asked for, and of what. A path may hold a question mark."""
    for kind in ("run", "tree"):
        if route.startswith(f"{kind}/"):
            return kind, route.removeprefix(f"{kind}/")
    kind, _, query = route.partition("?")
    return kind, query


def _from(path: str) -> tuple[str, int]:
    """The trace of a page, and the row that it begins with: a long run has several pages."""
    found = re.fullmatch(r"(.*\.jsonl)\?from=(\d{1,12})", path, re.DOTALL)
    return (found[1], int(found[2])) if found else (path, 0)


def _both(query: str) -> tuple[str, str]:
    given = parse_qs(query, errors="replace", max_num_fields=8)
    left, right = given.get("left", [""])[0], given.get("right", [""])[0]
    if not left or not right:
        raise NoSuchPage("two traces are compared. Fix: compare?left=PATH&right=PATH")
    return left, right


def _is(kind: Callable[[int], bool], path: Path) -> bool:
    try:
        return kind(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _stamp(file: Path) -> str:
    return stamp(file.lstat())


def _folder_stamp(folder: Path) -> str:
    told = hashlib.blake2b(digest_size=12)
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            told.update(f"{os.fsencode(entry.name)!r} {stamp(entry.stat(follow_symlinks=False))}\n".encode())
    return told.hexdigest()


def _design_beside(file: Path) -> Design | None:
    """The design that a run of a training step executed, where its record is there."""
    record = _record_beside(file)
    return None if record is None else design_of(record)[0]


def _record_beside(file: Path) -> Path | None:
    """Where the record of a run's design lies, if the run has the name of one of a training step."""
    name, found, _ = file.name.partition("-execution-")
    return file.with_name(f"{name}.json") if found else None


def _stamp_if_there(file: Path | None) -> str:
    try:
        return "-" if file is None else _stamp(file)
    except OSError:
        return "-"
