"""A training run as it is predicted: rollouts, updates, syncs and failures, put together as the loop does.

    staleness 0   rollout(k), then update(k), then sync(k + 1); colocated, GPUs change hands before and after the update
    staleness S   rollout(k + S) with weights k beside update(k), then sync(k + 1)

What a cycle waits for is the same for every S of 1 or more; a larger S only makes rollouts older. Durations of single
parts are `trainer.predict.costs`' and `trainer.predict.rollout_model`'s. Everything here is a prediction.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import BaseModel

from trainer.config import TrainConfig
from trainer.credit import active_roles
from trainer.predict.costs import Costs, PolicyCosts, update_seconds
from trainer.predict.rollout_model import NeverDone, Rolled, rolled_out
from trainer.predict.workload import Drawn, Workload, drawn, sequences
from workflow.usage import PolicyRole

DRAWS = 4
"""Rollouts that are drawn; steps take them in turn."""
MOST_STEPS = 2_000
"""That are gone through one by one; a longer run is more of the same."""
MOST_REPEATS = 20
"""Steps that are done for each one that is needed, before a run counts as never done."""


class Prediction(BaseModel):
    """Predicted seconds and shares of one configuration. Means are over steps, without those that failures repeat."""

    step_s: float
    rollout_s: float
    update_s: float
    sync_s: float
    turn_s: float
    """Of GPUs changing hands, in a colocated layout."""
    step_s_by_roles: dict[str, float]
    """By the roles that learn, such as `executor`, or `designer and executor`."""
    idle: dict[str, float]
    """Share of the time in which the processes of a pool had nothing to do: `ranks`, `engines`, `run_workers`."""
    tokens_per_s: float
    """Generated."""
    total_s: float
    """All steps, with the rollouts before the first update and what failures cost."""
    failures: float
    """Expected in all steps, of engines and ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class StepKind:
    """Steps that are alike: the same roles learn from the same drawn requests."""

    draw: int
    roles: frozenset[PolicyRole]
    learned: dict[str, list[float]]
    """By policies that learn: the tokens of each sequence that the update computes."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step's parts, in seconds."""

    rollout_s: float
    update_s: float
    sync_s: float
    turn_s: float

    def cycle_s(self, staleness: int) -> float:
        if staleness:
            return max(self.rollout_s, self.update_s) + self.sync_s
        return self.rollout_s + self.update_s + self.sync_s + self.turn_s


def simulate(config: TrainConfig, costs: Costs, workload: Workload, *, seed: int = 0, draws: int = DRAWS) -> Prediction:
    """Predict a run. The same arguments give the same figures. Raises `NeverDone`."""
    drawn_steps = [drawn(workload, config.rollout, seed + number) for number in range(draws)]
    rollouts = [rolled_out(config, costs, workload, step, seed + number) for number, step in enumerate(drawn_steps)]
    kinds = step_kinds(config, workload, drawn_steps)
    count, stale = len(kinds), config.cluster.staleness
    updates = {kind: update_times(config, costs, kind) for kind in kinds}
    alone = config.cluster.layout == "one-process"
    times = {kind: step_times(alone, costs.policies, rollouts[kind.draw].seconds, updates[kind]) for kind in updates}
    steps = [times[kind] for kind in kinds]
    cycles = [step.cycle_s(stale) for step in steps]
    ahead = math.fsum(rollouts[at % draws].seconds for at in range(min(stale, count)))
    generated = [rollouts[kind.draw].generated for kind in kinds]
    total = config.steps
    if config.generated_tokens is not None:
        total = min(total, math.ceil(config.generated_tokens / fmean(generated)))
    total_s = ahead + _with_failures(config, costs, cycles, seed) * total / count
    processes = sum(policy.update.ranks + policy.engine.replicas for policy in config.policies.values())
    by_roles: dict[str, list[float]] = defaultdict(list)
    for kind, seconds in zip(kinds, cycles, strict=True):
        by_roles[" and ".join(sorted(kind.roles))].append(seconds)
    return Prediction(
        step_s=fmean(cycles),
        rollout_s=fmean(step.rollout_s for step in steps),
        update_s=fmean(step.update_s for step in steps),
        sync_s=fmean(step.sync_s for step in steps),
        turn_s=steps[0].turn_s,
        step_s_by_roles={roles: fmean(seconds) for roles, seconds in by_roles.items()},
        idle=_idle(config, [rollouts[kind.draw] for kind in kinds], [updates[kind] for kind in kinds], sum(cycles)),
        tokens_per_s=math.fsum(generated) / math.fsum(cycles),
        total_s=total_s,
        failures=costs.failures_per_hour * processes * total_s / 3600,
    )


def step_kinds(config: TrainConfig, workload: Workload, steps: Sequence[Drawn]) -> list[StepKind]:
    """Of each step of a run, which takes the drawn `steps` in turn."""
    kinds: dict[tuple[int, frozenset[PolicyRole]], StepKind] = {}
    found = []
    for at in range(min(config.steps, MOST_STEPS)):
        key = at % len(steps), active_roles(at, config.schedule, config.stage_length)
        if key not in kinds:
            kinds[key] = StepKind(*key, _learned(config, workload, steps[key[0]], key[1]))
        found.append(kinds[key])
    return found


def _learned(
    config: TrainConfig, workload: Workload, step: Drawn, active: frozenset[PolicyRole]
) -> dict[str, list[float]]:
    """Of roles that learn, as many sequences as have an advantage."""
    asked = {"designer": workload.designer, "executor": workload.executor}
    there = sequences(workload, step)
    found: dict[str, list[float]] = defaultdict(list)
    for role, name in config.role_policies.items():
        requests = asked[role]
        if role in active and requests is not None:
            found[name] += there[role][: round(requests.learned * len(there[role]))]
    return {name: each for name, each in found.items() if each}


def update_times(config: TrainConfig, costs: Costs, kind: StepKind) -> dict[str, float]:
    """By policies that learn."""
    return {
        name: update_seconds(config.policies[name], costs.policies[name], learned, config.objective.mini_batches)
        for name, learned in kind.learned.items()
    }


def step_times(
    alone: bool, costs: Mapping[str, PolicyCosts], rollout_s: float, updates: Mapping[str, float]
) -> StepTimes:
    """Policies that learn at the same step do so one after another if `alone` in one process, else side by side."""
    together = sum if alone else max
    return StepTimes(
        rollout_s=rollout_s,
        update_s=together(updates.values()) if updates else 0.0,
        sync_s=together(costs[name].sync_total_s for name in updates) if updates else 0.0,
        turn_s=2 * max(each.turn_s for each in costs.values()),
    )


def _idle(
    config: TrainConfig, rollouts: Sequence[Rolled], updates: Sequence[Mapping[str, float]], seconds: float
) -> dict[str, float]:
    alone = config.cluster.layout == "one-process"
    policies = config.policies
    pools = {
        "ranks": (
            sum(policy.update.ranks for policy in policies.values()),
            (math.fsum(each * policies[name].update.ranks for name, each in update.items()) for update in updates),
        ),
        "engines": (
            sum(policy.engine.replicas for policy in policies.values()),
            (math.fsum(rolled.engine_busy_s.values()) for rolled in rollouts),
        ),
        "run_workers": (
            1 if alone else config.cluster.nodes * config.cluster.run_workers_per_node,
            (rolled.worker_busy_s for rolled in rollouts),
        ),
    }
    return {name: max(0.0, 1 - math.fsum(busy) / (count * seconds)) for name, (count, busy) in pools.items()}


def _with_failures(config: TrainConfig, costs: Costs, cycles: list[float], seed: int) -> float:
    """Seconds of all cycles with failures of ranks, after each of which the run goes back to its last checkpoint. What
    engines' failures cost is in the rollouts."""
    ranks = sum(policy.update.ranks for policy in config.policies.values())
    fails = _failure_times(costs.failures_per_hour * ranks / 3600, seed)
    clock, at, done = 0.0, 0, 0
    next_failure = next(fails)
    while at < len(cycles):
        done += 1
        if done > MOST_REPEATS * len(cycles):
            raise NeverDone("ranks fail more often than the run gets to a checkpoint. Fix: a smaller checkpoint_every")
        if clock + cycles[at] < next_failure:
            clock += cycles[at]
            at += 1
        else:
            clock = next_failure + costs.recovery_s
            at -= at % config.checkpoint_every
            next_failure = clock + next(fails)
    return clock


def _failure_times(rate: float, seed: int) -> Iterator[float]:
    """Seconds from one failure to the next."""
    dice = random.Random(seed)
    while True:
        yield dice.expovariate(rate) if rate else math.inf
