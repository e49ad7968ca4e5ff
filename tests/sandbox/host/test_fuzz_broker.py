"""The host's side of a program's channel, fuzzed: whatever arrives, in whatever pieces, the run ends with an outcome.

`test_broker` plays peers that attack in ways somebody thought of; here hypothesis composes messages, orders, chunks and
mutations of conversations that real programs had.
"""

import asyncio
import json
import random
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from growth import check_linear, peak_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jails import Scripted

from engine.session import Session
from sandbox.conformance.scripted import Steps
from sandbox.frames import HEADER, MAX_FRAME, FrameError, decode, encode, weigh
from sandbox.host.broker import Broker, Outcome
from sandbox.jail import run_program
from workflow.failures import Failure, MetaAgentError
from workflow.limits import Limits
from workflow.requests import CodeReply, CodeRun
from workflow.trace import Trace

PROGRAMS = {
    "ensemble": """
from workflow import AgentNode, EnsembleNode, Workflow
members = [AgentNode(f"m{n}", "Solve.") for n in range(3)]
workflow = Workflow("w").add_node(EnsembleNode("e", members, strategy="majority_vote"))
""",
    "tools": """
from workflow import AgentNode, ToolRegistry, Workflow
tools = ToolRegistry()
tools.register("double", lambda x: str(2 * x), "doubles", {"type": "object", "properties": {"x": {"type": "integer"}}})
workflow = Workflow("w").add_node(AgentNode("a", "Use the tool.", tool_registry=tools))
print("built")
""",
    "code": """
import subprocess, sys
from workflow import AgentNode, Workflow
print(subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout)
workflow = Workflow("w").add_node(AgentNode("a", "Solve."))
""",
    "game": """
from workflow import AgentNode, Workflow
seen = environment.observe("a")
while not seen.done:
    seen = environment.act("a", Workflow("w").add_node(AgentNode("a", "Go.")).run(seen.text))
""",
    "failing": "raise ValueError('no')\n",
    "rejected": "x = (\n",
}
REPLY = r'<tool_call>{"name": "double", "arguments": {"x": 2}}</tool_call> \boxed{4} <delivery>4</delivery>'


class _Recorder:
    """The jail's end of a channel that answers by itself and keeps what the program sends."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(decode(encode(message)[HEADER.size :]))
        if message.get("key"):
            self.open.append(message)

    def receive(self) -> dict[str, Any]:
        asked = self.open.pop(0)
        kinds = {"AgentCall": "agent", "ToolCall": "tool", "CodeRun": "code", "Observe": "seen", "Act": "seen"}
        kind = kinds[asked["op"]]
        code = {"exit_status": 0, "stdout": "1\n", "stderr": ""}
        seen = {"text": "@G", "done": asked["op"] == "Act"}
        reply = {"agent": {"text": REPLY}, "tool": {"content": None}, "code": code, "seen": seen}[kind]
        return {"key": asked["key"], "type": kind, "reply": reply}


def recorded(source: str) -> list[dict[str, Any]]:
    """What a real program says on its channel, from its first request to its end."""
    run_program.warm()
    recorder: Any = _Recorder()
    job = {"op": "run", "source": source, "question": "q", "seed": 0, "game": True}
    recorder.sent.append(run_program._run_program(recorder, job))
    run_program._ready.clear()
    return recorder.sent


@pytest.fixture(scope="module")
def conversations() -> list[list[dict[str, Any]]]:
    found = [recorded(source) for source in PROGRAMS.values()]
    assert {message["op"] for each in found for message in each} >= {
        "Act", "AgentCall", "Observe", "ToolCall", "ToolResult", "CodeRun", "Delivery", "print", "answer", "failed",
        "rejected",
    }  # fmt: skip
    return found


class _Sink:
    """A writer that nobody reads."""

    def write(self, data: bytes) -> None:
        assert len(data) <= MAX_FRAME + HEADER.size

    async def drain(self) -> None:
        return None


async def run_code(request: CodeRun) -> CodeReply:
    return CodeReply(0, request.code[:10], "")


async def hear(chunks: list[bytes]) -> tuple[Outcome | MetaAgentError, Session]:
    """A broker that hears these chunks and then the end of the channel."""
    session = Session(Scripted(), limits=Limits(wall_s=60, agent_calls=20), code_runner=run_code, game=Steps())
    reader, writer = asyncio.StreamReader(), _Sink()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    outcome: Outcome | MetaAgentError
    try:
        async with asyncio.timeout(60):
            outcome = await Broker(session, reader, writer).serve({"op": "run"})  # type: ignore[arg-type]
    except MetaAgentError as failed:
        outcome = failed
    assert asyncio.all_tasks() == {asyncio.current_task()}, "the broker leaves no task"
    return outcome, session


def check(chunks: list[bytes]) -> Outcome:
    """The run ends as an outcome or a named failure, with a trace that can be written and read again."""
    outcome, session = asyncio.run(hear(chunks))
    if isinstance(outcome, MetaAgentError):
        outcome = Outcome(failure=outcome.record())
    assert isinstance(outcome, Outcome)
    assert outcome.failure is None or isinstance(outcome.failure, Failure)
    run = session.finish(outcome.answer, outcome.failure)
    lines = list(run.trace.lines())
    assert len(Trace.from_lines(lines).events) == len(lines)
    return outcome


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[low:high] for low, high in pairwise(edges)]


def raw(value: Any) -> bytes:
    """A frame as an attacker writes it."""
    body = json.dumps(value).encode()
    return HEADER.pack(len(body)) + body


ODD = st.sampled_from(
    ["", "\x00", "\ud800", "\\" * 50, "{" * 200, "<tool_call>" * 50, 10**400, -1, 1e308, True, None, [], {}, [[]] * 20]
)
TEXT = st.one_of(st.text(max_size=20), st.sampled_from(["k", "k/1", "w/a", "a" * 5000, "<delivery>", "\x00\x1b[2J"]))
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, ODD),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)
KEY = st.sampled_from(["", "k", "k1", "k2"])
CHAT = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXT})
REQUESTS = {
    "AgentCall": {"agent": TEXT, "messages": st.lists(CHAT, max_size=3), "tools": st.just([]), "turn": st.integers()},
    "ToolCall": {"agent": TEXT, "name": TEXT, "arguments": st.dictionaries(TEXT, VALUE, max_size=3)},
    "CodeRun": {"code": TEXT, "stdin": TEXT, "timeout_s": st.one_of(st.none(), st.floats())},
    "Observe": {"agent": TEXT},
    "Act": {"agent": TEXT, "text": TEXT, "commit": st.booleans()},
    "Delivery": {"agent": TEXT, "text": TEXT, "source": st.sampled_from(["delivery", "excerpt", "x"])},
    "ToolResult": {"agent": TEXT, "name": TEXT, "content": TEXT, "is_error": st.booleans()},
}
WELL_FORMED = st.one_of(
    *(
        st.fixed_dictionaries({"op": st.just(op), "key": KEY, "path": TEXT, "request": st.fixed_dictionaries(fields)})
        for op, fields in REQUESTS.items()
    ),
    st.fixed_dictionaries({"op": st.just("print"), "text": TEXT}),
    st.fixed_dictionaries({"op": st.just("answer"), "text": TEXT}),
    st.fixed_dictionaries({"op": st.just("out_of_memory")}),
    st.fixed_dictionaries(
        {"op": st.just("failed"), "error_type": TEXT, "message": TEXT, "line": st.one_of(st.none(), st.integers())}
    ),
    st.fixed_dictionaries(
        {"op": st.just("described"), "graph": VALUE, "unreachable": st.lists(TEXT, max_size=3), "more": st.booleans()}
    ),
    st.fixed_dictionaries({"op": st.just("rejected"), "findings": st.lists(VALUE, max_size=2)}),
)
FEWER = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@FEWER
@given(st.lists(WELL_FORMED, max_size=12), st.lists(st.integers(0, 10**6), max_size=8))
def test_well_formed_messages_in_any_order_and_any_chunks(messages, places):
    check(cut(b"".join(map(raw, messages)), places))


@FEWER
@given(st.lists(VALUE, max_size=6), st.lists(st.integers(0, 10**6), max_size=4))
def test_arbitrary_frames(values, places):
    check(cut(b"".join(map(raw, values)), places))


@FEWER
@given(st.randoms(use_true_random=False), st.integers(0, len(PROGRAMS) - 1))
def test_mutations_of_real_conversations(conversations, chance, which):
    check(cut(mutated(conversations[which], chance), [chance.randrange(10**6) for _ in range(4)]))


def mutated(conversation: list[dict[str, Any]], chance: random.Random) -> bytes:
    """A conversation after a few changes: to the order, to a value somewhere, to the bytes, to a frame's length."""
    messages = [json.loads(json.dumps(message)) for message in conversation]
    for _ in range(chance.randrange(4)):
        what = chance.choice(["drop", "repeat", "swap", "value", "key"])
        place = chance.randrange(len(messages))
        if what == "drop" and len(messages) > 1:
            del messages[place]
        elif what == "repeat":
            messages.insert(chance.randrange(len(messages)), messages[place])
        elif what == "swap":
            other = chance.randrange(len(messages))
            messages[place], messages[other] = messages[other], messages[place]
        else:
            inner: Any = messages[place]
            while isinstance(inner, dict) and inner and chance.random() < 0.7:
                key = chance.choice(list(inner))
                if not isinstance(inner[key], dict) or chance.random() < 0.3:
                    inner[key] = chance.choice([None, "", 10**400, [], {}, "\x00", [[[]]], -1, "k", True, "a" * 10**5])
                    break
                inner = inner[key]
    data = bytearray(b"".join(map(raw, messages)))
    for _ in range(chance.randrange(3)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(len(data) + 1)]) if chance.random() < 0.2 else bytes(data)


@pytest.mark.parametrize("which", PROGRAMS)
def test_real_conversations_in_single_bytes(conversations, which):
    """Unchanged, they end as the program said: the fuzzing above starts from what is accepted."""
    conversation = conversations[list(PROGRAMS).index(which)]
    outcome = check([bytes([byte]) for byte in b"".join(map(raw, conversation))])
    last = conversation[-1]
    if last["op"] == "answer":
        assert outcome.answer == last["text"]
    else:
        assert outcome.failure is not None
        assert outcome.failure.kind in ("program_failed", "program_rejected")
        assert "ProtocolError" not in outcome.failure.message


FAMILIES = {
    "deep lists": lambda n: b"[" * n + b"]" * n,
    "deep objects": lambda n: b'{"a":' * n + b"1" + b"}" * n,
    "repeated keys": lambda n: b"{" + b'"a":1,' * n + b'"a":1}',
    "many keys": lambda n: b"{" + b",".join(b'"%d":0' % i for i in range(n)) + b"}",
    "empty lists": lambda n: b'{"a":[' + b"[]," * n + b"[]]}",
    "backslashes": lambda n: b'{"op":"print","text":"' + rb"\\" * n + b'"}',
    "surrogates": lambda n: b'{"op":"print","text":"' + rb"\ud800" * n + b'"}',
    "pairs of surrogates": lambda n: b'{"op":"print","text":"' + rb"\ud83d\ude00" * n + b'"}',
    "huge integer": lambda n: b'{"op":"print","text":' + b"9" * n + b"}",
    "huge fraction": lambda n: b'{"op":"print","text":0.' + b"9" * n + b"}",
    "NULs": lambda n: b'{"op":"print","text":"' + rb"\u0000" * n + b'"}',
    "open string": lambda n: b'{"op":"print","text":"' + b"a" * n,
    "spaces": lambda n: b" " * n,
    "commas": lambda n: b"[" + b"," * n,
    "a long key": lambda n: b'{"op":"AgentCall","key":"' + b"k" * n + b'","path":"","request":{}}',
    "many messages": lambda n: (
        b'{"op":"AgentCall","key":"k","path":"","request":{"agent":"a","messages":['
        + b'{"role":"user","content":""},' * n
        + b'{"role":"user","content":""}]}}'
    ),
    "many findings": lambda n: b'{"op":"rejected","findings":[' + b"1," * n + b"1]}",
    "a deep graph": lambda n: b'{"op":"described","unreachable":[],"graph":' + b'{"children":[' * n + b"]}" * n + b"}",
}


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_one_frame_costs_time_and_memory_in_proportion_to_its_size(family):
    def work(size: int) -> Any:
        data = framed(FAMILIES[family](size))
        return lambda: check([data])

    check_linear(family, work, 20_000)
    data = framed(FAMILIES[family](100_000))
    peak = peak_bytes(lambda: check([data]))
    # 24 bytes of memory for an empty list of 3 bytes, and pydantic's copy: far from a power of the size.
    assert peak < 100 * len(data) + (8 << 20), f"{peak} bytes of memory for {len(data)} bytes"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frame_is_decoded_and_weighed_or_refused(family):
    for size in (0, 1, 2, 63, 64, 65, 10_000):
        with suppress(FrameError):
            weigh(decode(FAMILIES[family](size)))


def test_many_small_messages_cost_time_in_proportion_to_their_number():
    def work(count: int) -> Any:
        data = raw({"op": "print", "text": "x"}) * count
        return lambda: check([data])

    check_linear("prints", work, 2_000)
