"""The graph of what a run did: which nodes worked, after which, how often, and what of the program was never asked.

Every box and every solid arrow stands for events of the Trace; what only the program's static graph says is drawn
dashed or faint. The result is the JSON that `drawGraph` (viewer/assets/app.js) draws. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from viewer.graphs.layout_cost import layout_cost
from viewer.graphs.program_graph import Path, ProgramGraph, program_graph
from viewer.graphs.run_moves import Moves, moves_of
from viewer.graphs.run_order import TASK, Arrival, Order, Paths, Place, acts_of, bare, order_of
from viewer.graphs.run_places import LONGEST_LABEL, Done, ending, lines_of, name_of, state_of, what_was_done
from viewer.graphs.run_words import arrow_label, frame_title
from viewer.html import one_line
from viewer.reading import Outcome
from workflow.graph import GraphNode
from workflow.trace import AgentTurn, Trace

MOST_BOXES = 120
MOST_ARROWS = 400
MOST_COST = 5_000
"""Of the layout, for a browser to have it at once. What would cost more is drawn with fewer boxes."""
_START, _END, _MORE = ((), "start"), ((), "end"), ((), "more")
_NESTING = ("RouterNode", "EnsembleNode", "DebateNode", "ReflectionNode", "LoopWorkflow", "AgentGraph")
"""Nodes that are drawn as a frame even around a single box."""


@dataclass(frozen=True, slots=True)
class RunGraph:
    drawing: dict[str, Any]
    """`{title, nodes, edges}` of `drawGraph`."""
    notes: list[str]
    """What is not drawn, or cannot be told."""


def run_graph(
    trace: Trace,
    graph: GraphNode | None = None,
    outcome: Outcome | None = None,
    goto: Callable[[int], str | None] = lambda index: f"e{index}",
    whole: bool = True,
) -> RunGraph:
    """`graph` is the program's, as it was described without agents. `goto` names the element of the page that shows the
    event of an index, None where none does. `whole` is whether the trace holds all that was recorded."""
    names = [event.agent for event in trace.events if isinstance(event, AgentTurn)]
    names += [node.name for node in graph.walk()] if graph is not None else []
    paths = Paths(names)
    acts = acts_of(trace, paths)
    order, done = order_of(acts), what_was_done(trace, acts, paths)
    program = program_graph(graph) if graph is not None else ProgramGraph()
    moves = moves_of(trace, acts, graph) if graph is not None and whole else Moves()

    def drawn(most: int) -> _Drawing:
        drawing = _Drawing(order, moves, done, outcome, goto)
        drawing.draw(program, most)
        return drawing

    drawing = drawn(MOST_BOXES)
    for most in (MOST_BOXES // 2, MOST_BOXES // 4):
        if layout_cost(drawing.nodes, drawing.edges) > MOST_COST:
            drawing = drawn(most)
    return RunGraph({"title": "What ran", "nodes": drawing.nodes, "edges": drawing.edges}, drawing.notes)


class _Drawing:
    def __init__(
        self,
        order: Order,
        moves: Moves,
        done: dict[Place, Done],
        outcome: Outcome | None,
        goto: Callable[[int], str | None],
    ) -> None:
        self._order, self._moves, self._done, self._outcome, self._goto = order, moves, done, outcome, goto
        going_on = outcome is not None and outcome.state == "open"
        self._not_asked = "no reply so far" if going_on else "not asked"
        self._program = ProgramGraph()
        self._known: dict[Path, Path] = {}
        """Paths of the run, or beginnings of them, to nodes of the program."""
        self._ran: dict[Path, Path] = {}
        """Nodes of the program to paths of the run."""
        self._ids: dict[Place, str] = {}
        self._at_place: dict[str, int] = {}
        """By id: what comes before what."""
        self._frames: dict[Path, str] = {}
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def draw(self, program: ProgramGraph, most: int) -> None:
        self._fit(program)
        places = list(self._order.places)
        shown = places if len(places) <= most else places[: most - 1]
        joins = self._joins(shown)
        left = [*places[len(shown) :], *joins[most:]]
        unused = self._unused(most - len(shown))
        self._make_frames([path for path, _ in shown], [self._ran.get(path, path) for path in unused])
        self._box(_START, ["question"], "end")
        for place in self._in_order(shown, joins[:most], unused):
            path, kind = place
            if kind == "unused":
                self._box(place, [name_of(self._program.nodes[path].name), self._not_asked], "unused")
            elif place in self._done:
                at = self._done[place]
                goto = next((target for act in at.acts if (target := self._goto(act.index))), None)
                self._box(place, lines_of(place, at), state_of(place, at, self._outcome), goto)
            else:
                self._box(place, [], "join")
        if left:
            self.notes.append(f"{len(left):,} more places at which the run worked or parts met are drawn as one box.")
            more = self._box(_MORE, [f"{len(left):,} more"], "ran")
            self._ids.update((place, more) for place in (*left, *self._order.joins.values()) if place not in self._ids)
        self._box(_END, *ending(self._outcome))
        self._arrows()

    def _joins(self, shown: list[Place]) -> list[Place]:
        """Those that lead from or to what is shown."""
        kept = set(shown)
        joins = self._order.joins.items()
        return [join for (_, sources, targets), join in joins if not kept.isdisjoint((*sources, *targets))]

    def _in_order(self, shown: list[Place], joins: list[Place], unused: list[Path]) -> list[Place]:
        """Places, joins behind the last that leads to them, and where they belong agents that were not asked."""
        at: dict[Place, float] = {place: float(number) for number, place in enumerate(shown)}
        sources_of = {join: sources for (_, sources, _), join in self._order.joins.items()}
        for join in joins:
            at[join] = max(at.get(source, float(len(shown))) for source in sources_of[join]) + 0.5
        known = [self._known.get(path) for path, _ in shown]
        at |= {(path, "unused"): place for path, place in self._program.positions(known, unused).items()}
        return sorted(at, key=lambda place: at[place])

    def _fit(self, program: ProgramGraph) -> None:
        """Take what the program's graph says, if it is the graph of what ran."""
        known: dict[Path, Path] = {}
        for path, _ in self._done:
            for length in range(1, len(path) + 1):
                if (found := program.find(path[:length])) is not None:
                    known[path[:length]] = found
        asked = [path for path, kind in self._done if kind == "agent"]
        if program.nodes and asked and not any(path in known for path in asked):
            self.notes.append("What ran is not in the program's static graph, so that only what ran is drawn.")
            return
        self._program, self._known = program, known
        self._ran = {node: path for path, node in known.items()}

    def _unused(self, most: int) -> list[Path]:
        """Agents of the program that were never asked."""
        asked = {path for path, _ in self._done}
        found = [path for path in self._program.agents() if path not in self._ran]
        found = [path for path in found if asked.isdisjoint(self._program.runs_as(path))]
        if len(found) > most:
            self.notes.append(f"{len(found) - most:,} more agents that were not asked are not drawn.")
        return found[: max(0, most)]

    # Boxes and frames

    def _box(self, place: Place, lines: list[str], state: str, goto: str | None = None) -> str:
        self._ids[place] = f"n{len(self.nodes)}"
        self._at_place[self._ids[place]] = len(self.nodes)
        path = self._ran.get(place[0], place[0])
        parent = self._frames.get(path) or self._around(path)
        node: dict[str, Any] = {"id": self._ids[place], "lines": lines, "state": state}
        self.nodes.append(node | {key: value for key, value in (("goto", goto), ("parent", parent)) if value})
        return self._ids[place]

    def _around(self, path: Path) -> str | None:
        """The innermost frame around the frame or box at a path."""
        above = (self._frames.get(path[:length]) for length in range(len(path) - 1, 0, -1))
        return next((frame for frame in above if frame), None)

    def _make_frames(self, ran: list[Path], unused: list[Path]) -> None:
        """A frame around every node that holds several parts, or whose kind says more than its name."""
        inside: dict[Path, set[Path]] = defaultdict(set)
        for path in (*ran, *unused):
            for length in range(1, len(path)):
                inside[path[:length]].add(path[: length + 1])
        for path in ran:
            if path in inside:
                inside[path].add(path)  # it works itself, beside its parts
        for path in sorted(inside, key=lambda path: (len(path), path)):
            node = self._program.nodes.get(self._known.get(path, path))
            if node is None and bare(path[-1]) == TASK:
                continue  # a call that the program started by itself: its name says nothing
            if len(inside[path]) > 1 or (node is not None and node.base in _NESTING):
                above = self._around(path)
                self._frames[path] = f"f{len(self._frames)}"
                frame: dict[str, Any] = {"id": self._frames[path], "lines": self._title(path, node), "group": True}
                self.nodes.append(frame | ({"parent": above} if above else {}))

    def _title(self, path: Path, node: GraphNode | None) -> list[str]:
        """Name; kind, and what the run says about a node of this kind."""
        known = self._known.get(path, path)
        if node is None or known in self._program.mixed:
            return [name_of(path[-1])]
        return [name_of(path[-1]), frame_title(node, known, self._moves)]

    # Arrows

    def _arrows(self) -> None:
        taken: Counter[tuple[str, str]] = Counter()
        arrivals: dict[tuple[str, str], list[Arrival]] = defaultdict(list)
        for (source, target), count in self._order.follows.items():
            pair = self._ids[source], self._ids[target]
            taken[pair] += count
            arrivals[pair] += self._order.arrivals.get((source, target), [])
        start, end = self._ids[_START], self._ids[_END]
        for place, arrival in self._order.began:
            taken[start, self._ids[place]] += 1
            arrivals[start, self._ids[place]].append(arrival)
        taken.update((self._ids[place], end) for place in self._order.last)
        if not self._done:
            taken[start, end] += 1
        if len(taken) > MOST_ARROWS:
            self.notes.append(f"{len(taken) - MOST_ARROWS:,} more arrows are not drawn.")
        for (source, target), count in list(taken.items())[:MOST_ARROWS]:
            self._edge(source, target, arrow_label(count, arrivals[source, target], self._moves), "ran")
        for source, target, label in self._untaken():
            if (source, target) not in taken and len(self.edges) < MOST_ARROWS:
                taken[source, target] = 1
                self._edge(source, target, label, "unused")

    def _edge(self, source: str, target: str, label: str, state: str) -> None:
        told: dict[str, Any] = {"label": one_line(label, LONGEST_LABEL)} if label else {}
        if self._at_place[target] < self._at_place[source]:
            told["back"] = True
        self.edges.append({"from": source, "to": target, "state": state} | told)

    def _untaken(self) -> Iterable[tuple[str, str, str]]:
        """Ways that the program had and that work did not go."""
        at_work = {path[:length] for path in self._ran for length in range(len(path) + 1)}
        for node in self._program.parts:
            if node in self._program.mixed:
                continue
            for way in self._program.ways(node):
                if {way.source, way.target} <= at_work and not self._moves.not_taken(node, way.source, way.target):
                    continue
                for source in self._at(way.source, first=False) if way.source else self._ways_in(node):
                    for target in self._at(way.target, first=True):
                        yield source, target, way.label

    def _ways_in(self, node: Path) -> list[str]:
        """Where work came from, or would have come from, when it came to a node."""
        if node in self._ran:
            entered = self._order.entered.get(self._ran[node], [])
            return [self._ids[place] for place in entered if place in self._ids] or [self._ids[_START]]
        alone = len(node) == 1 and not any(len(other) == 1 for other in self._program.nodes if other != node)
        return [self._ids[_START]] if alone else []

    def _at(self, node: Path, first: bool) -> list[str]:
        """The boxes at which the work of a node begins or ends."""
        ends = self._program.ends(node, first)
        ran = [self._ids[place] for end in ends if (place := (self._ran.get(end, end), "agent")) in self._ids]
        return ran or [self._ids[end, "unused"] for end in ends if (end, "unused") in self._ids]
