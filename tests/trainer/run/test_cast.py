"""Policies of single agents are for agents that the program has."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.protocol import Sandbox
from tasks.problems import Problem
from trainer.config import Roles, TrainConfig
from trainer.run.cast import cast_of, check_policies, check_program

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
    check_policies(roles, in_jail(lambda sandbox: cast_of(source, sandbox)))


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
        check_policies(roles, in_jail(lambda sandbox: cast_of(PROGRAM, sandbox)))
    assert told in str(wrong.value)


MATH = """
from workflow import AgentNode, Workflow
workflow = Workflow("w").add_node(AgentNode("Reasoner", "x")).add_node(AgentNode("Sceptic", "x"))
"""


def test_turns_of_an_agent_without_a_role_are_refused_at_the_start(in_jail: InJail, tmp_path: Path) -> None:
    (tmp_path / "math.py").write_text(MATH)
    problem = Problem(id="m", question="1 + 1?", domain="math", gold="2")
    (tmp_path / "problems.jsonl").write_text(problem.model_dump_json() + "\n")

    def checked(**reward: Any) -> None:
        branching = {"score": "turn" if reward.get("kind") == "turns" else "end"}
        config = TrainConfig.model_validate(
            {
                "policies": {"p0": {"model": "x"}},
                "credit": "at-grpo",
                "schedule": "executor-only",
                "steps": 1,
                "reward": reward,
                "rollout": {"designs": 1, "executions": 1, "program": tmp_path / "math.py", "branching": branching},
                "data": [{"format": "problems", "path": tmp_path / "problems.jsonl"}],
            }
        )
        in_jail(lambda sandbox: check_program(config, sandbox))

    checked()
    checked(kind="turns", roles={"Sceptic": "reasoner"})
    with pytest.raises(ValueError, match=r"agent \"Sceptic\" has no role in math problems"):
        checked(kind="turns")
