"""Rates, intervals, shares and spreads against published and hand-worked numbers, and what must always hold of them."""

import math
import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.evaluate.metrics import (
    Spread,
    diversity,
    failure_counts,
    grouped,
    pass_at_k,
    pass_at_powers,
    pass_rate,
    shares,
    spread,
    structure_shares,
)
from workflow import AgentNode, EnsembleNode, ReflectionNode, Workflow
from workflow.graph import describe

GRADES = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=12)


def singles(correct: int, of: int) -> list[list[bool]]:
    return [[number < correct] for number in range(of)]


@pytest.mark.parametrize(
    ("correct", "of", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17, Table I, method 3 (Wilson's score interval).
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_one_attempt_per_problem_gives_wilsons_interval(correct: int, of: int, low: float, high: float) -> None:
    rate = pass_rate(singles(correct, of))
    assert (round(rate.low, 4), round(rate.high, 4)) == (low, high)
    assert (rate.estimate, rate.problems, rate.attempts) == (pytest.approx(correct / of), of, of)


def test_attempts_of_one_problem_count_by_how_much_they_differ() -> None:
    # Always alike: as if each problem had been attempted once.
    alike = pass_rate([[True] * 4, [False] * 4])
    once = pass_rate([[True], [False]])
    assert (alike.low, alike.high) == pytest.approx((once.low, once.high))
    # Problems that differ by less than coins do: as if all attempts were at problems of their own.
    even = pass_rate([[True, False]] * 3)
    assert (even.low, even.high) == pytest.approx((pass_rate(singles(3, 6)).low, pass_rate(singles(3, 6)).high))
    # By hand: rates 1, 1/2, 0; p (1 - p) = 1/4; variance of the mean (1/4 + 0 + 1/4) / 3 / 3 = 1/18; n = 4.5.
    # z^2 = 3.84146: (1/2 -+ 1.95996 sqrt(1/18 + 3.84146/81) / (1 + 3.84146/4.5)), with the centre at 1/2.
    between = pass_rate([[True, True], [True, False], [False, False]])
    assert between.estimate == 0.5
    assert (between.low, between.high) == pytest.approx((0.160690, 0.839310), abs=1e-6)


def test_the_estimate_is_the_mean_over_problems_however_often_each_was_attempted() -> None:
    assert pass_rate([[True], [False] * 9]).estimate == 0.5
    with pytest.raises(ValueError, match="at least one problem"):
        pass_rate([])
    with pytest.raises(ValueError, match="at least one attempt for each"):
        pass_rate([[True], []])


@given(GRADES, st.randoms())
def test_the_interval_holds_the_estimate_and_ignores_the_order(grades: list[list[bool]], dice: random.Random) -> None:
    rate = pass_rate(grades)
    assert 0 <= rate.low <= rate.estimate <= rate.high <= 1
    assert rate.low < rate.high
    mixed = [each[::-1] for each in grades]
    dice.shuffle(mixed)
    again = pass_rate(mixed)
    assert (again.estimate, again.low, again.high) == pytest.approx((rate.estimate, rate.low, rate.high))
    assert pass_at_powers(mixed) == pytest.approx(pass_at_powers(grades))


@given(GRADES)
def test_more_problems_of_the_same_kind_narrow_the_interval(grades: list[list[bool]]) -> None:
    few, many = pass_rate(grades), pass_rate(grades * 4)
    assert many.high - many.low < few.high - few.low


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_attempt(grades: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(grades)))
    subsets = list(combinations(grades, k))
    assert pass_at_k(len(grades), sum(grades), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@given(GRADES)
def test_pass_at_k_rises_from_the_pass_rate(grades: list[list[bool]]) -> None:
    passed = pass_at_powers(grades)
    assert passed[1] == pytest.approx(pass_rate(grades).estimate)
    assert list(passed) == [1 << bit for bit in range(len(passed))]
    assert max(passed) <= min(map(len, grades)) < 2 * max(passed)
    values = list(passed.values())
    assert values == pytest.approx(sorted(values))


def test_pass_at_k_by_hand() -> None:
    assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert pass_at_k(200, 1, 100) == pytest.approx(0.5)
    assert pass_at_powers([[True, False, False, False], [False] * 5]) == pytest.approx({1: 0.125, 2: 0.25, 4: 0.5})
    assert pass_at_powers([]) == {}
    for attempts, correct, k in [(4, 2, 5), (4, 5, 1), (4, 2, 0)]:
        with pytest.raises(ValueError, match="needs 1 <= k <= attempts"):
            pass_at_k(attempts, correct, k)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=60))
def test_a_spread_is_of_its_numbers(numbers: list[int]) -> None:
    found = spread(numbers)
    assert found.mean == pytest.approx(sum(numbers) / len(numbers))
    assert found.p95 in numbers
    assert sum(number <= found.p95 for number in numbers) >= 0.95 * len(numbers)
    assert sum(number < found.p95 for number in numbers) < 0.95 * len(numbers)
    assert (found.count, found.max) == (len(numbers), max(numbers))


def test_spreads_by_hand() -> None:
    assert spread(range(1, 101)) == Spread(count=100, mean=50.5, p95=95, max=100)
    assert spread([]) == Spread()


def test_shares_and_counts() -> None:
    assert shares("aabc") == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert shares([]) == {}
    assert failure_counts(["program_failed", None, "limit_exceeded", "program_failed"]) == {
        "program_failed": 2,
        "limit_exceeded": 1,
    }
    assert grouped([("p", True), ("q", False), ("p", False)]) == [[True, False], [False]]


def test_structures_and_agents_of_designs() -> None:
    def agent(name: str, prompt: str) -> AgentNode:
        return AgentNode(name, prompt)

    critic = ReflectionNode("r", agent("Solver", "solve"))  # one agent in two places
    panel = EnsembleNode("e", [agent("Solver", "solve"), agent("Solver", "solve it")], "consensus", agent("Judge", ""))
    graphs = [describe(Workflow().add_node(node)) for node in (critic, panel, panel, agent("Solver", "alone"))]
    assert structure_shares(graphs) == {"ensemble": 0.5, "reflection": 0.25, "single": 0.25}
    found = diversity(graphs)
    # Solver/solve; twice Solver/solve, Solver/solve it, Judge; Solver/alone: of eight prompts one is alone.
    assert (found.designs, found.agents, found.role_names) == (4, 8, 2)
    assert found.unique_prompts == 1 / 8
    assert found.top_names == {"Solver": 6, "Judge": 2}
    assert diversity([]).unique_prompts == 0
    assert not math.isnan(diversity([describe(Workflow())]).unique_prompts)
