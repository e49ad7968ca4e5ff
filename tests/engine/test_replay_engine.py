"""ReplayEngine: recorded replies for exactly the recorded questions, each once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import Engine
from engine.replay import PassedLimit, ReplayEngine, ReplayEntry, entries_of, prompt_sha256, record_replies
from workflow.completion import ChatMessage, Completion, CompletionRequest, Sampling, Usage
from workflow.failures import EngineFailed, LimitExceeded
from workflow.trace import AgentTurn, LimitHit, RunEnded, RunStarted, Trace

MESSAGES: list[ChatMessage] = [
    {"role": "system", "content": "You solve problems."},
    {"role": "user", "content": "What is 6 times 7? " + "Think well. " * 20},
]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "add", "parameters": {}}}


def ask(engine: ReplayEngine, agent: str = "Solver", key: str = "", **fields: Any) -> Completion:
    fields = {"messages": MESSAGES} | fields
    return asyncio.run(engine.complete(CompletionRequest(agent=agent, key=key, **fields)))


def turn(key: str, agent: str, text: str | None) -> AgentTurn:
    completion = None
    if text is not None:
        usage = Usage(prompt_tokens=9, completion_tokens=2)
        completion = Completion(text=text, finish_reason="length", token_ids=[4, 2], logprobs=[-1.0, -2.0], usage=usage)
    return AgentTurn(
        key=key,
        path=key.split("#")[0],
        agent=agent,
        messages=MESSAGES,
        tools=[TOOL],
        sampling=Sampling(seed=5),
        completion=completion,
        error=None if completion else "broke",
    )


@pytest.fixture
def trace() -> Trace:
    return Trace(
        events=[
            RunStarted(run_id="r", question="q", engine="e"),
            turn("w/a[1]#0", "Solver", "second\u2028branch"),
            turn("w/a[0]#0", "Solver", "first branch"),
            turn("w/j#0", "Judge", None),
            RunEnded(),
        ]
    )


def recorded(engine: ReplayEngine, key: str = "w/a[0]#0", **changes: Any) -> Completion:
    fields = {"messages": MESSAGES, "tools": [TOOL], "sampling": Sampling(seed=5)} | changes
    return ask(engine, key=key, **fields)


def test_a_trace_is_replayed_by_key_with_all_that_was_recorded(trace: Trace) -> None:
    engine = ReplayEngine(trace)
    assert isinstance(engine, Engine)
    reply = recorded(engine)
    assert reply == trace.agent_turns[1].completion
    assert reply.token_ids == [4, 2]
    assert [entry.key for entry in engine.unused()] == ["w/a[1]#0"]
    assert recorded(engine, "w/a[1]#0").text == "second\u2028branch"
    assert engine.unused() == []


def test_a_call_without_a_reply_was_not_recorded(trace: Trace) -> None:
    with pytest.raises(EngineFailed, match=r"'w/j#0' of agent 'Judge' was not recorded"):
        recorded(ReplayEngine(trace), "w/j#0", agent="Judge")


def overflowing(trace: Trace) -> Trace:
    """The Judge's conversation had outgrown its model."""
    passed = LimitExceeded("context_tokens", 100, 130)
    trace.agent_turns[-1].error = str(passed)
    hit = LimitHit(limit_kind="context_tokens", limit=100, used=130)
    return Trace(events=[*trace.events[:-1], hit, RunEnded(failure=passed.record())])


def test_a_call_that_passed_a_limit_passes_it_again(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    assert record_replies(overflowing(trace), path) == 3
    for engine in (ReplayEngine(overflowing(trace)), ReplayEngine(path)):
        with pytest.raises(LimitExceeded) as passed:
            recorded(engine, "w/j#0", agent="Judge")
        assert (passed.value.limit_kind, passed.value.limit, passed.value.used) == ("context_tokens", 100, 130)
        with pytest.raises(EngineFailed, match="was asked before"):
            recorded(engine, "w/j#0", agent="Judge")
        with pytest.raises(EngineFailed, match="its sampling differs"):
            recorded(ReplayEngine(path), "w/j#0", agent="Judge", sampling=Sampling(seed=6))
        engine.was_given("w/j#0", "Judge", Completion(text=""))


def test_a_call_that_was_stopped_when_another_one_passed_a_limit_ends_by_it(trace: Trace) -> None:
    stopped = turn("w/s#0", "Slow", None)
    trace.events.insert(1, stopped)
    with pytest.raises(LimitExceeded, match="context_tokens=100"):
        recorded(ReplayEngine(overflowing(trace)), "w/s#0", agent="Slow")


def test_an_entry_has_one_of_reply_completion_and_limit() -> None:
    limit = PassedLimit(limit_kind="context_tokens", limit=1, used=2)
    for fields in ({}, {"reply": "a", "limit": limit}, {"reply": "a", "completion": Completion(text="a")}):
        with pytest.raises(ValueError, match="give one of reply, completion and limit"):
            ReplayEntry(agent="a", **fields)
    with pytest.raises(LimitExceeded):
        ask(ReplayEngine([ReplayEntry(agent="Solver", limit=limit)]))


def test_a_reply_is_given_once(trace: Trace) -> None:
    engine = ReplayEngine(trace)
    recorded(engine)
    with pytest.raises(EngineFailed, match="asked before"):
        recorded(engine)


def test_an_unknown_call_is_refused_and_the_nearest_named(trace: Trace) -> None:
    with pytest.raises(EngineFailed, match=r"'w/a\[0\]#1'.*was not recorded.*'w/a\[0\]#0'"):
        recorded(ReplayEngine(trace), "w/a[0]#1")


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "agent": ({"agent": "Critic"}, "recorded agent is 'Solver'"),
    "word": (
        {"messages": [MESSAGES[0], {"role": "user", "content": MESSAGES[1]["content"].replace("7", "8")}]},
        "message 1 (user) differs from character 16:\n  recorded: 'What is 6 times 7? Think",
    ),
    "role": ({"messages": [MESSAGES[0], {"role": "tool", "content": "x"}]}, "message 1 is a tool turn"),
    "added turn": ({"messages": [*MESSAGES, MESSAGES[1]]}, "3 messages, recorded were 2"),
    "removed turn": ({"messages": MESSAGES[:1]}, "1 messages, recorded were 2"),
    "longer text": (
        {"messages": [{"role": "system", "content": "You solve problems.!"}, MESSAGES[1]]},
        "message 0 (system) differs from character 19",
    ),
    "tools": ({"tools": []}, "its tools differs"),
    "sampling": ({"sampling": Sampling(seed=6)}, '"seed":6'),
    "token ids": ({"messages": None, "token_ids": [1]}, "token ids"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_question_is_refused_with_the_difference(trace: Trace, name: str) -> None:
    changes, words = CHANGES[name]
    engine = ReplayEngine(trace)
    with pytest.raises(EngineFailed) as caught:
        recorded(engine, **changes)
    assert words in str(caught.value)
    assert len(engine.unused()) == 2
    recorded(engine)  # the recorded question still gets its reply


def test_a_trace_file_and_a_recording_of_it_replay_alike(trace: Trace, tmp_path: Path) -> None:
    file, recording = tmp_path / "trace.jsonl", tmp_path / "replies.jsonl"
    file.write_text("".join(trace.lines()), encoding="utf-8")
    assert record_replies(trace, recording) == 2
    assert len(recording.read_text(encoding="utf-8").split("\n")) == 3
    for path in (file, recording):
        engine = ReplayEngine(path)
        assert engine.name == f"replay:{path}"
        assert engine.unused() == entries_of(trace)
        assert recorded(engine, "w/a[1]#0") == trace.agent_turns[0].completion


def test_the_trace_of_a_killed_run_replays(trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(trace.lines())[:-10], encoding="utf-8")
    assert len(ReplayEngine(file).unused()) == 2


def test_hand_written_replies_are_used_in_order_for_each_agent(tmp_path: Path) -> None:
    file = tmp_path / "replies.json"
    entries = [
        {"agent": "Solver", "reply": "one"},
        {"agent": "Judge", "reply": ""},
        {"agent": "Solver", "reply": "two", "question_contains": "6 times 7"},
    ]
    file.write_text(json.dumps(entries), encoding="utf-8")
    engine = ReplayEngine(file)
    assert [ask(engine, "Solver", key=key).text for key in ("x#0", "x#1")] == ["one", "two"]
    assert ask(engine, "Judge").text == ""
    with pytest.raises(EngineFailed, match="all 2 replies of this agent are used"):
        ask(engine, "Solver")
    with pytest.raises(EngineFailed, match=r"agent 'Solvr' was not recorded \(the nearest recorded is 'Solver'\)"):
        ask(engine, "Solvr")


def test_the_question_must_hold_what_the_entry_says() -> None:
    engine = ReplayEngine([ReplayEntry(agent="Solver", reply="42", question_contains="You solve")])
    with pytest.raises(EngineFailed, match="no user turn contains 'You solve'"):
        ask(engine)
    assert len(engine.unused()) == 1


def test_a_digest_stands_for_the_messages() -> None:
    digest = prompt_sha256(MESSAGES)
    swapped: list[ChatMessage] = [{"content": m["content"], "role": m["role"]} for m in MESSAGES]
    assert prompt_sha256(swapped) == digest
    engine = ReplayEngine([ReplayEntry(agent="Solver", reply="42", prompt_sha256=digest)])
    with pytest.raises(EngineFailed, match="prompt_sha256"):
        ask(engine, messages=MESSAGES[:1])
    assert ask(engine).text == "42"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "neither a replay file nor a trace"),
        ('{"agent": "A"}', r"entry 1: .*give one of reply, completion and limit"),
        (
            '{"agent": "A", "reply": "r"}\n{"agent": "A", "reply": "r", "replies": 1}',
            r"entry 2: .*key 'replies'.*write reply;",
        ),
        (
            '{"agent": "A", "reply": "r", "note": 1}',
            r"entry 1: .*key 'note'.*leave note out; the keys are agent, reply",
        ),
        ("def f(): pass", r"neither .*Fix: each line is one JSON object"),
        ("[1]", "entry 1"),
        ("\n \n{}", "entry 1: .*agent"),
        ("3", "entry 1"),
        ('{"type": "agent_call"}\n', "trace line 1"),
        ('[{"agent": "A", "reply": "r", "key": "k"}, {"agent": "A", "reply": "s", "key": "k"}]', "key 'k'"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(EngineFailed, match=words) as caught:
        ReplayEngine(file)
    assert str(file) in str(caught.value)


def test_a_byte_order_mark_begins_no_entry(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    for text in ('{"agent": "A", "reply": "r"}', '[{"agent": "A", "reply": "r"}]'):
        file.write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert ReplayEngine(file).unused() == [ReplayEntry(agent="A", reply="r")]


def test_an_entry_with_tool_schemas_is_no_event(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text("\n" + json.dumps({"tools": [TOOL], "agent": "A", "reply": "r"}), encoding="utf-8")
    assert ReplayEngine(file).unused() == [ReplayEntry(tools=[TOOL], agent="A", reply="r")]


def test_tools_are_compared_as_json() -> None:
    engine = ReplayEngine([ReplayEntry(tools=[{"enum": ["a"]}], agent="Solver", reply="r")])
    assert ask(engine, tools=[{"enum": ("a",)}]).text == "r"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="cannot read"):
        ReplayEngine(tmp_path / "absent.jsonl")
