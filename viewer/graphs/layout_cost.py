"""How much work it is to lay a drawing out in ranks from above, which is done where it is seen (`assets/app.js`).

An arrow takes a bend in every rank that it goes through, and a frame two sides. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_FRAME = 3
"""What a frame costs in a rank, where an arrow costs 1."""


def layout_cost(nodes: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]]) -> int:
    """Ranks that arrows and frames go through. `nodes` and `edges` are as `viewer.graphs.run_graph` makes them."""
    place = {node["id"]: number for number, node in enumerate(nodes)}
    ends = [sorted((edge["from"], edge["to"]), key=place.__getitem__) for edge in edges if edge["from"] != edge["to"]]
    rank = {node["id"]: 0 for node in nodes if not node.get("group")}
    for source, target in sorted(ends, key=lambda pair: place[pair[0]]):
        rank[target] = max(rank[target], rank[source] + 1)
    around = {node["id"]: node.get("parent") for node in nodes}
    inside: dict[str, list[int]] = {}
    for box, at in rank.items():
        frame = around[box]
        while frame is not None:
            inside.setdefault(frame, []).append(at)
            frame = around[frame]
    arrows = sum(rank[target] - rank[source] for source, target in ends)
    return arrows + _FRAME * sum(max(ranks) - min(ranks) + 1 for ranks in inside.values())
