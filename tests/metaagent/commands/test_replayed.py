"""`metaagent run --engine replay:TRACE` plays a run again as it was, also one of a search or of training."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import document, invoke
from replying_server import ReplyingServer

from engine import run_workflow
from sandbox import ProcessSandbox
from tasks import Problem
from trainer.config import RolloutConfig
from trainer.credit import paper_reward
from trainer.rollout.rollout import Rollout
from workflow import AgentNode
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import LimitExceeded
from workflow.limits import Limits
from workflow.trace import AgentTurn, LimitHit, RunStarted, Trace, event_to_json

TWO = """\
from workflow import AgentNode, Workflow
first = AgentNode("First", "Think.", max_turns=1, temperature=0.2)
last = AgentNode("Last", "Answer.", max_turns=1, max_tokens=50)
workflow = Workflow("two").add_nodes([first, last])
"""
BESIDE = """\
from workflow import AgentNode, EnsembleNode, Workflow
agents = [AgentNode(name, "Answer.", max_turns=1) for name in ("Slow", "Long", "Quick")]
workflow = Workflow("w").add_node(EnsembleNode("all", agents, strategy="majority_vote"))
"""
QUESTION = "What is 2 + 2?"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    (tmp_path / "beside.py").write_text(BESIDE)


def replayed(*more: str, program: str = "two.py", trace: str = "t.jsonl") -> dict[str, Any]:
    return document(invoke("run", program, QUESTION, "-e", f"replay:{trace}", *more, "--json"))


def events(path: str = "t.jsonl") -> Trace:
    return Trace.from_lines(Path(path).read_text().splitlines(True))


def asked(trace: Trace) -> list[tuple[str, Sampling]]:
    return [(turn.key, replace(turn.sampling, logprobs=False)) for turn in trace.agent_turns]


@pytest.mark.parametrize("method", [("--method", "majority", "--samples", "3"), ("--prm", "oracle", "--gold", "4")])
def test_the_run_that_a_search_chose(method: tuple[str, ...]) -> None:
    with ReplyingServer() as server:
        search = ("search", "two.py", QUESTION, "-e", server.spec, *method, "--seed", "5")
        found = document(invoke(*search, "--trace", "t.jsonl", "--json"))["report"]
    again = replayed("--trace", "again.jsonl")
    assert (again["failure"], again["answer"], again["notes"]) == (None, found["answer"], [])
    assert asked(events("again.jsonl")) == asked(events())
    assert {sampling.temperature for _, sampling in asked(events())} == {0.7}, "the search's, not the agent's own"


def test_a_run_with_options_of_its_own() -> None:
    given = ("--temperature", "0.4", "--max-tokens", "60", "--seed", "3", "--agent-calls", "2", "--trace", "t.jsonl")
    with ReplyingServer() as server:
        invoke("run", "two.py", QUESTION, "-e", server.spec, *given)
    again = replayed("--trace", "again.jsonl")
    assert (again["failure"], again["answer"]) == (None, "4")
    assert asked(events("again.jsonl")) == asked(events())
    first, last = (sampling for _, sampling in asked(events()))
    assert (first.temperature, first.max_tokens) == (0.2, 60)
    assert (last.temperature, last.max_tokens) == (0.4, 50)
    started = events("again.jsonl").started
    assert started is not None
    assert (started.seed, started.limits.agent_calls, started.own_sampling) == (3, 2, True)


def test_options_of_the_user_win() -> None:
    with ReplyingServer() as server:
        invoke("run", "two.py", QUESTION, "-e", server.spec, "--seed", "3", "--trace", "t.jsonl")
    assert "its sampling differs" in replayed("--seed", "4")["failure"]["message"]
    assert "its sampling differs" in replayed("--top-p", "0.5")["failure"]["message"]
    stopped = replayed("--agent-calls", "1")["failure"]
    assert (stopped["kind"], stopped["fields"]["limit"]) == ("limit_exceeded", 1)


def test_a_run_that_a_limit_of_its_own_ended_ends_so_again() -> None:
    with ReplyingServer() as server:
        invoke("run", "two.py", QUESTION, "-e", server.spec, "--agent-calls", "1", "--trace", "t.jsonl")
    failure = replayed()["failure"]
    assert (failure["kind"], failure["fields"]["limit_kind"]) == ("limit_exceeded", "agent_calls")


def test_a_trace_that_does_not_say_how_it_was_sampled_is_taken_as_before() -> None:
    with ReplyingServer() as server:
        invoke("run", "two.py", QUESTION, "-e", server.spec, "--seed", "3", "--agent-calls", "2", "--trace", "t.jsonl")
    trace = events()
    for event in trace.events:
        if isinstance(event, RunStarted):
            event.sampling = event.own_sampling = None
    Path("old.jsonl").write_text("".join(trace.lines()))
    assert json.loads(Path("old.jsonl").read_text().splitlines()[0])["sampling"] is None
    assert "its sampling differs" in replayed(trace="old.jsonl")["failure"]["message"]
    again = replayed("--seed", "3", "--trace", "again.jsonl", trace="old.jsonl")
    assert (again["failure"], again["answer"]) == (None, "4")
    started = events("again.jsonl").started
    assert started is not None
    assert started.limits == Limits()


class Overflowing:
    """The second agent's conversation outgrows the model."""

    name = "small"

    def __init__(self, which: str) -> None:
        self.which = which

    async def complete(self, request: CompletionRequest) -> Completion:
        if request.agent == self.which:
            raise LimitExceeded("context_tokens", 10, 12)
        await asyncio.sleep(60 if request.agent == "Slow" else 0)
        return Completion(text="\\boxed{4}", token_ids=[1], logprobs=[-1.0], prompt_token_ids=[2])

    async def close(self) -> None: ...


@pytest.mark.parametrize(("program", "which"), [("two.py", "Last"), ("beside.py", "Long")])
def test_a_training_run_that_outgrew_its_model(tmp_path: Path, program: str, which: str) -> None:
    engine = Overflowing(which)

    async def step() -> None:
        config = RolloutConfig.model_validate({"designs": 1, "executions": 1, "program": program})
        async with ProcessSandbox() as sandbox:
            problem = Problem(id="p", question=QUESTION, domain="math", gold="4")
            source = (tmp_path / program).read_text()
            await Rollout(
                config=config, designer=engine, executor=engine, sandbox=sandbox, reward=paper_reward, program=source
            ).step([problem], 0, tmp_path / "traces")

    asyncio.run(step())
    [path] = (tmp_path / "traces").rglob("*execution*.jsonl")
    failure = replayed(program=program, trace=str(path))["failure"]
    assert (failure["kind"], failure["fields"]) == (
        "limit_exceeded",
        {"limit_kind": "context_tokens", "limit": 10.0, "used": 12.0},
    )


def test_the_trace_of_a_workflow_of_this_process() -> None:
    node = AgentNode("First", "Think.", temperature=0.2)
    run = asyncio.run(run_workflow(node, QUESTION, Overflowing("nobody"), sampling=Sampling(top_p=0.9), seed=4))
    started = run.trace.started
    assert started is not None
    assert (started.sampling, started.own_sampling, started.seed) == (Sampling(top_p=0.9), True, 4)
    line = event_to_json(started)
    assert Trace.from_lines([line]).started == started


def test_nothing_else_is_taken_for_a_limit_that_a_call_passed() -> None:
    with ReplyingServer() as server:
        invoke("run", "two.py", QUESTION, "-e", server.spec, "--trace", "t.jsonl")
    trace = events()
    last = trace.agent_turns[-1]
    last.completion, last.error = None, "it was stopped before its reply was there"
    hit = LimitHit(limit_kind="wall_s", limit=1.0, used=2.0)
    kept = [each for each in trace.events if isinstance(each, (RunStarted, AgentTurn))]
    Path("t.jsonl").write_text("".join(Trace(events=[*kept, hit]).lines()))
    assert "was not recorded" in replayed()["failure"]["message"]
