"""Credit rules against numbers worked by hand, and what must hold of any of them (docs/architecture.md, decision 8)."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.credit.rules import (
    EPSILON,
    RULES,
    Outcome,
    Rule,
    RuleName,
    agent_turn,
    at_grpo,
    designer_flat,
    designer_tree,
    executor_per_design,
    executor_tree,
    grpo,
    loss_group,
    normalised,
    zero_variance,
)
from trainer.samples import Coordinates

Matrix = Sequence[Sequence[float]]
"""Rewards of one question: a row per design, a column per execution."""


def designer(rewards: Matrix, question: str = "q") -> list[Outcome]:
    """A designer's outcomes: one per execution of each design, in the order of the matrix."""
    return [
        Outcome(Coordinates(question=question, design=design, execution=execution, agent="designer"), reward)
        for design, row in enumerate(rewards)
        for execution, reward in enumerate(row)
    ]


def executor(rewards: Matrix, counts: Sequence[Sequence[int]] | None = None, question: str = "q") -> list[Outcome]:
    """Executor outcomes: `counts[i][j]` trajectories of run (i, j), or one each."""
    return [
        Outcome(Coordinates(question=question, design=design, execution=execution, agent=f"agent {number}"), reward)
        for design, row in enumerate(rewards)
        for execution, reward in enumerate(row)
        for number in range(counts[design][execution] if counts else 1)
    ]


def by_design(outcomes: Sequence[Outcome], advantages: Sequence[float]) -> dict[int, set[float]]:
    found: dict[int, set[float]] = defaultdict(set)
    for outcome, advantage in zip(outcomes, advantages, strict=True):
        found[outcome.coordinates.design].add(advantage)
    return dict(found)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_an_error_wherever_it_stands(rule: RuleName, wrong: float) -> None:
    for place in range(4):
        rewards = [1.0, 0.0, 0.5, 0.5]
        rewards[place] = wrong
        matrix = [rewards[:2], rewards[2:]]
        for role, outcomes in (("designer", designer(matrix)), ("executor", executor(matrix))):
            with pytest.raises(ValueError, match=r"a reward of -?(nan|inf) cannot be compared .*Fix: "):
                RULES[rule][role](outcomes)


# Numbers worked by hand

SMALL = [[1.4, 0.4], [0.0, 0.2]]
LARGE = [[1.4, 1.4, 1.4, 1.4], [1.4, 0.2, 1.4, 0.2], [0.4, 0.4, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]


def test_metaagent_x_eq_4_a_design_has_the_mean_reward_of_its_executions() -> None:
    # Only the mean counts: rows with equal means are interchangeable, however their executions are spread.
    spread, flat = [[1.0, 0.0], [0.2, 0.0]], [[0.5, 0.5], [0.1, 0.1]]
    assert designer_tree(designer(spread)) == pytest.approx(designer_tree(designer(flat)), abs=1e-12)
    # Means 1.2 (of one execution), 0.6 (of two) and 0.3 (of three): mean 0.7; deviations 0.5, -0.1, -0.4;
    # squares 0.25 + 0.01 + 0.16 = 0.42, variance 0.14.
    uneven = designer_tree(designer([[1.2], [1.2, 0.0], [0.3, 0.6, 0.0]]))
    sigma = math.sqrt(0.14)
    assert uneven == pytest.approx([x / (sigma + 1e-6) for x in (0.5, -0.1, -0.1, -0.4, -0.4, -0.4)], abs=1e-9)


def test_metaagent_x_eq_5_two_designs_of_two_executions() -> None:
    # Eq. 4: means 0.9 and 0.1. Eq. 5: mean 0.5, standard deviation 0.4, so +-0.4 / 0.400001.
    expected = 0.4 / 0.400001
    assert designer_tree(designer(SMALL)) == pytest.approx([expected, expected, -expected, -expected], abs=1e-12)
    # Not the sample's deviation (0.4 * sqrt 2), which would give 0.707.
    assert expected == pytest.approx(0.9999975, abs=1e-9)


def test_metaagent_x_eq_5_four_designs_of_four_executions() -> None:
    # Means 1.4, 0.8, 0.2, 0; their mean 2.4 / 4 = 0.6; deviations 0.8, 0.2, -0.4, -0.6;
    # squares 0.64 + 0.04 + 0.16 + 0.36 = 1.2, variance 0.3, standard deviation 0.5477226.
    advantages = designer_tree(designer(LARGE))
    expected = [1.460591, 0.365148, -0.730295, -1.095443]  # 0.8 / 0.5477236 ...
    assert advantages == pytest.approx([each for each in expected for _ in range(4)], abs=1e-6)


COUNTS = [[1, 3], [2, 2]]


def test_metaagent_x_eq_6_all_trajectories_of_a_question_are_one_group() -> None:
    # Rewards 1, 0, 1, 0 with 1, 3, 2, 2 trajectories: three ones and five zeros in one group of eight.
    outcomes = executor([[1, 0], [1, 0]], COUNTS)
    assert [outcome.reward for outcome in outcomes] == [1, 0, 0, 0, 1, 1, 0, 0]
    advantages = executor_tree(outcomes)
    # The same run under another design has the same advantage, and so has each trajectory of one run.
    assert advantages[0] == advantages[4] == advantages[5]
    assert len(set(advantages)) == 2
    # The mean is 3/8, as trajectories weigh, and not 1/2, as runs would: then both would be 1 in size.
    assert advantages[0] / -advantages[1] == pytest.approx((5 / 8) / (3 / 8))


def test_metaagent_x_eq_7_two_designs_of_two_executions() -> None:
    # Mean 3/8 = 0.375; variance 0.375 - 0.140625 = 0.234375; standard deviation 0.4841229.
    # 0.625 / 0.4841239 = 1.2909918 and -0.375 / 0.4841239 = -0.7745951.
    plus, minus = 1.2909918, -0.7745951
    expected = [plus, minus, minus, minus, plus, plus, minus, minus]
    assert executor_tree(executor([[1, 0], [1, 0]], COUNTS)) == pytest.approx(expected, abs=1e-6)


def test_metaagent_x_eq_7_four_designs_of_four_executions() -> None:
    # One, two and three trajectories per run, and a rejected design that has none:
    # 1.4 eight times, 0.2 four times, 0.4 six times, 0 six times. Sum 11.2 + 0.8 + 2.4 = 14.4 of 24, mean 0.6.
    # Squares 8 * 0.64 + 4 * 0.16 + 6 * 0.04 + 6 * 0.36 = 8.16, variance 0.34, standard deviation 0.5830952.
    outcomes = executor(LARGE, [[1] * 4, [2] * 4, [3] * 4, [0] * 4])
    assert len(outcomes) == 24
    value = {1.4: 1.371987, 0.2: -0.685994, 0.4: -0.342997, 0.0: -1.028990}  # 0.8 / 0.5830962 ...
    expected = [value[outcome.reward] for outcome in outcomes]
    assert executor_tree(outcomes) == pytest.approx(expected, abs=2e-6)


def test_per_design_groups_hold_one_program_only() -> None:
    # Design 0: 1, 0, 0, 0: mean 0.25, variance 0.1875, sigma 0.4330127: 1.7320508 and -0.5773503 (less epsilon).
    # Design 1: 1, 1, 0, 0: +-1.
    advantages = executor_per_design(executor([[1, 0], [1, 0]], COUNTS))
    assert advantages == pytest.approx([1.732047, -0.577349, -0.577349, -0.577349, 1, 1, -1, -1], abs=3e-6)


def test_flat_compares_every_execution() -> None:
    # All four: mean 0.5, deviations 0.9, -0.1, -0.5, -0.3, squares 0.81 + 0.01 + 0.25 + 0.09 = 1.16, variance 0.29,
    # sigma 0.5385165. Design 0: (0.9 - 0.1) / 2 = 0.4; design 1: -0.4; so +-0.4 / 0.5385175 = 0.7427801.
    plus = 0.7427801
    assert designer_flat(designer(SMALL)) == pytest.approx([plus, plus, -plus, -plus], abs=1e-6)
    assert RULES["flat"]["executor"] is executor_tree


@pytest.mark.parametrize("rewards", [[[1.4], [0.4], [0.0]], [[0.2]], [[0.4], [0.4]], [[x / 10] for x in range(8)]])
def test_flat_equals_tree_with_one_execution_each(rewards: Matrix) -> None:
    assert designer_flat(designer(rewards)) == designer_tree(designer(rewards))


def test_single_agent_grpo() -> None:
    # One design, four runs of one trajectory: 1, 0, 0, 0, as above.
    assert grpo(executor([[1, 0, 0, 0]])) == pytest.approx([1.732047, -0.577349, -0.577349, -0.577349], abs=3e-6)
    # A template that cannot extend makes several trajectories of one run, which still counts once: +-1.
    assert grpo(executor([[1, 0]], [[1, 3]])) == pytest.approx([1, -1, -1, -1], abs=3e-6)
    assert executor_tree(executor([[1, 0]], [[1, 3]])) == pytest.approx([1.732047] + [-0.577349] * 3, abs=3e-6)


def test_a_repaired_design_weighs_as_any_other() -> None:
    """Both of its replies are trajectories, each with all executions."""
    repaired = designer(SMALL) + designer(SMALL)[:2]
    for rule in (designer_tree, designer_flat):
        advantages = rule(repaired)
        assert advantages[:4] == rule(designer(SMALL))
        assert advantages[4:] == advantages[:2]


def test_every_rule_is_named() -> None:
    assert {name: (rules["designer"], rules["executor"]) for name, rules in RULES.items()} == {
        "tree": (designer_tree, executor_tree),
        "flat": (designer_flat, executor_tree),
        "per-design": (designer_tree, executor_per_design),
        "single-agent": (designer_tree, grpo),
        "at-grpo": (designer_tree, at_grpo),
        "agent-turn": (designer_tree, agent_turn),
    }


# Stronger-MAS


def candidates(rewards: Sequence[float], point: str, **more: Any) -> list[Outcome]:
    return [
        Outcome(Coordinates(question="q", design=0, execution=number, point=point, **more), reward)
        for number, reward in enumerate(rewards)
    ]


def test_stronger_mas_eq_1_the_candidates_of_one_call_are_a_group() -> None:
    # Mean 1, deviation sqrt(1/2): 1 / (0.7071068 + 1e-6).
    first, second = candidates([2, 1, 1, 0], "0/a", agent="Coder"), candidates([7, 7, 7, 7], "0/b", agent="Coder")
    advantages = at_grpo([*first, *second])
    assert advantages[:4] == pytest.approx([1.4142116, 0, 0, -1.4142116], abs=1e-7)
    assert advantages[4:] == [0.0] * 4
    alike = [replace(each, coordinates=replace(each.coordinates, prompt="same")) for each in (*first, *second)]
    assert at_grpo(alike) == advantages, "prompts that look alike at two turns are two groups"
    assert [loss_group("at-grpo", each.coordinates) for each in (first[0], second[3])] == ["0/a", "0/b"]


def test_without_a_tree_an_agents_turns_are_compared_over_runs() -> None:
    def turn(execution: int, agent: str, number: int, reward: float) -> Outcome:
        at = Coordinates(question="q", design=0, execution=execution, agent=agent, path=f"w/{agent}", turn=number)
        return Outcome(at, reward)

    runs = [
        turn(0, "A", 0, 3.0),
        turn(1, "A", 0, 1.0),
        turn(0, "B", 0, 5.0),
        turn(1, "B", 0, 5.0),
        turn(0, "A", 1, 9.0),
    ]
    # A's first turns: mean 2, deviation 1. B's are equal. A's second turn has nothing beside it.
    assert agent_turn(runs) == pytest.approx([1, -1, 0, 0, 0], abs=1e-5)
    assert loss_group("agent-turn", runs[4].coordinates) == "('q', 'w/A', 'A', 1)"
    assert loss_group("tree", runs[4].coordinates) == "q"


# No variance

ROUNDED = [0.1 + 0.1 + 0.1, 0.3, 0.1 * 3, 0.7 - 0.4]


@pytest.mark.parametrize(
    "rewards",
    [[], [0.0], [1.4], [0.0] * 16, [0.2] * 3, [0.1] * 7, ROUNDED, [1e6 + 0.1, 1e6 + 0.1], [0.1 + 0.2 - 0.3, 0]],
)
def test_equal_rewards_give_exactly_zero(rewards: list[float]) -> None:
    assert normalised(rewards) == [0.0] * len(rewards)


def test_small_differences_are_differences() -> None:
    assert normalised([0.2, 0.2 + 1e-4]) == pytest.approx([-0.98, 0.98], abs=0.01)


@pytest.mark.parametrize(
    "rewards",
    [
        [[0.1, 0.1, 0.1], [0.1]],  # the mean of three 0.1 is not 0.1 in binary
        [[0.2, 0.4], [0.3, 0.3], [0.3]],
        [[1.4, 0.4, 0.2], [0.2, 1.4, 0.4], [2 / 3]],
    ],
)
def test_designs_of_equal_means_get_exactly_zero_and_are_counted(rewards: Matrix) -> None:
    outcomes = designer(rewards)
    assert designer_tree(outcomes) == [0.0] * len(outcomes)
    assert zero_variance(outcomes, "designer") == (1, 1)


def test_zero_variance_counts_questions_that_teach_a_rule_nothing() -> None:
    same, between, within = [[0.4, 0.4], [0.4, 0.4]], [[1.4, 1.4], [0.0, 0.0]], [[1.4, 0.0], [0.0, 1.4]]
    questions = {"same": same, "between": between, "within": within}
    designed = [outcome for name, rewards in questions.items() for outcome in designer(rewards, name)]
    played = [outcome for name, rewards in questions.items() for outcome in executor(rewards, COUNTS, name)]
    counted = {
        (name, role): zero_variance(outcomes, role, name)
        for name, rules in RULES.items()
        for role, outcomes in zip(rules, (designed, played), strict=True)
    }
    # Designs differ in `between` only; runs in `between` and `within`; runs of one design in `within` only.
    assert counted == {
        ("tree", "designer"): (2, 3),
        ("tree", "executor"): (1, 3),
        ("flat", "designer"): (2, 3),
        ("flat", "executor"): (1, 3),
        ("per-design", "designer"): (2, 3),
        ("per-design", "executor"): (2, 3),
        ("single-agent", "designer"): (2, 3),
        ("single-agent", "executor"): (1, 3),
        ("at-grpo", "designer"): (2, 3),
        ("at-grpo", "executor"): (2, 3),
        ("agent-turn", "designer"): (2, 3),
        ("agent-turn", "executor"): (1, 3),
    }
    ends_in_the_middle = designer([[0.0], [1.0], [0.5]])
    assert designer_tree(ends_in_the_middle)[-1] == 0.0
    assert zero_variance(ends_in_the_middle, "designer") == (0, 1), "its last advantage alone is 0"
    assert zero_variance([], "designer") == (0, 0)
    assert zero_variance(played, "executor") == (1, 3)


# Properties of every rule

rewards = st.integers(0, 14).map(float)
trees = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.lists(st.tuples(rewards, st.integers(1, 3)), min_size=1, max_size=4), min_size=1, max_size=4),
    min_size=1,
)
Tree = dict[str, list[list[tuple[float, int]]]]
"""Of each question its designs, of each design its runs: reward and number of trajectories."""

every_rule = pytest.mark.parametrize(
    ("rule", "role"),
    [
        (designer_tree, "designer"),
        (designer_flat, "designer"),
        (executor_tree, "executor"),
        (executor_per_design, "executor"),
        (grpo, "executor"),
        (at_grpo, "executor"),
        (agent_turn, "executor"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)


def outcomes_of(tree: Tree, role: str) -> list[Outcome]:
    found = []
    for question, designs in tree.items():
        matrix = [[reward for reward, _ in runs] for runs in designs]
        counts = [[count for _, count in runs] for runs in designs]
        found += designer(matrix, question) if role == "designer" else executor(matrix, counts, question)
    return found


@every_rule
@given(tree=trees, shift=st.integers(-50, 50))
def test_shift_invariance(rule: Rule, role: str, tree: Tree, shift: int) -> None:
    outcomes = outcomes_of(tree, role)
    shifted = [replace(outcome, reward=outcome.reward + shift / 4) for outcome in outcomes]
    assert rule(shifted) == pytest.approx(rule(outcomes), abs=1e-9)


@every_rule
@given(tree=trees, scale=st.floats(1, 1000))
def test_scale_invariance_up_to_epsilon(rule: Rule, role: str, tree: Tree, scale: float) -> None:
    outcomes = outcomes_of(tree, role)
    scaled = [replace(outcome, reward=outcome.reward * scale) for outcome in outcomes]
    # d / (s + epsilon) against d / s: epsilon / s apart, relatively. Here s > 0.03, and no advantage is above 7.
    assert rule(scaled) == pytest.approx(rule(outcomes), abs=7 * EPSILON / 0.03)


@every_rule
@given(tree=trees, data=st.data())
def test_permutation_equivariance(rule: Rule, role: str, tree: Tree, data: st.DataObject) -> None:
    outcomes = outcomes_of(tree, role)
    order = data.draw(st.permutations(range(len(outcomes))))
    advantages = rule(outcomes)
    assert rule([outcomes[index] for index in order]) == [advantages[index] for index in order]


@every_rule
@given(tree=trees)
def test_other_questions_do_not_matter(rule: Rule, role: str, tree: Tree) -> None:
    alone = [advantage for name in tree for advantage in rule(outcomes_of({name: tree[name]}, role))]
    assert rule(outcomes_of(tree, role)) == alone


@every_rule
@given(tree=trees)
def test_advantages_are_bounded_and_follow_the_rewards(rule: Rule, role: str, tree: Tree) -> None:
    for name in tree:
        outcomes = outcomes_of({name: tree[name]}, role)
        advantages = rule(outcomes)
        assert len(advantages) == len(outcomes)
        # |x - mean| is at most sqrt(n - 1) standard deviations of n values.
        assert all(abs(advantage) <= math.sqrt(len(outcomes) - 1) + 1e-9 for advantage in advantages)
        same_sample: dict[object, set[float]] = defaultdict(set)
        for outcome, advantage in zip(outcomes, advantages, strict=True):
            place = outcome.coordinates
            same_sample[(place.design, None if role == "designer" else place.execution)].add(advantage)
        # An agent's turn is compared with the same agent's alone.
        assert rule is agent_turn or all(len(values) == 1 for values in same_sample.values())


GROUPS = {
    designer_tree: lambda place: (place.question, "designs"),
    designer_flat: lambda place: (place.question, "executions"),
    executor_tree: lambda place: (place.question, "trajectories"),
    executor_per_design: lambda place: (place.question, place.design, "trajectories"),
    grpo: lambda place: (place.question, "runs"),
    at_grpo: lambda place: (place.question, place.design, "trajectories"),
    agent_turn: lambda place: (place.question, place.agent, "trajectories"),
}


@every_rule
@given(tree=trees)
def test_the_advantages_of_a_group_sum_to_zero(rule: Rule, role: str, tree: Tree) -> None:
    outcomes = outcomes_of(tree, role)
    members: dict[object, dict[object, float]] = defaultdict(dict)
    for index, (outcome, advantage) in enumerate(zip(outcomes, rule(outcomes), strict=True)):
        place = outcome.coordinates
        *group, of = GROUPS[rule](place)
        member = {"designs": place.design, "runs": (place.design, place.execution)}.get(of, index)
        members[tuple(group)][member] = advantage
    for values in members.values():
        assert math.fsum(values.values()) == pytest.approx(0, abs=1e-9)


@given(values=st.lists(rewards, min_size=2, max_size=8))
def test_a_better_reward_has_a_better_advantage(values: list[float]) -> None:
    advantages = normalised(values)
    for one, its in zip(values, advantages, strict=True):
        for other, others in zip(values, advantages, strict=True):
            assert (one > other) == (its > others)
