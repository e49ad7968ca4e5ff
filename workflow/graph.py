"""The structure of a workflow as plain data, for `show`, for statistics and for finding unreachable nodes.

Describes what was built; it runs nothing and draws nothing. `AgentGraph` and `create_simple_chain`, which the published
contract has in a module of this name, are defined in `workflow.flows`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel

from workflow.flows import AgentGraph, ConditionalWorkflow, LoopWorkflow, Workflow
from workflow.flows import create_simple_chain as create_simple_chain  # the published contract has it in this module
from workflow.nodes import AgentNode, DebateNode, EnsembleNode, ReflectionNode, RouterNode, WorkflowNode

_CONTRACT_CLASSES = (
    *(AgentNode, EnsembleNode, ReflectionNode, DebateNode, RouterNode, WorkflowNode),
    *(Workflow, ConditionalWorkflow, LoopWorkflow, AgentGraph),
)

Role = Literal["step", "member", "judge", "solver", "critic", "debater", "route", "node"]


class GraphEdge(BaseModel):
    """A directed edge between two children of an `AgentGraph`, by name; `label` is its condition's result.

    An empty source marks the entry point, an empty target a finish point.
    """

    source: str
    target: str
    label: str = ""


class GraphNode(BaseModel):
    """One node and what it is made of."""

    kind: str
    """Class name, such as `EnsembleNode`; a program's own subclass keeps its own name."""
    base: str = "WorkflowNode"
    """Class of the contract that says how it runs; `WorkflowNode` for one with a `process` of its own."""
    name: str
    role: Role = "step"
    """What it does for its parent."""
    condition: str = ""
    """When its parent runs it, empty for always: the route's key, or the name of the condition."""
    detail: str = ""
    key: str = ""
    """Its name in the `AgentGraph` that it stands in, where that is another one than its own; edges name this."""
    prompt: str = ""
    """Of an agent, a digest of its system prompt: equal where two prompts are equal byte for byte."""
    tools: list[str] = []
    children: list[GraphNode] = []
    edges: list[GraphEdge] = []

    @property
    def place(self) -> str:
        """The name under which the edges of a graph know it."""
        return self.key or self.name

    def walk(self) -> list[GraphNode]:
        """This node and all below it, parents first."""
        return [self, *(below for child in self.children for below in child.walk())]


def children_of(node: WorkflowNode) -> list[tuple[Role, WorkflowNode]]:
    """The nodes that a node is made of, with their roles. A program's own node owns what it holds as attributes."""
    if isinstance(node, EnsembleNode):
        members: list[tuple[Role, WorkflowNode]] = [("member", agent) for agent in node.agents]
        judge = None if node.strategy == "weighted_vote" else node.consensus_agent
        return [*members, ("judge", judge)] if judge else members
    if isinstance(node, ReflectionNode):
        return [("solver", node.agent), ("critic", node.critic_agent or node.agent)]
    if isinstance(node, DebateNode):
        debaters: list[tuple[Role, WorkflowNode]] = [("debater", debater) for debater in node.debaters]
        return [*debaters, ("judge", node.judge)] if node.judge else debaters
    if isinstance(node, RouterNode):
        return [("route", route) for route in node.routes.values()]
    if isinstance(node, AgentGraph):
        return [("node", child) for child in node.nodes.values()]
    if isinstance(node, Workflow):
        return [("step", child) for child in node.nodes]
    return [("node", child) for child in nodes_in(vars(node).values())]


def nodes_in(values: Iterable[object]) -> list[WorkflowNode]:
    """All nodes among some values, those in lists, tuples and dicts included."""
    found: list[WorkflowNode] = []
    for value in values:
        if isinstance(value, WorkflowNode):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, WorkflowNode)]
        elif isinstance(value, dict):
            found += [item for item in value.values() if isinstance(item, WorkflowNode)]
    return found


def reachable(roots: Iterable[WorkflowNode]) -> set[int]:
    """Identities (`id`) of all nodes at or below the roots."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += [child for _, child in children_of(node)]
    return seen


def describe(node: WorkflowNode, role: Role = "step", _above: tuple[int, ...] = ()) -> GraphNode:
    """The graph below `node`. A node that is used in two places appears in both; one inside itself is cut short."""
    graph = GraphNode(kind=type(node).__name__, base=_base(node), name=node.name, role=role, detail=_detail(node))
    if isinstance(node, AgentNode):
        graph.prompt = prompt_digest(node.system_prompt)
        graph.tools = node.tool_registry.list_tools() if node.tool_registry else []
    if id(node) in _above:
        graph.detail = "(itself again)"
        return graph
    graph.children = [describe(child, its_role, (*_above, id(node))) for its_role, child in children_of(node)]
    if isinstance(node, RouterNode):
        for child, key in zip(graph.children, node.routes, strict=True):
            child.condition = str(key)
    elif isinstance(node, ConditionalWorkflow):
        for child, condition in zip(graph.children, node.conditions, strict=True):
            child.condition = _name_of(condition) if condition else ""
    elif isinstance(node, AgentGraph):
        for child, key in zip(graph.children, node.nodes, strict=True):
            child.key = key if key != child.name else ""
        graph.edges = _edges(node)
    return graph


def _edges(graph: AgentGraph) -> list[GraphEdge]:
    entry = graph.entry_point or next(iter(graph.nodes), "")
    edges = [GraphEdge(source="", target=entry)] if entry else []
    edges += [GraphEdge(source=source, target=target) for source, target in graph.edges.items()]
    for source, choices in graph.conditional_edges.items():
        for condition, targets in choices:
            if targets is None:  # the function may name any node
                labelled = [(f"{_name_of(condition)} names it", name) for name in graph.nodes]
            else:
                labelled = [(str(key), name) for key, name in targets.items()]
            edges += [GraphEdge(source=source, target=name, label=label) for label, name in labelled]
    return edges + [GraphEdge(source=name, target="") for name in sorted(graph.finish_points)]


def whole(flows: Sequence[WorkflowNode]) -> GraphNode | None:
    """The graph of a program that runs these itself, in this order; None if it runs none. Those that are built alike
    are shown once. Several become the children of one node that stands for the program's own code."""
    graphs: list[GraphNode] = []
    for flow in flows:
        graph = describe(flow)
        if graph not in graphs:
            graphs.append(graph)
    if len(graphs) < 2:
        return graphs[0] if graphs else None
    return GraphNode(kind="Program", name="program", detail=f"runs {len(graphs)} workflows itself", children=graphs)


def _detail(node: WorkflowNode) -> str:
    if isinstance(node, AgentNode):
        return f"max {node.max_turns} turns" if node.tool_registry and node.tool_registry.list_tools() else ""
    if isinstance(node, EnsembleNode):
        split = node.strategy == "majority_vote" and node.consensus_agent is not None
        return f"{node.strategy}, judge where votes are split" if split else node.strategy
    if isinstance(node, ReflectionNode):
        return f"at most {node.num_iterations} reviews"
    if isinstance(node, DebateNode):
        return f"{node.num_rounds} rounds"
    if isinstance(node, RouterNode):
        return f"default {node.default_route}"
    if isinstance(node, AgentGraph):
        return f"at most {node.max_steps} steps"
    if isinstance(node, LoopWorkflow):
        return f"at most {node.max_iterations} passes"
    return ""


def _base(node: WorkflowNode) -> str:
    if type(node).process is not WorkflowNode.process:
        return WorkflowNode.__name__
    return next(kind.__name__ for kind in type(node).__mro__ if kind in _CONTRACT_CLASSES)


def _name_of(condition: object) -> str:
    name = getattr(condition, "__name__", None)
    return name if isinstance(name, str) and name != "<lambda>" else "condition"


def main_workflow(values: dict[str, object]) -> WorkflowNode | None:
    """The workflow that a program means when it only defines one: `workflow` if so named, else the last workflow
    defined, else the last node. `values` are the program's global variables in order of definition."""
    named = values.get("workflow")
    if isinstance(named, WorkflowNode):
        return named
    nodes = [value for value in values.values() if isinstance(value, WorkflowNode)]
    flows = [node for node in nodes if isinstance(node, (Workflow, AgentGraph))]
    return (flows or nodes or [None])[-1]


def prompt_digest(prompt: str) -> str:
    """A short name for a system prompt."""
    return hashlib.blake2b(prompt.encode(errors="backslashreplace"), digest_size=8).hexdigest()


Structure = Literal[
    "single", "reflection", "ensemble", "debate", "router", "graph", "loop", "conditional", "pipeline", "other"
]

_TELLING: dict[str, Structure] = {
    "ReflectionNode": "reflection",
    "EnsembleNode": "ensemble",
    "DebateNode": "debate",
    "RouterNode": "router",
    "AgentGraph": "graph",
    "LoopWorkflow": "loop",
    "ConditionalWorkflow": "conditional",
}


def structure(graph: GraphNode) -> Structure:
    """Name of a workflow's structure, as counted in MetaAgent-X Table 6 (which names single, reflection, ensemble).

    The first of reflection, ensemble, debate, router, graph, loop, conditional that occurs anywhere in it. Without any
    of these, one agent is `single`, and several in a chain are a `pipeline`; what a program's own node does with
    several agents is `other`, and so is a workflow without agents.
    """
    nodes = graph.walk()
    bases = {node.base for node in nodes}
    for base, name in _TELLING.items():
        if base in bases:
            return name
    agents = [node for node in nodes if node.base == "AgentNode"]
    if len(agents) == 1:
        return "single"
    own = any(node.base == "WorkflowNode" and node.children for node in nodes)
    return "pipeline" if agents and not own else "other"
