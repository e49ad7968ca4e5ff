"""Credit: pure functions from rewards with their coordinates to one advantage per sample.

`tree` is the rule of MetaAgent-X (section 3.2, Eqs. 4 to 7); the others are its ablations. A rule sees all outcomes of
one step for one role, and so may group by any coordinate or normalise over everything. It knows no tokens and no
policy. Standard deviations are of the population (divided by the count, not by one less), `EPSILON` is added to them,
and a group whose rewards are all equal, up to the rounding of their sums, has advantages of exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainer.samples import Coordinates
from workflow.usage import PolicyRole

EPSILON = 1e-6
TOLERANCE = 1e-12
"""Numbers this close, absolutely or relatively, are equal: they differ by the order in which they were summed."""
RuleName = Literal["tree", "flat", "per-design", "single-agent", "at-grpo", "agent-turn"]
SINGLE_TURNS: Collection[RuleName] = ("at-grpo", "agent-turn")
"""Rules that credit each turn of an agent by itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One sample's coordinates with the reward that it is to be credited with.

    For an executor's sample the reward is its run's. A designer's sample comes once per execution of its design, with
    that execution's number and reward: averaging is the rule's business. A coach that scores single actions gives each
    sample a reward of its own.
    """

    coordinates: Coordinates
    reward: float


Rule = Callable[[Sequence[Outcome]], list[float]]
"""One advantage per outcome, in their order. Outcomes of one designer's sample get one and the same."""


def normalised(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (standard deviation + EPSILON) within one group (Eqs. 5 and 7); all 0 where all are equal. Raises
    ValueError for a reward that is not finite."""
    if wrong := [reward for reward in rewards if not math.isfinite(reward)]:
        raise ValueError(f"a reward of {wrong[0]} cannot be compared with others. Fix: the reward function")
    if not rewards or math.isclose(min(rewards), max(rewards), rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]


def designer_tree(outcomes: Sequence[Outcome]) -> list[float]:
    """MetaAgent-X, Eqs. 4 and 5: a design's reward is the mean over its N executions; it is compared with the M mean
    rewards of the question's designs."""
    advantages = _compared(_means(outcomes, _design))
    return [advantages[_design(outcome.coordinates)] for outcome in outcomes]


def executor_tree(outcomes: Sequence[Outcome]) -> list[float]:
    """MetaAgent-X, Eqs. 6 and 7: all executor trajectories of one question are one group, whatever their design. Each
    has its run's reward, so a run of many agents weighs as many times in mean and deviation."""
    return _within(outcomes, lambda coordinates: coordinates.question)


def executor_per_design(outcomes: Sequence[Outcome]) -> list[float]:
    """Eq. 7 with one group per design: only trajectories of the same program are compared."""
    return _within(outcomes, _design)


def designer_flat(outcomes: Sequence[Outcome]) -> list[float]:
    """Single-level groups (the M=8, N=1 setting of Table 3): every execution is compared with all M x N of the
    question, and a design's advantage is the mean over its executions. With N=1 it equals `designer_tree`."""
    advantages = _compared(_means(outcomes, _run))
    designs = _members(advantages, lambda run: run[:2])
    mean = {design: math.fsum(advantages[run] for run in runs) / len(runs) for design, runs in designs.items()}
    return [mean[_design(outcome.coordinates)] for outcome in outcomes]


def grpo(outcomes: Sequence[Outcome]) -> list[float]:
    """GRPO (Shao et al., 2024, section 4.1.2): the runs of one question are the group, each counted once, however many
    trajectories it has. For a single agent, with one trajectory per run, it is the baseline `SA + GRPO`."""
    advantages = _compared(_means(outcomes, _run))
    return [advantages[_run(outcome.coordinates)] for outcome in outcomes]


def at_grpo(outcomes: Sequence[Outcome]) -> list[float]:
    """Stronger-MAS, Alg. 1 and Eq. 1: the K candidates for one agent's call are the group, each with its own reward."""
    return _within(outcomes, lambda coordinates: (coordinates.question, coordinates.design, coordinates.point))


def agent_turn(outcomes: Sequence[Outcome]) -> list[float]:
    """Without tree sampling: the same agent's same turn in all runs of a question. After the first turn those have
    different states behind them, which is what Stronger-MAS (section 4.1) holds against it."""
    return _within(outcomes, lambda at: (at.question, at.path, at.agent, at.turn))


RULES: Mapping[RuleName, Mapping[PolicyRole, Rule]] = {
    "tree": {"designer": designer_tree, "executor": executor_tree},
    "flat": {"designer": designer_flat, "executor": executor_tree},
    "per-design": {"designer": designer_tree, "executor": executor_per_design},
    "single-agent": {"designer": designer_tree, "executor": grpo},
    "at-grpo": {"designer": designer_tree, "executor": at_grpo},
    "agent-turn": {"designer": designer_tree, "executor": agent_turn},
}


def loss_group(rule: RuleName, coordinates: Coordinates) -> str:
    """What counts as one where the loss averages over groups (Eq. 2 of MetaAgent-X and of Stronger-MAS)."""
    if rule == "at-grpo" and coordinates.point:
        return coordinates.point
    if rule == "agent-turn" and coordinates.path:
        return repr((coordinates.question, coordinates.path, coordinates.agent, coordinates.turn))
    return coordinates.question


def zero_variance(outcomes: Sequence[Outcome], role: PolicyRole, rule: RuleName = "tree") -> tuple[int, int]:
    """How many questions teach a role nothing, since the rule finds no variance in any of their groups and gives all
    their outcomes the advantage 0; and how many questions there are."""
    largest: dict[str, float] = {}
    for outcome, advantage in zip(outcomes, RULES[rule][role](outcomes), strict=True):
        question = outcome.coordinates.question
        largest[question] = max(largest.get(question, 0.0), abs(advantage))
    return sum(advantage <= TOLERANCE for advantage in largest.values()), len(largest)


Place = tuple[Hashable, ...]
"""Coordinates that a rule compares by, the question's id first."""


def _design(coordinates: Coordinates) -> Place:
    return coordinates.question, coordinates.design


def _run(coordinates: Coordinates) -> Place:
    return coordinates.question, coordinates.design, coordinates.execution


def _means(outcomes: Sequence[Outcome], place: Callable[[Coordinates], Place]) -> dict[Place, float]:
    """The mean reward at each place."""
    rewards: dict[Place, list[float]] = {}
    for outcome in outcomes:
        rewards.setdefault(place(outcome.coordinates), []).append(outcome.reward)
    return {at: math.fsum(each) / len(each) for at, each in rewards.items()}


def _members(places: Iterable[Place], group: Callable[[Place], Hashable]) -> dict[Hashable, list[Place]]:
    groups: dict[Hashable, list[Place]] = {}
    for place in places:
        groups.setdefault(group(place), []).append(place)
    return groups


def _compared(rewards: Mapping[Place, float]) -> dict[Place, float]:
    """Each place's reward, normalised over the places of its question."""
    advantages: dict[Place, float] = {}
    for places in _members(rewards, lambda place: place[0]).values():
        advantages |= zip(places, normalised([rewards[place] for place in places]), strict=True)
    return advantages


def _within(outcomes: Sequence[Outcome], group: Callable[[Coordinates], Hashable]) -> list[float]:
    """Each outcome's own reward, normalised over the outcomes of its group."""
    groups: dict[Hashable, list[int]] = {}
    for index, outcome in enumerate(outcomes):
        groups.setdefault(group(outcome.coordinates), []).append(index)
    advantages = [0.0] * len(outcomes)
    for indices in groups.values():
        for index, advantage in zip(indices, normalised([outcomes[i].reward for i in indices]), strict=True):
            advantages[index] = advantage
    return advantages
