"""What a run did inside the nodes of its program: which ways it took, how many passes, rounds, reviews and visits.

A Trace names the agents that were asked, one after the other, and not why: whether an agent was asked again by a loop,
by a reflection or by the program's own code follows from what the program is made of. All explanations that fit are
kept side by side (`viewer.graphs.node_moves`); what they do not agree on is not told. Pure; draws nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from viewer.graphs.node_moves import Agent, Asked, Chain, Choice, Move, Own, Part, Path, State
from viewer.graphs.program_graph import MOST_NODES, paths_of, roots_of
from viewer.graphs.run_order import DEEPEST, TASK, Act, bare
from viewer.graphs.team_moves import Beside, Graph, Review
from workflow.graph import GraphNode
from workflow.text import strip_echo, verdict
from workflow.trace import AgentTurn, Trace

MOST_STATES = 200
"""Explanations that are followed side by side."""
MOST_STEPS = 200_000
"""Of all explanations together."""
_FROM = "### From "
"""Above what an agent is shown of another (`workflow.agent.FROM`)."""
_RUNS = re.compile(r"\b(?:run|process|run_with_context|steps|getattr|attrgetter|methodcaller|Context)\b")
"""A program without these words runs nothing itself: its workflow is run once."""
_MAKES_CONTEXTS = re.compile(r"\.process\b|run_with_context|getattr|Context\s*\(|Context\.")
"""A program that does not can run a workflow on a question alone."""
_NUMBER = re.compile(r"\d{1,9}")


@dataclass(slots=True)
class Moves:
    """What is certain of a run, and what is only possible."""

    known: bool = False
    """Whether any explanation fits: if none does, nothing is told."""
    too_many: bool = False
    """Whether more explanations fit than are followed, so that nothing is told."""
    open: set[Path] = field(default_factory=set)
    """Nodes in which anything may come after anything."""
    by_turn: dict[int, tuple[Move, ...]] = field(default_factory=dict)
    """By index of the event: the moves to get there that are certain."""
    _sure: Counter[tuple[Path, str, Path, Path, str]] = field(default_factory=Counter)
    _perhaps: set[tuple[Path, str, Path, Path, str]] = field(default_factory=set)

    _taken: set[tuple[Path, Path, Path]] = field(default_factory=set)

    def note(self, index: int, explanations: Sequence[tuple[Move, ...]]) -> None:
        counts = [Counter(moves) for moves in explanations]
        sure, some = counts[0].copy(), counts[0].copy()
        for each in counts[1:]:
            sure &= each
            some |= each
        self.by_turn[index] = tuple(sure)
        self._sure.update({(move.node, *move[2:]): times for move, times in sure.items()})
        self._taken.update((move.node, move.source, move.target) for move in some if move.kind == "way")
        self._perhaps.update((move.node, *move[2:]) for move in some - sure)

    def count(self, node: Path, kind: str) -> int | None:
        """Visits, passes, rounds or reviews of a node; None where that is not certain."""
        if not self.known or node in self.open or any((each[0], each[1]) == (node, kind) for each in self._perhaps):
            return None
        return sum(times for each, times in self._sure.items() if (each[0], each[1]) == (node, kind))

    def labels(self, node: Path) -> tuple[Counter[str], bool]:
        """Labels of the ways that work surely took in a node, and whether that is all there is to tell."""
        found: Counter[str] = Counter()
        for (where, kind, _, _, label), times in self._sure.items():
            if (where, kind) == (node, "way"):
                found[label] += times
        return found, self.known and not any(each[:2] == (node, "way") for each in self._perhaps)

    def not_taken(self, node: Path, source: Path, target: Path) -> bool:
        """Whether work certainly did not go this way."""
        return self.known and node not in self.open and (node, source, target) not in self._taken


def moves_of(trace: Trace, acts: Sequence[Act], graph: GraphNode) -> Moves:
    """Of acts in the order in which they began. `graph` is the program's; the trace must hold all that was asked."""
    program = _part_of_program(graph, trace)
    if program is None or any(len(act.path) >= DEEPEST for act in acts):
        return Moves()
    turns = [turn for turn in _turns(trace, acts, program) if _holds(program, turn.path)]
    steps, states = 0, {(): 0}
    layers: list[list[tuple[int, int, tuple[Move, ...]]]] = []
    for turn in turns:
        after: dict[State, int] = {}
        arcs: list[tuple[int, int, tuple[Move, ...]]] = []
        for state, at in states.items():
            for then, moves in program.go(state, turn, 0):
                arcs.append((at, after.setdefault(then, len(after)), moves))
        steps += len(arcs)
        if not 0 < len(after) <= MOST_STATES or steps > MOST_STEPS:
            return Moves(too_many=bool(after))
        layers.append(arcs)
        states = after
    found = Moves(known=True, open=set(_open(program)))
    alive = set(states.values())
    for turn, arcs in zip(reversed(turns), reversed(layers), strict=True):
        used = [(before, moves) for before, then, moves in arcs if then in alive]
        alive = {before for before, _ in used}
        found.note(turn.index, [*{moves: None for _, moves in used}])
    return found


def _part_of_program(graph: GraphNode, trace: Trace) -> Own | None:
    """None for what has too many nodes, or too many in one another."""
    nodes = graph.walk()
    if len(nodes) > MOST_NODES or _depth(graph) > DEEPEST:
        return None
    source = trace.started.program if trace.started is not None else ""
    # A workflow that is run on a question shows its first agent that alone; what goes on shows more.
    anew: set[bool | None] = {True, None, False} if _MAKES_CONTEXTS.search(source) else {True, None}
    if source and not _RUNS.search(source):
        anew = set()
    return Own((), [_part((root.name,), root) for root in roots_of(graph)], frozenset(anew))


def _depth(graph: GraphNode) -> int:
    level, depth = [graph], 0
    while level and depth <= DEEPEST:
        level, depth = [child for node in level for child in node.children], depth + 1
    return depth


def _part(path: Path, node: GraphNode) -> Part:
    if node.detail == "(itself again)":
        return Part(path)
    if node.base == "AgentNode":
        return Agent(path)
    children = [child for _, child in paths_of(path, node)]
    parts = [_part(below, child) for below, child in paths_of(path, node)]
    number = _number_in(node.detail)
    if node.base in ("Workflow", "ConditionalWorkflow", "LoopWorkflow"):
        labels = [f"if {child.condition}" if child.condition else "" for child in children]
        return Chain(path, parts, labels, node.base == "LoopWorkflow", number)
    if node.base == "RouterNode":
        return Choice(path, parts, [child.condition for child in children])
    if node.base == "ReflectionNode" and len(parts) == 2 and not any(part.nullable for part in parts):
        return Review(path, parts[0], parts[1], number)
    if node.base in ("EnsembleNode", "DebateNode"):
        pairs = list(zip(parts, children, strict=True))
        members = [part for part, child in pairs if child.role != "judge"]
        judge = next((part for part, child in pairs if child.role == "judge"), None)
        debate = node.base == "DebateNode"
        label = "split" if "votes are split" in node.detail else ""
        if members and not all(part.nullable for part in members):
            needed = debate or node.detail == "consensus"
            return Beside(path, members, judge, label, number if debate else 1, needed)
    if node.base == "AgentGraph" and not any(part.nullable for part in parts):
        at = {child.place: place for place, child in enumerate(children)}
        ways = [edge for edge in node.edges if edge.source in at or not edge.source]
        edges = [(at.get(way.source, -1), at[way.target], way.label) for way in ways if way.target in at]
        ends = {at[way.source] for way in ways if not way.target and way.source}
        return Graph(path, parts, edges, ends, number)
    # A node whose own code calls another's `process` runs that one's code as its own: no path names the other.
    below = [part for own in parts if isinstance(own, Own) for part in own.parts]
    return Own(path, [*parts, *below])


def _number_in(detail: str) -> int | None:
    found = _NUMBER.search(detail)
    return int(found[0]) if found else None


def _holds(program: Part, path: Path) -> bool:
    """Whether an agent of the program runs under this path."""
    level = [program]
    for segment in path:
        below = [
            part
            for node in level
            for part in node.parts
            if part.segment == segment or (isinstance(node, Own) and part.segment == bare(segment))
        ]
        if not below and not (bare(segment) == TASK and any(isinstance(node, Own) for node in level)):
            return False
        level = below or level
    return any(isinstance(node, Agent) for node in level)


def _turns(trace: Trace, acts: Sequence[Act], program: Own) -> list[Asked]:
    started = trace.started
    told = f"{started.question}\n{started.program}" if started is not None else ""
    unclear = _FROM in told or len([*_open(program)]) > 1
    found: list[Asked] = []
    for act in acts:
        event = trace.events[act.index]
        if not isinstance(event, AgentTurn):
            continue
        shown = [text for message in event.messages if isinstance(text := message.get("content"), str)]
        fresh = None if unclear or not shown else not any(f"\n{_FROM}" in f"\n{text}" for text in shown)
        text = event.completion.text if event.completion is not None else ""
        said, own = verdict(text), verdict(strip_echo(text, shown))
        accepts = (said is True) if said == own else None
        found.append(Asked(act.index, act.path, act.begins, fresh, event.completion is None, accepts, said is not None))
    return found


def _open(part: Part) -> Iterator[Path]:
    if isinstance(part, Own):
        yield part.path
    for below in part.parts:
        yield from _open(below)
