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
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from pydantic import BaseModel

from trainer.config import TrainConfig
from trainer.credit import active_roles
from trainer.predict.costs import Costs, update_seconds
from trainer.predict.rollout_model import NeverDone, Rolled, rolled_out
from trainer.predict.workload import Workload, drawn
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


@dataclass(frozen=True, slots=True)
class _Step:
    """One step's parts, in seconds."""

    roles: str
    rolled: Rolled
    update_s: float
    busy_ranks_s: float
    """Of all ranks together."""
    sync_s: float


def simulate(config: TrainConfig, costs: Costs, workload: Workload, *, seed: int = 0, draws: int = DRAWS) -> Prediction:
    """Predict a run. The same arguments give the same figures. Raises `NeverDone`."""
    rollouts = [
        rolled_out(config, costs, workload, drawn(workload, config.rollout, seed + number), seed + number)
        for number in range(draws)
    ]
    count = min(config.steps, MOST_STEPS)
    steps = [_step(config, costs, workload, rollouts[at % draws], at) for at in range(count)]
    turn_s = 2 * max(policy.turn_s for policy in costs.policies.values())
    stale = config.cluster.staleness
    cycles = [_cycle(step, turn_s, stale) for step in steps]
    ahead = math.fsum(rollouts[at % draws].seconds for at in range(min(stale, count)))
    total_s = ahead + _with_failures(config, costs, cycles, seed) * config.steps / count
    processes = sum(policy.update.ranks + policy.engine.replicas for policy in config.policies.values())
    by_roles: dict[str, list[float]] = defaultdict(list)
    for step, seconds in zip(steps, cycles, strict=True):
        by_roles[step.roles].append(seconds)
    return Prediction(
        step_s=fmean(cycles),
        rollout_s=fmean(step.rolled.seconds for step in steps),
        update_s=fmean(step.update_s for step in steps),
        sync_s=fmean(step.sync_s for step in steps),
        turn_s=turn_s,
        step_s_by_roles={roles: fmean(seconds) for roles, seconds in by_roles.items()},
        idle=_idle(config, steps, math.fsum(cycles)),
        tokens_per_s=math.fsum(step.rolled.generated for step in steps) / math.fsum(cycles),
        total_s=total_s,
        failures=costs.failures_per_hour * processes * total_s / 3600,
    )


def _cycle(step: _Step, turn_s: float, staleness: int) -> float:
    if staleness:
        return max(step.rolled.seconds, step.update_s) + step.sync_s
    return step.rolled.seconds + step.update_s + step.sync_s + turn_s


def _step(config: TrainConfig, costs: Costs, workload: Workload, rolled: Rolled, at: int) -> _Step:
    """Policies that learn at the same step do so side by side on a cluster, and one after another in one process."""
    active = active_roles(at, config.schedule, config.stage_length)
    updates = {name: _learned(config, workload, rolled, name, active) for name in config.policies}
    seconds = {
        name: update_seconds(config.policies[name], costs.policies[name], sequences, config.objective.mini_batches)
        for name, sequences in updates.items()
        if sequences
    }
    syncs = [costs.policies[name].sync_total_s for name in seconds]
    together = sum if config.cluster.layout == "one-process" else max
    return _Step(
        roles=" and ".join(sorted(active)),
        rolled=rolled,
        update_s=together(seconds.values()) if seconds else 0.0,
        busy_ranks_s=math.fsum(each * config.policies[name].update.ranks for name, each in seconds.items()),
        sync_s=together(syncs) if syncs else 0.0,
    )


def _learned(
    config: TrainConfig, workload: Workload, rolled: Rolled, policy: str, active: frozenset[PolicyRole]
) -> list[float]:
    """Sequences that a policy's update computes: of roles that learn, as many as have an advantage."""
    asked = {"designer": workload.designer, "executor": workload.executor}
    found: list[float] = []
    for role, name in config.role_policies.items():
        requests = asked[role]
        if name == policy and role in active and requests is not None:
            sequences = rolled.sequences[role]
            found += sequences[: round(requests.learned * len(sequences))]
    return found


def _idle(config: TrainConfig, steps: list[_Step], seconds: float) -> dict[str, float]:
    alone = config.cluster.layout == "one-process"
    policies = config.policies.values()
    pools = {
        "ranks": (sum(policy.update.ranks for policy in policies), (step.busy_ranks_s for step in steps)),
        "engines": (
            sum(policy.engine.replicas for policy in policies),
            (math.fsum(step.rolled.engine_busy_s.values()) for step in steps),
        ),
        "run_workers": (
            1 if alone else config.cluster.nodes * config.cluster.run_workers_per_node,
            (step.rolled.worker_busy_s for step in steps),
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
