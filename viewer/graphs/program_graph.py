"""A program's static graph by the paths under which its nodes run, and the ways that work can go between them.

`workflow.graph.GraphNode` says what a program is made of; a run's Trace says which paths were asked. Here the two meet.
Pure; what did run is `viewer.graphs.run_order`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from viewer.graphs.run_order import TASK, bare
from workflow.graph import GraphNode

MOST_NODES = 2_000
"""Nodes of a program that are looked at."""
_MOST_PATHS = 16
_BEHIND = 1e-6
"""What keeps nodes that belong behind the same one in their order."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """Work can go from one part of a node to another; an empty path is the way in."""

    source: Path
    target: Path
    label: str = ""


@dataclass(slots=True)
class ProgramGraph:
    nodes: dict[Path, GraphNode] = field(default_factory=dict)
    parts: dict[Path, list[Path]] = field(default_factory=dict)
    """By node, in order; of nodes with one name, which run under one path, the first."""
    places: dict[tuple[Path, str], Path] = field(default_factory=dict)
    """Of the parts of an `AgentGraph`, by the names that its edges have for them."""
    steps: dict[Path, list[Path]] = field(default_factory=dict)
    """By node: its children in order, those that are there more than once included."""
    shorter: dict[Path, Path] = field(default_factory=dict)
    """Nodes by the paths under which they run where own code calls own code, which leaves out the latter's name."""
    mixed: set[Path] = field(default_factory=set)
    """Under which several nodes run that are not alike: here is the first of them."""

    def find(self, path: Path) -> Path | None:
        """The node that ran under this path; None where the program, as it was described, has none such."""
        plain = tuple(part for part in path if bare(part) != TASK) if path not in self.nodes else path
        return plain if plain in self.nodes else self.shorter.get(plain)

    def runs_as(self, path: Path) -> set[Path]:
        """All paths under which a node may run."""
        found = {path[:1]}
        for length in range(1, len(path)):
            own = all(self._is_own(path[:end]) for end in (length, length + 1))
            longer = {(*each, path[length]) for each in found}
            found = longer | found if own and len(found) < _MOST_PATHS else longer
        return found

    def _is_own(self, path: Path) -> bool:
        return path in self.nodes and self.nodes[path].base == "WorkflowNode"

    def agents(self) -> list[Path]:
        return [path for path, node in self.nodes.items() if node.base == "AgentNode"]

    def ways(self, path: Path) -> list[Way]:
        """How work can go between the parts of a node. Nothing for a node whose own code decides."""
        return [
            way for way in self._ways(path) if all(not end or end in self.nodes for end in (way.source, way.target))
        ]

    def _ways(self, path: Path) -> list[Way]:
        node, parts, steps = self.nodes[path], self.parts.get(path, []), self.steps.get(path, [])
        if node.base in ("Workflow", "ConditionalWorkflow", "LoopWorkflow"):
            labels = [f"if {child.condition}" if child.condition else "" for child in node.children]
            found = [Way(a, b, label) for (a, b), label in zip(pairwise(steps), labels[1:], strict=True)]
            again = [Way(steps[-1], steps[0], "again")] if steps and node.base == "LoopWorkflow" else []
            return [*(Way((), part, label) for part, label in zip(steps[:1], labels, strict=False)), *found, *again]
        if node.base == "RouterNode":
            return [Way((), part, child.condition) for part, child in zip(steps, node.children, strict=True)]
        if node.base == "AgentGraph":
            place = {name: part for (owner, name), part in self.places.items() if owner == path} | {"": ()}
            return [
                Way(place[edge.source], place[edge.target], edge.label)
                for edge in node.edges
                if edge.target and edge.source in place and edge.target in place
            ]
        if node.base == "ReflectionNode" and len(parts) == 2:
            return [Way((), parts[0]), Way(parts[0], parts[1]), Way(parts[1], parts[0], "refine")]
        if node.base in ("EnsembleNode", "DebateNode"):
            judges = [part for part in parts if self.nodes[part].role == "judge"]
            members = [part for part in parts if part not in judges]
            label = "split" if "votes are split" in node.detail else ""
            return [Way((), part) for part in members] + [
                Way(part, judge, label) for judge in judges for part in members
            ]
        return []

    def ends(self, path: Path, first: bool) -> list[Path]:
        """The agents at which the work of a node begins, or ends, as far as that is fixed."""
        node, parts = self.nodes[path], self.parts.get(path, [])
        if not parts:
            return [path] if node.base == "AgentNode" else []
        if node.base in ("Workflow", "ConditionalWorkflow", "LoopWorkflow"):
            chosen = parts[:1] if first else parts[-1:]
        elif node.base == "AgentGraph" and first:
            chosen = [way.target for way in self.ways(path) if not way.source]
        elif node.base == "AgentGraph":
            going = {edge.source for edge in node.edges if not edge.target}
            chosen = [part for part in parts if self.nodes[part].place in going]
        elif node.base == "ReflectionNode":
            chosen = parts[:1] if first else parts
        elif node.base in ("EnsembleNode", "DebateNode"):
            judges = [part for part in parts if self.nodes[part].role == "judge"]
            chosen = [part for part in parts if part not in judges] if first or not judges else judges
        elif node.base == "RouterNode":
            chosen = parts
        else:
            return []
        return [end for part in chosen for end in self.ends(part, first)]

    def positions(self, asked: Sequence[Path | None], unused: Sequence[Path]) -> dict[Path, float]:
        """Where nodes that were not asked belong among those that were, which are in order: behind what stands before
        them in the program, else before what stands behind them."""
        spans: dict[Path, tuple[float, float]] = {}
        found: dict[Path, float] = {}

        def note(path: Path, at: float) -> None:
            for length in range(len(path) + 1):
                low, high = spans.get(path[:length], (at, at))
                spans[path[:length]] = min(low, at), max(high, at)

        for at, path in enumerate(asked):
            if path is not None:
                note(path, float(at))
        roots: list[Path] = [path for path in self.nodes if len(path) == 1]
        for number, path in enumerate(unused):
            at = float(len(asked))
            for length in range(len(path) - 1, -1, -1):
                parts = self.parts.get(path[:length], []) if length else roots
                place = parts.index(path[: length + 1]) if path[: length + 1] in parts else 0
                before = [spans[part][1] for part in parts[:place] if part in spans]
                behind = [spans[part][0] for part in parts[place + 1 :] if part in spans]
                if before or behind:
                    at = before[-1] + (number + 1) * _BEHIND if before else behind[0] - 0.5
                    break
            found[path] = at
            note(path, at)
        return found


def roots_of(graph: GraphNode) -> list[GraphNode]:
    """What the program runs itself."""
    return graph.children if graph.kind == "Program" and graph.base == "WorkflowNode" else [graph]


def program_graph(graph: GraphNode) -> ProgramGraph:
    """What a program is made of, by path. A program that runs several workflows is no node of its own."""
    found = ProgramGraph()
    todo: list[tuple[Path, GraphNode]]
    todo = [((root.name,), root) for root in roots_of(graph)]
    while todo and len(found.nodes) < MOST_NODES:
        path, node = todo.pop(0)
        if path in found.nodes and node != found.nodes[path]:
            found.mixed.add(path)
        if path in found.nodes or node.detail == "(itself again)":
            continue
        found.nodes[path] = node
        below = list(paths_of(path, node))
        for child_path, child in below:
            found.places.setdefault((path, child.place), child_path)
        found.steps[path] = [part for part, _ in below]
        if below:
            found.parts[path] = list(dict.fromkeys(part for part, child in below if child.detail != "(itself again)"))
        todo += below
    for path, parts in found.parts.items():
        found.parts[path] = [part for part in parts if part in found.nodes]
    for path in found.nodes:
        for each in found.runs_as(path):
            found.shorter.setdefault(each, path)
    return found


def paths_of(path: Path, node: GraphNode) -> list[tuple[Path, GraphNode]]:
    """The children with their paths, as `workflow.scheduler` makes them: members that run side by side are counted."""
    found: list[tuple[Path, GraphNode]] = []
    beside = 0
    for child in node.children:
        if child.role in ("member", "debater"):
            found.append(((*path, f"{child.name}[{beside}]"), child))
            beside += 1
        else:
            found.append(((*path, child.name), child))
    return found
