"""A folder of replies that somebody else could write to: it may cost hits, and changes, runs and holds up nothing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_server import Server, chat

from engine.openai import CachedEngine, OpenAIEngine, cache
from engine.openai.cache import FILE, TABLE, _seal
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed

ASK = CompletionRequest(messages=[{"role": "user", "content": "hi"}], sampling=Sampling(temperature=0))
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def ask(server: Server, folder: Path, request: CompletionRequest = ASK) -> tuple[Completion, str]:
    async def run() -> tuple[Completion, str]:
        engine = CachedEngine(OpenAIEngine("m", server.url, max_attempts=1), folder)
        try:
            return await engine.complete(request), engine.problem
        finally:
            await engine.close()

    server.script = [chat("from the server")]
    return asyncio.run(asyncio.wait_for(run(), 30))


def refused(server: Server, folder: Path) -> str:
    with pytest.raises(EngineFailed) as caught:
        ask(server, folder)
    assert str(folder / FILE) in str(caught.value)
    assert "Fix: " in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", [FILE, *(f"{FILE}-{part}" for part in ("wal", "shm", "journal"))])
def test_links_are_not_followed(server: Server, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    before = other.read_bytes()
    folder = tmp_path / "cache"
    folder.mkdir()
    for target in (other, tmp_path / "nothing", Path("/dev/zero")):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        assert f"{name} is a link" in refused(server, folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert f"{name} is a link, a folder or a device" in refused(server, folder)
    assert other.read_bytes() == before
    assert not (tmp_path / "nothing").exists()


def test_another_database_is_left_alone(server: Server, tmp_path: Path) -> None:
    """As by a hard link, which no look at the file tells."""
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    before = (tmp_path / FILE).read_bytes()
    assert "something else than the one table" in refused(server, tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


PROGRAMS = {
    "a view": [f"CREATE VIEW replies (key, number, seal, text) AS {ENDLESS} SELECT 'k', i, 's', x'00' FROM n"],
    "a trigger": [
        TABLE,
        f"CREATE TRIGGER t BEFORE INSERT ON replies BEGIN SELECT count(*) FROM ({ENDLESS} SELECT i FROM n); END",
    ],
    "a computed column": [TABLE.replace("text BLOB", "text BLOB AS (zeroblob(1000000000))")],
    "a check": [TABLE.replace("text BLOB", "text BLOB CHECK (length(hex(zeroblob(400000000))) > 0)")],
    "an index over a computation": [TABLE, "CREATE INDEX i ON replies (hex(zeroblob(100000000)))"],
    "another table": [TABLE, "CREATE TABLE more (x)"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_database_with_programs_is_refused(server: Server, tmp_path: Path, name: str) -> None:
    with sqlite3.connect(tmp_path / FILE) as database:
        for statement in PROGRAMS[name]:
            database.execute(statement)
    database.close()
    assert "something else than the one table" in refused(server, tmp_path)


def forge(folder: Path, change: Callable[[bytes], bytes | str]) -> None:
    """Change the one reply, with the seal that belongs to it: whoever can write the file can do that."""
    with sqlite3.connect(folder / FILE) as database:
        key, number, text = database.execute("SELECT key, number, text FROM replies").fetchone()
        forged = change(text)
        seal = _seal(key, number, forged if isinstance(forged, bytes) else forged.encode())
        database.execute("UPDATE replies SET text = ?, seal = ?", (forged, seal))
    database.close()


FORGED: dict[str, Callable[[bytes], bytes | str]] = {
    "tokens below zero": lambda text: text.replace(b'"prompt_tokens":12', b'"prompt_tokens":-1000000'),
    "tokens beyond all contexts": lambda text: text.replace(b'"prompt_tokens":12', b'"prompt_tokens":' + b"9" * 30),
    "no log-probability": lambda text: text.replace(b'"text"', b'"logprobs":["NaN"],"text"'),
    "no token": lambda text: text.replace(b'"text"', b'"token_ids":[-5],"text"'),
    "other JSON": lambda text: b'{"__class__": "os.system"}',
    "deep JSON": lambda text: b"[" * 1_000_000,
    "half a surrogate pair": lambda text: text.replace(b"from the", b"\\ud800"),
    "a text in place of bytes": lambda text: text.decode(),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_reply_that_cannot_be_is_a_miss(server: Server, tmp_path: Path, name: str) -> None:
    ask(server, tmp_path)
    forge(tmp_path, FORGED[name])
    reply, problem = ask(server, tmp_path)
    assert (reply.text, reply.cached, problem) == ("from the server", False, "")
    assert len(server.asked) == 2
    assert ask(server, tmp_path)[0].cached


def test_a_huge_reply_is_a_miss(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(server, tmp_path)
    forge(tmp_path, lambda text: text.replace(b"from the", b"x" * 100_000))
    monkeypatch.setattr(cache, "MAX_TEXT", 50_000)
    reply, problem = ask(server, tmp_path)
    assert (reply.text, reply.cached) == ("from the server", False)
    assert "too big" in problem
    assert ask(server, tmp_path)[0].cached, "it was replaced"


def test_a_reply_to_another_question_is_a_miss(server: Server, tmp_path: Path) -> None:
    ask(server, tmp_path)
    other = replace(ASK, messages=[{"role": "user", "content": "bye"}])
    ask(server, tmp_path, other)
    with sqlite3.connect(tmp_path / FILE) as database:
        one, two = (row[0] for row in database.execute("SELECT key FROM replies ORDER BY rowid"))
        database.execute("DELETE FROM replies WHERE key = ?", (two,))
        database.execute("UPDATE replies SET key = ? WHERE key = ?", (two, one))
    database.close()
    assert not ask(server, tmp_path, other)[0].cached


@pytest.mark.parametrize("size", [1 << 40, 1 << 20])
def test_a_huge_file_that_is_no_database_is_refused(server: Server, tmp_path: Path, size: int) -> None:
    with (tmp_path / FILE).open("wb") as file:
        file.write(b"no database")
        file.truncate(size)
    assert "not a database" in refused(server, tmp_path)
