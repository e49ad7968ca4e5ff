"""A game that a run plays: requests, limits, and what stands in the Trace. The games themselves: tests/tasks."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_engines import CannedEngine

from engine import run_workflow
from engine.session import Run
from sandbox.conformance.scripted import Steps
from workflow import AgentNode, Workflow, WorkflowNode
from workflow.environment import Environment, Observation
from workflow.failures import ContractError, NoEngineConnected
from workflow.limits import Limits
from workflow.trace import EnvironmentStepped, Trace


class Plays(WorkflowNode):
    def __init__(self, play: Callable[[Environment, AgentNode, Any], Any]) -> None:
        super().__init__("Plays")
        self.play = play

    def process(self, context: Any) -> Any:
        agent = AgentNode("A", "Go.")
        said = agent.process(context)
        self.play(Environment(), agent, said)
        return said


def played(play: Callable[[Environment, AgentNode, Any], Any], *, reply: str = "go", **options: Any) -> Run:
    node = Workflow("w").add_node(Plays(play))
    run = asyncio.run(
        asyncio.wait_for(run_workflow(node, "q", CannedEngine(reply), **{"game": Steps(), **options}), 30)
    )
    assert list(Trace.from_lines(run.trace.lines()).events) == run.trace.events
    return run


def steps(run: Run) -> list[EnvironmentStepped]:
    return [event for event in run.trace.events if isinstance(event, EnvironmentStepped)]


def test_acts_change_the_game_and_proposals_do_not() -> None:
    seen: list[Observation] = []

    def play(environment: Environment, agent: AgentNode, said: Any) -> None:
        seen.append(environment.observe("A"))
        seen.append(environment.propose("A", said))
        seen.append(environment.act("A", said))
        seen.append(environment.act("B", "stay"))
        seen.extend(environment.act("A", text="go") for _ in range(2))

    run = played(play)
    assert run.failure is None
    assert [(each.text, each.done) for each in seen] == [
        ("A has taken 0", False),
        ("A has taken 1", False),
        ("A has taken 1", False),
        ("B has taken 1", False),
        ("A has taken 2", False),
        ("A has taken 3", True),
    ]
    said = [(each.agent, each.commit, each.from_agent, each.before, each.after, each.legal) for each in steps(run)]
    assert said == [
        ("A", False, "A", "0", "1", True),
        ("A", True, "A", "0", "1", True),
        ("B", True, None, "1", "1", False),
        ("A", True, None, "1", "2", True),  # a reply acts once
        ("A", True, None, "2", "3", True),
    ]
    assert [(each.done, each.solved, each.wrong) for each in steps(run)][2:] == [
        (False, False, "only go"),
        (False, False, ""),
        (True, True, ""),
    ]


def test_each_request_is_a_tool_call() -> None:
    def play(environment: Environment, agent: AgentNode, said: Any) -> None:
        environment.observe("A")
        environment.act("A", said)
        environment.propose("A", said)

    assert played(play, limits=Limits(tool_calls=3)).failure is None
    failure = played(play, limits=Limits(tool_calls=2)).failure
    assert failure is not None
    assert failure.fields == {"limit_kind": "tool_calls", "limit": 2, "used": 3}


def test_where_there_is_no_game_the_run_says_so() -> None:
    failure = played(lambda environment, agent, said: environment.observe("A"), game=None).failure
    assert failure is not None
    assert failure.kind == "program_failed"
    assert "the problem is no game. Fix: play only where `environment` is not None" in failure.message


@pytest.mark.parametrize("name", ["", "A\nB", "A\u202eB", "x" * 201])
def test_a_bad_name_is_an_error_of_the_program(name: str) -> None:
    environment = Environment()
    for call in (
        environment.observe,
        lambda who: environment.act(who, "go"),
        lambda who: environment.propose(who, "go"),
    ):
        with pytest.raises(ContractError, match="argument 'agent', a name, "):
            call(name)


@pytest.mark.parametrize("wrong", [7, None, ["go"]])
def test_wrong_arguments_are_named(wrong: Any) -> None:
    with pytest.raises(ContractError, match=r"Environment: argument 'text' is a reply, text or a Message \(got "):
        Environment().act("A", wrong)
    with pytest.raises(ContractError, match=r"Environment\.observe: .*'agent'"):
        Environment().observe(wrong)


def test_outside_of_a_run_nobody_plays() -> None:
    with pytest.raises(NoEngineConnected):
        Environment().observe("A")
