"""Attempts at held-out problems, made up for tests of reports."""

from __future__ import annotations

from typing import Literal

from trainer.evaluate.attempts import Attempt
from workflow.graph import GraphNode

AGENT = GraphNode(kind="AgentNode", base="AgentNode", name="Solver")
TOOL = GraphNode(kind="AgentNode", base="AgentNode", name="Solver", tools=["multiply"])
ENSEMBLE = GraphNode(kind="EnsembleNode", base="EnsembleNode", name="Vote", children=[AGENT, AGENT])


def attempt(
    number: int, kind: str, correct: bool, graph: GraphNode | None = AGENT, calls: int = 1, trial: int = 0
) -> Attempt:
    designer: Literal["policy"] = "policy"
    return Attempt(
        problem=f"{kind}-{number}",
        attempt=trial,
        problem_digest="",
        task=kind,
        domain="math",
        seed=0,
        correct=correct,
        answered=True,
        verdict="correct" if correct else "wrong",
        failure=None if graph else "program_rejected",
        designer=designer,
        program=None if graph is None else "workflow",
        graph=graph,
        reply_tokens={"executor": [9] * calls},
        duration_s=0.1,
    )


def attempts(right: dict[str, int], of: int, graph: GraphNode | None = AGENT, calls: int = 1) -> list[Attempt]:
    """`of` problems of each kind with one attempt each, the first `right[kind]` of them correct."""
    return [attempt(n, kind, n < count, graph, calls) for kind, count in right.items() for n in range(of)]
