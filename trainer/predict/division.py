"""How to divide GPUs between ranks and engines: many divisions are predicted, and the fastest that `train` takes wins.

The search is coarse, as numbers of ranks and engines are taken from a ladder (`_ladder`). The ladder is the same for
any number of nodes, and GPUs may stay idle: what is tried on some nodes is tried on more of them, too, so that more
nodes are not predicted slower. What a division is compared by is `trainer.predict.simulate`'s prediction; nothing is
run.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from pydantic import ValidationError

from trainer.cluster import Node, Unplaceable, layout, placeable
from trainer.config import TrainConfig
from trainer.predict.costs import Costs, PolicyCosts, Seen, costs_of, update_seconds
from trainer.predict.rollout_model import rolled_out
from trainer.predict.simulate import DRAWS, Prediction, StepKind, simulate, step_kinds, step_times
from trainer.predict.workload import Workload, drawn, sequences
from trainer.run import ClusterNeeds, Gpu, ModelSize, needs_on

RUNGS = 4
"""Numbers from one power of two to the next, on one node."""
RUNGS_BEYOND = {1: 4, 2: 1}
"""The same beyond it, by the number of policies: two have four numbers to be found."""


@dataclass(frozen=True, slots=True)
class Divided:
    """The best division for a number of nodes."""

    config: TrainConfig
    prediction: Prediction
    compared: int
    """Divisions that were predicted: those that fit into memory, but for some that are slow for certain."""
    idle: int
    """GPUs, or CPUs, that it leaves out."""


Layout = Literal["colocated", "disaggregated"]


class Division(NamedTuple):
    layout: Layout
    ranks: tuple[int, ...]
    """Of each policy."""
    engines: tuple[int, ...]


class _Policy(NamedTuple):
    costs: PolicyCosts
    lacks: str
    """What does not fit into memory."""


def best_division(
    config: TrainConfig,
    nodes: int,
    sizes: Mapping[str, ModelSize],
    gpu: Gpu,
    workload: Workload,
    seen: Seen | None = None,
) -> Divided:
    """Keeps everything but layout, nodes, ranks and replicas. Colocated layouts are looked at only without staleness.
    Raises `Unplaceable` where nothing fits, with what the last division lacked, and `NeverDone`."""
    search = _Search(config, nodes, sizes, gpu, workload, seen)
    found: list[tuple[float, float, Division]] = []
    slow: list[tuple[int, ...]] = []
    """Numbers of engines whose rollout takes longer than a whole step of another division: fewer are no quicker."""
    fastest, wrong = math.inf, ""
    for each in sorted(divisions(config, nodes, search.requests), key=lambda each: -sum(each.engines)):
        if lacks := search.lacks(each):
            wrong = lacks
        elif not any(all(map(operator.le, each.engines, more)) for more in slow):
            step_s, parts_s = search.seconds(each)
            found.append((step_s, parts_s, each))
            fastest = min(fastest, step_s)
            if search.rollout_s(each.engines) > fastest:
                slow.append(each.engines)
    chosen = _divided(config, nodes, Division("disaggregated", *[(1,) * len(config.policies)] * 2))
    for _, _, each in sorted(found, key=lambda item: item[:2]):
        chosen = _divided(config, nodes, each)
        wrong = _refused(chosen)
        if not wrong and placeable(chosen, _nodes(chosen)):
            prediction = simulate(chosen, costs_of(chosen, sizes, gpu, workload, seen), workload)
            return Divided(chosen, prediction, len(found), _slots(config, nodes) - _used(config, each))
    wrong = wrong or unplaceable(chosen)
    raise Unplaceable(wrong or f"{_slots(config, nodes)} CPUs are too few for ranks and engines. Fix: more nodes")


def divisions(config: TrainConfig, nodes: int, most: Sequence[int]) -> Iterator[Division]:
    """Divisions of the GPUs of so many nodes, or of a part of them (CPUs as the recipe uses them, without GPUs), with
    hardly more than `most` ranks or engines of each policy."""
    slots, node = _slots(config, nodes), _slots(config, 1)
    beyond = RUNGS_BEYOND[len(config.policies)]
    parallel = _parallel(config)
    engines = [_ladder(each, node, nodes, enough, beyond) for each, enough in zip(parallel, most, strict=True)]
    ranks = [_ladder(1, node, nodes, enough, beyond) for enough in most]
    if not config.cluster.staleness:
        for counts in _together(engines, parallel, slots):
            shared = tuple(count * each for count, each in zip(counts, parallel, strict=True))
            yield Division("colocated", shared, counts)
    for counts in _together([*ranks, *engines], [1] * len(parallel) + parallel, slots):
        yield Division("disaggregated", counts[: len(parallel)], counts[len(parallel) :])


def described(config: TrainConfig, idle: int = 0) -> str:
    """`p0: 4 ranks, 2 engines of 2 GPUs; 1 GPU idle`; for all policies."""
    word = "GPU" if config.cluster.gpus_per_node else "CPU"
    parts = []
    for name, policy in config.policies.items():
        ranks, engines, each = policy.update.ranks, policy.engine.replicas, policy.engine.tensor_parallel
        wide = f" of {each} {word}s" if each > 1 else ""
        beside = " beside" if config.cluster.layout == "colocated" else ","
        parts.append(f"{name}: {ranks} rank{'s' * (ranks > 1)}{beside} {engines} engine{'s' * (engines > 1)}{wide}")
    parts += [f"{idle:,} {word}{'s' * (idle > 1)} idle"] if idle else []
    return f"{config.cluster.layout}, {'; '.join(parts)}"


class _Search:
    """Step times of divisions. What many of them have in common is worked out once."""

    def __init__(
        self,
        config: TrainConfig,
        nodes: int,
        sizes: Mapping[str, ModelSize],
        gpu: Gpu,
        workload: Workload,
        seen: Seen | None,
    ) -> None:
        self._config, self._nodes = config, nodes
        self._sizes, self._gpu, self._workload, self._seen = sizes, gpu, workload, seen
        self._steps = [drawn(workload, config.rollout, number) for number in range(DRAWS)]
        self._kinds = Counter(step_kinds(config, workload, self._steps))
        self._policy, self._rollouts = cache(self._policy), cache(self._rollouts)
        self._updates = cache(self._updates)

    @property
    def requests(self) -> list[int]:
        """Of each policy in its largest step: of more engines, or ranks, some would have nothing to do."""
        there, roles = [sequences(self._workload, step) for step in self._steps], self._config.role_policies.items()
        return [
            max(sum(len(step[role]) for role, by in roles if by == name) for step in there)
            for name in self._config.policies
        ]

    def lacks(self, division: Division) -> str:
        """What does not fit into the memory of GPUs; empty if all does."""
        return next((each.lacks for each in self._of(division).values() if each.lacks), "")

    def seconds(self, division: Division) -> tuple[float, float]:
        """Of a step, as `simulate` predicts it, and of its parts one after another, which tells apart divisions whose
        longest part is the same. Raises `NeverDone`."""
        policies = self._of(division)
        costs = {name: each.costs for name, each in policies.items()}
        rollouts = self._rollouts(division.engines)
        updates = {name: self._updates(name, ranks) for name, ranks in zip(policies, division.ranks, strict=True)}
        step_s = parts_s = 0.0
        for kind, count in self._kinds.items():
            those = {name: updates[name][kind] for name in kind.learned}
            times = step_times(False, costs, rollouts[kind.draw], those)
            step_s += count * times.cycle_s(self._config.cluster.staleness)
            parts_s += count * times.cycle_s(0)
        return step_s / self._kinds.total(), parts_s / self._kinds.total()

    def rollout_s(self, engines: tuple[int, ...]) -> float:
        """In the mean. No step is shorter."""
        rollouts = self._rollouts(engines)
        return sum(count * rollouts[kind.draw] for kind, count in self._kinds.items()) / self._kinds.total()

    def _of(self, division: Division) -> dict[str, _Policy]:
        each = zip(self._config.policies, division.ranks, division.engines, strict=True)
        return {name: self._policy(name, division.layout, ranks, engines) for name, ranks, engines in each}

    def _policy(self, name: str, layout: Layout, ranks: int, engines: int) -> _Policy:
        """Whatever the other one has."""
        config = self._alone(name, layout, ranks, engines)
        needed = needs_on(config, self._sizes, self._gpu.name, self._gpu.memory_bytes or None)
        return _Policy(self._costs(config, needed).policies[name], "".join(needed.lacking[:1]))

    def _rollouts(self, engines: tuple[int, ...]) -> list[float]:
        """Seconds of each draw. Ranks have no part in it."""
        config = _divided(self._config, self._nodes, Division("disaggregated", (1,) * len(engines), engines))
        costs = self._costs(config)
        return [
            rolled_out(config, costs, self._workload, step, number).seconds for number, step in enumerate(self._steps)
        ]

    def _updates(self, name: str, ranks: int) -> dict[StepKind, float]:
        """Seconds of one policy's, of the steps at which it learns. Engines have no part in it."""
        config = self._alone(name, "disaggregated", ranks, 1)
        policy, costs, batches = (
            config.policies[name],
            self._costs(config).policies[name],
            config.objective.mini_batches,
        )
        there = {kind: kind.learned[name] for kind in self._kinds if name in kind.learned}
        return {kind: update_seconds(policy, costs, learned, batches) for kind, learned in there.items()}

    def _alone(self, name: str, layout: Layout, ranks: int, engines: int) -> TrainConfig:
        """The one policy with so many ranks and engines."""
        one = self._config.model_copy(update={"policies": {name: self._config.policies[name]}})
        return _divided(one, self._nodes, Division(layout, (ranks,), (engines,)))

    def _costs(self, config: TrainConfig, needed: ClusterNeeds | None = None) -> Costs:
        return costs_of(config, self._sizes, self._gpu, self._workload, self._seen, needed)


def _ladder(piece: int, node: int, nodes: int, most: int, beyond: int) -> list[int]:
    """Numbers of pieces of so many GPUs, none of which lies on two nodes: fine on one node, `beyond` it with so many
    rungs, and whole nodes, too; up to the first that is no less than `most`."""
    of_a_node = node // piece
    room = nodes * of_a_node or nodes * node // piece  # a piece larger than a node is for `unplaceable` to tell
    whole = {of_a_node * count for count in _rungs(beyond, nodes) if of_a_node}
    found = sorted({*_rungs(RUNGS, of_a_node), *_rungs(beyond, room), *whole})
    return found[: bisect_left(found, most) + 1]


def _rungs(each: int, most: int) -> list[int]:
    """Numbers up to `most`, so many of them from one power of two to the next as far as there are."""
    powers = range(most.bit_length())
    found = {*range(1, each), *(number << power for power in powers for number in range(each, 2 * each))}
    return [number for number in sorted(found) if number <= most]


def _together(choices: Sequence[Sequence[int]], pieces: Sequence[int], room: int) -> Iterator[tuple[int, ...]]:
    """One number of each, such that all so many pieces have room."""
    if not choices:
        yield ()
        return
    for count in choices[0]:
        left = room - count * pieces[0]
        if left < sum(pieces[1:]):
            return
        yield from ((count, *rest) for rest in _together(choices[1:], pieces[1:], left))


def _parallel(config: TrainConfig) -> list[int]:
    return [policy.engine.tensor_parallel for policy in config.policies.values()]


def _slots(config: TrainConfig, nodes: int) -> int:
    if config.cluster.gpus_per_node:
        return nodes * config.cluster.gpus_per_node
    used = sum(p.update.ranks + p.engine.replicas * p.engine.tensor_parallel for p in config.policies.values())
    return nodes * -(-used // config.cluster.nodes)


def _used(config: TrainConfig, division: Division) -> int:
    engines = sum(count * each for count, each in zip(division.engines, _parallel(config), strict=True))
    return engines if division.layout == "colocated" else engines + sum(division.ranks)


def _divided(config: TrainConfig, nodes: int, division: Division) -> TrainConfig:
    """Not validated, see `_refused`."""
    policies = {}
    for (name, policy), count, replicas in zip(config.policies.items(), division.ranks, division.engines, strict=True):
        update = {"ranks": count} | ({"backend": "deepspeed"} if count > 1 else {})
        changes = {
            "update": policy.update.model_copy(update=update),
            "engine": policy.engine.model_copy(update={"replicas": replicas}),
        }
        policies[name] = policy.model_copy(update=changes)
    cluster = config.cluster.model_copy(update={"layout": division.layout, "nodes": nodes, "transport": "auto"})
    return config.model_copy(update={"policies": policies, "cluster": cluster})


def _refused(config: TrainConfig) -> str:
    """Why `train` would not take a configuration; empty if it would."""
    try:
        TrainConfig.model_validate(config.model_dump())
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ").splitlines()[0]
    return ""


def unplaceable(config: TrainConfig) -> str:
    """Why a configuration cannot be placed on such nodes as it names, with CPUs for all; empty if it can be."""
    try:
        layout(config, _nodes(config))
    except Unplaceable as error:
        return str(error)
    return ""


def _nodes(config: TrainConfig) -> list[Node]:
    cluster = config.cluster
    cpus = 2.0 * _slots(config, 1) + cluster.run_workers_per_node
    return [Node(f"{number:06}", f"node {number}", cpus, cluster.gpus_per_node, 0) for number in range(cluster.nodes)]
