"""Monte Carlo tree search: numbers worked by hand, and what holds of every tree."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_space import ToyGuide, ToySpace, random_ways, text

from search.methods import (
    BeamSettings,
    Budget,
    End,
    Likelihood,
    MajoritySettings,
    MctsSettings,
    Node,
    Oracle,
    SearchRefused,
    Tree,
    beam,
    best_path,
    guided,
    label,
    majority,
    mcts,
    straight,
    uct,
)
from search.methods.mcts import leaf_value

TWO_BY_TWO = {"a": {"a1": 1, "a2": -1}, "b": {"b1": 1, "b2": 1}}


class Log:
    def __init__(self) -> None:
        self.leaves: list[str] = []
        self.told: list[tuple[str, int]] = []

    def drawn(self, node: Node) -> None:
        self.told.append(("drawn", node.id))

    def arrived(self, node: Node) -> None:
        self.told.append(("arrived", node.id))

    def simulated(self, leaf: Node, value: float) -> None:
        self.leaves.append(text(leaf))
        self.told.append(("simulated", leaf.id))


def by_text(tree: Tree) -> dict[str, Node]:
    return {text(node): node for node in tree.nodes[1:]}


def test_five_simulations_worked_by_hand() -> None:
    log = Log()
    tree = Tree(ToySpace(TWO_BY_TWO), log=log)
    asyncio.run(label(tree, MctsSettings(simulations=5, children=2, c_uct=4.0)))
    assert log.leaves == ["a1", "a1", "b1", "b1", "a2"]
    found = by_text(tree)
    assert (found["a"].visits, found["a"].total, found["a"].q) == (3, 1.0, pytest.approx(1 / 3))
    assert (found["b"].visits, found["b"].total, found["b"].q) == (2, 2.0, 1.0)
    assert (found["b2"].visits, found["b2"].q) == (0, 0.0)
    assert tree.spent.agent_calls == 6


def test_eq_2_worked_by_hand() -> None:
    root = Node(0)
    a, b = Node(1, root, visits=3, total=1.0), Node(2, root, visits=2, total=2.0)
    root.children = [a, b]
    assert uct(a, 4.0) == pytest.approx(1 / 3 + 4 * math.sqrt(math.log(6) / 4))
    assert uct(b, 4.0) == pytest.approx(1 + 4 * math.sqrt(math.log(6) / 3))
    assert uct(b, 0.0) == 1.0
    # At the first visit of a state no child has been visited: the bonus is 0 then, and at the second it is not.
    a.visits, a.total, b.visits, b.total = 0, 0.0, 0, 0.0
    assert uct(a, 4.0) == uct(b, 4.0) == 0.0
    a.visits, a.total = 1, 1.0
    assert uct(b, 4.0) == pytest.approx(4 * math.sqrt(math.log(2)))


def test_a_leaf_with_an_outcome_model_worked_by_hand() -> None:
    ways = {"a": {"x": 1}, "b": {"y": 1}}
    tree = Tree(ToySpace(ways))
    values, outcomes = ToyGuide({"a": 0.2, "b": 0.6, "x": 0.9, "y": 0.9}), ToyGuide({"x": -0.5, "y": -0.5})
    asyncio.run(guided(tree, values, MctsSettings(simulations=1, children=2, mix=0.5), outcomes))
    found = by_text(tree)
    assert leaf_value(found["y"], 0.5) == pytest.approx(0.2)
    assert found["b"].q == pytest.approx(0.4)
    assert (found["b"].visits, found["a"].visits, found["a"].q) == (2, 1, 0.2)
    assert outcomes.asked == {"y": 1}


def test_mix_1_is_the_outcome_model_alone_and_0_the_guide_alone() -> None:
    ended = Node(1, Node(0), value=0.9, outcome=-0.5)
    assert leaf_value(ended, 1.0) == -0.5
    assert leaf_value(ended, 0.0) == 0.9
    assert leaf_value(Node(2, Node(0), value=0.3), 0.7) == 0.3  # it does not end there


def test_only_what_was_selected_is_backed_up() -> None:
    """Ends beside the selected one keep N = 0, and nothing ends early."""
    tree = Tree(ToySpace({"a": 1, "b": -1, "c": 1}))
    asyncio.run(label(tree, MctsSettings(simulations=1, children=3)))
    assert [node.visits for node in tree.nodes[1:]] == [1, 0, 0]
    asyncio.run(label(tree, MctsSettings(simulations=9, children=3)))
    assert sum(node.visits for node in tree.root.children) == 10


def test_a_second_visit_goes_where_eq_2_says_and_ties_go_to_the_child_drawn_first() -> None:
    log = Log()
    asyncio.run(label(Tree(ToySpace({"a": -1, "b": -1, "c": -1}), log=log), MctsSettings(simulations=4, children=3)))
    assert log.leaves[:3] == ["a", "b", "c"]
    assert log.leaves[3] == "a"


def test_equal_replies_stay_apart_in_labels_and_are_merged_with_their_count_in_a_search() -> None:
    same = {"a": {"x": 1}}
    labels, search = Tree(ToySpace(same)), Tree(ToySpace(same))
    asyncio.run(label(labels, MctsSettings(simulations=2, children=3)))
    asyncio.run(guided(search, ToyGuide({}), MctsSettings(simulations=2, children=3)))
    assert [text(node) for node in labels.root.children] == ["a", "a", "a"]
    assert [(text(node), node.copies) for node in search.root.children] == [("a", 3)]
    assert search.spent.agent_calls == 6  # duplicates are paid for


def test_the_answer_follows_the_largest_q_and_the_policy_runs_on_where_it_is_not_finished() -> None:
    """The best child was never visited: it has V alone, and its run is made by the policy."""
    ways = {"a": {"a1": -1, "a2": -1}, "b": {"b1": 1, "b2": 1}}
    tree = Tree(ToySpace(ways))
    guide = ToyGuide({"a": 0.5, "b": 0.4, "a1": -1.0, "a2": -1.0})
    node, spent = asyncio.run(mcts(tree, guide, MctsSettings(simulations=1, children=2, c_uct=0.0)))
    assert (text(node), spent) == ("b1", "")
    assert [text(each) for each in best_path(tree).path] == ["b", "b1"]
    assert tree.spent.agent_calls == 5
    assert not by_text(tree)["b1"].virtual


def test_stop_expanded_backs_up_the_value_of_the_expanded_state() -> None:
    """Alg. 2 as printed: the first simulation expands the root and backs nothing up, the second its best child."""
    log = Log()
    tree = Tree(ToySpace(TWO_BY_TWO), log=log)
    guide = ToyGuide({"a": 0.5, "b": 0.25})
    asyncio.run(guided(tree, guide, MctsSettings(simulations=2, children=2, stop="expanded", c_uct=0.0)))
    found = by_text(tree)
    assert log.leaves == ["a"]
    assert (found["a"].visits, found["a"].total) == (2, 1.0)
    assert tree.spent.agent_calls == 4
    assert found["a1"].virtual


def test_simulations_at_a_time_keep_out_of_each_others_way() -> None:
    """Virtual losses: four at a time go to four children, where one after another goes back to the good one."""
    ways = {name: {name + "1": 1} for name in "abcd"}
    logs = [Log(), Log()]
    for log, parallel in zip(logs, (1, 4), strict=True):
        tree = Tree(ToySpace(ways), log=log)
        settled = MctsSettings(simulations=4, children=4, c_uct=0.0, parallel=parallel)
        asyncio.run(label(tree, settled))
        assert all(node.pending == 0 for node in tree.nodes)
        assert sum(node.visits for node in tree.root.children) == 4
    assert logs[0].leaves == ["a1"] * 4
    assert logs[1].leaves == ["a1", "b1", "c1", "d1"]


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_tree_does_not_depend_on_the_order_of_arrival(parallel: int) -> None:
    ways = random_ways(random.Random(7), 4, 3)
    told: list[list[tuple[str, int]]] = []
    for seed in range(3):
        log = Log()
        tree = Tree(ToySpace(ways, dice=random.Random(seed)), log=log)
        guide = ToyGuide({})
        asyncio.run(guided(tree, guide, MctsSettings(simulations=12, parallel=parallel)))
        told.append(log.told)
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize(
    ("budget", "kind", "calls"),
    [(Budget(agent_calls=7), "agent_calls", 7), (Budget(tokens=12), "tokens", 6), (Budget(tokens=13), "tokens", 9)],
)
def test_a_budget_ends_a_search_with_the_best_so_far(budget: Budget, kind: str, calls: int) -> None:
    ways = {name: {name + "1": 1, name + "2": -1, name + "3": 1} for name in "abc"}
    guide = ToyGuide({"a": 0.9, "b": 0.1, "c": 0.1, "a1": 0.2, "a2": 0.7})
    tree = Tree(ToySpace(ways), budget=budget)
    node, spent = asyncio.run(mcts(tree, guide, MctsSettings(simulations=50)))
    assert spent == kind
    assert tree.spent.agent_calls <= calls
    assert text(node) in ("a1", "a2", "a3")
    assert node.end is not None


def test_a_budget_that_ends_a_search_early_leaves_the_first_path_or_the_best_childs() -> None:
    for calls, found in ((1, None), (2, "a1"), (3, "a1"), (4, "b1")):
        tree = Tree(ToySpace(TWO_BY_TWO), budget=Budget(agent_calls=calls))
        node, spent = asyncio.run(mcts(tree, ToyGuide({"b": 0.5}), MctsSettings(children=2)))
        assert (None if node is tree.root else text(node), spent) == (found, "agent_calls")
        assert tree.spent.agent_calls == calls


def test_the_clock_ends_a_draw_that_does_not_come() -> None:
    class Slow(ToySpace):
        async def draw(self, node: Node, count: int):
            if node.parent is not None:
                await asyncio.sleep(60)
            return await super().draw(node, count)

    tree = Tree(Slow(TWO_BY_TWO), budget=Budget(wall_s=0.2))
    node, spent = asyncio.run(mcts(tree, ToyGuide({}), MctsSettings(children=2)))
    assert (node, spent) == (tree.root, "wall_s")
    assert tree.spent.seconds < 30


@pytest.mark.parametrize("method", ["mcts", "beam", "majority", "straight"])
def test_the_clock_ends_runs_that_compute_and_keeps_those_that_have_ended(method: str) -> None:
    class Computing(ToySpace):
        async def end(self, node: Node) -> End | None:
            if node.parent is not None and text(node) != "a":
                await asyncio.sleep(60)
            return await super().end(node)

    ways = {"a": 1, "b": {"b1": 1}}
    tree = Tree(Computing({"b": 1} if method == "straight" else ways), budget=Budget(wall_s=0.3))
    guide = ToyGuide({"a": 0.1, "b": 0.9})
    works = {
        "mcts": lambda: mcts(tree, guide, MctsSettings(simulations=3, children=2, parallel=2)),
        "beam": lambda: beam(tree, guide, BeamSettings(beam=2, samples=2)),
        "majority": lambda: majority(tree, MajoritySettings(runs=2)),
        "straight": lambda: straight(tree),
    }
    node, spent = asyncio.run(works[method]())
    assert spent == "wall_s"
    assert tree.spent.seconds < 30
    assert node is tree.root if method == "straight" else text(node) == "a"


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 3), st.integers(1, 40), st.floats(0, 8))
@settings(max_examples=40, deadline=None)
def test_n_w_and_q_are_sums_over_simulations(seed: int, width: int, children: int, simulations: int, c: float) -> None:
    class Kept(Log):
        def __init__(self) -> None:
            super().__init__()
            self.paths: list[tuple[list[int], float]] = []

        def simulated(self, leaf: Node, value: float) -> None:
            self.paths.append(([node.id for node in leaf.path], value))

    log = Kept()
    space = ToySpace(random_ways(random.Random(seed), 3, width))
    tree = Tree(space, log=log)
    asyncio.run(label(tree, MctsSettings(simulations=simulations, children=children, c_uct=c)))
    assert len(log.paths) == simulations
    for node in tree.nodes[1:]:
        through = [value for path, value in log.paths if node.id in path]
        assert (node.visits, node.total) == (len(through), sum(through))
        assert -1 <= node.q <= 1
    assert all(tree.nodes[path[-1]].end is not None for path, _ in log.paths)
    assert len(space.ended) == len(set(space.ended)) or children > width  # no run is made twice
    assert tree.spent.agent_calls == sum(space.drawn.values())


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_with_the_oracle_and_enough_simulations_a_right_answer_is_found_wherever_there_is_one(seed: int) -> None:
    ways = random_ways(random.Random(seed), 3, 3)

    def ends(place: Any) -> list[int]:
        return [place] if isinstance(place, int) else [each for way in place.values() for each in ends(way)]

    tree = Tree(ToySpace(ways))
    node, _ = asyncio.run(mcts(tree, Oracle(), MctsSettings(simulations=300, children=3)))
    assert node.end is not None
    assert node.end.reward == max(ends(ways))


def test_psi_needs_log_probabilities_and_says_what_gives_them() -> None:
    with pytest.raises(SearchRefused, match=r"agent 'A0' replied without log-probabilities.*Fix: an engine"):
        asyncio.run(mcts(Tree(ToySpace(TWO_BY_TWO)), Likelihood(), MctsSettings()))
    tree = Tree(ToySpace(TWO_BY_TWO, {"a": -2.0, "b": -1.0, "a1": -0.5, "a2": -0.5, "b1": -3.0, "b2": -0.1}))
    node, _ = asyncio.run(mcts(tree, Likelihood(), MctsSettings(simulations=20, children=2, c_uct=0.1)))
    assert by_text(tree)["b2"].psi == pytest.approx(-0.1)
    assert text(node) == "b2"
    assert tree.spent.scored == 0


def test_a_program_that_asks_nobody_is_not_searched() -> None:
    class Done(ToySpace):
        def at(self, node: Node) -> int:
            return 1

        async def end(self, node: Node):
            return End("7", None, 1.0)

    with pytest.raises(SearchRefused, match=r"asks no agent.*'7'.*Fix: run it"):
        asyncio.run(label(Tree(Done({})), MctsSettings()))


@pytest.mark.parametrize(
    "wrong", [{"children": 0}, {"simulations": 0}, {"c_uct": -0.1}, {"c_uct": math.inf}, {"c_uct": math.nan},
              {"mix": 1.1}, {"mix": -0.1}, {"mix": math.nan}, {"parallel": 0}]
)  # fmt: skip
def test_settings_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SearchRefused, match=next(iter(wrong))):
        MctsSettings(**wrong)


def test_an_outcome_model_that_is_mixed_in_must_be_there() -> None:
    with pytest.raises(SearchRefused, match="--orm"):
        asyncio.run(guided(Tree(ToySpace(TWO_BY_TWO)), ToyGuide({}), MctsSettings(mix=0.5)))


@pytest.mark.parametrize("psi", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("budget", [None, Budget(agent_calls=2)])
def test_log_probabilities_that_are_none_stop_a_search(psi: float, budget: Budget | None) -> None:
    space = ToySpace({"a": {"a1": 1}, "b": {"b1": 1}}, psi={"a": psi, "b": -0.1, "a1": -0.1, "b1": -0.1})
    with pytest.raises(SearchRefused, match=rf"engine .* agent 'A0' \(call w/A#0\).* {psi}\. Fix"):
        asyncio.run(mcts(Tree(space, budget=budget), Likelihood(), MctsSettings(children=2)))
