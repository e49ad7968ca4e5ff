"""Completions that cannot be: no engine's numbers count before they have been looked at."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.plausible import MOST_TOKENS, impossible
from engine.replay import ReplayEngine, ReplayEntry
from engine.session import Session
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.failures import EngineFailed
from workflow.requests import AgentCall

GOOD: dict[str, Any] = {
    "text": "\u4e2d\U0001f600",
    "token_ids": [0, 5, 2**31 - 1],
    "logprobs": [0.0, -1e30, 1e-7],
    "prompt_token_ids": [1],
    "usage": Usage(prompt_tokens=0, completion_tokens=MOST_TOKENS, prefix_tokens=3, cost_usd=0.0),
}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"usage": Usage(prompt_tokens=-1)}, "prompt_tokens is -1"),
    ({"usage": Usage(completion_tokens=MOST_TOKENS + 1)}, f"completion_tokens is {MOST_TOKENS + 1}"),
    ({"usage": Usage(completion_tokens=10**5000)}, "completion_tokens is a number of 16610 bits"),
    ({"usage": Usage(prefix_tokens=-7)}, "prefix_tokens is -7"),
    ({"usage": Usage(cost_usd=math.nan)}, "cost_usd is nan"),
    ({"usage": Usage(cost_usd=-0.5)}, "cost_usd is -0.5"),
    ({"token_ids": [1, 2, -3]}, "token_ids holds -3"),
    ({"prompt_token_ids": [2**31]}, "prompt_token_ids holds 2147483648"),
    ({"logprobs": [0.0, math.nan, 0.0]}, "logprobs holds nan"),
    ({"logprobs": [0.0, -math.inf, 0.0]}, "logprobs holds -inf"),
    ({"logprobs": [0.0, 0.5, 0.0]}, "logprobs holds 0.5"),
    ({"logprobs": [0.0]}, "3 token ids came with 1 log-probabilities"),
    ({"token_ids": [], "logprobs": []}, "no token ids came with a text of 2 characters"),
    (
        {"text": "", "reasoning": "hm?", "token_ids": [], "logprobs": []},
        "no token ids came with a text of 3 characters",
    ),
    ({"text": "a\ud800"}, "text holds half of a surrogate pair"),
    ({"reasoning": "\udc00"}, "reasoning holds half of a surrogate pair"),
]


def test_what_can_be_is_let_through() -> None:
    assert impossible(Completion(**GOOD)) == ""
    assert impossible(Completion(text="")) == impossible(Completion(text="", token_ids=[], logprobs=[])) == ""


@pytest.mark.parametrize(("change", "told"), WRONG)
def test_what_cannot_be_ends_a_run_as_the_engines_failure(change: dict[str, Any], told: str) -> None:
    completion = Completion(**GOOD | change)
    assert impossible(completion) == told
    engine = ReplayEngine([ReplayEntry(agent="a", completion=Completion(text="")) for _ in range(2)])
    engine._entries[0].completion = completion  # as if it had been read so
    session = Session(engine)
    call = AgentCall(agent="a", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(EngineFailed, match="a completion that cannot be"):
        asyncio.run(session.serve("a#0", "a", call))
    assert session.finish().usage.total_tokens == 0
    assert asyncio.run(session.serve("a#1", "a", call)).text == ""


@given(st.floats() | st.integers() | st.none() | st.text(max_size=3) | st.booleans())
def test_whatever_is_said_the_answer_is_a_short_word(value: Any) -> None:
    completion = Completion(text="")
    completion.token_ids = [value]
    completion.logprobs = [value]
    assert len(impossible(completion)) < 100


# Replay files


def opened(path: Path) -> str:
    told: list[str] = []

    def run() -> None:
        try:
            engine = ReplayEngine(path)
            request = CompletionRequest(messages=[{"role": "user", "content": "hi"}], agent="a", key="k" * 50)
            told.append(asyncio.run(engine.complete(request)).text)
        except EngineFailed as error:
            told.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert told, "it hangs"
    return told[0]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"agent":' + "[" * 100_000, '{"type":' + "{" * 100_000, "1e999", "NaN"]
)
def test_a_hostile_replay_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text(text)
    assert str(path) in opened(path)


def test_what_never_ends_is_no_replay_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "."):
        assert "cannot read" in opened(tmp_path / name)
    monkeypatch.setattr("engine.replay.MAX_FILE", 10)
    (tmp_path / "large").write_text(" " * 11)
    assert "more than 10" in opened(tmp_path / "large")


def test_many_and_long_names_are_not_all_compared(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    names = [f"{'ab' * 5_000}{number}" for number in range(300)] + ["a" * 400 + str(n) for n in range(20_000)]
    path.write_text("".join(f'{{"agent": "{name}", "key": "{name}", "reply": "x"}}\n' for name in names))
    assert "was not recorded" in opened(path)
