"""What the graph of a run says in words of the ways that work took: labels of arrows, titles of frames.

What is not certain is left out. Which ways those were is `viewer.graphs.run_moves`'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from viewer.graphs.node_moves import Path
from viewer.graphs.run_moves import Moves
from viewer.graphs.run_order import Arrival
from viewer.graphs.run_places import LONGEST_LABEL, times
from viewer.html import one_line
from workflow.graph import GraphNode

_COUNTED = {
    "LoopWorkflow": ("pass", "passes"),
    "DebateNode": ("round", "rounds"),
    "ReflectionNode": ("review", "reviews"),
}
_MOST_ROUTES = 3
_LONGEST_ROUTE = 30


def arrow_label(count: int, arrivals: Sequence[Arrival], moves: Moves) -> str:
    """Of an arrow that stands for so many times. Without `arrivals`, nobody says by what way work came."""
    ways = Counter(_label(arrival, moves) for arrival in arrivals)
    if len(ways) < 2:
        label = next(iter(ways), "")
        return " ".join(word for word in (label, times(count) if count > 1 else "") if word)
    parts = "; ".join(f"{label} {times(each)}" for label, each in ways.items() if label)
    return f"{times(count)}: {parts}" if "" in ways else parts


def _label(arrival: Arrival, moves: Moves) -> str:
    """Who works beside others came by the way by which the first of them came."""
    act, leader = arrival
    shared = [] if act is leader else moves.by_turn.get(leader.index, ())
    together = [move for move in shared if leader.path[: move.depth] == act.path[: move.depth]]
    words = [move.label for move in (*together, *moves.by_turn.get(act.index, ())) if move.kind == "way" and move.label]
    return ", ".join(dict.fromkeys(words))


def frame_title(node: GraphNode, path: Path, moves: Moves) -> str:
    """The kind of a node, and what the run says about a node of this kind. `path` is the program's."""
    told = [f"{node.kind}, {node.detail}" if node.detail else node.kind]
    if node.base == "RouterNode":
        routes, sure = moves.labels(path)
        taken = [(one_line(route, _LONGEST_ROUTE), count) for route, count in routes.most_common(_MOST_ROUTES)]
        told += [f"took {route} {times(count)}" if sure else f"took {route}" for route, count in taken]
    if node.base in _COUNTED:
        one, several = _COUNTED[node.base]
        count, visits = moves.count(path, one), moves.count(path, "visit")
        if count:
            over = " in all" if visits is None else f" in {visits:,} visits" if visits > 1 else ""
            told.append(f"ran {count:,} {one if count == 1 else several}{over}")
    return " · ".join(one_line(part, LONGEST_LABEL) for part in told)
