"""What a step asks for: how many requests, how long their prompts and replies are, and what of it is learned from.

Drawn before anything is timed, so that the same seed gives the same requests on any cluster. How long they take is
said in `trainer.predict.costs`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from trainer.config import RolloutConfig, TrainConfig
from workflow.usage import PolicyRole

Z95 = 1.6448536269514722
"""The 95% quantile of the standard normal distribution."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Lengths(_Frozen):
    """Of replies, in tokens: log-normal with this mean and 95% quantile, none longer than `longest`. With `p95` at most
    the mean, all are equal."""

    mean: float = Field(gt=0)
    p95: float = 0.0
    longest: float = math.inf

    def draw(self, dice: random.Random) -> float:
        ratio = math.log(max(1.0, self.p95 / self.mean))
        sigma = Z95 - math.sqrt(max(0.0, Z95**2 - 2 * ratio))
        drawn = dice.lognormvariate(math.log(self.mean) - sigma**2 / 2, sigma) if sigma else self.mean
        return min(max(1.0, drawn), self.longest)


class Requests(_Frozen):
    """Of one role. A trajectory counts as one request: turns that extend one another share what they have read."""

    reply: Lengths
    prompt: float = Field(ge=0)
    """Its tokens, in the mean."""
    fresh: float = Field(default=1.0, ge=0, le=1)
    """Share of them that an engine has not read before."""
    learned: float = Field(default=1.0, ge=0, le=1)
    """Share of trajectories that an update computes; those of advantage 0 are left out."""


class Workload(_Frozen):
    designer: Requests | None
    """None with a program that is given."""
    executor: Requests
    per_run: float = Field(default=1.0, gt=0)
    """Trajectories of agents in one run, in the mean."""
    rounds: float = Field(default=1.0, gt=0)
    """Of these, how many wait for each other; the others run beside them."""
    ready: float = Field(default=1.0, ge=0, le=1)
    """Share of designs that can run."""


def assumed_workload(config: TrainConfig) -> Workload:
    """Where no run has shown it. Assumed: designs of 500 tokens and replies of 800 in the mean, with a 95% quantile of
    twice and three times that; prompts of 1,000 tokens, read once for all
    designs of a question and for each agent anew; three agents in a run, one after another, or one where the
    program is given; nine designs of ten can run; six trajectories of ten are learned from."""
    most = config.rollout.max_tokens
    given = config.rollout.program is not None
    agents = 1.0 if given else 3.0

    prompt = min(1000.0, config.rollout.max_prompt_tokens)

    def requests(mean: float, spread: float, fresh: float) -> Requests:
        reply = Lengths(mean=min(mean, most), p95=spread * min(mean, most), longest=most)
        return Requests(reply=reply, prompt=prompt, fresh=fresh, learned=0.6)

    return Workload(
        designer=None if given else requests(500.0, 2.0, 1 / config.rollout.designs),
        executor=requests(800.0, 3.0, 1.0),
        per_run=agents,
        rounds=agents,
        ready=1.0 if given else 0.9,
    )


@dataclass(frozen=True, slots=True)
class DrawnRun:
    rounds: Sequence[Sequence[float]]
    """Reply lengths of each round; a round begins when the one before has ended."""


@dataclass(frozen=True, slots=True)
class DrawnDesign:
    reply: float
    runs: Sequence[DrawnRun]
    """None where the design cannot run."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One step's requests: for each question its designs."""

    questions: Sequence[Sequence[DrawnDesign]]


def drawn(workload: Workload, rollout: RolloutConfig, seed: int) -> Drawn:
    """Draw a step. Counts with a fraction are rounded up or down at random, for each design anew."""
    dice = random.Random(seed)
    ready = _shuffled_share(workload.ready, rollout.questions * rollout.designs, dice)

    def design(can_run: bool) -> DrawnDesign:
        reply = workload.designer.reply.draw(dice) if workload.designer else 0.0
        agents = max(1, _rounded(workload.per_run, dice))
        rounds = min(agents, max(1, _rounded(workload.rounds, dice)))
        runs = [DrawnRun(_rounds(workload, agents, rounds, dice)) for _ in range(rollout.executions)]
        return DrawnDesign(reply, runs if can_run else [])

    flags = iter(ready)
    return Drawn([[design(next(flags)) for _ in range(rollout.designs)] for _ in range(rollout.questions)])


def sequences(workload: Workload, step: Drawn) -> dict[PolicyRole, list[float]]:
    """Tokens of each trajectory, its prompt included, in the order in which they are drawn: the same on any cluster."""
    designs = [design for question in step.questions for design in question]
    replies = [reply for design in designs for run in design.runs for replies in run.rounds for reply in replies]
    return {
        "designer": [workload.designer.prompt + design.reply for design in designs] if workload.designer else [],
        "executor": [workload.executor.prompt + reply for reply in replies],
    }


def _rounds(workload: Workload, agents: int, rounds: int, dice: random.Random) -> list[list[float]]:
    widths = [agents // rounds + (number < agents % rounds) for number in range(rounds)]
    return [[workload.executor.reply.draw(dice) for _ in range(width)] for width in widths]


def _rounded(mean: float, dice: random.Random) -> int:
    return int(mean) + (dice.random() < mean - int(mean))


def _shuffled_share(share: float, count: int, dice: random.Random) -> list[bool]:
    """As many that are true as the share says, in random places."""
    true = round(share * count)
    flags = [True] * true + [False] * (count - true)
    dice.shuffle(flags)
    return flags
