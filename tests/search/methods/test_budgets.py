"""Budgets: an answer wherever one run fits, never less for more, and no other search than without one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_space import ToyGuide, ToySpace, Ways, random_ways, text

from search.methods import (
    Action,
    BeamSettings,
    Budget,
    End,
    MajoritySettings,
    MctsSettings,
    Node,
    Oracle,
    Tree,
    beam,
    majority,
    mcts,
    straight,
)

METHODS = {
    "straight": lambda tree, guide: straight(tree),
    "majority": lambda tree, guide: majority(tree, MajoritySettings(runs=4)),
    "weighed": lambda tree, guide: majority(tree, MajoritySettings(runs=4, weights="values"), guide),
    "beam": lambda tree, guide: beam(tree, guide, BeamSettings(beam=2, samples=3)),
    "first": lambda tree, guide: beam(tree, guide, BeamSettings(beam=3, samples=4, first=True)),
    "mcts": lambda tree, guide: mcts(tree, guide, MctsSettings(simulations=6, children=3)),
    "printed": lambda tree, guide: mcts(tree, guide, MctsSettings(simulations=6, children=2, stop="expanded")),
    "parallel": lambda tree, guide: mcts(tree, guide, MctsSettings(simulations=9, children=3, parallel=4)),
}
LEAST = 4
"""Replies of the shortest way to an end in `RELAY`."""
RELAY: Ways = {f"a{i}": {f"b{i}": {f"c{i}": {f"d{i}{j}": 1 for j in range(9)}}} for i in range(9)}


class Log:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def drawn(self, node: Node) -> None:
        assert node.parent is not None
        self.told.append(("drawn", node.id, node.parent.id, text(node)))

    def arrived(self, node: Node) -> None:
        self.told.append(("arrived", node.id))

    def simulated(self, leaf: Node, value: float) -> None:
        self.told.append(("simulated", leaf.id, value))


def searched(
    method: str, ways: Ways, values: dict[str, float], budget: Budget | None = None, log: Log | None = None
) -> tuple[Node, str, Tree]:
    tree = Tree(ToySpace(ways), budget=budget, log=log)
    node, spent = asyncio.run(METHODS[method](tree, ToyGuide(values)))
    return node, spent, tree


def valued(ways: Ways, dice: random.Random) -> dict[str, float]:
    found: dict[str, float] = {}
    for said, after in ways.items():
        found[said] = dice.uniform(-1, 1)
        found |= valued(after, dice) if isinstance(after, dict) else {}
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["agent_calls", "tokens"])
def test_wherever_one_run_fits_there_is_an_answer(method: str, kind: Any) -> None:
    """A reply has two tokens, and one is drawn as long as any token is left."""
    for budget in range(1, 26):
        node, spent, tree = searched(method, RELAY, {}, Budget(**{kind: budget}))
        fits = budget >= (LEAST if kind == "agent_calls" else 2 * LEAST - 1)
        assert (node.end is not None, node is tree.root) == (fits, not fits), budget
        assert tree.spent.agent_calls <= budget if kind == "agent_calls" else tree.spent.agent_calls >= 1
        assert spent in ("", kind)


@given(seed=st.integers(0, 10**6), method=st.sampled_from(sorted(METHODS)), kind=st.sampled_from(["calls", "tokens"]))
@settings(max_examples=60, deadline=None)
def test_a_larger_budget_never_finds_nothing_where_a_smaller_one_found_an_end(
    seed: int, method: str, kind: str
) -> None:
    dice = random.Random(seed)
    ways = random_ways(dice, dice.randint(1, 5), dice.randint(1, 4))
    values = valued(ways, dice)
    found = []
    for budget in range(1, 30):
        limit = Budget(agent_calls=budget) if kind == "calls" else Budget(tokens=budget)
        found.append(searched(method, ways, values, limit)[0].end is not None)
    assert found == sorted(found)


@given(seed=st.integers(0, 10**6), method=st.sampled_from(sorted(METHODS)))
@settings(max_examples=60, deadline=None)
def test_a_budget_that_is_not_used_up_changes_nothing_but_the_first_path(seed: int, method: str) -> None:
    dice = random.Random(seed)
    ways = random_ways(dice, dice.randint(1, 4), dice.randint(1, 4))
    values = valued(ways, dice)
    node, spent, tree = searched(method, ways, values)
    told = Log()
    other, none, budgeted = searched(method, ways, values, Budget(agent_calls=10**6, wall_s=3600), told)
    assert (spent, none) == ("", "")
    if method in ("majority", "weighed"):  # one run after the other: states have other ids
        assert text(node) == text(other)
    else:
        assert [(text(each), each.visits, each.total) for each in tree.nodes[1:]] == [
            (text(each), each.visits, each.total) for each in budgeted.nodes[1:]
        ]
        assert node.id == other.id
    assert budgeted.spent.scored == tree.spent.scored
    assert tree.spent.agent_calls <= budgeted.spent.agent_calls
    budgeted.first_end()
    drawn = [line[1] for line in told.told if line[0] == "drawn"]
    assert drawn == list(range(1, len(budgeted.nodes)))
    assert sum(each.copies for each in budgeted.nodes[1:]) == budgeted.spent.agent_calls, "all that was drawn is there"


@pytest.mark.parametrize("method", METHODS)
def test_the_first_path_stands_in_the_tree_where_nothing_else_does(method: str) -> None:
    told = Log()
    node, _, tree = searched(method, RELAY, {}, Budget(agent_calls=LEAST), told)
    tree.first_end()
    assert [text(each) for each in node.path] == ["a0", "b0", "c0", "d00"]
    assert {line[:2] for line in told.told} >= {(what, each.id) for each in node.path for what in ("drawn", "arrived")}


@pytest.mark.parametrize("method", ["majority", "beam", "mcts", "printed", "parallel"])
@pytest.mark.parametrize("slow", ["draw", "end", "score"])
def test_a_clock_leaves_the_first_path_whatever_takes_too_long(method: str, slow: str) -> None:
    class Slow(ToySpace):
        async def draw(self, node: Node, count: int) -> Sequence[Action]:
            if slow == "draw" and self.ended:
                await asyncio.sleep(60)
            return await super().draw(node, count)

        async def end(self, node: Node) -> End | None:
            if slow == "end" and self.ended:
                await asyncio.sleep(60)
            return await super().end(node)

    class SlowGuide(ToyGuide):
        async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]:
            if slow == "score":
                await asyncio.sleep(60)
            return await super().values(tree, nodes)

    tree = Tree(Slow(RELAY), budget=Budget(wall_s=0.2))
    works = METHODS | {"majority": METHODS["weighed"]}
    node, spent = asyncio.run(works[method](tree, SlowGuide({"a1": 1.0})))
    assert (text(node), spent) == ("d00", "wall_s")
    assert tree.spent.seconds < 30


@pytest.mark.parametrize("method", ["beam", "mcts"])
@pytest.mark.parametrize("late", [{"a"}, {"b"}, {"a", "b", "c"}])
def test_the_oracle_is_under_the_clock_too(method: str, late: set[str]) -> None:
    class Late(ToySpace):
        async def end(self, node: Node) -> End | None:
            if node.parent is not None and text(node) in late:
                await asyncio.sleep(60)
            return await super().end(node)

    tree = Tree(Late({"a": 1, "b": -1, "c": 1}), budget=Budget(wall_s=0.2))
    works: dict[str, Any] = {
        "beam": lambda: beam(tree, Oracle(), BeamSettings(beam=2, samples=3)),
        "mcts": lambda: mcts(tree, Oracle(), MctsSettings(simulations=5)),
    }
    node, spent = asyncio.run(works[method]())
    assert spent == "wall_s"
    assert (node is tree.root) is ("a" in late)


def test_under_a_clock_as_many_runs_vote_as_an_engine_of_one_call_at_a_time_has_time_for() -> None:
    class OneCall(ToySpace):
        lock: asyncio.Lock | None = None

        async def draw(self, node: Node, count: int) -> Sequence[Action]:
            self.lock = self.lock or asyncio.Lock()
            async with self.lock:
                await asyncio.sleep(0.05 * count)
            return await super().draw(node, count)

    tree = Tree(OneCall(RELAY), budget=Budget(wall_s=0.65))
    node, spent = asyncio.run(majority(tree, MajoritySettings(runs=9)))
    assert (node.end is not None, spent) == (True, "wall_s")
    assert sum(each.end is not None for each in tree.nodes) >= 1
