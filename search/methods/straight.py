"""Runs that do not part: a single one, and several that vote (Greedy and Maj@k of MASPRM's tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from search.methods.budget import Budget, BudgetSpent
from search.methods.guides import Guide
from search.methods.mcts import run_on
from search.methods.nodes import Node, SearchRefused
from search.methods.states import Tree
from search.methods.votes import Vote, plurality


@dataclass(frozen=True, slots=True, kw_only=True)
class MajoritySettings:
    runs: int = 5
    weights: Literal["none", "values", "outcome"] = "none"
    """`values`: each run's vote weighs the mean of V over its path; `outcome`: no vote, the run with the largest Y."""

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise SearchRefused(f"runs={self.runs}: at least 1")


async def straight(tree: Tree, guide: Guide | None = None) -> tuple[Node, str]:
    """One run, a reply at each call. Its sampling is the space's: temperature 0 makes it greedy."""
    try:
        await tree.start()
        return await run_on(tree, tree.root, guide), ""
    except BudgetSpent as spent:
        return tree.first_end(), spent.kind


async def majority(tree: Tree, settings: MajoritySettings, guide: Guide | None = None) -> tuple[Node, str]:
    """The run that speaks for the answer which most of them gave. `guide` is V, or Y. Runs go on side by side; with a
    budget as many at a time as `_at_once` says.

    Ties go to the larger sum of psi of the final replies. Where nobody answered it is the first run that ended, or the
    root where none did. A run that nobody scored in time weighs nothing; with Y the votes then decide.
    """
    if (settings.weights == "none") != (guide is None):
        raise SearchRefused(
            f"weights={settings.weights} with {'no model' if guide is None else 'a model'} of values. "
            "Fix: weights values with --prm, outcome with --orm, none with neither"
        )
    spent = ""
    at: list[Node] = []
    live = guide if settings.weights == "values" else None
    try:
        await tree.start()
        while (begun := len(at)) < settings.runs:
            more = min(_at_once(tree.budget, begun, settings.runs), settings.runs - begun)
            at += (await tree.expand([tree.root], more, merge=False, guide=live))[0]
            await tree.ends(at)
            while open_ := [one for one, node in enumerate(at) if node.end is None]:
                grown = await tree.expand([at[one] for one in open_], 1, merge=False, guide=live)
                for one, [node] in zip(open_, grown, strict=True):
                    at[one] = node
                await tree.ends(at)
    except BudgetSpent as error:
        spent = error.kind
    ended = [node for node in at if node.end is not None]
    if not ended:
        return tree.first_end(), spent
    if settings.weights == "outcome":
        assert guide is not None
        try:
            for node, outcome in zip(ended, await tree.score(guide, ended), strict=True):
                node.outcome = outcome
            return max(ended, key=lambda node: node.outcome or 0.0), spent
        except BudgetSpent as error:
            spent = error.kind
    chosen = plurality([Vote(_answer(node), _weight(node, settings), node.psi) for node in ended])
    return ended[chosen or 0], spent


def _at_once(budget: Budget, begun: int, runs: int) -> int:
    """How many runs go on side by side when so many have ended: one after the other where calls are counted, so that as
    many as fit come to their end; under a clock ever more, as it is not known how many the engine takes at a time."""
    if budget.agent_calls is not None or budget.tokens is not None:
        return 1
    return runs if budget.wall_s is None else begun + 1


def _answer(node: Node) -> str | None:
    assert node.end is not None
    return node.end.answer


def _weight(node: Node, settings: MajoritySettings) -> float:
    """w: the mean of V over the path, as printed, as far as it was scored."""
    if settings.weights != "values":
        return 1.0
    values = [each.value for each in node.path if each.value is not None]
    return sum(values) / max(1, len(values))
