"""Policies of single agents are for agents that the program has."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandbox.protocol import Sandbox
from trainer.config import Roles
from trainer.run.cast import check_cast

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]
PROGRAM = """
from workflow import AgentNode, DebateNode, Workflow
debate = DebateNode("Debate", [AgentNode("Ann", "x"), AgentNode("Bob", "x")], judge=AgentNode("Judge", "x"))
workflow = Workflow("w").add_node(debate)
"""
PLAYS = """
from workflow import AgentNode, Workflow
while not environment.observe("Planner").done:
    environment.act("Planner", Workflow("w").add_node(AgentNode("Planner", "x")).run(question))
"""
ALL = {"Ann": "a", "Bob": "b", "Judge": "b"}


@pytest.mark.parametrize(
    ("source", "roles"),
    [
        (PROGRAM, Roles()),
        (PROGRAM, Roles(agents=ALL)),
        (PROGRAM, Roles(agents={"Ann": "a"}, executor="b")),
        (PLAYS, Roles(agents={"Planner": "a"})),
    ],
)
def test_a_cast_that_fits(in_jail: InJail, source: str, roles: Roles) -> None:
    in_jail(lambda sandbox: check_cast(roles, source, sandbox))


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        (Roles(agents={**ALL, "Jude": "a"}), "roles.agents.Jude: no agent of the program has this name. Fix: 'Judge'"),
        (Roles(agents={**ALL, "Xyz": "a"}), "has this name. Fix: one of Ann, Bob, Judge"),
        (Roles(agents={"Ann": "a", "Bob": "a"}), "agent 'Judge' of the program has no policy. Fix: name it in"),
        (Roles(agents={"Debate": "a"}, executor="b"), "roles.agents.Debate: no agent of the program has this name"),
    ],
)
def test_a_cast_that_does_not(in_jail: InJail, roles: Roles, told: str) -> None:
    with pytest.raises(ValueError, match="Fix: ") as wrong:
        in_jail(lambda sandbox: check_cast(roles, PROGRAM, sandbox))
    assert told in str(wrong.value)
