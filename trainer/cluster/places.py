"""Places of a cluster run: nodes, bundles, the processes in them, and how people are shown a layout.

Not here: who gets which place (`trainer.cluster.layout`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["rank", "engine", "run_worker", "keeper", "driver"]


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
