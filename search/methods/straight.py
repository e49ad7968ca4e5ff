"""Runs that do not part: a single one, and several that vote (Greedy and Maj@k of MASPRM's tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from search.methods.budget import BudgetSpent
from search.methods.guides import Guide
from search.methods.mcts import run_on
from search.methods.states import Node, SearchRefused, Tree
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
        return tree.root, spent.kind


async def majority(tree: Tree, settings: MajoritySettings, guide: Guide | None = None) -> tuple[Node, str]:
    """The run that speaks for the answer which most of them gave. `guide` is V, or Y. Runs go on side by side;
    with a budget of calls or tokens one after the other, so that as many as fit come to their end.

    Ties go to the larger sum of psi of the final replies. Where nobody answered it is the first run that ended, or the
    root where none did.
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
        if tree.budget.agent_calls is not None or tree.budget.tokens is not None:
            for _ in range(settings.runs):
                [[node]] = await tree.expand([tree.root], 1, merge=False, guide=live)
                at.append(await run_on(tree, node, live))
        else:
            [at] = await tree.expand([tree.root], settings.runs, merge=False, guide=live)
            while open_ := [one for one, end in enumerate(await tree.ends(at)) if end is None]:
                grown = await tree.expand([at[one] for one in open_], 1, merge=False, guide=live)
                for one, [node] in zip(open_, grown, strict=True):
                    at[one] = node
    except BudgetSpent as error:
        spent = error.kind
    ended = [node for node in at if node.end is not None]
    if not ended:
        return tree.root, spent
    if settings.weights == "outcome":
        assert guide is not None
        for node, outcome in zip(ended, await guide.values(tree, ended), strict=True):
            node.outcome = outcome
        return max(ended, key=lambda node: node.outcome or 0.0), spent
    chosen = plurality([Vote(_answer(node), _weight(node, settings), node.psi) for node in ended])
    return ended[chosen or 0], spent


def _answer(node: Node) -> str | None:
    assert node.end is not None
    return node.end.answer


def _weight(node: Node, settings: MajoritySettings) -> float:
    """w: the mean of V over the path, as printed."""
    if settings.weights == "none":
        return 1.0
    values = [each.value for each in node.path if each.value is not None]
    return sum(values) / len(values)
