"""What tells a search which states are worth going on with: the policy's likelihood, a model of values, the grader.

A model is a `Scorer` (`search.scoring`), wrapped by the problem it is asked about; none is made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from search.methods.nodes import Node, SearchRefused
from search.methods.states import Tree
from workflow.failures import Failure

FAILED_PSI = -100.0
"""psi of a call that failed by a limit, and of a reply without a token: below that of any other."""


class Guide(Protocol):
    """What a search follows: f_INIT of section 4.2, and the leaf's value of Eq. 3."""

    name: str

    async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]:
        """Of each state."""
        ...


class Likelihood:
    """psi (Eq. 1), from the engine's own log-probabilities: no second pass."""

    name = "psi"

    async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]:
        """Raises `SearchRefused` where the engine gives none."""
        return [self._value(node) for node in nodes]

    def _value(self, node: Node) -> float:
        assert node.action is not None
        if isinstance(node.action.reply, Failure) or node.action.reply.logprobs == []:
            return FAILED_PSI
        if node.psi is None:
            raise SearchRefused(
                f"agent {node.action.agent!r} replied without log-probabilities, which psi is made of. "
                "Fix: an engine that gives them (transformers:, vllm:), or a model of values (--prm)"
            )
        return node.psi


class Oracle:
    """The grader: R of a terminal state, 0 before. Not for results: it says what a perfect outcome model reaches."""

    name = "oracle"

    async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]:
        ends = await tree.ends(nodes)
        tree.spent.scored += len(nodes)
        values = [0.0 if end is None else end.reward for end in ends]
        graded = [value for value in values if value is not None]
        if len(graded) < len(values):
            raise SearchRefused("the oracle grades, and nothing says what is right. Fix: a problem with an answer")
        return graded
