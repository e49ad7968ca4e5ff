"""Draws a workflow's graph: as a tree for terminals, as Mermaid text for pages.

Both say what `workflow.graph.describe` says and no more. Arrows are the ways in which work can go: what a node's own
Python code decides is drawn dashed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.text import Text
from rich.tree import Tree

from workflow.graph import GraphEdge, GraphNode
from workflow.labels import visible

LONGEST_LABEL = 80


def tree(graph: GraphNode, unreachable: Sequence[str] = ()) -> Tree:
    """The nodes of a graph with kind, name, role, tools and detail; below them what was built and is not used."""
    root = Tree(_line(graph), guide_style="dim")
    _grow(root, graph)
    if unreachable:
        root.add(Text(f"not part of the workflow: {', '.join(unreachable)}", style="yellow"))
    return root


def _grow(branch: Tree, graph: GraphNode) -> None:
    for child in graph.children:
        _grow(branch.add(_line(child)), child)
    if graph.edges:
        branch.add(Text("; ".join(map(_edge, _taken(graph))), style="dim"))


def _edge(edge: GraphEdge) -> str:
    label = f" ({_short(edge.label)})" if edge.label else ""
    return f"{_short(edge.source) or 'start'} → {_short(edge.target) or 'end'}{label}"


def _taken(graph: GraphNode) -> list[GraphEdge]:
    """The edges of a graph that can be taken: work goes no further than a finish point, a plain edge is taken where
    no condition holds, and where none leads on work ends."""
    finishing = {edge.source for edge in graph.edges if not edge.target}
    chosen = {edge.source for edge in graph.edges if edge.label} - finishing
    plain = {edge.source for edge in graph.edges if edge.source and edge.target and not edge.label}
    edges = [
        edge.model_copy(update={"label": "else"}) if edge.source in chosen and not edge.label else edge
        for edge in graph.edges
        if edge.source not in finishing or not edge.target
    ]
    for child in graph.children:
        if child.place not in finishing | plain:
            edges.append(GraphEdge(source=child.place, target="", label="else" if child.place in chosen else ""))
    return edges


def _line(node: GraphNode) -> Text:
    role = "" if node.role in ("step", "node") else f"{node.role} "
    line = Text.assemble((role, "magenta"), (node.kind, "dim"), " ", (_short(node.name), "bold"))
    notes = [
        f"as {_short(node.key)}" if node.key else "",
        f"if {_short(node.condition)}" if node.condition else "",
        f"tools: {', '.join(map(_short, node.tools))}" if node.tools else "",
        node.detail,
    ]
    for note in filter(None, notes):
        line.append(f" · {note}", style="dim")
    return line


def _short(text: str) -> str:
    text = " ".join(visible(text).split())
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


class End(NamedTuple):
    """A loose end of a drawing: where work comes from or goes to, and the label of the arrow to be drawn there."""

    node: str
    label: str = ""


@dataclass
class Part:
    """A drawn piece: where work enters it and where it leaves."""

    entries: list[End]
    exits: list[End]


@dataclass
class _Page:
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    count: int = 0

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def box(self, label: str, shape: str = "[]") -> str:
        """Draw a node and return its id. Shapes: `[]` box, `{}` choice, `()` terminal, `/\\` vote, `||` own code."""
        self.count += 1
        node = f"n{self.count}"
        opening, closing = {"[]": "[]", "{}": "{}", "()": ("([", "])"), "||": ("[[", "]]"), "/\\": ("{{", "}}")}[shape]
        self.write(f'{node}{opening}"{label}"{closing}')
        return node

    def arrow(self, source: str, target: str, label: str = "", dashed: bool = False) -> None:
        line = "-.->" if dashed else "-->"
        self.write(f'{source} {line}|"{escape(label)}"| {target}' if label else f"{source} {line} {target}")

    def join(self, exits: Sequence[End], entries: Sequence[End]) -> None:
        for exit_ in exits:
            for entry in entries:
                self.arrow(exit_.node, entry.node, _both(exit_.label, entry.label))


def mermaid_text(graph: GraphNode) -> str:
    """A Mermaid flowchart of a graph, with its question and its answer."""
    page = _Page()
    page.lines.append("flowchart TD")
    question = page.box("question", "()")
    part = _draw(page, graph)
    answer = page.box("answer", "()")
    page.join([End(question)], part.entries)
    page.join(part.exits, [End(answer)])
    return "\n".join(page.lines) + "\n"


def escape(text: str) -> str:
    """Text for a quoted Mermaid label: everything that Mermaid or HTML might read becomes an entity."""
    return re.sub(r"[^\w .,:;()+=!?'/·…-]", lambda match: f"#{ord(match[0])};", _short(text))


def _label(node: GraphNode) -> str:
    """Name, then what is special about the node, in smaller lines."""
    kind = "" if node.kind == "AgentNode" else node.kind
    tools = f"tools: {', '.join(node.tools)}" if node.tools else ""
    return "<br/>".join(escape(line) for line in (node.name, kind, tools, node.detail) if line)


def _draw(page: _Page, node: GraphNode) -> Part:
    """Draw a node with all below it. A node that holds others becomes a frame around them."""
    if not node.children:
        box = page.box(_label(node), "[]" if node.base == "AgentNode" else "||")
        return Part([End(box)], [End(box)])
    page.count += 1
    title = " · ".join(filter(None, (f"{node.kind} {node.name}", node.detail)))
    page.write(f'subgraph n{page.count}["{escape(title)}"]')
    page.depth += 1
    part = _DRAWINGS.get(node.base, _own_code)(page, node)
    page.depth -= 1
    page.write("end")
    return part


def _chain(page: _Page, node: GraphNode) -> Part:
    entries: list[End] = []
    waiting: list[End] = []  # ends that lead to whatever comes next
    skipped = ""  # how work gets past all steps so far, where each of them has a condition
    always = False
    for child in node.children:
        part = _draw(page, child)
        condition = f"if {child.condition}" if child.condition else ""
        arrivals = [End(end.node, _both(condition, end.label)) for end in part.entries]
        page.join(waiting, arrivals)
        if not always:
            entries += [End(end.node, _both(skipped, end.label)) for end in arrivals]
        if child.condition:
            skipped = skipped or "else"
            waiting = [*part.exits, *map(_else, waiting)]
        else:
            always = True
            waiting = part.exits
    if node.base == "LoopWorkflow":
        page.join([End(end.node, f"again, {node.detail}") for end in waiting], entries)
    return Part(entries, waiting)


def _else(end: End) -> End:
    return end if end.label.endswith("else") else End(end.node, _both(end.label, "else"))


def _both(*labels: str) -> str:
    return "; ".join(filter(None, labels))


def _of_role(page: _Page, node: GraphNode, *roles: str) -> list[Part]:
    return [_draw(page, child) for child in node.children if child.role in roles]


def _entries(parts: Sequence[Part]) -> list[End]:
    return [end for part in parts for end in part.entries]


def _exits(parts: Sequence[Part]) -> list[End]:
    return [end for part in parts for end in part.exits]


def _ensemble(page: _Page, node: GraphNode) -> Part:
    members = _of_role(page, node, "member")
    judges = _of_role(page, node, "judge")
    if node.detail == "consensus":
        page.join(_exits(members), _entries(judges))
        return Part(_entries(members), _exits(judges))
    vote = page.box(escape(node.detail.partition(",")[0].replace("_", " ")), "/\\")
    page.join(_exits(members), [End(vote)])
    page.join([End(vote, "split")] if judges else [], _entries(judges))
    return Part(_entries(members), [End(vote, "agreed" if judges else ""), *_exits(judges)])


def _debate(page: _Page, node: GraphNode) -> Part:
    debaters = _of_role(page, node, "debater")
    judges = _of_role(page, node, "judge")
    if not judges:
        vote = page.box("majority of the last answers", "/\\")
        judges = [Part([End(vote)], [End(vote)])]
    if node.detail != "1 rounds":
        for left, right in _pairs(debaters):
            page.write(f'{left.exits[0].node} <-->|"{escape(node.detail)}"| {right.exits[0].node}')
    page.join(_exits(debaters), _entries(judges))
    return Part(_entries(debaters), _exits(judges))


def _pairs(parts: Sequence[Part]) -> Iterator[tuple[Part, Part]]:
    return ((left, right) for index, left in enumerate(parts) for right in parts[index + 1 :])


def _reflection(page: _Page, node: GraphNode) -> Part:
    solver, critic = node.children
    if node.detail == "at most 0 reviews":
        return _draw(page, solver)
    if critic.model_copy(update={"role": "solver"}) == solver:  # it reviews itself
        part = _draw(page, solver)
        page.join(part.exits, [End(end.node, f"reviews its own result, {node.detail}") for end in part.entries])
        return part
    solving, reviewing = _draw(page, solver), _draw(page, critic)
    page.join(solving.exits, [End(end.node, node.detail) for end in reviewing.entries])
    page.join(reviewing.exits, [End(end.node, "not yet correct") for end in solving.entries])
    accepted = [End(end.node, "correct") for end in reviewing.exits]
    return Part(solving.entries, [*accepted, *(End(end.node, "no reviews left") for end in solving.exits)])


def _router(page: _Page, node: GraphNode) -> Part:
    choice = page.box(escape(node.name), "{}")
    exits: list[End] = []
    for child in node.children:
        part = _draw(page, child)
        page.join([End(choice, child.condition)], part.entries)
        exits += part.exits
    return Part([End(choice)], exits)


def _graph(page: _Page, node: GraphNode) -> Part:
    parts = {child.place: _draw(page, child) for child in node.children}
    for name in sorted({name for edge in node.edges for name in (edge.source, edge.target)} - {"", *parts}):
        missing = End(page.box(_both(escape(name), "there is no such node"), "||"))
        parts[name] = Part([missing], [missing])
    entries: list[End] = []
    exits: list[End] = []
    for edge in _taken(node):
        if not edge.source:
            entries += parts[edge.target].entries
            continue
        leaving = [End(end.node, _both(end.label, edge.label)) for end in parts[edge.source].exits]
        if edge.target:
            page.join(leaving, parts[edge.target].entries)
        else:
            exits += leaving
    return Part(entries, exits)


def _own_code(page: _Page, node: GraphNode) -> Part:
    """A node whose own Python code decides which of the nodes that it holds it calls, and when."""
    box = page.box(_label(node), "||")
    for child in node.children:
        part = _draw(page, child)
        for entry in part.entries:
            page.arrow(box, entry.node, "may call", dashed=True)
    return Part([End(box)], [End(box)])


_DRAWINGS = {
    "Workflow": _chain,
    "ConditionalWorkflow": _chain,
    "LoopWorkflow": _chain,
    "AgentGraph": _graph,
    "EnsembleNode": _ensemble,
    "DebateNode": _debate,
    "ReflectionNode": _reflection,
    "RouterNode": _router,
}
