"""Draws a search's tree as its file has it: agents, first words of replies, what was thought of them, how runs ended.

N, W and Q follow from the file's lines (`search.problem.tree_file`); nothing is worked out here but what to leave out.
"""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel
from rich.text import Text
from rich.tree import Tree

from metaagent.terminal.console import one_line
from search.methods import Node
from search.problem import TreeRecord
from workflow.completion import Completion

MOST_DRAWN = 200
"""States."""
WORDS = 60
"""Characters of a reply."""


class ShownState(BaseModel):
    """A state, and the edge that leads to it."""

    id: int
    parent: int
    agent: str
    depth: int
    copies: int
    psi: float | None
    value: float | None
    """V, or what else guided the search."""
    visits: int
    """N."""
    total: float
    """W."""
    q: float
    chosen: bool
    """Whether it is on the path that the search decided for."""
    ended: bool
    answer: str | None = None
    graded: float | None = None
    failure: str | None = None


class ShownTree(BaseModel):
    """What `show --json` prints of a tree."""

    problem: str
    engine: str
    settings: dict[str, object]
    simulations: int
    chosen: int | None
    """The state that the search decided for; None of labels, and of a search that was broken off."""
    stopped_by: str
    torn: bool
    """Whether the file's last line was cut off; it is left out."""
    states: list[ShownState]


def tree_document(record: TreeRecord) -> ShownTree:
    path = _chosen(record)
    return ShownTree(
        problem=record.header.problem,
        engine=record.header.engine,
        settings=record.header.settings,
        simulations=len(record.simulations),
        chosen=None if record.chosen is None else record.chosen.id,
        stopped_by="" if record.chosen is None else record.chosen.stopped_by,
        torn=record.torn,
        states=[_state(node, node in path) for node in record.nodes.values() if node.parent is not None],
    )


def search_tree(record: TreeRecord) -> tuple[Tree, int]:
    """The tree, and how many states are left out of it: those that were visited least, of these the latest."""
    path, guide = _chosen(record), str(record.header.settings.get("guide") or "V")
    states = [node for node in record.nodes.values() if node.parent is not None]
    first = sorted(states, key=lambda node: (node not in path, -node.visits, node.id))[:MOST_DRAWN]
    branches = {record.root: Tree(Text(_short(record.header.question), style="bold"), guide_style="dim")}
    for node in sorted(first, key=lambda node: node.id):
        if node.parent in branches:
            branches[node] = branches[node.parent].add(_line(node, node in path, guide))
    left_out = Counter(node.parent for node in states if node not in branches)
    for parent, count in left_out.items():
        if parent in branches:
            branches[parent].add(Text(f"… {count:,} more", style="dim"))
    return branches[record.root], len(states) + 1 - len(branches)


def _chosen(record: TreeRecord) -> set[Node]:
    return set() if record.chosen is None else set(record.nodes[record.chosen.id].path)


def _state(node: Node, chosen: bool) -> ShownState:
    assert node.parent is not None
    assert node.action is not None
    end = node.end
    return ShownState(
        id=node.id,
        parent=node.parent.id,
        agent=node.action.agent,
        depth=node.depth,
        copies=node.copies,
        psi=node.psi,
        value=node.value,
        visits=node.visits,
        total=node.total,
        q=node.q,
        chosen=chosen,
        ended=end is not None,
        answer=None if end is None else end.answer,
        graded=None if end is None else end.reward,
        failure=None if end is None else end.failure,
    )


def _line(node: Node, chosen: bool, guide: str) -> Text:
    assert node.action is not None
    line = Text.assemble(("✔ " if chosen else "", "green"), (one_line(node.action.agent), "bold"))
    line.no_wrap, line.overflow = True, "ellipsis"
    facts = [
        "" if node.value is None else f"{one_line(guide)} {node.value:.3g}",
        f"psi {node.psi:.3g}" if node.psi is not None and guide != "psi" else "",
        f"Q {node.q:.3g} in {node.visits:,}" if node.visits else "",
        f"{node.copies} alike" if node.copies > 1 else "",
    ]
    line.append("".join(f" · {fact}" for fact in facts if fact), style="dim")
    if (end := node.end) is not None:
        grade = {1.0: " right", -1.0: " wrong"}.get(end.reward or 0, "")
        ended = f"failed: {end.failure}" if end.failure else "no answer" if end.answer is None else _short(end.answer)
        line.append(f" → {ended}{grade}", style={" right": "green", " wrong": "red"}.get(grade, ""))
    reply = node.action.reply
    return line.append(f" · {_short(reply.text if isinstance(reply, Completion) else reply.message)}")


def _short(text: str) -> str:
    text = one_line(" ".join(text[: 4 * WORDS].split()))
    return text if len(text) <= WORDS else text[: WORDS - 1] + "…"
