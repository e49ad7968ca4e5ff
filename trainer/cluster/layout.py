"""Which process of a cluster run sits on which node: ranks, engines, run workers, keepers, the driver.

Pure arithmetic over a configuration and a list of nodes; the same two give the same layout. It starts nothing, asks no
Ray, and counts GPUs and CPUs but no bytes (`trainer.run.needs` does).

- `disaggregated`: each rank has a GPU, each engine `tensor_parallel` GPUs of one node.
- `colocated`: one bundle per GPU holds a rank and an engine, or an engine's part, half a GPU each. Engine e lies on
  the GPUs of ranks e x tensor_parallel and following.
- `gpus_per_node = 0`: the same with CPUs in place of GPUs.

Every process takes one CPU, an engine one for each of its GPUs; on a node with fewer CPUs all get the same share of
one. Keepers and the driver take none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from trainer.cluster.advice import Option, Refused, all_of
from trainer.cluster.places import Bundle, Kind, Layout, Node, Process
from trainer.config import ClusterConfig, EngineConfig, TrainConfig

SMALLEST_SHARE = 0.1
"""Of a CPU, for one process."""
RANK_SHARE = 0.5
"""Of a GPU, where an engine has the rest. Ray counts it; memory is not divided by it."""
_STEP = 10_000
"""Ray counts resources in 1 / 10,000."""


@dataclass(frozen=True, slots=True)
class _Group:
    """`count` equal pieces of `size` GPUs, none of which may lie on two nodes."""

    policy: str
    kind: Literal["ranks", "engines", "both"]
    size: int
    count: int

    @property
    def total(self) -> int:
        return self.size * self.count


def layout(config: TrainConfig, nodes: Sequence[Node]) -> Layout:
    """Place everything on the first `cluster.nodes` nodes that have `cluster.gpus_per_node` GPUs: the driver's, which
    is the first in the list, then the others by their ids. Raises `Unplaceable`."""
    try:
        return _of_run(config, nodes)
    except Refused as refused:
        raise refused.advised(partial(_accepts, config, nodes)) from None


def engines_alone(cluster: ClusterConfig, engines: Mapping[str, EngineConfig], nodes: Sequence[Node]) -> Layout:
    """The same without ranks, for what trains nothing; `engines` are each policy's, and may be none. `cluster.layout`
    says nothing then."""

    def place(cluster: ClusterConfig, engines: Mapping[str, EngineConfig], nodes: Sequence[Node]) -> Layout:
        groups = [_Group(name, "engines", each.tensor_parallel, each.replicas) for name, each in engines.items()]
        return _placed(cluster, groups, nodes)

    def accepts(option: Option) -> bool:
        changed = cluster.model_copy(update=dict(option.cluster))
        try:
            others = {
                name: each.model_copy(update=option.policies.get(name, {}).get("engine", {}))
                for name, each in engines.items()
            }
            place(changed, others, _with_more(nodes, cluster, changed))
        except Refused:
            return False
        return True

    try:
        return place(cluster, engines, nodes)
    except Refused as refused:
        raise refused.advised(accepts) from None


def placeable(config: TrainConfig, nodes: Sequence[Node]) -> bool:
    """Whether `layout` has a place for everything; quicker, as it looks for no advice."""
    try:
        _of_run(config, nodes)
    except Refused:
        return False
    return True


def _accepts(config: TrainConfig, nodes: Sequence[Node], option: Option) -> bool:
    """Whether the run would be started with other settings."""
    values: dict[str, Any] = config.model_dump()
    values["cluster"] |= option.cluster
    for name, sections in option.policies.items():
        for section, keys in sections.items():
            values["policies"][name][section] |= keys
    try:
        changed = TrainConfig.model_validate(values)
    except ValueError:
        return False
    return placeable(changed, _with_more(nodes, config.cluster, changed.cluster))


def _with_more(nodes: Sequence[Node], now: ClusterConfig, changed: ClusterConfig) -> list[Node]:
    """If more nodes are asked for than now, as many more like the best one."""
    more = changed.nodes if changed.nodes > now.nodes else 0
    best = max(nodes, key=lambda node: node.gpus, default=None)
    return [*nodes, *(replace(best, id=f"{best.id}+{number}") for number in range(more) if best is not None)]


def _of_run(config: TrainConfig, nodes: Sequence[Node]) -> Layout:
    names = list(config.policies)
    match config.cluster.layout:
        case "one-process":
            either = Option('cluster.layout = "disaggregated" or "colocated"')
            raise Refused('cluster.layout = "one-process" needs no places', either)
        case "disaggregated":
            groups = [group for name in names for group in _apart(config, name)]
        case "colocated":
            if odd := [name for name in names if config.policies[name].update.ranks != _slots(config, name)]:
                raise _unequal(config, odd)
            groups = [_together(config, name) for name in names]
    return _placed(config.cluster, groups, nodes)


def _apart(config: TrainConfig, name: str) -> list[_Group]:
    engine = config.policies[name].engine
    ranks = _Group(name, "ranks", 1, config.policies[name].update.ranks)
    return [ranks, _Group(name, "engines", engine.tensor_parallel, engine.replicas)]


def _together(config: TrainConfig, name: str) -> _Group:
    engine = config.policies[name].engine
    return _Group(name, "both", engine.tensor_parallel, engine.replicas)


def _slots(config: TrainConfig, name: str) -> int:
    """GPUs of a policy's engines."""
    engine = config.policies[name].engine
    return engine.replicas * engine.tensor_parallel


def _unequal(config: TrainConfig, odd: Sequence[str]) -> Refused:
    """Of colocated policies whose ranks are not as many as their engines' GPUs."""
    what: list[str] = []
    ranks: list[tuple[str, str, dict[str, Any]]] = []
    fewer: list[tuple[str, str, dict[str, Any]]] = []
    for name in odd:
        update, engine, slots = config.policies[name].update, config.policies[name].engine, _slots(config, name)
        what.append(
            f"policies.{name}: {update.ranks} ranks and {engine.replicas} engines x {engine.tensor_parallel} "
            f"(tensor_parallel) = {slots} cannot share GPUs one to one"
        )
        backend = {"backend": "deepspeed"} if update.backend == "torch" else {}
        ranks.append((name, "update", {**backend, "ranks": slots}))
        fewer.append((name, "engine", {"replicas": max(1, update.ranks // engine.tensor_parallel)}))
    divides = all(
        config.policies[name].update.ranks % config.policies[name].engine.tensor_parallel == 0 for name in odd
    )
    apart = Option('cluster.layout = "disaggregated"', {"layout": "disaggregated"})
    return Refused("; ".join(what), all_of(ranks), *([all_of(fewer)] if divides else []), apart)


def _placed(cluster: ClusterConfig, groups: Sequence[_Group], nodes: Sequence[Node]) -> Layout:
    used = _used(cluster, nodes)
    if cluster.gpus_per_node:
        free = [cluster.gpus_per_node] * len(used)
        homes = _homes(groups, free)
        if homes is None:
            raise _lacking(groups, free)
    else:
        homes = _homes_on_cpus(groups, [max(0, int(n.cpus) - cluster.run_workers_per_node) for n in used])
    return _filled(cluster, nodes[0].id, used, groups, homes)


def _used(cluster: ClusterConfig, nodes: Sequence[Node]) -> list[Node]:
    wanted, gpus = cluster.nodes, cluster.gpus_per_node
    if not nodes:
        raise Refused(f"cluster.nodes = {wanted}, and there is no node", Option(f"start Ray on {wanted}"))
    ordered = [nodes[0], *sorted(nodes[1:], key=lambda node: node.id)]
    fit = [node for node in ordered if node.gpus >= gpus]
    if len(fit) < wanted:
        less = sorted((node.gpus for node in ordered if node.gpus < gpus), reverse=True)
        of_these = f" of {gpus} GPUs; {len(less)} more have {', '.join(map(str, less))}" if less else ""
        options = [Option(f"start {wanted - len(fit)} more")]
        if len(ordered) >= wanted:
            most = sorted((node.gpus for node in ordered), reverse=True)[wanted - 1]
            on_cpus = "" if most else ", for CPUs in their place"
            options.append(Option(f"cluster.gpus_per_node = {most}{on_cpus}", {"gpus_per_node": most}))
        if fit:
            one = f"cluster.nodes = {len(fit)}"
            options.append(Option(one, {"nodes": len(fit)}, otherwise=f"{one} with fewer ranks and engines"))
        what = f"cluster.nodes = {wanted}, and there are {len(fit)}{of_these}: {wanted - len(fit)} too few"
        raise Refused(what, *options)
    return fit[:wanted]


# Where the pieces go


def _homes(groups: Sequence[_Group], free: Sequence[int]) -> list[list[int]] | None:
    """For each group the node of each of its pieces, in order; None where there is no room.

    Ranks go first, to be on few nodes; if engines then do not fit, the larger pieces go first. That finds room wherever
    there is some if each size divides the next larger one, as powers of two do.
    """
    numbered = list(enumerate(groups))
    ranks_first = sorted(numbered, key=lambda item: (item[1].kind == "engines", -item[1].size, -item[1].count))
    largest_first = sorted(numbered, key=lambda item: (-item[1].size, item[1].kind == "engines", -item[1].count))
    for order in (ranks_first, largest_first):
        left, homes = list(free), [[] for _ in groups]
        for number, group in order:
            homes[number] = _packed(group, left)
        if all(len(home) == group.count for home, group in zip(homes, groups, strict=True)):
            return homes
    return None


def _packed(group: _Group, left: list[int]) -> list[int]:
    """As few nodes as possible: the fullest that takes all that remains, else the one that takes most. Lessens `left`;
    gives fewer nodes than pieces where there is no room."""
    homes: list[int] = []
    while (remaining := group.count - len(homes)) > 0:
        fits = [min(remaining, room // group.size) for room in left]
        best = min(range(len(left)), key=lambda node: (-fits[node], left[node], node))
        if not fits[best]:
            break
        homes += [best] * fits[best]
        left[best] -= fits[best] * group.size
    return sorted(homes)


def _homes_on_cpus(groups: Sequence[_Group], free: Sequence[int]) -> list[list[int]]:
    """One CPU for each GPU that there would be; as many more on every node as are needed, which are shared."""
    for more in range(1 + sum(group.total for group in groups)):
        if (homes := _homes(groups, [cpus + more for cpus in free])) is not None:
            return homes
    raise AssertionError("one node with room for all takes all")


def _lacking(groups: Sequence[_Group], free: Sequence[int]) -> Refused:
    widest = max(group.size for group in groups)
    if widest > free[0]:
        return Refused(
            f"an engine of tensor_parallel = {widest} needs {widest} GPUs of one node, and nodes have {free[0]}: "
            f"{widest - free[0]} too few",
            _narrower(groups, free[0]),
        )
    needed, there = sum(group.total for group in groups), sum(free)
    parts = [
        f"policies.{group.policy} {group.count} {'engines' if group.kind == 'engines' else 'ranks'} x 1"
        if group.size == 1
        else f"policies.{group.policy} {group.count} engines x {group.size}"
        for group in groups
    ]
    what = f"{needed} GPUs are needed ({', '.join(parts)}), and {len(free)} nodes x {free[0]} = {there} are there"
    counts = itertools.count(max(len(free), -(-needed // free[0])))
    enough = next(nodes for nodes in counts if _homes(groups, [free[0]] * nodes) is not None)
    more = Option(f"cluster.nodes = {enough}", {"nodes": enough})
    if needed > there:
        # With `nodes`, it is not tried on more of them, which alone would help.
        shared = Option('cluster.layout = "colocated"', {"layout": "colocated", "nodes": len(free)})
        return Refused(f"{what}: {needed - there} too few", more, Option(_fewer(groups)), shared)
    powers = [size for size in _POWERS if size < widest]
    narrower = [_narrower(groups, size) for size in reversed(powers)]
    what = f"{what}, but no way was found that keeps each engine's GPUs on one node"
    return Refused(what, more, *narrower)


_POWERS = [2**power for power in range(10)]


def _narrower(groups: Sequence[_Group], most: int) -> Option:
    """Wider engines over as many GPUs as are a power of two, which divides a model's heads most likely."""
    size = max(power for power in _POWERS if power <= most)
    sections: list[tuple[str, str, dict[str, Any]]] = []
    for group in groups:
        if group.kind != "ranks" and group.size > most:
            sections.append((group.policy, "engine", {"tensor_parallel": size}))
            if group.kind == "both":
                sections.append((group.policy, "update", {"ranks": group.count * size}))
    return all_of(sections)


def _fewer(groups: Sequence[_Group]) -> str:
    return (
        "fewer ranks or engine.replicas"
        if any(group.kind != "engines" for group in groups)
        else "fewer engine.replicas"
    )


# What sits there


def _filled(
    cluster: ClusterConfig, driver: str, used: Sequence[Node], groups: Sequence[_Group], homes: Sequence[list[int]]
) -> Layout:
    shares = _cpu_shares(cluster, used, groups, homes)
    on_gpus = cluster.gpus_per_node > 0
    bundles: list[Bundle] = []
    processes = [Process("driver", driver, None)]

    def bundle(node: int, cpus: int, gpus: int) -> int:
        bundles.append(Bundle(used[node].id, _times(shares[node], cpus), gpus if on_gpus else 0))
        return len(bundles) - 1

    workers = cluster.run_workers_per_node
    for index, node in enumerate(used):
        place = bundle(index, workers, 0)
        processes.append(Process("keeper", node.id, place, number=index))
        processes += [
            Process("run_worker", node.id, place, shares[index], number=index * workers + worker)
            for worker in range(workers)
        ]
    for group, home in zip(groups, homes, strict=True):
        for number, index in enumerate(home):
            node, share = used[index].id, shares[index]
            if group.kind == "both":
                for part in range(group.size):
                    place = bundle(index, 2, 1)
                    gpus = {"rank": RANK_SHARE, "engine": 1 - RANK_SHARE} if on_gpus else {"rank": 0.0, "engine": 0.0}
                    rank = number * group.size + part
                    processes.append(Process("rank", node, place, share, gpus["rank"], group.policy, rank))
                    processes.append(Process("engine", node, place, share, gpus["engine"], group.policy, number, part))
            else:
                place = bundle(index, group.size, group.size)
                kind: Kind = "engine" if group.kind == "engines" else "rank"
                cpus, gpus_taken = _times(share, group.size), float(group.size if on_gpus else 0)
                processes.append(Process(kind, node, place, cpus, gpus_taken, group.policy, number, parts=group.size))
    return Layout(tuple(used), tuple(bundles), tuple(processes))


def _cpu_shares(
    cluster: ClusterConfig, used: Sequence[Node], groups: Sequence[_Group], homes: Sequence[list[int]]
) -> list[float]:
    """For each node what every process gets of a CPU: one, or less where there are more processes than CPUs."""
    wanted = [cluster.run_workers_per_node] * len(used)
    for group, home in zip(groups, homes, strict=True):
        for index in home:
            wanted[index] += group.size * (2 if group.kind == "both" else 1)
    shares = []
    for node, count in zip(used, wanted, strict=True):
        share = min(1.0, math.floor(node.cpus / count * _STEP) / _STEP)
        if share < SMALLEST_SHARE:
            least = math.ceil(count * SMALLEST_SHARE * 10) / 10
            raise Refused(
                f"node {node.address} has {node.cpus:g} CPUs for {count} processes, which is less than "
                f"{SMALLEST_SHARE:g} for each: {least - node.cpus:g} too few",
                Option(f"a smaller cluster.run_workers_per_node, {_fewer(groups)}, or more nodes"),
            )
        shares.append(share)
    return shares


def _times(share: float, count: int) -> float:
    return round(share * _STEP) * count / _STEP


# Shown
