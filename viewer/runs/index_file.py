"""The SQLite file that keeps summaries of a folder's traces: where it lies, its tables, and what becomes of it when it
cannot be used.

It lies in the user's cache folder, never in the folder that is looked at, and holds nothing that the traces do not: one
that is damaged, of another version or of somebody else is thrown away. Several processes may use it at once. Where no
file can be written there is a database in memory. What is put in, and asked, is `viewer.runs.trace_index`'s business.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from viewer.reading import UNREADABLE

VERSION = 3
"""Of the tables and of what is put into them; another one is thrown away."""
APPLICATION = 0x6D617678
"""Marks a file as ours."""
BUSY_S = 10.0
"""How long one process waits for another one's writing."""

TABLES = """
CREATE TABLE folder (path TEXT NOT NULL);
CREATE TABLE state (changes INTEGER NOT NULL);
INSERT INTO state VALUES (0);
CREATE TABLE others (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE results (path TEXT PRIMARY KEY, upto INTEGER NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE graded (path TEXT PRIMARY KEY, correct INTEGER NOT NULL, results TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE questions (asked TEXT PRIMARY KEY, words TEXT NOT NULL);
CREATE TABLE traces (
    path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    step INTEGER, number INTEGER, design INTEGER, execution INTEGER,
    state TEXT NOT NULL, wrong TEXT NOT NULL, run_id TEXT NOT NULL, question TEXT NOT NULL, asked TEXT NOT NULL,
    program TEXT NOT NULL, engine TEXT NOT NULL, seed TEXT NOT NULL, failure TEXT, message TEXT NOT NULL,
    timed_out INTEGER NOT NULL, answer TEXT, reward REAL, correct INTEGER, tokens INTEGER, seconds REAL,
    words TEXT NOT NULL
);
CREATE INDEX by_time ON traces (mtime_ns);
CREATE INDEX by_failure ON traces (failure, message);
CREATE INDEX by_state ON traces (state, wrong);
CREATE INDEX by_correct ON traces (correct);
CREATE INDEX by_place ON traces (step, number, design, execution);
CREATE INDEX by_question ON traces (asked);
CREATE INDEX by_program ON traces (program);
"""
SEEN = """
CREATE TEMP TABLE seen (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE changed (
    number INTEGER PRIMARY KEY, path TEXT NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, wrong TEXT
);
"""
"""What one look at the folder finds, and what of it is to be read. They are one process's, and gone with it."""
CHANGED = f"""
INSERT INTO changed (path, size, mtime_ns, wrong)
    SELECT seen.path, seen.size, seen.mtime_ns, traces.wrong FROM seen
    LEFT JOIN traces ON traces.path = seen.path LEFT JOIN others ON others.path = seen.path
    WHERE coalesce(traces.size, others.size) IS NOT seen.size
        OR coalesce(traces.mtime_ns, others.mtime_ns) IS NOT seen.mtime_ns
        OR traces.wrong LIKE '{UNREADABLE}%'
    ORDER BY seen.path LIKE '%results.jsonl' DESC, seen.mtime_ns DESC, seen.path
"""
"""What evaluations say comes first, so that no trace is shown with what they said before."""
NEXT = f"""
SELECT number, path, size, mtime_ns, wrong FROM changed WHERE number > ? AND NOT EXISTS (
    SELECT 1 FROM traces WHERE traces.path = changed.path AND traces.size = changed.size
        AND traces.mtime_ns = changed.mtime_ns AND traces.wrong NOT LIKE '{UNREADABLE}%'
) ORDER BY number LIMIT ?
"""
"""Without those that another process has read meanwhile."""
GRADE = """
UPDATE traces SET correct = (SELECT correct FROM graded WHERE graded.path = traces.path)
    WHERE path = ? AND reward IS NULL
"""
"""What an evaluation says of a trace that has no reward, whatever it said before."""
UNGRADE = """
UPDATE traces SET correct = NULL
    WHERE reward IS NULL AND correct IS NOT NULL AND path NOT IN (SELECT path FROM graded)
"""
"""Where no evaluation says anything any more."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def index_path(folder: Path) -> Path:
    """Where the index of a folder lies. `XDG_CACHE_HOME` counts where it is absolute, as its specification says."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    name = hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=12).hexdigest()
    return cache / "metaagent" / "views" / f"{name}.sqlite"


class IndexClosed(Exception):
    """It was closed while somebody asked."""


class IndexFile:
    """An open index of `folder`, with one connection to read and one to write, each for one thread at a time. What is
    damaged is made anew, and empty, before `sqlite3.DatabaseError` is raised: ask again."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.resolve())
        self.told = ""
        """Why it is in memory, in words; empty where it is a file."""
        self.begun = 1
        """How often it was made or opened."""
        self._reading, self._writing = threading.RLock(), threading.RLock()
        """Whoever wants both takes the second one first."""
        self._connections: tuple[sqlite3.Connection, sqlite3.Connection] | None = None
        self._path: Path | None = None
        self._inode = 0
        try:
            self._path = index_path(folder)
        except RuntimeError as error:  # nobody's home
            self._in_memory(str(error))
        self._open()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        connection = None
        try:
            with self._reading:
                connection = self._both()[0]
                yield connection
        except sqlite3.DatabaseError as error:
            self._mend(connection, error)
            raise

    @contextlib.contextmanager
    def looking(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, without a transaction: it has the table `seen`."""
        connection = None
        try:
            with self._writing, self._reading if self._path is None else contextlib.nullcontext():
                connection = self._both()[1]
                yield connection
        except sqlite3.DatabaseError as error:
            self._mend(connection, error)
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """To write, in one transaction, at whose end `changes` is one more. Nothing is written where it raises."""
        with self.looking() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("UPDATE state SET changes = changes + 1")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        with self._writing, self._reading:
            self._shut()

    def _both(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        if self._connections is None:
            raise IndexClosed
        return self._connections

    def _mend(self, failed: sqlite3.Connection | None, error: sqlite3.DatabaseError) -> None:
        """Make it anew after a failure that will not pass by itself."""
        damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
        if is_busy(error) or not (damaged or isinstance(error, sqlite3.OperationalError)):
            return
        with self._writing, self._reading:
            if self._connections is None or failed not in self._connections:
                return  # closed, or another thread has done it
            self._shut()
            if self._path is not None and damaged:
                _remove(self._path, self._inode)
            else:  # no room for it, or it can no longer be written
                self._in_memory(str(error))
            self.begun += 1
            self._open()

    def _shut(self) -> None:
        for connection in set(self._connections or ()):
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        self._connections = None

    def _in_memory(self, why: str) -> None:
        self._path, self.told = None, f"The index is kept in memory alone, and made anew next time: {why}"

    def _open(self) -> None:
        if self._path is not None:
            try:
                self._connections, self._inode = _opened(self._path, self._folder)
                return
            except OSError as error:
                self._in_memory(f"{error.filename}: {error.strerror}")
            except sqlite3.Error as error:
                self._in_memory(f"{self._path}: {error}")
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA temp_store = MEMORY")
        _make(connection, self._folder)
        connection.executescript(SEEN)
        self._connections = connection, connection


def is_busy(error: sqlite3.Error) -> bool:
    """Whether other processes were writing all the time."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def _opened(path: Path, folder: str) -> tuple[tuple[sqlite3.Connection, sqlite3.Connection], int]:
    """A connection to read and one to write, and the file's inode. Raises OSError and `sqlite3.Error` where there can
    be no file."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.is_symlink():
        path.unlink()
    for again in (False, True):
        # Made before SQLite does, as it holds parts of traces; its log gets the same rights.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        inode = os.fstat(file).st_ino
        os.close(file)
        found: list[sqlite3.Connection] = []
        try:
            found.append(_connected(path))
            if not _is_ours(found[0], folder):
                _make(found[0], folder)
            found[0].executescript(SEEN)
            found.append(_connected(path))
            return (found[1], found[0]), inode
        except sqlite3.DatabaseError as error:
            for each in found:
                each.close()
            if again or error.sqlite_errorcode & 0xFF not in _DAMAGED:
                raise
            _remove(path, inode)
    raise AssertionError


def _remove(path: Path, inode: int) -> None:
    """Throw a file away, but not what another process has made in its place."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat(follow_symlinks=False).st_ino == inode:
            for name in (path.name + "-wal", path.name + "-shm", path.name):
                path.with_name(name).unlink(missing_ok=True)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # what a crash of the machine damages is made anew
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _is_ours(connection: sqlite3.Connection, folder: str) -> bool:
    """Whether it is an index of this version, of this folder."""
    marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return marks == [APPLICATION, VERSION] and connection.execute("SELECT path FROM folder").fetchall() == [(folder,)]


def _make(connection: sqlite3.Connection, folder: str) -> None:
    """Make the tables in place of whatever there is, unless another process has just done so."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ours(connection, folder):
            there = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            for kind, name in connection.execute(there).fetchall():
                connection.execute(f'DROP {kind} "{name.replace(chr(34), 2 * chr(34))}"')
            for statement in TABLES.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO folder VALUES (?)", (folder,))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
