"""The cache gives back what was said to exactly the same request, never less randomness, and survives damage."""

from __future__ import annotations

import asyncio
import json
import pickle
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import USAGE, Handler, Server, answer, chat, silent

from engine.drivers import run_workflow
from engine.openai.cache import FILE, CachedEngine, _read, _Replies, _seal, _text, cache_key
from engine.openai.client import OpenAIEngine
from engine.protocol import Engine
from engine.replay import ReplayEngine
from workflow.completion import Completion, CompletionRequest, PreviousTurn, Sampling
from workflow.failures import EngineFailed
from workflow.nodes import AgentNode, EnsembleNode, WorkflowNode
from workflow.trace import Trace
from workflow.usage import usage_report

Use = Callable[[CachedEngine], Awaitable[Any]]


def numbered(handler: Handler) -> None:
    """Every reply is another one."""
    chat(f"reply {len(handler.server.asked)}", choice={"token_ids": [1, 2, 3]})(handler)


def on(server: Server, folder: Path, use: Use, max_bytes: int = 1 << 30, **options: Any) -> Any:
    """What `use` makes of an engine of its own, as in a process of its own."""
    server.script = server.script or [numbered]

    async def go() -> Any:
        options.setdefault("max_attempts", 1)
        endpoint = OpenAIEngine(options.pop("model", "m"), options.pop("url", server.url), timeout_s=5, **options)
        engine = CachedEngine(endpoint, folder, max_bytes=max_bytes)
        assert isinstance(engine, Engine)
        try:
            return await asyncio.wait_for(use(engine), 30)
        finally:
            await engine.close()

    return asyncio.run(go())


def asking(*requests: CompletionRequest) -> Use:
    async def use(engine: CachedEngine) -> list[Completion]:
        return await asyncio.gather(*map(engine.complete, requests))

    return use


def question(text: str = "hi", **sampling: Any) -> CompletionRequest:
    return CompletionRequest(messages=[{"role": "user", "content": text}], sampling=Sampling(**sampling))


GREEDY = question(temperature=0)


# Hits


def test_the_second_time_costs_nothing(server: Server, tmp_path: Path) -> None:
    [first] = on(server, tmp_path, asking(GREEDY), prices=(2.0, 10.0))
    [second] = on(server, tmp_path, asking(GREEDY), prices=(2.0, 10.0))
    assert len(server.asked) == 1
    assert (first.cached, second.cached) == (False, True)
    assert first.usage.cost_usd == pytest.approx((12 * 2 + 3 * 10) / 1e6)
    assert second.usage.cost_usd == 0
    assert second.usage.total_tokens == first.usage.total_tokens == 15
    assert replace(second, cached=False, usage=first.usage) == first


def test_without_prices_a_hit_has_no_cost_either(server: Server, tmp_path: Path) -> None:
    assert [on(server, tmp_path, asking(GREEDY))[0].usage.cost_usd for _ in range(2)] == [None, None]


def test_hits_share_nothing(server: Server, tmp_path: Path) -> None:
    async def use(engine: CachedEngine) -> None:
        miss = await engine.complete(GREEDY)
        hit = await engine.complete(GREEDY)
        for spoilt in (miss, hit):
            spoilt.text = "spoilt"
            assert spoilt.token_ids is not None
            spoilt.token_ids.append(99)
        again = await engine.complete(GREEDY)
        assert (again.text, again.token_ids) == ("reply 1", [1, 2, 3])

    on(server, tmp_path, use)


def test_all_of_a_completion_is_kept(server: Server, tmp_path: Path) -> None:
    logprobs = {"content": [{"logprob": -0.5}, {"logprob": -9999.0}]}
    usage = USAGE | {"prompt_tokens_details": {"cached_tokens": 8}}
    server.script = [chat("π \u2028", "length", choice={"logprobs": logprobs, "token_ids": [5, 6]}, usage=usage)]
    request = question(seed=1, logprobs=True)
    [first], [second] = (on(server, tmp_path, asking(request)) for _ in range(2))
    assert first.logprobs == [-0.5, -9999.0]
    assert first.usage.prefix_tokens == 8
    assert second == replace(first, cached=True)


# What matters to a reply

TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}
BASE = question(seed=1)
OTHER_REQUESTS = {
    "message": question("hi!", seed=1),
    "role": replace(BASE, messages=[{"role": "system", "content": "hi"}]),
    "tools": replace(BASE, tools=[TOOL]),
    "token ids": replace(BASE, messages=None, token_ids=[1, 2]),
    "other token ids": replace(BASE, messages=None, token_ids=[1, 2, 3]),
    "temperature": question(seed=1, temperature=0.5),
    "top_p": question(seed=1, top_p=0.5),
    "top_k": question(seed=1, top_k=5),
    "max_tokens": question(seed=1, max_tokens=5),
    "stop": question(seed=1, stop=("END",)),
    "order of stops": question(seed=1, stop=("END", "FIN")),
    "reversed order of stops": question(seed=1, stop=("FIN", "END")),
    "seed": question(seed=2),
    "logprobs": question(seed=1, logprobs=True),
}
OTHER_ENGINES: dict[str, dict[str, Any]] = {
    "model": {"model": "other"},
    "url": {"base_url": "http://127.0.0.1:1/v1"},
    "OpenAI": {"base_url": None},
    "extra_body": {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    "other extra_body": {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
    "logprobs of the server": {"processed_logprobs": True},
}


def key_of(request: CompletionRequest = BASE, **options: Any) -> str:
    options = {"model": "m", "base_url": "http://127.0.0.1:2/v1", "api_key": "k"} | options
    return cache_key(OpenAIEngine(**options).sent(request))


def test_whatever_matters_makes_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    keys = {"base": key_of()}
    keys |= {name: key_of(request) for name, request in OTHER_REQUESTS.items()}
    keys |= {name: key_of(**options) for name, options in OTHER_ENGINES.items()}
    assert len(set(keys.values())) == len(keys)


def test_what_does_not_matter_makes_no_other_key() -> None:
    previous = PreviousTurn(messages=0, prompt_token_ids=[1], token_ids=[2])
    same = [
        key_of(api_key="another"),
        key_of(timeout_s=1, max_attempts=9, concurrency=1, prices=(1, 1)),
        key_of(base_url="http://127.0.0.1:2/v1/"),
        key_of(replace(BASE, agent="Solver", key="w/Solver#0")),
        key_of(replace(BASE, previous=previous)),
    ]
    assert set(same) == {key_of()}
    assert key_of(extra_body={"a": 1, "b": 2}) == key_of(extra_body={"b": 2, "a": 1})


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    top_p=st.sampled_from([0.5, 1.0]),
    top_k=st.sampled_from([0, 1, 20]),
    max_tokens=st.sampled_from([1, 2, 12, 8192]),
    stop=st.lists(TEXTS.filter(bool), max_size=2).map(tuple),
    seed=st.none() | st.integers(0, 3),
)
REQUESTS = st.builds(
    CompletionRequest,
    messages=st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": TEXTS}),
        min_size=1,
        max_size=3,
    ),
    sampling=SAMPLINGS,
)


@given(REQUESTS, REQUESTS)
def test_two_requests_have_one_key_if_and_only_if_they_send_the_same(
    one: CompletionRequest, other: CompletionRequest
) -> None:
    same = (one.messages, one.sampling) == (other.messages, other.sampling)
    assert (key_of(one) == key_of(other)) == same
    assert key_of(one) == key_of(CompletionRequest(messages=one.messages, sampling=one.sampling, key="other"))


def test_the_key_to_the_account_stands_nowhere(server: Server, tmp_path: Path) -> None:
    on(server, tmp_path, asking(GREEDY), api_key="sk-very-secret")
    assert server.asked[0][2]["authorization"] == "Bearer sk-very-secret"
    assert all(b"very-secret" not in file.read_bytes() for file in tmp_path.iterdir())


def test_what_is_refused_is_refused_with_a_cache_too(server: Server, tmp_path: Path) -> None:
    bad = question(seed=1, logprobs=True, temperature=0.5)
    server.script = [chat(choice={"logprobs": {"content": []}})]
    on(server, tmp_path, asking(bad), processed_logprobs=True)
    with pytest.raises(EngineFailed, match="changed distribution"):
        on(server, tmp_path, asking(bad))
    with pytest.raises(EngineFailed, match="cannot be sent"):
        on(server, tmp_path, asking(GREEDY), extra_body={"a": {1}})


# Independent samples and identical requests


def texts(completions: list[Completion]) -> list[str]:
    return [completion.text for completion in completions]


def test_samples_of_one_group_stay_different(server: Server, tmp_path: Path) -> None:
    group = [question()] * 5
    drawn = on(server, tmp_path, asking(*group))
    assert len(set(texts(drawn))) == 5
    again = on(server, tmp_path, asking(*group))
    assert texts(again) == texts(drawn), "the k-th request gets the k-th reply"
    assert all(completion.cached for completion in again)
    assert len(server.asked) == 5
    larger = on(server, tmp_path, asking(*group, *group[:2]))
    assert texts(larger)[:5] == texts(drawn)
    assert len(set(texts(larger))) == 7
    assert [completion.cached for completion in larger] == [True] * 5 + [False] * 2


@pytest.mark.parametrize("request_", [GREEDY, question(seed=7)], ids=["greedy", "seeded"])
def test_identical_requests_at_the_same_time_are_paid_for_once(
    server: Server, tmp_path: Path, request_: CompletionRequest
) -> None:
    completions = on(server, tmp_path, asking(*[request_] * 8), prices=(1.0, 1.0))
    assert len(server.asked) == 1
    assert sorted(completion.cached for completion in completions) == [False] + [True] * 7
    assert sum(completion.usage.cost_usd for completion in completions) == pytest.approx(15e-6)
    assert set(texts(completions)) == {"reply 1"}


def test_an_extra_body_may_make_a_request_determined(server: Server, tmp_path: Path) -> None:
    on(server, tmp_path, asking(question(), question()), extra_body={"seed": 3})
    assert len(server.asked) == 1


def members() -> WorkflowNode:
    agents: list[WorkflowNode] = [AgentNode("Solver", "Solve it.", max_turns=1) for _ in range(3)]
    judge = AgentNode("Judge", "Decide.", max_turns=1)
    return EnsembleNode("Three", agents, strategy="consensus", consensus_agent=judge)


def test_equal_members_of_an_ensemble_keep_their_own_answers(server: Server, tmp_path: Path) -> None:
    async def use(engine: CachedEngine) -> Any:
        return await run_workflow(members(), "6 * 7?", engine, seed=5)

    first, second = (on(server, tmp_path, use, prices=(1.0, 1.0)) for _ in range(2))
    assert len(server.asked) == 4
    said = [turn.completion.text for turn in first.trace.agent_turns]
    assert len(set(said)) == 4
    assert sorted(said) == sorted(turn.completion.text for turn in second.trace.agent_turns)
    assert second.answer == first.answer
    before, after = usage_report([first.trace]), usage_report([second.trace])
    assert (before.total.cache_hits, before.total.cache_misses, before.total.hit_tokens) == (0, 4, 0)
    assert (after.total.cache_hits, after.total.cache_misses, after.total.hit_tokens) == (4, 0, 60)
    assert before.total.usage.cost_usd == pytest.approx(60e-6)
    assert after.total.usage.cost_usd == 0
    assert after.by_agent["Solver"].cache_hits == 3
    other = on(server, tmp_path, lambda engine: run_workflow(members(), "6 * 7?", engine, seed=6))
    assert usage_report([other.trace]).total.cache_hits == 0, "another seed is another sample"


def test_a_run_from_the_cache_can_be_read_and_replayed(server: Server, tmp_path: Path) -> None:
    async def use(engine: CachedEngine) -> Any:
        return await run_workflow(members(), "6 * 7?", engine)

    on(server, tmp_path, use)
    run = on(server, tmp_path, use)
    trace = Trace.from_lines(run.trace.lines())
    assert trace == run.trace
    assert '"cached":true' in "".join(trace.lines())
    replayed = asyncio.run(run_workflow(members(), "6 * 7?", ReplayEngine(trace)))
    assert replayed.answer == run.answer


def test_traces_from_before_the_cache_are_read() -> None:
    line = (
        '{"t":1.0,"type":"agent_call","key":"A#0","path":"A","agent":"A","turn":0,"messages":[],"tools":[],'
        '"sampling":{"temperature":1.0,"top_p":1.0,"top_k":0,"max_tokens":8,"stop":[],"logprobs":false},'
        '"completion":{"text":"x","finish_reason":"stop","usage":{"prompt_tokens":1,"completion_tokens":2},'
        '"model":"m"},"duration_s":0.5}\n'
    )
    trace = Trace.from_lines([line])
    report = usage_report([trace])
    assert trace.agent_turns[0].completion is not None
    assert trace.agent_turns[0].completion.cached is None
    assert (report.total.cache_hits, report.total.cache_misses) == (0, 0)
    assert report.total.usage.total_tokens == 3


# Failures


@pytest.mark.parametrize("request_", [GREEDY, question()], ids=["greedy", "drawn"])
def test_failures_are_never_kept(server: Server, tmp_path: Path, request_: CompletionRequest) -> None:
    server.script = [answer(500, {}), answer(200, {"choices": []}), chat("good")]

    async def use(engine: CachedEngine) -> Completion:
        for _ in range(2):
            with pytest.raises(EngineFailed):
                await engine.complete(request_)
        return await engine.complete(request_)

    assert on(server, tmp_path, use).cached is False
    assert len(server.asked) == 3
    [again] = on(server, tmp_path, asking(request_))
    assert (again.text, again.cached) == ("good", True), "what failed left no gap"


def test_a_reply_that_was_broken_off_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.script = [chat("half", "content_filter"), chat("whole")]
    assert texts(on(server, tmp_path, asking(GREEDY))) == ["half"]
    assert texts(on(server, tmp_path, asking(GREEDY))) == ["whole"]


def test_when_the_first_of_two_identical_requests_fails_the_other_asks(server: Server, tmp_path: Path) -> None:
    server.script = [answer(500, {}), chat("good")]

    async def use(engine: CachedEngine) -> Any:
        return await asyncio.gather(engine.complete(GREEDY), engine.complete(GREEDY), return_exceptions=True)

    failed, good = on(server, tmp_path, use)
    assert isinstance(failed, EngineFailed)
    assert good.text == "good"


@pytest.mark.parametrize("request_", [GREEDY, question()], ids=["greedy", "drawn"])
def test_a_cancelled_request_leaves_nothing_behind(server: Server, tmp_path: Path, request_: CompletionRequest) -> None:
    server.script = [silent, chat("good")]

    async def use(engine: CachedEngine) -> Completion:
        first = asyncio.create_task(engine.complete(request_))
        while not server.asked:
            await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await engine.complete(request_)

    assert on(server, tmp_path, use).text == "good"
    assert on(server, tmp_path, asking(request_))[0].cached


# Damage


def edit(folder: Path, query: str, *values: Any) -> None:
    with sqlite3.connect(folder / FILE) as db:
        assert db.execute(query, values).rowcount > 0
    db.close()


def sealed(folder: Path, text: bytes) -> None:
    """Put a text in the place of the first reply, with a good seal."""
    with sqlite3.connect(folder / FILE) as db:
        key, number = db.execute("SELECT key, number FROM replies").fetchone()
        db.execute("UPDATE replies SET text = ?, seal = ?", (text, _seal(key, number, text)))
    db.close()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "truncated": lambda folder: edit(folder, "UPDATE replies SET text = substr(text, 1, length(text) / 2)"),
    "another letter": lambda folder: edit(folder, "UPDATE replies SET text = CAST(replace(text, 'y', 'z') AS BLOB)"),
    "empty": lambda folder: edit(folder, "UPDATE replies SET text = x''"),
    "null": lambda folder: edit(folder, "UPDATE replies SET text = NULL"),
    "a number": lambda folder: edit(folder, "UPDATE replies SET text = 7"),
    "text, not bytes": lambda folder: edit(folder, "UPDATE replies SET text = CAST(text AS TEXT)"),
    "no UTF-8": lambda folder: edit(folder, "UPDATE replies SET text = CAST(x'ff' AS TEXT)"),
    "no seal": lambda folder: edit(folder, "UPDATE replies SET seal = NULL"),
    "of another request": lambda folder: edit(folder, "UPDATE replies SET key = ?", cache_key({"not": "this"})),
    "not a completion": lambda folder: sealed(folder, json.dumps({"txt": "x"}).encode()),
    "unknown field": lambda folder: sealed(folder, json.dumps({"text": "x", "later": 1}).encode()),
    "not JSON": lambda folder: sealed(folder, b"{"),
    "a pickle": lambda folder: sealed(folder, pickle.dumps(Completion(text="unpickled"))),
    "gone": lambda folder: (folder / FILE).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_reply_is_a_miss_and_is_replaced(server: Server, tmp_path: Path, damage: str) -> None:
    on(server, tmp_path, asking(GREEDY))
    DAMAGE[damage](tmp_path)
    [fresh] = on(server, tmp_path, asking(GREEDY))
    assert (fresh.text, fresh.cached) == ("reply 2", False)
    [again] = on(server, tmp_path, asking(GREEDY))
    assert (again.text, again.cached) == ("reply 2", True)


@given(TEXTS, st.integers(0))
def test_only_a_whole_completion_is_read(said: str, cut: int) -> None:
    whole = Completion(text=said, token_ids=[1, 2])
    text = _text(whole)
    assert text is not None
    assert _read(text) == whole
    assert _read(text[: cut % len(text)]) is None


def test_text_that_is_no_unicode_is_not_kept() -> None:
    assert _text(Completion(text="\ud800")) is None


def test_a_reply_in_the_place_of_another_is_a_miss(server: Server, tmp_path: Path) -> None:
    on(server, tmp_path, asking(question("a", seed=1), question("b", seed=1)))
    with sqlite3.connect(tmp_path / FILE) as db:
        rows = db.execute("SELECT key, seal, text FROM replies").fetchall()
        for (key, _, _), (_, seal, text) in zip(rows, reversed(rows), strict=True):
            db.execute("UPDATE replies SET seal = ?, text = ? WHERE key = ?", (seal, text, key))
    db.close()
    assert [reply.cached for reply in on(server, tmp_path, asking(question("a", seed=1)))] == [False]


def test_a_file_that_is_no_cache_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, " * 100)
    (tmp_path / "file").touch()
    endpoint = OpenAIEngine("m", "http://127.0.0.1:1/v1")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(EngineFailed, match="Fix: ") as caught:
            CachedEngine(endpoint, folder)
        assert str(folder) in str(caught.value)


def test_a_cache_that_fails_in_use_costs_hits_not_the_run(server: Server, tmp_path: Path) -> None:
    async def use(engine: CachedEngine) -> None:
        assert (await engine.complete(question("a", seed=1))).cached is False
        assert engine.problem == ""
        with sqlite3.connect(tmp_path / FILE) as db:
            db.execute("DROP TABLE replies")
        db.close()
        for _ in range(2):
            assert (await engine.complete(question("a", seed=1))).cached is False
        assert str(tmp_path / FILE) in engine.problem
        assert "Fix: " in engine.problem

    on(server, tmp_path, use)


# The file


def test_the_oldest_replies_make_room(tmp_path: Path) -> None:
    limit, size = 400_000, 5_000
    replies = _Replies(tmp_path / FILE, limit)
    for number in range(500):
        replies.put("key", number, b"%d" % number * (size // len(str(number))))
        assert replies.get("key", number) is not None
    kept = [number for number in range(500) if replies.get("key", number) is not None]
    replies.put("key", 0, b"x" * (limit + 1))
    assert replies.get("key", 0) is None, "too large for any cache"
    replies.close()
    assert kept == list(range(500 - len(kept), 500))
    assert limit / size / 2 < len(kept) <= limit / size
    assert (tmp_path / FILE).stat().st_size <= limit + 2 * size


def test_only_its_owner_may_read_it(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"

    async def use(engine: CachedEngine) -> None:
        await engine.complete(GREEDY)
        files = list(folder.iterdir())
        assert len(files) >= 1
        assert [file.name for file in files if file.stat().st_mode & 0o077] == []

    on(server, folder, use)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_it_closes_cleanly(server: Server, tmp_path: Path) -> None:
    async def use(engine: CachedEngine) -> None:
        await engine.complete(GREEDY)
        under_way = asyncio.create_task(engine.complete(question("late", seed=1)))
        await asyncio.sleep(0)
        await engine.close()
        await engine.close()
        with pytest.raises(EngineFailed, match="closed"):
            await engine.complete(GREEDY)
        await asyncio.wait([under_way])

    on(server, tmp_path, use)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("metaagent-cache")] == []
    assert [file.name for file in tmp_path.iterdir()] == [FILE], "no log is left"


WRITER = """
import sys
from pathlib import Path
from engine.openai.cache import FILE, _Replies
me, folder = int(sys.argv[1]), Path(sys.argv[2])
sys.stdin.readline()
for start in range(4):  # the first to open makes the file
    replies = _Replies(folder / FILE, 200_000)
    for number in range(start * 50, start * 50 + 50):
        text = b"%d of %d " % (number, me) * 40
        replies.put("shared", number, text)
        replies.put(f"own {me}", number, text)
        assert replies.get(f"own {me}", number) in (text, None)
        found = replies.get("shared", number)
        assert found is None or found.startswith(b"%d of " % number)
    replies.close()
"""


def test_several_processes_share_one_cache(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(me), str(tmp_path)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=root,
            text=True,
        )
        for me in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    db = sqlite3.connect(tmp_path / FILE)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM replies").fetchone()[0] > 100
    db.close()


KILLED = """
import os, sys
from pathlib import Path
from engine.openai.cache import FILE, _Replies
replies = _Replies(Path(sys.argv[1]) / FILE, 1 << 20)
replies.put("key", 0, b"done")
replies._db.execute("BEGIN IMMEDIATE")
replies._db.execute("UPDATE replies SET text = x'00'")
os.kill(os.getpid(), 9)
"""


def test_a_killed_writer_leaves_what_was_done(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=Path(__file__).parents[2], timeout=60, check=False
    )
    assert ended.returncode == -9
    replies = _Replies(tmp_path / FILE, 1 << 20)
    assert replies.get("key", 0) == b"done"
    replies.put("key", 1, b"more")
    assert replies.get("key", 1) == b"more"
    replies.close()
