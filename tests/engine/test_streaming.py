"""A reply that is streamed is the reply that would have been sent whole, and one that breaks off is none."""

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
from scripted_server import USAGE, Answer, Handler, Server, answer, chat, hang_up

from engine.openai import CachedEngine, OpenAIEngine
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


def events(*chunks: object, end: bool = True) -> Answer:
    lines = [f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks]
    body = "".join([": ping\n\n", *lines, "data: [DONE]\n\n" if end else ""]).encode()
    return lambda handler: Handler.send(handler, 200, body, "text/event-stream")


def piece(finish: str | None = None, **delta: object) -> dict[str, object]:
    return {"model": "served", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


WHOLE = (
    piece(role="assistant", content=""),
    piece(reasoning_content="hm"),
    piece(content="hel"),
    piece(content="lo\nyou"),
    piece("stop"),
    {"choices": [], "usage": USAGE},
)


def asked(server: Server, script: list[Answer], *, watched: bool = True) -> tuple[Completion, list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []
    server.script = script

    async def ask() -> Completion:
        engine = OpenAIEngine("m", server.url, max_attempts=2)
        if watched:
            engine.watch = lambda key, text: seen.append((key, text))
        try:
            request = CompletionRequest(
                messages=[{"role": "user", "content": "?"}], sampling=Sampling(), agent="designer", key="designer/0/0"
            )
            return await engine.complete(request)
        finally:
            await engine.close()

    return asyncio.run(asyncio.wait_for(ask(), 30)), seen


def test_a_streamed_reply_is_the_whole_one(server: Server) -> None:
    streamed, seen = asked(server, [events(*WHOLE)])
    assert seen == [("designer/0/0", "hel"), ("designer/0/0", "lo\nyou")]
    whole, _ = asked(server, [chat("hello\nyou", message={"reasoning_content": "hm"})], watched=False)
    assert streamed == whole
    assert [body.get("stream") for body in server.bodies()] == [True, None]


def test_tool_calls_come_in_pieces(server: Server) -> None:
    calls = [
        piece(tool_calls=[{"index": 0, "id": "a", "function": {"name": "add", "arguments": '{"a"'}}]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
        piece("tool_calls"),
        {"choices": [], "usage": USAGE},
    ]
    reply, _ = asked(server, [events(*calls)])
    assert '{"name": "add", "arguments": {"a": 1}}' in reply.text


def test_a_server_that_does_not_stream_is_served(server: Server) -> None:
    reply, seen = asked(server, [chat("hello")])
    assert (reply.text, seen) == ("hello", [])


@pytest.mark.parametrize(
    "broken",
    [
        events(*WHOLE[:3], end=False),
        events(*WHOLE[:3], "{"),
        events(*WHOLE[:3], "[]"),
        events({"error": {"message": "overloaded", "code": 503}}),
        events(piece(content=["no text"])),
        lambda handler: (handler.send(200, b"data: {", "text/event-stream", Content_Length="5000"), hang_up(handler)),
        answer(500, {"error": {"message": "no"}}),
    ],
)
def test_what_breaks_off_is_asked_again(server: Server, broken: Answer) -> None:
    reply, _ = asked(server, [broken, events(*WHOLE)])
    assert reply.text == "hello\nyou"
    with pytest.raises(EngineFailed, match="Fix: "):
        asked(server, [broken])


def test_the_cache_hands_the_watcher_on(tmp_path: object) -> None:
    engine = OpenAIEngine("m", "http://localhost:1/v1")
    cached = CachedEngine(engine, str(tmp_path))
    cached.watch = print
    assert engine.watch is cached.watch is print
    asyncio.run(cached.close())
