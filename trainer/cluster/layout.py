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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainer.config import ClusterConfig, EngineConfig, PolicyConfig, TrainConfig

SMALLEST_SHARE = 0.1
"""Of a CPU, for one process."""
RANK_SHARE = 0.5
"""Of a GPU, where an engine has the rest. Ray counts it; memory is not divided by it."""
_STEP = 10_000
"""Ray counts resources in 1 / 10,000."""

Kind = Literal["rank", "engine", "run_worker", "keeper", "driver"]


class Unplaceable(ValueError):
    """A run that these nodes cannot hold. The message says what lacks, by how much, and what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    """Ray's."""
    address: str
    cpus: float
    gpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle of the placement group, to be held by the node with this id."""

    node: str
    cpus: float
    gpus: int = 0

    @property
    def resources(self) -> dict[str, float]:
        """As Ray's `placement_group` takes them."""
        return {name: count for name, count in (("CPU", self.cpus), ("GPU", float(self.gpus))) if count}


@dataclass(frozen=True, slots=True)
class Process:
    """One actor, or one part of an engine."""

    kind: Kind
    node: str
    bundle: int | None
    """The position of its bundle; None for the driver, which is there before."""
    cpus: float = 0.0
    gpus: float = 0.0
    policy: str = ""
    number: int = 0
    """Of a rank or an engine within its policy, else of a worker or keeper in the whole run."""
    part: int = 0
    """Of an engine that lies in several bundles."""
    parts: int = 1
    """Of an engine that lies in one."""


@dataclass(frozen=True, slots=True)
class Layout:
    nodes: tuple[Node, ...]
    """Those that are used, the driver's first if it is among them."""
    bundles: tuple[Bundle, ...]
    processes: tuple[Process, ...]

    def of(self, kind: Kind, policy: str = "") -> list[Process]:
        """In the order of their numbers and parts; of all policies unless one is named."""
        return [each for each in self.processes if each.kind == kind and policy in ("", each.policy)]

    def threads(self, process: Process) -> int:
        """For each of its parts, of its node's CPUs, if all that do the same there have equal shares; one at least.
        What does something else is left out, as it mostly waits for them."""
        node = next(node for node in self.nodes if node.id == process.node)
        alike = [each for each in self.processes if (each.kind, each.node) == (process.kind, process.node)]
        return max(1, int(node.cpus // sum(each.parts for each in alike)))


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
    groups = [group for name, policy in config.policies.items() for group in _groups(config, name, policy)]
    return _placed(config.cluster, groups, nodes)


def engines_alone(cluster: ClusterConfig, engines: Mapping[str, EngineConfig], nodes: Sequence[Node]) -> Layout:
    """The same without ranks, for what trains nothing; `engines` are each policy's, and may be none. `cluster.layout`
    says nothing then."""
    groups = [_Group(name, "engines", each.tensor_parallel, each.replicas) for name, each in engines.items()]
    return _placed(cluster, groups, nodes)


def _placed(cluster: ClusterConfig, groups: Sequence[_Group], nodes: Sequence[Node]) -> Layout:
    used = _used(cluster, nodes)
    if cluster.gpus_per_node:
        free = [cluster.gpus_per_node] * len(used)
        homes = _homes(groups, free)
        if homes is None:
            raise Unplaceable(_lacking(groups, free))
    else:
        homes = _homes_on_cpus(groups, [max(0, int(n.cpus) - cluster.run_workers_per_node) for n in used])
    return _filled(cluster, nodes[0].id, used, groups, homes)


def _groups(config: TrainConfig, name: str, policy: PolicyConfig) -> list[_Group]:
    ranks, replicas, parallel = policy.update.ranks, policy.engine.replicas, policy.engine.tensor_parallel
    match config.cluster.layout:
        case "one-process":
            fix = 'cluster.layout = "disaggregated" or "colocated"'
            raise Unplaceable(f'cluster.layout = "one-process" needs no places. Fix: {fix}')
        case "disaggregated":
            return [_Group(name, "ranks", 1, ranks), _Group(name, "engines", parallel, replicas)]
        case "colocated":
            if ranks != replicas * parallel:
                fewer = f"engine.replicas = {ranks // parallel}, or " if ranks % parallel == 0 else ""
                raise Unplaceable(
                    f"policies.{name}: {ranks} ranks and {replicas} engines x {parallel} (tensor_parallel) = "
                    f"{replicas * parallel} cannot share GPUs one to one. Fix: update.ranks = {replicas * parallel}, "
                    f'or {fewer}cluster.layout = "disaggregated"'
                )
            return [_Group(name, "both", parallel, replicas)]


def _used(cluster: ClusterConfig, nodes: Sequence[Node]) -> list[Node]:
    wanted, gpus = cluster.nodes, cluster.gpus_per_node
    if not nodes:
        raise Unplaceable(f"cluster.nodes = {wanted}, and there is no node. Fix: start Ray on {wanted}")
    ordered = [nodes[0], *sorted(nodes[1:], key=lambda node: node.id)]
    fit = [node for node in ordered if node.gpus >= gpus]
    if len(fit) < wanted:
        less = sorted(node.gpus for node in ordered if node.gpus < gpus)
        of_these = f" of {gpus} GPUs; {len(less)} more have {', '.join(map(str, less))}" if less else ""
        fix = [f"start {wanted - len(fit)} more"]
        fix += [f"cluster.gpus_per_node = {less[-1]}"] if less and less[-1] else []
        fix += [f"cluster.nodes = {len(fit)} with fewer ranks and engines"] if fit else []
        raise Unplaceable(
            f"cluster.nodes = {wanted}, and there are {len(fit)}{of_these}: {wanted - len(fit)} too few. "
            f"Fix: {', or '.join(fix)}"
        )
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


def _lacking(groups: Sequence[_Group], free: Sequence[int]) -> str:
    widest = max(group.size for group in groups)
    if widest > free[0]:
        return (
            f"an engine of tensor_parallel = {widest} needs {widest} GPUs of one node, and nodes have {free[0]}: "
            f"{widest - free[0]} too few. Fix: tensor_parallel = {free[0]} or less"
        )
    needed, there = sum(group.total for group in groups), sum(free)
    parts = [
        f"policies.{group.policy} {group.count} {'engines' if group.kind == 'engines' else 'ranks'} x 1"
        if group.size == 1
        else f"policies.{group.policy} {group.count} engines x {group.size}"
        for group in groups
    ]
    what = f"{needed} GPUs are needed ({', '.join(parts)})"
    here = f"{len(free)} nodes x {free[0]} = {there} are there"
    enough = next(nodes for nodes in itertools.count(len(free)) if _homes(groups, [free[0]] * nodes) is not None)
    if needed > there:
        fix = [f"cluster.nodes = {enough}", _fewer(groups)]
        fix += ['cluster.layout = "colocated"'] if _could_share(groups, free) else []
        return f"{what}, and {here}: {needed - there} too few. Fix: {', or '.join(fix)}"
    return (
        f"{what}, and {here}, but no way was found that keeps each engine's GPUs on one node. "
        f"Fix: cluster.nodes = {enough}, or sizes of tensor_parallel that divide {free[0]}"
    )


def _could_share(groups: Sequence[_Group], free: Sequence[int]) -> bool:
    """Whether ranks and engines have room if each rank lies beside an engine, or a part of one."""
    ranks = {group.policy: group.total for group in groups if group.kind == "ranks"}
    engines = [group for group in groups if group.kind == "engines"]
    if not ranks or any(ranks.get(group.policy) != group.total for group in engines):
        return False
    return _homes([_Group(group.policy, "both", group.size, group.count) for group in engines], free) is not None


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
            raise Unplaceable(
                f"node {node.address} has {node.cpus:g} CPUs for {count} processes, which is less than "
                f"{SMALLEST_SHARE:g} for each: {least - node.cpus:g} too few. Fix: a smaller "
                f"cluster.run_workers_per_node, {_fewer(groups)}, or more nodes"
            )
        shares.append(share)
    return shares


def _times(share: float, count: int) -> float:
    return round(share * _STEP) * count / _STEP


# Shown


def shown(placed: Layout) -> list[str]:
    """For people: a line for each node, and below it one for each policy that has something there."""
    lines = []
    driver = placed.of("driver")[0].node
    for node in placed.nodes:
        here = [each for each in placed.processes if each.node == node.id]
        gpus = sum(bundle.gpus for bundle in placed.bundles if bundle.node == node.id)
        cpus = sum(each.cpus for each in here)
        workers = [each for each in here if each.kind == "run_worker"]
        parts = [f"{node.cpus:g} CPUs ({cpus:.4g} taken)", f"{node.memory_bytes / 2**30:.0f} GiB"]
        parts[:0] = [f"{node.gpus} GPUs ({gpus} taken)"] if node.gpus else []
        who = [*(["driver"] if node.id == driver else []), "keeper", f"{len(workers)} run workers"]
        lines.append(f"{node.address}  {', '.join(parts)}: {', '.join(who)}")
        share = min(each.cpus for each in workers)
        if share < 1:
            lines.append(f"  {share:.4g} CPUs for each process, as there are more processes than CPUs")
        for policy in dict.fromkeys(each.policy for each in here if each.policy):
            lines.append(f"  {policy}: {_told([each for each in here if each.policy == policy])}")
    if all(node.id != driver for node in placed.nodes):
        lines.append("the driver is on a node that has nothing else")
    return lines


def _told(processes: Sequence[Process]) -> str:
    """`ranks 0-3, engines 0-1 of 2 GPUs each`."""
    parts = []
    for kind in ("rank", "engine"):
        those = [each for each in processes if each.kind == kind]
        numbers = sorted({each.number for each in those})
        if numbers:
            parts.append(f"{kind}{'s' * (len(numbers) > 1)} {_ranges(numbers)}")
        gpus = sum(math.ceil(each.gpus) for each in those)
        if kind == "engine" and gpus > len(numbers):
            parts[-1] += f" of {gpus // len(numbers)} GPUs each"
    shares = any(0 < each.gpus < 1 for each in processes)
    return f"{' beside '.join(parts)} on the same GPUs" if shares else ", ".join(parts)


def _ranges(numbers: Iterable[int]) -> str:
    """`0-3, 6`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans)
