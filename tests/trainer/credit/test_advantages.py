"""From trees to samples: rewards to advantages by the rules, and hard masking by role (Eq. 9)."""

from array import array
from dataclasses import replace

import pytest

from tasks import Problem
from trainer.credit.advantages import ROLES, credited, outcomes, samples_by_policy, silent_by_agent, silent_groups
from trainer.credit.rules import RuleName
from trainer.samples import Coordinates, Trajectory
from trainer.trees import DesignResult, Execution, QuestionTree
from workflow.trace import Rewarded, RewardTerm
from workflow.usage import PolicyRole

EPSILON = 1e-6


def trajectory(role: PolicyRole, design: int, execution: int | None, agent: str) -> Trajectory:
    return Trajectory(
        role=role,
        coordinates=Coordinates(question="q", design=design, execution=execution, agent=agent),
        token_ids=array("i", [1, 2, 3]),
        loss_mask=array("b", [0, 1, 1]),
        behaviour_logprobs=array("f", [0.0, -1.0, -2.0]),
    )


def tree(
    rewards: list[list[float]], agents: list[list[int]], late: frozenset[tuple[int, int]] = frozenset()
) -> QuestionTree:
    """`rewards[i][j]` of design i, execution j, which has `agents[i][j]` trajectories; those `late` timed out."""
    designs = []
    for i, row in enumerate(rewards):
        executions = [
            Execution(
                index=j,
                reward=Rewarded(
                    total=r,
                    terms=[RewardTerm(name="correct", value=r, weight=1, reason="")],
                    timed_out=(i, j) in late,
                ),
                trajectories=[trajectory("executor", i, j, f"agent{n}") for n in range(agents[i][j])],
            )
            for j, r in enumerate(row)
        ]
        designs.append(
            DesignResult(
                index=i,
                program="...",
                graph=None,
                failure=None,
                trajectories=[trajectory("designer", i, None, "designer")],
                executions=executions,
            )
        )
    return QuestionTree(problem=Problem(id="q", question="?", domain="math", gold="1"), designs=designs)


TREE = tree([[1.0, 0.0], [1.0, 1.0]], [[1, 3], [1, 1]])


@pytest.mark.parametrize("rule", ["tree", "flat", "per-design", "single-agent"])
def test_runs_whose_wall_clock_struck_teach_nobody(rule: RuleName) -> None:
    """What is left has the advantages that it has without them, by every rule."""
    late = tree(
        [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1, 3], [2, 1], [1, 1]], frozenset({(1, 0), (1, 1)})
    )  # between the designs of TREE
    assert advantages_of(late, "designer", rule) == advantages_of(TREE, "designer", rule)
    assert advantages_of(late, "executor", rule) == advantages_of(TREE, "executor", rule)
    assert [t.coordinates.design for t, _ in credited([late], "designer", rule)] == [0, 2]
    assert {t.coordinates.design for t, _ in credited([late], "executor", rule)} == {0, 2}
    assert silent_groups([late], "designer") == (0, 1)


def advantages_of(found: QuestionTree, role: PolicyRole, rule: RuleName) -> list[float]:
    return [advantage for _, advantage in credited([found], role, rule)]


def test_a_design_that_hangs_where_it_would_be_wrong_is_credited_with_nothing() -> None:
    """Its runs that ended in time still teach the Executor."""
    hangs = tree([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]], [[1] * 3] * 3, frozenset({(0, 1), (0, 2)}))
    designers = credited([hangs], "designer", "tree")
    assert [t.coordinates.design for t, _ in designers] == [1, 2]
    assert [advantage for _, advantage in designers] == pytest.approx([1, -1], abs=1e-4)
    executors = credited([hangs], "executor", "tree")
    assert [t.coordinates.execution for t, _ in executors if t.coordinates.design == 0] == [0]
    assert len(executors) == 7


def test_the_designer_is_credited_with_mean_rewards() -> None:
    # Eq. 4: means 0.5 and 1. Eq. 5: mean 0.75, deviation 0.25, so -1 and 1 but for epsilon.
    assert [advantage for _, advantage in credited([TREE], "designer", "tree")] == pytest.approx(
        [-0.25 / (0.25 + EPSILON), 0.25 / (0.25 + EPSILON)]
    )


def test_the_executor_is_credited_within_all_trajectories_of_the_question() -> None:
    # Eq. 6: rewards 1, 0, 0, 0, 1, 1 by trajectory; mean 0.5, deviation 0.5.
    given = credited([TREE], "executor", "tree")
    assert [t.coordinates.agent for t, _ in given] == ["agent0", "agent0", "agent1", "agent2", "agent0", "agent0"]
    assert [a for _, a in given] == pytest.approx([x / (0.5 + EPSILON) for x in (0.5, -0.5, -0.5, -0.5, 0.5, 0.5)])


def test_the_rule_is_the_one_that_is_named() -> None:
    # Per design: rewards 1, 0, 0, 0 and 1, 1. The second design teaches nothing.
    by_design = [a for _, a in credited([TREE], "executor", "per-design")]
    assert by_design[4:] == [0.0, 0.0]
    # GRPO counts runs, not trajectories: 1, 0, 1, 1.
    runs = [a for _, a in credited([TREE], "executor", "single-agent")]
    assert runs[0] == pytest.approx(0.25 / (3**0.5 / 4 + EPSILON))


@pytest.mark.parametrize("shared", [True, False])
def test_samples_of_roles_that_do_not_learn_are_left_out(shared: bool) -> None:
    policies: dict[PolicyRole, str] = {"designer": "p0", "executor": "p0" if shared else "p1"}
    executor_only = samples_by_policy([TREE], "tree", policies, {"executor"})
    designer_only = samples_by_policy([TREE], "tree", policies, {"designer"})
    both = samples_by_policy([TREE], "tree", policies, {"designer", "executor"})
    assert {name: len(samples) for name, samples in executor_only.items()} == {policies["executor"]: 6}
    assert {name: len(samples) for name, samples in designer_only.items()} == {"p0": 2}
    assert sum(map(len, both.values())) == 8
    assert len(both) == (1 if shared else 2)
    assert {sample.group for samples in both.values() for sample in samples} == {"designer/q", "executor/q"}


def test_an_anchored_policy_gets_the_samples_of_its_role_that_does_not_learn_with_no_advantage() -> None:
    one: dict[PolicyRole, str] = {"designer": "p0", "executor": "p0"}
    plain = samples_by_policy([TREE], "tree", one, {"executor"})["p0"]
    held = samples_by_policy([TREE], "tree", one, {"executor"}, anchored=True)["p0"]
    assert [sample for sample in held if sample.group == "executor/q"] == plain
    assert [(s.advantage, s.held) for s in held if s.group == "designer/q"] == [(0.0, True), (0.0, True)]
    assert not any(sample.held for sample in plain)
    two: dict[PolicyRole, str] = {"designer": "p0", "executor": "p1"}
    apart = samples_by_policy([TREE], "tree", two, {"executor"}, anchored=True)
    assert {name: len(samples) for name, samples in apart.items()} == {"p1": 6}


def test_samples_carry_the_advantages_of_their_trajectories() -> None:
    learned = samples_by_policy([TREE], "tree", {"designer": "d", "executor": "e"}, {"designer", "executor"})
    for name, role in (("d", "designer"), ("e", "executor")):
        credit = [advantage for _, advantage in credited([TREE], role, "tree")]  # pyright: ignore[reportArgumentType]
        assert [sample.advantage for sample in learned[name]] == credit
        assert len(set(credit)) == 2


def test_samples_are_learned_from_at_the_temperature_that_drew_them() -> None:
    [design, *others] = TREE.designs
    cooler = replace(design, trajectories=[replace(each, temperature=0.25) for each in design.trajectories])
    found = samples_by_policy(
        [replace(TREE, designs=[cooler, *others])], "tree", {"designer": "d", "executor": "e"}, {"designer"}
    )
    assert [sample.temperature for sample in found["d"]] == [0.25, 1.0]


def test_an_outcome_is_of_its_own_execution() -> None:
    for role in ROLES:
        _, found = outcomes([TREE], role)
        runs = [[outcome.coordinates.execution for outcome in each] for each in found]
        assert runs == ([[0, 1], [0, 1]] if role == "designer" else [[0], [1], [1], [1], [0], [1]])


def test_samples_carry_their_trajectory_unchanged() -> None:
    sample = samples_by_policy([TREE], "tree", {"designer": "p0", "executor": "p0"}, {"designer"})["p0"][0]
    assert list(sample.token_ids) == [1, 2, 3]
    assert list(sample.loss_mask) == [0, 1, 1]
    assert list(sample.behaviour_logprobs) == [0.0, -1.0, -2.0]


def test_silent_groups_are_counted_by_role() -> None:
    # Both designs have mean 0.5, so the designer learns nothing; their runs differ, so the executor does.
    even = tree([[1.0, 0.0], [0.0, 1.0]], [[1, 1], [1, 1]])
    assert silent_groups([even], "designer") == (1, 1)
    assert silent_groups([even], "executor") == (0, 1)


def test_a_design_without_executions_by_agents_still_teaches_the_designer() -> None:
    lone = tree([[0.0, 0.0], [1.0, 1.0]], [[0, 0], [1, 1]])
    trajectories, rewards = outcomes([lone], "executor")
    assert len(trajectories) == len(rewards) == 2
    assert [a for _, a in credited([lone], "designer", "tree")] == pytest.approx([-1, 1], rel=1e-5)


def test_agents_with_policies_of_their_own_are_learned_from_by_these() -> None:
    policies: dict[PolicyRole, str] = {"designer": "d", "executor": "e"}
    plain = samples_by_policy([TREE], "tree", policies, ["executor"])["e"]
    apart = samples_by_policy(
        [TREE], "tree", policies, ["executor", "designer"], agents={"agent1": "one", "designer": "x"}
    )
    assert {name: len(samples) for name, samples in apart.items()} == {"d": 2, "e": 5, "one": 1}
    assert [sample.policy for sample in apart["one"]] == ["one"]
    assert sorted(sample.advantage for sample in [*apart["e"], *apart["one"]]) == sorted(s.advantage for s in plain)


def test_an_agent_is_silent_where_none_of_its_replies_has_an_advantage() -> None:
    middle_last = tree([[0.0, 1.0, 0.5]], [[1, 2, 1]])  # the last run's advantage is 0, and it is no silent group
    assert silent_by_agent([middle_last], "single-agent") == {"agent0": 0.0, "agent1": 0.0}
    assert silent_by_agent([tree([[0.5, 0.5]], [[1, 2]])], "single-agent") == {"agent0": 1.0, "agent1": 1.0}
    assert silent_by_agent([], "single-agent") == {}
