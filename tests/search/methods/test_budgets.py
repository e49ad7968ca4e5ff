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
    "printed": lambda tree, guide: mcts(tree, guide, MctsSettings(simulations=6, children=3, stop="expanded")),
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
    """Of no more calls than a state draws replies, and one. A reply has two tokens, and one is drawn as long as any
    token is left."""
    for budget in range(1, 26):
        node, spent, tree = searched(method, RELAY, {}, Budget(**{kind: budget}))
        fits = budget >= (LEAST if kind == "agent_calls" else 2 * LEAST - 1)
        assert (node.end is not None, node is tree.root) == (fits, not fits), budget
        assert tree.spent.agent_calls <= budget if kind == "agent_calls" else tree.spent.agent_calls >= 1
        assert spent in ("", kind)


@given(seed=st.integers(0, 10**6), method=st.sampled_from(sorted(METHODS)), kind=st.sampled_from(["calls", "tokens"]))
@settings(max_examples=60, deadline=None)
def test_any_program_of_few_calls_has_an_answer_and_no_budget_is_passed(seed: int, method: str, kind: str) -> None:
    dice = random.Random(seed)
    depth = dice.randint(1, LEAST)
    ways = random_ways(dice, depth, dice.randint(1, 4))
    values = valued(ways, dice)
    for budget in range(1, 30):
        limit = Budget(agent_calls=budget) if kind == "calls" else Budget(tokens=2 * budget)
        node, _, tree = searched(method, ways, values, limit)
        assert node.end is not None or budget < depth
        assert kind == "tokens" or tree.spent.agent_calls <= budget
        tree.take_in_all()
        assert sum(each.copies for each in tree.nodes[1:]) == tree.spent.agent_calls, "all that was drawn is there"


def even_ways(dice: random.Random, depth: int, width: int, name: str = "r") -> Ways:
    """All runs are equally long."""
    return {
        f"{name}{way}": even_ways(dice, depth - 1, width, f"{name}{way}") if depth > 1 else dice.choice([-1, 1])
        for way in range(width)
    }


SEARCHES = sorted(METHODS.keys() - {"majority", "weighed"})
REPLIES = 4
"""That a state draws at most."""


@given(seed=st.integers(0, 10**6), method=st.sampled_from(SEARCHES), even=st.booleans(), tokens=st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_search_that_ends_within_its_budget_is_the_one_without(
    seed: int, method: str, even: bool, tokens: bool
) -> None:
    """To the call where runs are equally long, else with a state's replies to spare; likewise where a search stops
    before its runs end, as none may have ended then."""
    dice = random.Random(seed)
    ways = (even_ways if even else random_ways)(dice, dice.randint(1, 4), dice.randint(1, 4))
    values = valued(ways, dice)
    logs = Log(), Log()
    node, _, free = searched(method, ways, values, None, logs[0])
    calls = free.spent.agent_calls + (0 if even and method != "printed" else REPLIES) + dice.choice([0, 0, 1, 10**6])
    limit = Budget(tokens=2 * calls) if tokens else Budget(agent_calls=calls)
    other, spent, tree = searched(method, ways, values, limit, logs[1])
    tree.take_in_all()
    assert spent == ""
    assert (other.id, tree.spent.agent_calls, tree.spent.scored) == (
        node.id,
        free.spent.agent_calls,
        free.spent.scored,
    )
    assert logs[0].told == logs[1].told


@given(seed=st.integers(0, 10**6), method=st.sampled_from(["majority", "weighed"]))
@settings(max_examples=40, deadline=None)
def test_a_majority_within_its_budget_has_the_same_runs_one_after_the_other(seed: int, method: str) -> None:
    dice = random.Random(seed)
    ways = random_ways(dice, dice.randint(1, 4), dice.randint(1, 4))
    values = valued(ways, dice)
    node, _, free = searched(method, ways, values)
    other, spent, tree = searched(method, ways, values, Budget(agent_calls=free.spent.agent_calls))
    assert (text(node), "", free.spent.agent_calls) == (text(other), spent, tree.spent.agent_calls)


@pytest.mark.parametrize(("beams", "calls"), [(1, 20), (3, 50)])
def test_beams_have_their_last_level_where_the_formula_fits_and_what_fits_of_it_otherwise(
    beams: int, calls: int
) -> None:
    """AC = B2 + (D - 1) B1 B2, with D = 4 and B2 = 5."""
    settings, guide = BeamSettings(beam=beams, samples=5), ToyGuide({})
    for less in (0, 1, 2):
        tree = Tree(ToySpace(RELAY), budget=Budget(agent_calls=calls - less))
        node, spent = asyncio.run(beam(tree, guide, settings))
        assert (node.depth, spent) == (LEAST, "agent_calls" if less else "")
        assert tree.spent.agent_calls == calls - less


@pytest.mark.parametrize("method", METHODS)
def test_the_first_path_stands_in_the_tree_where_nothing_else_does(method: str) -> None:
    told = Log()
    node, _, tree = searched(method, RELAY, {}, Budget(agent_calls=LEAST), told)
    tree.take_in_all()
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
