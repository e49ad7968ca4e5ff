"""The broker against peers of every kind, played by the test on the other end of a socket pair."""

import asyncio
import contextlib
import json
import socket
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jails import Scripted, until

from engine.session import Session
from sandbox.frames import HEADER, encode, read_frame
from sandbox.host.broker import Broker, Outcome
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed, LimitExceeded, MetaAgentError
from workflow.limits import Limits
from workflow.requests import CodeReply, CodeRun
from workflow.trace import AgentTurn, Delivered, Trace

CALL = {"agent": "a", "messages": [{"role": "user", "content": "hi"}], "tools": [], "turn": 0}
ANSWER = {"op": "answer", "text": "bye"}


def call(key: str, **request: Any) -> dict[str, Any]:
    return {"op": "AgentCall", "key": key, "path": "w/a", "request": {**CALL, **request}}


def tool_call(key: str, arguments: Any = None) -> dict[str, Any]:
    return {
        "op": "ToolCall",
        "key": key,
        "path": "w/a",
        "request": {"agent": "a", "name": "x", "arguments": arguments or {}},
    }


def raw(value: Any) -> bytes:
    """A frame as an attacker writes it: escapes, NaN and all."""
    body = json.dumps(value).encode()
    return HEADER.pack(len(body)) + body


class Peer:
    """The jail's end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.loop = asyncio.get_running_loop()

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(sock=self.sock)

    async def send(self, *frames: Any) -> None:
        for frame in frames:
            self.writer.write(frame if isinstance(frame, bytes) else encode(frame))
            await self.writer.drain()

    async def receive(self) -> dict[str, Any]:
        read = await read_frame(self.reader)
        assert read is not None
        return read[0]


async def serve(
    play: Callable[[Peer], Any], engine: Any = None, code_runner: Any = None, alone: bool = True, **limits: Any
) -> tuple[Outcome | MetaAgentError, Session]:
    """Let `play(peer)` talk to a broker; what the broker made of it, or the failure it raised."""
    ours, theirs = socket.socketpair()
    session = Session(engine or Scripted(), limits=Limits(**limits), code_runner=code_runner)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    peer = Peer(theirs)
    await peer.open()

    async def played() -> None:
        try:
            assert (await peer.receive())["op"] == "run"
            await play(peer)
        except ConnectionError:
            pass  # the broker has hung up
        finally:
            peer.writer.close()

    playing = asyncio.create_task(played())
    outcome: Outcome | MetaAgentError
    try:
        async with asyncio.timeout(20):
            outcome = await Broker(session, reader, writer).serve({"op": "run"})
    except MetaAgentError as failed:
        outcome = failed
    finally:
        writer.transport.abort()
        playing.cancel()
        errors = await asyncio.gather(playing, return_exceptions=True)
    assert not isinstance(errors[0], Exception), errors
    if alone:
        assert asyncio.all_tasks() == {asyncio.current_task()}, "the broker leaves no task"
    return outcome, session


def served(play: Callable[[Peer], Any], engine: Any = None, **options: Any) -> tuple[Any, Session]:
    return asyncio.run(serve(play, engine, **options))


def sending(*frames: Any) -> Callable[[Peer], Any]:
    async def play(peer: Peer) -> None:
        await peer.send(*frames)

    return play


# What it is for


def test_calls_are_served_side_by_side_and_in_any_order():
    engine = Scripted(lambda request: f"reply to {request.key}", delay_s=0.1)

    async def play(peer: Peer) -> None:
        await peer.send(*(call(f"k{n}") for n in range(10)))
        replies = [await peer.receive() for _ in range(10)]
        assert {reply["key"]: reply["reply"]["text"] for reply in replies} == {
            f"k{n}": f"reply to k{n}" for n in range(10)
        }
        assert {reply["type"] for reply in replies} == {"agent"}
        await peer.send(ANSWER)

    outcome, session = served(play, engine)
    assert outcome == Outcome(answer="bye")
    assert engine.most_at_once == 10
    assert len([event for event in session.events if isinstance(event, AgentTurn)]) == 10


def test_code_and_tool_calls_are_answered():
    async def run_code(request: CodeRun) -> CodeReply:
        return CodeReply(3, request.code + request.stdin, "err")

    async def play(peer: Peer) -> None:
        await peer.send(tool_call("t", {"n": 1}))
        assert await peer.receive() == {"key": "t", "type": "tool", "reply": {"content": None}}
        await peer.send({"op": "CodeRun", "key": "c", "request": {"code": "1", "stdin": "2"}})
        assert (await peer.receive())["reply"] == {"exit_status": 3, "stdout": "12", "stderr": "err", "limit": None}
        await peer.send(ANSWER)

    outcome, session = served(play, code_runner=run_code)
    assert outcome.answer == "bye"
    assert [event.type for event in session.events] == ["run_started", "tool_call", "code_run"]


@pytest.mark.parametrize(
    ("frame", "kind", "message"),
    [
        ({"op": "failed", "error_type": "ValueError", "message": "no", "line": 3}, "program_failed", "ValueError: no"),
        ({"op": "out_of_memory"}, "limit_exceeded", "memory_mb=512 exceeded"),
        ({"op": "rejected", "findings": [{"line": 1, "code": "c", "message": "m"}]}, "program_rejected", "line 1: m"),
    ],
)
def test_how_a_program_may_say_that_it_ended(frame, kind, message):
    outcome, _ = served(sending(frame))
    assert outcome.failure.kind == kind
    assert message in outcome.failure.message


def test_a_channel_that_closes_is_silence():
    outcome, _ = served(sending())
    assert outcome.is_silent
    outcome, _ = served(sending(b"\x05\x00\x00\x00{"))
    assert outcome.is_silent


# What it does not believe


HOSTILE = {
    "not json": HEADER.pack(3) + b"abc",
    "giant": HEADER.pack(2**31),
    "array": raw([1, 2]),
    "no op": raw({"text": "x"}),
    "unknown op": raw({"op": "AgentTurn", "key": "x"}),
    "op of another type": raw({"op": ["answer"], "text": "x"}),
    "op of megabytes": raw({"op": "x" * 5_000_000}),
    "forged event": raw({"type": "agent_call", "key": "k", "path": "p", "agent": "a", "messages": []}),
    "answer that is no text": raw({"op": "answer", "text": {"a": 1}}),
    "answer without text": raw({"op": "answer"}),
    "call without messages": raw({"op": "AgentCall", "key": "k", "request": {"agent": "a"}}),
    "call with a message of no role": raw(call("k", messages=[{"content": "x"}])),
    "call of a strange role": raw(call("k", messages=[{"role": "root", "content": "x"}])),
    "call with a million wrong messages": raw(call("k", messages=[0] * 100_000)),
    "key of another type": raw({**call("k"), "key": 7}),
    "key of kilobytes": raw(call("k" * 5000)),
    "path of kilobytes": raw({**call("k"), "path": "p" * 5000}),
    "place of kilobytes": raw({**call("k"), "place": [1] * 5000}),
    "place of huge numbers": raw({**call("k"), "place": [10**1500]}),
    "place below zero": raw({**call("k"), "place": [-1]}),
    "place of no numbers": raw({**call("k"), "place": ["1", 2.5]}),
    "lone surrogate": raw({"op": "print", "text": "\ud800"}),
    "reply instead of a request": raw({"op": "AgentReply", "text": "42"}),
    "host's own job": raw({"op": "run", "source": "x", "question": ""}),
    "deep arguments": raw(tool_call("t", json.loads('{"a":' * 90 + "1" + "}" * 90))),
    "error type of kilobytes": raw({"op": "failed", "error_type": "E" * 5000, "message": "m"}),
    "error message of megabytes": raw({"op": "failed", "error_type": "E", "message": "m" * 5_000_000}),
    "source of a delivery": raw({"op": "Delivery", "request": {"agent": "a", "text": "t", "source": "heaven"}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_frame_ends_the_run_as_the_programs_failure(name):
    outcome, session = served(sending(call("before"), HOSTILE[name], ANSWER))
    assert outcome.failure is not None
    assert outcome.failure.kind == "program_failed"
    assert outcome.failure.fields["error_type"] == "ProtocolError"
    assert outcome.broke_protocol
    assert len(outcome.failure.message) < 1000
    run = session.finish(outcome.answer, outcome.failure)
    assert run.answer is None
    Trace.from_lines(list(run.trace.lines()))


def test_a_key_is_used_once():
    for second in (call("same"), tool_call("same")):

        async def play(peer: Peer, second: Any = second) -> None:
            await peer.send(call("same"))
            assert (await peer.receive())["key"] == "same"  # served, and its key stays taken
            await peer.send(second)

        outcome, _ = served(play)
        assert "key 'same' is in use" in outcome.failure.message


def test_an_answer_that_no_agent_gave_is_marked():
    outcome, session = served(sending(ANSWER))
    assert session.finish(outcome.answer).answer_from is None
    forged = {"op": "Delivery", "path": "w/a", "request": {"agent": "a", "text": "\\boxed{7}", "source": "delivery"}}
    outcome, session = served(sending(forged, {"op": "answer", "text": "\\boxed{7}"}))
    run = session.finish(outcome.answer)
    assert (run.answer, run.answer_from) == ("\\boxed{7}", None), "what the program reports is no agent's reply"
    assert [type(event) for event in run.trace.events[1:2]] == [Delivered]


def test_what_follows_the_answer_is_not_read():
    outcome, session = served(sending(ANSWER, call("late"), {"op": "answer", "text": "second"}))
    assert outcome == Outcome(answer="bye")
    assert [event.type for event in session.events] == ["run_started"]


# Limits


@pytest.mark.parametrize(
    ("frames", "limits", "kind", "limit", "used"),
    [
        ([call(f"k{n}") for n in range(4)], {"agent_calls": 3}, "agent_calls", 3, 4),
        (
            [tool_call(f"t{n}") for n in range(3)],
            {"tool_calls": 2},
            "tool_calls",
            2,
            3,
        ),
        ([{"op": "print", "text": "x" * 60}] * 2, {"output_bytes": 100}, "output_bytes", 100, 120),
        ([{"op": "print", "text": "\u00e9" * 60}], {"output_bytes": 100}, "output_bytes", 100, 120),
        ([call("k0"), call("k1")], {"tokens": 20}, "tokens", 20, 30),
    ],
)
def test_limits_are_counted_on_this_side(frames, limits, kind, limit, used):
    async def play(peer: Peer) -> None:
        await peer.send(*frames)
        await asyncio.sleep(5)

    outcome, _ = served(play, **limits)
    assert isinstance(outcome, LimitExceeded)
    assert (outcome.limit_kind, outcome.limit, outcome.used) == (kind, limit, used)


FLOODS = {
    "empty prints": {"op": "print", "text": ""},
    "large prints": {"op": "print", "text": "x" * 1_000_000},
    "deliveries": {"op": "Delivery", "request": {"agent": "a", "text": "", "source": "delivery"}},
    "tool results": {"op": "ToolResult", "request": {"agent": "a", "name": "n", "content": "x" * 10_000}},
    "many values": call("k", tools=[{"a": [0] * 1000} for _ in range(100)]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_ends_before_it_fills_the_host(name, monkeypatch):
    monkeypatch.setattr("sandbox.host.broker.MAX_TRAFFIC_MB", 8)
    frame = encode(FLOODS[name])
    sent = 0

    async def play(peer: Peer) -> None:
        nonlocal sent
        for n in range(10**9):
            data = encode({**FLOODS[name], "key": f"k{n}"}) if name == "many values" else frame
            await peer.send(data)
            sent += len(data)

    tracemalloc.start()
    started = time.monotonic()
    outcome, _ = served(play, output_bytes=10**9, agent_calls=10**6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(outcome, LimitExceeded)
    assert outcome.limit_kind == "output_bytes"
    assert peak < 40 << 20
    assert sent < 20 << 20
    assert time.monotonic() - started < 18


def test_a_flood_does_not_stop_the_others():
    """Two runs on one loop: one floods, the other's calls are answered meanwhile."""
    slowest = 0.0

    async def flood(peer: Peer) -> None:
        while True:
            await peer.send({"op": "print", "text": ""})

    async def polite(peer: Peer) -> None:
        nonlocal slowest
        for n in range(30):
            started = time.monotonic()
            await peer.send(call(f"k{n}"))
            await peer.receive()
            slowest = max(slowest, time.monotonic() - started)
        await peer.send(ANSWER)

    async def both() -> list[Any]:
        return await asyncio.gather(serve(flood, alone=False), serve(polite, alone=False))

    (flooded, _), (answered, _) = asyncio.run(both())
    assert isinstance(flooded, LimitExceeded)
    assert answered == Outcome(answer="bye")
    assert slowest < 2


# Engines and ends


def test_an_engines_failure_ends_the_run_and_cancels_the_other_calls():
    class Failing(Scripted):
        async def complete(self, request: CompletionRequest) -> Completion:
            if request.key == "bad":
                raise EngineFailed("failing", "no model")
            return await super().complete(request)

    engine = Failing(delay_s=30)

    async def play(peer: Peer) -> None:
        await peer.send(call("slow"))
        await asyncio.sleep(0.05)
        await peer.send(call("bad"))
        await asyncio.sleep(30)

    outcome, session = served(play, engine)
    assert isinstance(outcome, EngineFailed)
    assert engine.now == 0
    turns = session.finish(failure=outcome.record()).trace.agent_turns
    assert {turn.key: turn.completion for turn in turns} == {"slow": None, "bad": None}


def test_an_engine_that_cancels_a_call_itself_has_failed():
    class Cancelling(Scripted):
        async def complete(self, request: CompletionRequest) -> Completion:
            raise asyncio.CancelledError

    async def play(peer: Peer) -> None:
        await peer.send(call("a"))
        await asyncio.sleep(30)

    outcome, _ = served(play, Cancelling())
    assert isinstance(outcome, EngineFailed)
    assert "it cancelled a call itself" in str(outcome)


def test_a_peer_that_never_reads_holds_nobody_up():
    async def play(peer: Peer) -> None:
        await peer.send(*(call(f"k{n}") for n in range(20)))
        await asyncio.sleep(0.3)
        await peer.send(ANSWER)

    outcome, _ = served(play, Scripted("x" * 1_000_000))
    assert outcome == Outcome(answer="bye")


def test_a_peer_that_leaves_while_calls_are_open():
    engine = Scripted(delay_s=30)

    async def play(peer: Peer) -> None:
        await peer.send(call("k"))
        await asyncio.sleep(0.05)

    outcome, _ = served(play, engine)
    assert outcome.is_silent
    assert engine.now == 0


def test_an_engine_that_never_minds_being_cancelled_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr("sandbox.host.broker.REAP_TIMEOUT_S", 0.2)

    class Deaf(Scripted):
        async def complete(self, request: CompletionRequest) -> Completion:
            while not over.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()
            return await super().complete(request)

    async def play(peer: Peer) -> None:
        await peer.send(call("k"))
        await asyncio.sleep(0.05)
        await peer.send(ANSWER)

    async def main() -> None:
        outcome, session = await serve(play, Deaf(), alone=False)
        assert outcome == Outcome(answer="bye")
        run = session.finish("bye")
        over.set()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        assert [type(event).__name__ for event in run.trace.events] == [
            "RunStarted",
            "AgentTurn",
            "Answered",
            "RunEnded",
        ]

    over = asyncio.Event()
    asyncio.run(main())


# Anything at all


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": float("nan")},
        {"temperature": 1e9},
        {"temperature": -1},
        {"top_p": 0},
        {"max_tokens": 0},
        {"max_tokens": 10**12},
        {"seed": 1},
        {"stop": ["x"]},
        [],
        "hot",
    ],
    ids=str,
)
def test_what_an_agent_asks_for_itself_is_checked_before_anybody_is_asked(sampling):
    outcome, session = served(sending(raw(call("k", sampling=sampling))))
    assert isinstance(outcome, Outcome)
    assert outcome.broke_protocol
    assert session.finish(None, outcome.failure).trace.agent_turns == []


PART = {"op": "described", "graph": {"kind": "Workflow", "name": "first"}, "unreachable": [], "more": True}


def described_by(*frames: Any) -> Any:
    outcome, _ = served(sending(*frames))
    assert isinstance(outcome, Outcome)
    return outcome.described and outcome.described.graph.name


@pytest.mark.parametrize(
    "end",
    [{"op": "failed", "error_type": "E", "message": "m"}, {"op": "out_of_memory"}, b""],
    ids=["failed", "oom", "end"],
)
def test_a_description_that_breaks_off_keeps_its_first_part(end):
    assert described_by(PART, end) == "first"
    whole = {**PART, "graph": {"kind": "Workflow", "name": "whole"}, "more": False}
    assert described_by(PART, whole, end) == "whole"


def test_a_description_that_goes_on_for_ever_ends_with_what_it_has(monkeypatch):
    monkeypatch.setattr("sandbox.host.broker.MORE_S", 0.1)

    async def play(peer: Peer) -> None:
        await peer.send(PART)
        await asyncio.sleep(30)

    outcome, _ = served(play)
    assert isinstance(outcome, Outcome)
    assert outcome.described is not None
    assert outcome.described.more


TEXT = st.text(st.characters(categories=["L", "Cs", "P"]), max_size=8)  # lone surrogates too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
_REQUESTS = ["AgentCall", "ToolCall", "CodeRun", "Observe", "Act"]
OPS = st.sampled_from([*_REQUESTS, "Delivery", "ToolResult", "print", "answer", "failed", "rejected", "described"])
FIELDS = st.fixed_dictionaries(
    {"op": OPS},
    optional={
        "key": st.text(max_size=3) | JSON,
        "path": st.text(max_size=3) | JSON,
        "text": st.text(max_size=5) | JSON,
        "request": st.just(CALL) | st.dictionaries(st.sampled_from([*CALL, "name", "arguments", "code", "text"]), JSON),
        "findings": JSON,
        "graph": JSON,
        "unreachable": JSON,
        "more": JSON,
        "error_type": JSON,
        "message": JSON,
        "line": JSON,
    },
)
PIECE = st.binary(max_size=40) | FIELDS.map(raw) | JSON.map(raw) | st.just(raw(call("k")))


async def _nobody(request: CodeRun) -> CodeReply:
    return CodeReply(0, "", "")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECE, max_size=6))
def test_arbitrary_bytes_never_raise_never_hang_and_leave_a_readable_trace(pieces):
    outcome, session = served(sending(b"".join(pieces)), code_runner=_nobody)
    if isinstance(outcome, MetaAgentError):
        assert not outcome.record().is_infrastructure
        run = session.finish(failure=outcome.record())
    else:
        assert outcome.failure is None or not outcome.failure.is_infrastructure
        run = session.finish(outcome.answer, outcome.failure)
    lines = list(run.trace.lines())
    assert len(Trace.from_lines(lines).events) == len(lines)
