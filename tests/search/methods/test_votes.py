"""Votes: weights as they are, ties, and runs that vote."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from toy_space import ToyGuide, ToySpace, text

from search.methods import (
    Budget,
    MajoritySettings,
    SearchRefused,
    Tree,
    Vote,
    majority,
    plurality,
    straight,
)


def test_negative_weights_count_as_they_are() -> None:
    """-0.2 and 0.1 for A, 0.05 for B: A has more runs and more weight in one of them, and loses."""
    assert plurality([Vote("A", -0.2), Vote("A", 0.1), Vote("B", 0.05)]) == 2
    assert plurality([Vote("A", -0.2), Vote("B", -0.3)]) == 0
    # A product of values, which two negative ones would make positive, chooses otherwise.
    assert plurality([Vote("A", 0.04), Vote("B", 0.03)]) == 0


def test_ties_go_to_the_larger_sum_of_psi_then_to_the_answer_named_first() -> None:
    assert plurality([Vote("A", 1, -2.0), Vote("B", 1, -1.0)]) == 1
    assert plurality([Vote("a long answer", 1), Vote("B", 1)]) == 0
    assert plurality([Vote("A", 1, -3.0), Vote("A", 1, -1.0), Vote("B", 1, -0.1)]) == 1


def test_who_did_not_answer_has_no_vote_and_equal_answers_are_one() -> None:
    assert plurality([Vote(None), Vote(None), Vote("7")]) == 2
    assert plurality([Vote("1"), Vote("$7$"), Vote("7.")]) == 1
    assert plurality([Vote(None)]) is None
    assert plurality([]) is None


def test_the_likeliest_run_speaks_for_those_alone_that_said_the_same() -> None:
    """Answers that were merged though they differ made the one with the largest psi win (`31/2` for `3 1/2`)."""
    right = "for x in xs:\n    t += x\nreturn t"
    for said, likelier in (("3 1/2", "31/2"), (right, right.replace("\nreturn", "\n    return")), ("X+1", "x+1")):
        assert plurality([Vote(likelier, 1, -0.1), *[Vote(said, 1, -0.9)] * 3, Vote("7", 1, -0.5)]) == 1


def test_runs_of_a_majority_go_on_side_by_side_and_cost_k_times_their_depth() -> None:
    ways = {"a": {"7": 1}, "b": {"8": -1}, "c": {"7": 1}}
    tree = Tree(ToySpace(ways))
    node, spent = asyncio.run(majority(tree, MajoritySettings(runs=3)))
    assert (text(node), spent, tree.spent.agent_calls) == ("7", "", 6)


def test_values_weigh_votes_by_their_mean_over_the_path() -> None:
    ways = {"a": {"7": 1}, "b": {"8": -1}, "c": {"7": 1}}
    guide = ToyGuide({"a": -0.2, "7": -0.2, "b": 0.05, "8": 0.05, "c": 0.1})
    tree = Tree(ToySpace(ways))
    node, _ = asyncio.run(majority(tree, MajoritySettings(runs=3, weights="values"), guide))
    assert text(node) == "8"  # -0.2 and (0.1 - 0.2) / 2 against 0.05
    assert tree.spent.scored == 6


def test_an_outcome_model_chooses_the_run_it_likes_best() -> None:
    ways = {"a": {"7": 1}, "b": {"8": -1}, "c": {"7": 1}}
    tree = Tree(ToySpace(ways))
    outcome = ToyGuide({"7": 0.1, "8": 0.3})
    node, _ = asyncio.run(majority(tree, MajoritySettings(runs=3, weights="outcome"), outcome))
    assert text(node) == "8"
    assert tree.spent.scored == 3


@pytest.mark.parametrize(("weights", "guide"), [("none", ToyGuide({})), ("values", None), ("outcome", None)])
def test_a_model_without_a_use_for_it_is_refused(weights: Any, guide: ToyGuide | None) -> None:
    with pytest.raises(SearchRefused, match=f"weights={weights}"):
        asyncio.run(majority(Tree(ToySpace({"a": 1})), MajoritySettings(weights=weights), guide))


def test_a_single_run_asks_once_at_each_call() -> None:
    tree = Tree(ToySpace({"a": {"b": {"c": 1}}}))
    node, spent = asyncio.run(straight(tree))
    assert ([text(each) for each in node.path], spent, tree.spent.agent_calls) == (["a", "b", "c"], "", 3)
    tree = Tree(ToySpace({"a": {"b": {"c": 1}}}), budget=Budget(agent_calls=2))
    assert asyncio.run(straight(tree)) == (tree.root, "agent_calls")
    tree = Tree(ToySpace({"a": 1, "b": {"c": {"d": 1}}}), budget=Budget(agent_calls=3))
    node, spent = asyncio.run(majority(tree, MajoritySettings(runs=2)))
    assert (text(node), spent) == ("a", "agent_calls")


def test_as_many_runs_vote_as_a_budget_has_room_for() -> None:
    ways = {"a": {"8": -1}, "b": {"7": 1}, "c": {"7": 1}, "d": {"8": -1}}
    for calls, said, drawn in ((4, "8", 4), (5, "8", 5), (6, "7", 6), (1, None, 1)):
        tree = Tree(ToySpace(ways), budget=Budget(agent_calls=calls))
        node, spent = asyncio.run(majority(tree, MajoritySettings(runs=4)))
        assert (None if node is tree.root else text(node), spent) == (said, "agent_calls")
        assert tree.spent.agent_calls == drawn


def test_who_has_no_psi_wins_no_tie() -> None:
    assert plurality([Vote("B", 1, -0.1), Vote("A", 1, None)]) == 0
    assert plurality([Vote("A", 1, None), Vote("A", 1, -5.0)]) == 1
