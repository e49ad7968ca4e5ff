"""Controls: RL whose rewards are changed between the rollout and what is learned from it. Scores and credits nothing
itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from tasks import Problem
from trainer.rollout import derived_seed
from trainer.run import OneProcess
from trainer.trees import DesignResult, QuestionTree


class Shuffled(OneProcess):
    """The control: each execution of a question gets the reward of another one, drawn at random."""

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path) -> list[QuestionTree]:
        return [shuffled(tree, seed) for tree in await super().rollout(problems, seed, folder)]


class ValidOnly(OneProcess):
    """Designs without a valid program are not learned from: they have the mean reward of the others."""

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path) -> list[QuestionTree]:
        return [unpunished(tree) for tree in await super().rollout(problems, seed, folder)]


def unpunished(tree: QuestionTree) -> QuestionTree:
    """The tree with an advantage of 0 for the designs that cannot be run: they get the mean reward of those that credit
    counts, without a run that a clock ended (`trainer.credit.outcomes`)."""

    def counts(design: DesignResult) -> bool:
        return design.failure is None and not any(each.timed_out for each in design.executions)

    rewards = [each.reward.total for design in tree.designs if counts(design) for each in design.executions]
    if not rewards:
        return tree
    mean = fmean(rewards)
    designs = [
        design
        if design.failure is None
        else replace(
            design, executions=[replace(each, reward=replace(each.reward, total=mean)) for each in design.executions]
        )
        for design in tree.designs
    ]
    return replace(tree, designs=designs)


def shuffled(tree: QuestionTree, seed: int) -> QuestionTree:
    """The tree with the rewards of its executions dealt anew, but for those that a clock ended: nothing is learned from
    these."""
    rewards = [each.reward for each in tree.executions if not each.timed_out]
    random.Random(derived_seed(seed, tree.problem.id, "shuffled")).shuffle(rewards)
    dealt = iter(rewards)
    designs = [
        replace(
            design,
            executions=[each if each.timed_out else replace(each, reward=next(dealt)) for each in design.executions],
        )
        for design in tree.designs
    ]
    return replace(tree, designs=designs)
