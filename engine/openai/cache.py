"""Keeps the replies of a remote endpoint on disk, so that asking the same thing again costs nothing.

`CachedEngine` goes around an `OpenAIEngine`. It never keeps a failure, and it cannot see that a server changed the
weights behind a model's name: not for models in training. SQLite holds the replies, as JSON: it serves several
processes, survives a kill, and nothing in its file is ever executed (pickling caches do that). Its log needs a local
disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from engine.openai.client import OpenAIEngine
from engine.plausible import impossible
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed

FORMAT = 2
"""Part of every key: raise it when old replies must not be read any more."""
FILE = "replies.sqlite3"
MAX_BYTES = 1 << 30
MAX_TEXT = 32 << 20
"""Bytes of one reply."""
TABLE = "CREATE TABLE replies (key TEXT, number INTEGER, seal TEXT, text BLOB, UNIQUE (key, number))"
BUSY_S = 5.0
"""How long to wait while another process writes."""

R = TypeVar("R")
_COMPLETION = TypeAdapter(Completion)


class CachedEngine:
    """An endpoint with a cache in `folder`, which is made if need be and holds at most about `max_bytes`; when it is
    full, the replies stored first go first.

    A request with temperature 0 or a seed determines its reply: identical ones share it, and one that comes while the
    first is under way waits for it. Any other request is one more draw: the k-th identical one that this engine gets
    takes the k-th reply kept, so that independent samples stay independent; a new engine begins with the first again.
    Processes that miss the same reply at once all ask and pay; the last one stays.

    Completions say in `cached` whether they are a hit. A hit has the tokens of the original, so that limits count
    alike, and no cost. A cache that fails while it is used gives no hits, and `problem` says why. Raises
    `EngineFailed` when it cannot be opened.
    """

    def __init__(self, engine: OpenAIEngine, folder: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.name = engine.name
        self.problem = ""
        self._engine = engine
        self._file = Path(folder).expanduser() / FILE
        try:
            self._replies = _Replies(self._file, max_bytes)
        except (OSError, sqlite3.Error) as error:
            fix = "name a folder that you may write to, and delete the file if it is damaged"
            raise EngineFailed(self.name, f"cannot open the cache {self._file}: {error}. Fix: {fix}", 0) from error
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metaagent-cache")
        self._sharing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._drawn: dict[str, set[int]] = {}
        self._closed = False

    @property
    def processed_logprobs(self) -> bool:
        """As of `OpenAIEngine`."""
        return self._engine.processed_logprobs

    @property
    def watch(self) -> Callable[[str, str], None] | None:
        """As of `OpenAIEngine`; replies that are kept do not come in pieces."""
        return self._engine.watch

    @watch.setter
    def watch(self, watch: Callable[[str, str], None] | None) -> None:
        self._engine.watch = watch

    async def complete(self, request: CompletionRequest) -> Completion:
        if self._closed:
            raise EngineFailed(self.name, "the engine is closed. Fix: make a new one", attempts=0)
        sent = self._engine.sent(request)
        try:
            key = cache_key(sent)
        except (TypeError, ValueError):  # no JSON: the engine says what is wrong
            return await self._engine.complete(request)
        if sent["body"].get("temperature") == 0 or sent["body"].get("seed") is not None:
            lock = self._sharing.setdefault(key, asyncio.Lock())
            async with lock:
                return await self._reply(key, 0, request)
        drawn = self._drawn.setdefault(key, set())
        number = next(number for number in itertools.count() if number not in drawn)
        drawn.add(number)
        try:
            return await self._reply(key, number, request)
        except BaseException:
            drawn.discard(number)  # the next one takes its place
            raise

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._replies.close)  # after what it is doing
            self._thread.shutdown(wait=False)
        await self._engine.close()

    async def _reply(self, key: str, number: int, request: CompletionRequest) -> Completion:
        kept = _read(await self._on_disk(self._replies.get, key, number))
        if kept is not None:
            cost = None if self._engine.prices is None else 0.0
            return replace(kept, cached=True, usage=replace(kept.usage, cost_usd=cost))
        completion = await self._engine.complete(request)
        text = _text(completion)
        if text is not None:
            await self._on_disk(self._replies.put, key, number, text)
        return replace(completion, cached=False)

    async def _on_disk(self, work: Callable[..., R], *arguments: Any) -> R | None:
        """Do something in the cache's own thread. None, with a `problem`, when the cache fails."""
        if self._closed:
            return None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        except sqlite3.Error as error:
            fix = "free disk space, or delete the file if it is damaged"
            self.problem = f"the cache {self._file} did not work ({error}), so replies were asked for. Fix: {fix}"
            return None


def cache_key(sent: dict[str, Any]) -> str:
    """Hexadecimal SHA-256 of `OpenAIEngine.sent`, whatever the order of its parts. Raises TypeError or ValueError for
    what is no JSON."""
    canonical = json.dumps([FORMAT, sent], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _text(completion: Completion) -> bytes | None:
    """What is kept of a completion; None for one that was broken off, or whose text is no Unicode."""
    try:
        return None if completion.finish_reason == "abort" else _COMPLETION.dump_json(completion, exclude_none=True)
    except PydanticSerializationError:
        return None


def _read(text: bytes | None) -> Completion | None:
    """A completion of its own for every hit; None for a text that is none, or says what cannot be."""
    try:
        completion = None if text is None else _COMPLETION.validate_json(text)
    except ValidationError:
        return None
    return None if completion is None or impossible(completion) else completion


class _Replies:
    """Texts by key and number in one SQLite file, used by one thread at a time."""

    def __init__(self, file: Path, max_bytes: int) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (file, *(file.with_name(f"{file.name}-{part}") for part in ("wal", "shm", "journal"))):
            if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
                raise OSError(f"{path.name} is a link, a folder or a device")  # SQLite would follow it
        if not file.exists():  # opening it here, beside SQLite, would break SQLite's locks
            os.close(os.open(file, os.O_CREAT | os.O_NOFOLLOW, 0o600))  # replies are nobody else's business
        self._max_bytes = max_bytes
        self._db = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT + 1024)
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._check_schema()
            self._use_a_log()
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
            self._page_bytes = self._number("PRAGMA page_size")
        except BaseException:
            self._db.close()
            raise

    def _check_schema(self) -> None:
        """Before anything is written or read: views, triggers and computed columns are programs, and may never end."""
        found = self._db.execute("SELECT type, sql FROM sqlite_master").fetchall()
        if not set(found) <= {("table", TABLE), ("index", None)}:
            raise sqlite3.DatabaseError("it holds something else than the one table of replies")

    def _use_a_log(self) -> None:
        """SQLite does not wait when two processes turn the log on at once: it says at once that the file is locked."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def get(self, key: str, number: int) -> bytes | None:
        """The text, unless it was never kept or is damaged."""
        found = self._db.execute("SELECT seal, text FROM replies WHERE key = ? AND number = ?", (key, number))
        seal, text = found.fetchone() or (None, None)
        return text if isinstance(text, bytes) and seal == _seal(key, number, text) else None

    def put(self, key: str, number: int, text: bytes) -> None:
        """Keep a text, in place of an earlier one; makes room first. One that is too large is not kept."""
        if len(text) > min(self._max_bytes, MAX_TEXT):
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            while self._used_bytes() + len(text) > self._max_bytes and self._drop_oldest():
                pass
            row = (key, number, _seal(key, number, text), text)
            self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", row)
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()

    def _used_bytes(self) -> int:
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._page_bytes

    def _drop_oldest(self) -> bool:
        """Drop a tenth of the replies; False if there are none."""
        count = self._number("SELECT count(*) FROM replies") // 10 + 1
        oldest = "SELECT rowid FROM replies ORDER BY rowid LIMIT ?"
        return self._db.execute(f"DELETE FROM replies WHERE rowid IN ({oldest})", (count,)).rowcount > 0

    def _number(self, query: str) -> int:
        return self._db.execute(query).fetchone()[0]


def _seal(key: str, number: int, text: bytes) -> str:
    """Ties a text to its place, so that damage to either is noticed."""
    return hashlib.sha256(f"{key}/{number}/".encode() + text).hexdigest()
