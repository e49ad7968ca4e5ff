"""The controls: rewards that say nothing, and designs that are none without a part in what is learned."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from speedrun.dealt import shuffled, unpunished
from tasks.problems import Problem
from trainer.credit import RULES, Outcome
from trainer.samples import Coordinates
from trainer.trees import DesignResult, Execution, QuestionTree
from workflow.trace import Rewarded, RewardTerm


def tree() -> QuestionTree:
    def execution(index: int, reward: float) -> Execution:
        correct = RewardTerm(name="correct", value=reward, weight=1.0, reason="said")
        return Execution(
            index=index,
            reward=Rewarded(total=reward, terms=[correct]),
            failure="program_rejected" if index == 3 else None,
            duration_s=index,
        )

    designs = [
        DesignResult(
            index=number,
            program=f"program {number}",
            graph=None,
            failure=None,
            trajectories=[],
            executions=[execution(index, float(index == 0 or number == 1)) for index in range(4)],
        )
        for number in range(3)
    ]
    problem = Problem(id="p", question="What is 1 + 1?", domain="math", gold="2")
    return QuestionTree(problem=problem, designs=designs)


def test_shuffled_rewards_are_the_same_ones_at_other_executions() -> None:
    def dealt(made: QuestionTree) -> list[float]:
        return [each.reward.terms[0].value for each in made.executions]

    before = tree()
    after = [shuffled(before, seed) for seed in range(400)]
    assert all(Counter(dealt(each)) == Counter(dealt(before)) for each in after)
    assert shuffled(before, 3) == shuffled(before, 3)
    assert len({tuple(dealt(each)) for each in after}) > 100
    # 6 of 12 are right: each execution is in about half of the deals, whatever it was before.
    for place in range(12):
        assert sum(dealt(each)[place] for each in after) / 400 == pytest.approx(0.5, abs=0.1)
    for one, other in zip(before.designs, after[0].designs, strict=True):
        assert (one.program, one.index) == (other.program, other.index)
        assert [(e.index, e.failure, e.duration_s) for e in one.executions] == [
            (e.index, e.failure, e.duration_s) for e in other.executions
        ]


def test_designs_that_are_none_can_be_left_unpunished() -> None:
    before = tree()
    one, two, three = before.designs
    rejected = replace(one, failure="program_rejected", executions=[
        replace(each, reward=Rewarded(total=0.0, terms=each.reward.terms)) for each in one.executions
    ])  # fmt: skip
    after = unpunished(replace(before, designs=[rejected, two, three]))
    assert [design.failure for design in after.designs] == ["program_rejected", None, None]
    assert after.designs[1:] == [two, three]
    # Of the others 4 of 4 runs are right, and 1 of 4.
    assert [each.reward.total for each in after.designs[0].executions] == [5 / 8] * 4
    outcomes = [
        Outcome(Coordinates(question="p", design=design.index, execution=each.index), each.reward.total)
        for design in after.designs
        for each in design.executions
    ]
    advantages = RULES["tree"]["designer"](outcomes)[::4]
    assert advantages[0] == pytest.approx(0, abs=1e-9)
    assert advantages[1] == -advantages[2] > 1
    none = replace(before, designs=[rejected])
    assert unpunished(none) == none


def test_what_a_clock_ended_counts_neither_for_the_mean_nor_for_the_deal() -> None:
    """Credit leaves such a run out, and for the Designer its whole design."""
    before = tree()
    one, two, three = before.designs
    rejected = replace(one, failure="program_rejected")
    first, *rest = two.executions
    hung = replace(two, executions=[replace(first, reward=replace(first.reward, timed_out=True)), *rest])
    after = unpunished(replace(before, designs=[rejected, hung, three]))
    [mean] = {each.reward.total for each in after.designs[0].executions}
    assert mean == sum(each.reward.total for each in three.executions) / 4 != 5 / 8
    assert unpunished(replace(before, designs=[rejected, hung])).designs == [rejected, hung], "nothing to compare with"

    nobody = Rewarded(total=9.0, terms=first.reward.terms, timed_out=True)
    with_one = replace(before, designs=[one, replace(hung, executions=[replace(first, reward=nobody), *rest]), three])
    for seed in range(50):
        dealt = shuffled(with_one, seed)
        assert [each.reward.total for each in dealt.executions].index(9.0) == 4, "it stays where it teaches nobody"
