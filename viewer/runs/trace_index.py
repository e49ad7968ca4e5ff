"""A folder of traces that can be asked: an index of summaries that fills itself in the background while it is asked.

The folder is looked through again and again; a file whose size and time are as they were is not opened. Links are not
followed, and folders whose names begin with a dot are left out. Nothing is ever written into the folder. Not here: what
a summary says (`viewer.reading.trace_summary`), where the index lies (`viewer.runs.index_file`), what it can be asked
(`viewer.runs.index_answers`), and pages.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from trainer.evaluate import RESULTS
from viewer.reading import summarise, unreadable
from viewer.runs import index_answers
from viewer.runs.folder_walk import Walk
from viewer.runs.graded_attempts import GradedAttempts
from viewer.runs.index_answers import EXAMPLES, PER_PAGE, Kind, Listed, Totals
from viewer.runs.index_file import CHANGED, GRADE, NEXT, UNGRADE, IndexClosed, IndexFile, is_busy
from viewer.runs.trace_filter import TraceFilter
from viewer.sites import NoSuchPage

AT_ONCE, AT_ONCE_S = 256, 0.4
"""Summaries that are written together, and seconds that are spent on them."""
PAUSE_S = 2.0
"""Between two looks at the folder; longer where looking takes long."""
SHARE = 10
"""A look may take one part in so many of the time."""
MOST_BEGUN = 5
"""Times that a damaged index is made anew."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the index is."""

    looking: bool = True
    """Whether the folder has not been looked through once."""
    files: int = 0
    """That were found."""
    to_read: int = 0
    read: int = 0
    """Of these."""
    seconds: float = 0.0
    """That the first look took, up to now or to its end."""
    unread_folders: int = 0
    nameless: int = 0
    """Files whose names are no text."""
    passed_over: int = 0
    """Links and hidden folders."""
    error: str = ""
    """Why the index is not being filled."""

    @property
    def is_complete(self) -> bool:
        """Whether all that was there at the last look is in the index."""
        return not self.looking and self.read >= self.to_read


class TraceIndex:
    """An index of `folder`. Raises OSError where that is no folder that can be read. Close it in the end."""

    def __init__(self, folder: Path, *, pause_s: float = PAUSE_S) -> None:
        self.folder = folder.resolve(strict=True)
        os.scandir(self.folder).close()
        self._file = IndexFile(self.folder)
        self._pause_s = pause_s
        self.progress = Progress()
        self._closed, self._filled = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="trace index", daemon=True)
        self._thread.start()

    @property
    def told(self) -> str:
        """What there is to know of the index, in words."""
        return self._file.told

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the folder has been looked through once, or the thread has failed. False where time is up."""
        return self._filled.wait(seconds)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=30)
        self._file.close()

    # Questions

    def version(self) -> str:
        """Another text once answers may be others."""
        changes = self._ask(lambda sql: sql.execute("SELECT changes FROM state").fetchone()[0])
        now = self.progress
        return f"{self._file.begun}.{changes}.{now.is_complete:d}.{now.read if now.looking else 0}.{len(now.error)}"

    def page(self, wanted: TraceFilter, per_page: int = PER_PAGE) -> Listed:
        return self._ask(lambda sql: index_answers.page(sql, wanted, per_page))

    def kinds(self, wanted: TraceFilter, examples: int = EXAMPLES) -> list[Kind]:
        return self._ask(lambda sql: index_answers.kinds(sql, wanted, examples))

    def totals(self, wanted: TraceFilter) -> Totals:
        return self._ask(lambda sql: index_answers.totals(sql, wanted))

    def graded(self, path: str) -> bool | None:
        """Whether an evaluation in the folder calls a trace's attempt correct; None where none says so, or not yet."""
        return self._ask(lambda sql: index_answers.graded(sql, path))

    def _ask(self, question: Callable[[sqlite3.Connection], Result]) -> Result:
        """Ask twice, as the first time may find the index damaged, which makes it anew."""
        try:
            try:
                with self._file.reading() as sql:
                    return question(sql)
            except sqlite3.DatabaseError:
                with self._file.reading() as sql:
                    return question(sql)
        except IndexClosed:
            raise NoSuchPage("the viewer was closed") from None

    # Filling

    def _work(self) -> None:
        try:
            while not self._closed.is_set():
                began = time.perf_counter()
                if not self._looked(began):
                    continue
                took = time.perf_counter() - began
                self._closed.wait(max(self._pause_s, (SHARE - 1) * took))
        except IndexClosed:
            pass
        finally:
            self._filled.set()

    def _looked(self, began: float) -> bool:
        """Look once. False where that is to be done again at once, since the index was damaged and is empty now."""
        error = ""
        try:
            self._look(began)
        except OSError as unread:
            error = f"{unread.filename}: {unread.strerror}"
        except sqlite3.DatabaseError as unwritten:
            if not is_busy(unwritten) and self._file.begun < MOST_BEGUN:
                return False
            error = f"the index cannot be written: {unwritten}"
        self.progress = replace(self.progress, error=error)
        self._filled.set()
        return True

    def _look(self, began: float) -> None:
        """Look through the folder once, and read what is new or has changed, the newest first."""
        walk = Walk(self.folder)
        with self._file.looking() as sql:
            sql.execute("DELETE FROM seen")
        for found in walk.batches():
            with self._file.looking() as sql:
                sql.execute("BEGIN")
                sql.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", found)
                sql.execute("COMMIT")
            if self.progress.looking:
                self._tell(walk, began)
            if self._closed.is_set():
                return
        with self._file.looking() as sql:
            sql.execute("DELETE FROM changed")
            sql.execute(CHANGED)
            to_read = sql.execute("SELECT count(*) FROM changed").fetchone()[0]
        last = 0
        while not self._closed.is_set():
            with self._file.looking() as sql:
                some = sql.execute(NEXT, (last, AT_ONCE)).fetchall()
            if not some:
                break
            last = self._read(some)
            self._tell(walk, began, to_read, last)
        if not self._closed.is_set():
            self._forget(walk)
            self._tell(walk, began, to_read, to_read, looking=False)

    def _read(self, files: Sequence[tuple[int, str, int, int, str | None]]) -> int:
        """Summaries of some files into the index. Returns the number of the last one, of as many as time allows."""
        rows: list[list[Any]] = []
        questions: dict[str, str] = {}
        others: list[tuple[str, int, int]] = []
        began = time.perf_counter()
        last = 0
        for number, path, size, mtime_ns, wrong in files:
            last = number
            try:
                summary = summarise(self.folder / path)
            except FileNotFoundError:
                continue
            except OSError as error:
                summary = unreadable(size, mtime_ns, error.strerror or str(error))
                if summary.wrong == wrong:
                    continue  # as it was
            if summary is None:
                others.append((path, size, mtime_ns))
            else:
                rows.append(index_answers.row_of(path, summary))
                questions |= index_answers.question_of(summary)
            if time.perf_counter() - began > AT_ONCE_S or self._closed.is_set():
                break
        for path, *_ in others:
            if path.rpartition("/")[2] == RESULTS:
                self._grade(path)
        if rows or others:  # what is in these counts as read
            with self._file.writing() as sql:
                sql.executemany(index_answers.PUT, rows)
                sql.executemany("INSERT OR IGNORE INTO questions VALUES (?, ?)", questions.items())
                sql.executemany("INSERT OR REPLACE INTO others VALUES (?, ?, ?)", others)
                sql.executemany("DELETE FROM others WHERE path = ?", [row[:1] for row in rows])
                sql.executemany("DELETE FROM traces WHERE path = ?", [other[:1] for other in others])
                sql.executemany(GRADE, [row[:1] for row in rows])
        return last

    def _grade(self, path: str) -> None:
        """What an evaluation has added to its results or, where these are others now, all that they say."""
        with self._file.looking() as sql:
            known = sql.execute("SELECT upto, digest FROM results WHERE path = ?", (path,)).fetchone() or ()
        try:
            with GradedAttempts(self.folder / path, path, *known) as attempts:
                if not attempts.goes_on:
                    with self._file.writing() as sql:
                        sql.execute("DELETE FROM graded WHERE results = ?", (path,))
                        sql.execute(UNGRADE)
                while some := attempts.some(AT_ONCE):
                    with self._file.writing() as sql:
                        sql.executemany(
                            "INSERT OR REPLACE INTO graded VALUES (?, ?, ?)", [(*each, path) for each in some]
                        )
                        sql.executemany(GRADE, [each[:1] for each in some])
                        upto = path, attempts.upto, attempts.digest
                        sql.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", upto)
        except OSError:
            return  # gone meanwhile, or not to be read: nothing is known of its traces

    def _forget(self, walk: Walk) -> None:
        """What is no longer there. What lies in folders that cannot be read now may be."""
        if walk.unread_folders:
            return
        gone = "path NOT IN (SELECT path FROM seen)"
        with self._file.looking() as sql:
            some = any(
                sql.execute(f"SELECT 1 FROM {table} WHERE {gone} LIMIT 1").fetchone() for table in ("traces", "others")
            )
        if some:
            with self._file.writing() as sql:
                for table in ("traces", "others", "results"):
                    sql.execute(f"DELETE FROM {table} WHERE {gone}")
                sql.execute("DELETE FROM questions WHERE asked NOT IN (SELECT asked FROM traces)")
                sql.execute("DELETE FROM graded WHERE results NOT IN (SELECT path FROM others)")
                sql.execute(UNGRADE)

    def _tell(self, walk: Walk, began: float, to_read: int = 0, read: int = 0, *, looking: bool = True) -> None:
        before = self.progress
        self.progress = Progress(
            looking=looking and before.looking,
            files=walk.files,
            to_read=to_read,
            read=read,
            seconds=time.perf_counter() - began if before.looking else before.seconds,
            unread_folders=walk.unread_folders,
            nameless=walk.nameless,
            passed_over=walk.passed_over,
            error=before.error,
        )
