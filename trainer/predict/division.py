"""How to divide GPUs between ranks and engines: every coarse division is predicted, and the fastest wins.

Only divisions that can be placed and whose memory fits are looked at. What a division is compared by is
`trainer.predict.simulate`'s prediction; nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainer.cluster import Node, Unplaceable, layout
from trainer.config import TrainConfig
from trainer.predict.costs import Seen, costs_of
from trainer.predict.simulate import Prediction, simulate
from trainer.predict.workload import Workload
from trainer.run import Gpu, ModelSize, needs_on

PARTS = 8
"""Equal parts that all GPUs are divided into; fewer where there are fewer GPUs."""
DRAWS = 2
"""Rollouts that each division is compared by."""


@dataclass(frozen=True, slots=True)
class Divided:
    """The best division for a number of nodes."""

    config: TrainConfig
    prediction: Prediction
    compared: int
    """Divisions that fit."""


def best_division(
    config: TrainConfig,
    nodes: int,
    sizes: Mapping[str, ModelSize],
    gpu: Gpu,
    workload: Workload,
    seen: Seen | None = None,
) -> Divided:
    """Keeps everything but layout, nodes, ranks and replicas. Colocated layouts are looked at only without staleness.
    Raises `Unplaceable` where nothing fits, with what the last division lacked."""
    found: list[tuple[float, TrainConfig]] = []
    lacking = ""
    for each in divisions(config, nodes):
        if lacks := _lacks(each, sizes, gpu) or unplaceable(each):
            lacking = lacks
            continue
        costs = costs_of(each, sizes, gpu, workload, seen)
        found.append((simulate(each, costs, workload, draws=DRAWS).step_s, each))
    if not found:
        raise Unplaceable(lacking or f"{_slots(config, nodes)} GPUs are too few for ranks and engines. Fix: more nodes")
    _, chosen = min(found, key=lambda item: item[0])
    costs = costs_of(chosen, sizes, gpu, workload, seen)
    return Divided(chosen, simulate(chosen, costs, workload), len(found))


def divisions(config: TrainConfig, nodes: int) -> Iterator[TrainConfig]:
    """Configurations that divide all GPUs of so many nodes (CPUs as the recipe uses them, without GPUs): colocated ones
    first, then disaggregated ones, fewer ranks first."""
    slots = _slots(config, nodes)
    unit = max(1, slots // PARTS)
    names = list(config.policies)
    parallel = [config.policies[name].engine.tensor_parallel for name in names]
    if not config.cluster.staleness:
        for parts in _compositions(slots // unit, len(names)):
            engines = [part * unit // each for part, each in zip(parts, parallel, strict=True)]
            ranks = [count * each for count, each in zip(engines, parallel, strict=True)]
            if all(engines):
                yield _divided(config, nodes, "colocated", ranks, engines)
    for parts in _compositions(slots // unit, 2 * len(names)):
        ranks = [part * unit for part in parts[: len(names)]]
        engines = [part * unit // each for part, each in zip(parts[len(names) :], parallel, strict=True)]
        if all(engines):
            yield _divided(config, nodes, "disaggregated", ranks, engines)


def described(config: TrainConfig) -> str:
    """`p0: 4 ranks, 2 engines of 2 GPUs`; for all policies."""
    word = "GPU" if config.cluster.gpus_per_node else "CPU"
    parts = []
    for name, policy in config.policies.items():
        ranks, engines, each = policy.update.ranks, policy.engine.replicas, policy.engine.tensor_parallel
        wide = f" of {each} {word}s" if each > 1 else ""
        beside = " beside" if config.cluster.layout == "colocated" else ","
        parts.append(f"{name}: {ranks} rank{'s' * (ranks > 1)}{beside} {engines} engine{'s' * (engines > 1)}{wide}")
    return f"{config.cluster.layout}, {'; '.join(parts)}"


def _slots(config: TrainConfig, nodes: int) -> int:
    if config.cluster.gpus_per_node:
        return nodes * config.cluster.gpus_per_node
    used = sum(p.update.ranks + p.engine.replicas * p.engine.tensor_parallel for p in config.policies.values())
    return nodes * -(-used // config.cluster.nodes)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of so many numbers of at least 1."""
    if parts == 1:
        if total >= 1:
            yield (total,)
        return
    for first in range(1, total - parts + 2):
        yield from ((first, *rest) for rest in _compositions(total - first, parts - 1))


def _divided(config: TrainConfig, nodes: int, kind: str, ranks: Sequence[int], engines: Sequence[int]) -> TrainConfig:
    policies = {}
    for (name, policy), count, replicas in zip(config.policies.items(), ranks, engines, strict=True):
        update = {"ranks": count} | ({"backend": "deepspeed"} if count > 1 else {})
        changes = {
            "update": policy.update.model_copy(update=update),
            "engine": policy.engine.model_copy(update={"replicas": replicas}),
        }
        policies[name] = policy.model_copy(update=changes)
    cluster = config.cluster.model_copy(update={"layout": kind, "nodes": nodes, "transport": "auto"})
    return config.model_copy(update={"policies": policies, "cluster": cluster})


def unplaceable(config: TrainConfig) -> str:
    """Why a configuration cannot be placed on such nodes as it names, with CPUs for all; empty if it can be."""
    cluster = config.cluster
    cpus = 2.0 * _slots(config, 1) + cluster.run_workers_per_node
    nodes = [Node(f"{number:06}", f"node {number}", cpus, cluster.gpus_per_node, 0) for number in range(cluster.nodes)]
    try:
        layout(config, nodes)
    except Unplaceable as error:
        return str(error)
    return ""


def _lacks(config: TrainConfig, sizes: Mapping[str, ModelSize], gpu: Gpu) -> str:
    """What does not fit into the memory of GPUs; empty if all does."""
    lacking = needs_on(config, sizes, gpu.name, gpu.memory_bytes or None).lacking
    return lacking[0] if lacking else ""
