"""Beam search: what stays, what it costs, and that full width is exhaustive search."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_space import ToyGuide, ToySpace, Ways, random_ways, text

from search.methods import BeamSettings, Budget, Likelihood, SearchRefused, Tree, beam


def relay(depth: int, width: int) -> Ways:
    """A tree of one depth, with a text of its own everywhere."""
    numbers = count()

    def grown(left: int) -> Ways:
        return {str(next(numbers)): 1 if left == 1 else grown(left - 1) for _ in range(width)}

    return grown(depth)


@pytest.mark.parametrize(("width", "samples", "depth"), [(3, 5, 4), (1, 5, 4), (2, 3, 5), (4, 2, 3), (1, 1, 6)])
def test_agent_calls_are_those_of_the_papers_formula(width: int, samples: int, depth: int) -> None:
    """AC = B2 + (D - 1) B1 B2 (section 5.1) where B1 is at most B2: 50 for 3/5, 20 for 1/5 at depth 4."""
    tree = Tree(ToySpace(relay(depth, samples)))
    asyncio.run(beam(tree, ToyGuide({}), BeamSettings(beam=width, samples=samples)))
    first = min(width, samples)
    at_depth = [1, first]
    while len(at_depth) < depth:
        at_depth.append(min(width, at_depth[-1] * samples))
    assert tree.spent.agent_calls == samples * sum(at_depth[:depth])
    if width <= samples:
        assert tree.spent.agent_calls == samples + (depth - 1) * width * samples


def test_all_replies_are_pooled_and_the_best_stay_whoever_they_come_from() -> None:
    ways = {"a": {"a1": 1, "a2": -1}, "b": {"b1": 1, "b2": -1}, "c": {"c1": 1}}
    guide = ToyGuide({"a": 0.9, "b": 0.8, "c": 0.1, "a1": 0.5, "a2": 0.6, "b1": 0.7, "b2": 0.4})
    tree = Tree(ToySpace(ways))
    node, _ = asyncio.run(beam(tree, guide, BeamSettings(beam=2, samples=3)))
    assert text(node) == "b1"
    assert "c1" not in guide.asked


def test_runs_that_have_ended_stay_with_their_value_or_end_the_search() -> None:
    ways = {"short": 1, "long": {"longer": {"longest": 1}}}
    guide = ToyGuide({"short": 0.6, "long": 0.9, "longer": 0.7, "longest": 0.5})
    for first, calls in ((False, 6), (True, 2)):
        tree = Tree(ToySpace(ways))
        node, _ = asyncio.run(beam(tree, guide, BeamSettings(beam=2, samples=2, first=first)))
        assert (text(node), tree.spent.agent_calls) == ("short", calls)
    # A run that has ended loses its place to two that are worth more.
    values = {"short": 0.1, "a": 0.5, "b": 0.6, "x": 0.3, "y": 0.2}
    tree = Tree(ToySpace({"short": 1, "a": {"x": 1}, "b": {"y": 1}}))
    assert text(asyncio.run(beam(tree, ToyGuide(values), BeamSettings(beam=2, samples=3)))[0]) == "x"


def test_ties_go_to_the_higher_psi_then_to_the_one_drawn_first() -> None:
    psi = {"a": -2.0, "b": -1.0, "c": -1.0}
    tree = Tree(ToySpace({"a": 1, "b": 1, "c": 1}, psi))
    assert text(asyncio.run(beam(tree, ToyGuide({}), BeamSettings(beam=1, samples=3)))[0]) == "b"
    tree = Tree(ToySpace({"a": 1, "b": 1, "c": 1}))
    assert text(asyncio.run(beam(tree, ToyGuide({}), BeamSettings(beam=1, samples=3)))[0]) == "a"
    tree = Tree(ToySpace({"a": 1, "b": 1, "c": 1}, psi))
    assert text(asyncio.run(beam(tree, Likelihood(), BeamSettings(beam=1, samples=3)))[0]) == "b"


def test_equal_replies_take_one_place() -> None:
    ways = {"a": {"x": 1, "y": 1}}
    tree = Tree(ToySpace(ways))
    asyncio.run(beam(tree, ToyGuide({}), BeamSettings(beam=3, samples=4)))
    assert [(text(node), node.copies) for node in tree.nodes[1:]] == [("a", 4), ("x", 2), ("y", 2)]
    assert tree.spent.agent_calls == 8


@given(st.integers(0, 10**6), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_full_width_equals_exhaustive_search(seed: int, width: int) -> None:
    dice = random.Random(seed)
    ways = random_ways(dice, 3, width)
    values: dict[str, float] = {}
    ends: list[str] = []

    def walk(place: Ways) -> None:
        for said, after in place.items():
            values[said] = dice.choice([0.25, 0.5, 0.75, dice.random()])
            walk(after) if isinstance(after, dict) else ends.append(said)

    walk(ways)
    tree = Tree(ToySpace(ways))
    node, _ = asyncio.run(beam(tree, ToyGuide(values), BeamSettings(beam=10**4, samples=width)))
    assert values[text(node)] == max(values[end] for end in ends)
    assert {text(each) for each in tree.nodes[1:] if each.end} == set(ends)


def test_a_budget_ends_it_with_the_best_run_that_has_ended() -> None:
    ways = {"a": {"a1": {"a2": {"a3": 1}}}, "b": 1, "c": -1}
    guide = ToyGuide({"a": 0.9, "b": 0.1, "c": 0.2, "a1": 0.9, "a2": 0.9, "a3": 0.9})
    tree = Tree(ToySpace(ways), budget=Budget(agent_calls=6))
    node, spent = asyncio.run(beam(tree, guide, BeamSettings(beam=3, samples=3)))
    assert (text(node), spent) == ("c", "agent_calls")
    long = {name: {f"{name}1": {f"{name}2": 1}} for name in "xyz"}
    for calls, said in ((5, "x2"), (7, "y2")):  # the first path; the best goes on with the two calls that are left
        tree = Tree(ToySpace(long), budget=Budget(agent_calls=calls))
        node, spent = asyncio.run(beam(tree, ToyGuide({"y": 0.5}), BeamSettings(beam=3, samples=3)))
        assert (text(node), spent) == (said, "agent_calls")
    tree = Tree(ToySpace(ways), budget=Budget(agent_calls=2))
    assert asyncio.run(beam(tree, guide, BeamSettings(beam=3, samples=3))) == (tree.root, "agent_calls")


@pytest.mark.parametrize("wrong", [{"beam": 0}, {"samples": 0}])
def test_settings_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SearchRefused, match=next(iter(wrong))):
        BeamSettings(**wrong)
