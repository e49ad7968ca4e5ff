"""Monte Carlo tree search with UCT (MASPRM, Eq. 2): labels from the gold answer (Alg. 1), and guided (Alg. 2)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from search.methods.budget import BudgetSpent
from search.methods.guides import Guide
from search.methods.nodes import Node, SearchRefused
from search.methods.states import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class MctsSettings:
    """Defaults are those of inference (Appendix B.6); labels have `simulations=40` (B.4)."""

    simulations: int = 20
    children: int = 3
    """C_max."""
    c_uct: float = 4.0
    mix: float = 0.0
    """lambda of Eq. 3: how much of a terminal state's value the outcome model says."""
    stop: Literal["ended", "expanded"] = "ended"
    """Whether a simulation goes down to a terminal state, or stops where it has expanded one, as Alg. 2 is printed."""
    parallel: int = 1
    """Simulations at a time; with more than one, each counts for the others as a visit that lost, until it is backed
    up. They go on in step, so that the tree does not depend on timing."""

    def __post_init__(self) -> None:
        for name in ("simulations", "children", "parallel"):
            if getattr(self, name) < 1:
                raise SearchRefused(f"{name}={getattr(self, name)}: at least 1")
        if not self.c_uct >= 0 or math.isinf(self.c_uct):
            raise SearchRefused(f"c_uct={self.c_uct}: a number from 0 up")
        if not 0 <= self.mix <= 1:
            raise SearchRefused(f"mix={self.mix}: from 0 (the guide alone) to 1 (the outcome model alone)")


def uct(child: Node, c: float) -> float:
    """Eq. 2: Q(s, a) + c sqrt(ln(1 + sum_b N(s, b)) / (1 + N(s, a)))."""
    assert child.parent is not None
    beside = sum(other.visits + other.pending for other in child.parent.children)
    visits = child.visits + child.pending
    q = (child.total - child.pending) / max(1, visits)
    return q + c * math.sqrt(math.log(1 + beside) / (1 + visits))


async def label(tree: Tree, settings: MctsSettings) -> None:
    """Alg. 1: simulations down to terminal states, whose R is backed up. No virtual visits: children begin with N = 0.
    Equal replies stay children of their own. Raises `BudgetSpent`."""

    async def rewards(leaves: Sequence[Node]) -> list[float]:
        ends = [leaf.end for leaf in leaves]
        found = [end.reward for end in ends if end is not None and end.reward is not None]
        if len(found) < len(leaves):
            raise SearchRefused("labels need a grade for every end. Fix: a problem with an answer, tests or a game")
        return found

    await _simulate(tree, settings, None, rewards)


async def guided(tree: Tree, guide: Guide, settings: MctsSettings, outcomes: Guide | None = None) -> None:
    """Alg. 2: children begin with N = 1 and W = V (or psi); a simulation's value is Eq. 3. `outcomes` is Y, which
    `mix` above 0 needs. Raises `BudgetSpent`."""
    if settings.mix and outcomes is None:
        raise SearchRefused(f"mix={settings.mix} mixes an outcome model in. Fix: give one (--orm), or mix=0")

    async def values(leaves: Sequence[Node]) -> list[float]:
        ended = list(dict.fromkeys(leaf for leaf in leaves if leaf.end is not None and leaf.outcome is None))
        if settings.mix and ended:
            assert outcomes is not None
            for leaf, outcome in zip(ended, await tree.score(outcomes, ended), strict=True):
                leaf.outcome = outcome
        return [leaf_value(leaf, settings.mix) for leaf in leaves]

    await _simulate(tree, settings, guide, values)


def leaf_value(leaf: Node, mix: float) -> float:
    """Eq. 3: (1 - lambda) V(s) + lambda Y(x, answer) of a terminal state, V(s) of another one."""
    assert leaf.value is not None
    if not mix or leaf.outcome is None:
        return leaf.value
    return (1 - mix) * leaf.value + mix * leaf.outcome


async def _simulate(
    tree: Tree,
    settings: MctsSettings,
    guide: Guide | None,
    leaf_values: Callable[[Sequence[Node]], Awaitable[list[float]]],
) -> None:
    """Select, expand and go on, until each simulation has come to its leaf; then back up, in their order."""
    await tree.start()
    done = 0
    while done < settings.simulations:
        at = [tree.root] * min(settings.parallel, settings.simulations - done)
        try:
            under_way = list(range(len(at)))
            while under_way:
                new = list(dict.fromkeys(at[one] for one in under_way if not at[one].children))
                if new:
                    await tree.expand(
                        new, settings.children, merge=guide is not None, guide=guide, virtual=guide is not None
                    )
                if settings.stop == "expanded":
                    under_way = [one for one in under_way if at[one] not in new]
                for one in under_way:
                    at[one] = max(at[one].children, key=lambda child: uct(child, settings.c_uct))
                    at[one].pending += 1
                ends = await tree.ends([at[one] for one in under_way])
                under_way = [one for one, end in zip(under_way, ends, strict=True) if end is None]
            values = await leaf_values([leaf for leaf in at if leaf.parent is not None])
        finally:
            for leaf in at:
                for node in leaf.path:
                    node.pending -= 1
        for leaf, value in zip([leaf for leaf in at if leaf.parent is not None], values, strict=True):
            leaf.back_up(value)
            if tree.log is not None:
                tree.log.simulated(leaf, value)
        done += len(at)


def best_path(tree: Tree, *, ended: bool = False) -> Node:
    """The last state of the path that follows the largest Q from the root; ties go to the child drawn first, and one
    that was never scored comes behind those that were. With `ended`, children alone count from which the search has
    come to an end; the root, where there are none."""
    comes_to_an_end: set[Node] = set()
    if ended:
        for node in reversed(tree.nodes):
            if node.end is not None or any(child in comes_to_an_end for child in node.children):
                comes_to_an_end.add(node)
    node = tree.root
    while ways := [child for child in node.children if not ended or child in comes_to_an_end]:
        node = max(ways, key=lambda child: (child.value is not None, child.q))
    return node


async def run_on(tree: Tree, node: Node, guide: Guide | None = None) -> Node:
    """The terminal state that the policy comes to from here, one reply at a time. Raises `BudgetSpent`."""
    while (await tree.ends([node]))[0] is None:
        [[node]] = await tree.expand([node], 1, merge=False, guide=guide)
    return node


async def mcts(tree: Tree, guide: Guide, settings: MctsSettings, outcomes: Guide | None = None) -> tuple[Node, str]:
    """The terminal state that guided search decides for, and which budget ended it, if one did; `as_far` says what is
    found where it had come to none."""
    try:
        await guided(tree, guide, settings, outcomes)
        return await run_on(tree, best_path(tree), guide), ""
    except BudgetSpent as spent:
        found = best_path(tree, ended=True)
        return found if found.end is not None else await as_far(tree, best_path(tree), guide), spent.kind


async def as_far(tree: Tree, node: Node, guide: Guide | None) -> Node:
    """The terminal state that the policy comes to from here with what a budget leaves; where that is too little, the
    end of the first path, or the root, where it came to none."""
    try:
        return await run_on(tree, node, guide)
    except BudgetSpent:
        return tree.first_end()
