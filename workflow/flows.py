"""Workflows: how nodes are put in order. Chains, conditions, loops and graphs.

A workflow is itself a node, so workflows nest. Nothing here talks to a model or a sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

from workflow.agent import Nodes, WorkflowNode, notes
from workflow.bridge import as_steps, perform
from workflow.checks import contract, nearest, other_names
from workflow.failures import ContractError
from workflow.labels import label_problem
from workflow.messages import Context, Message
from workflow.requests import NodeCall, Steps

Condition = Callable[[Context], Any]

NEXT_AGENT = "the next agent"
"""Who reads a result where only a condition on it decides who that is."""


class _Runnable(WorkflowNode):
    """What chains and graphs share: they run on a question, or on a context that there is already."""

    @other_names(input_message="question")
    @contract
    def run(self, question: str, initial_state: dict[str, Any] | None = None) -> Message:
        """Run on a question and return the last message.

        Works inside a jailed program, inside any other run, and in plain Python once an engine is connected.
        """
        return perform(NodeCall(self, Context.for_question(question, initial_state)))

    def run_with_context(self, context: Context) -> Message:
        """Run on a context that there is already, and add to it what each node says. Returns the last message."""
        if not isinstance(context, Context):
            raise ContractError(f"{type(self).__name__}.run_with_context: context must be a Context (got {context!r})")
        return perform(NodeCall(InContext(self), context))

    def steps(self, context: Context) -> Steps:
        return self._run_in(context.extended())

    def _run_in(self, context: Context) -> Steps:
        """Run on `context`, adding each node's message to it."""
        raise NotImplementedError
        yield


class InContext:
    """A workflow that works on the very context that it is given, not on a copy."""

    def __init__(self, flow: _Runnable) -> None:
        self.flow = flow
        self.name = flow.name

    def steps(self, context: Context) -> Steps:
        return self.flow._run_in(context)


class Workflow(_Runnable):
    """A chain: each node sees the question and the deliveries of the nodes before it."""

    @contract
    def __init__(self, name: str = "workflow", *, description: str = "", role: str = "") -> None:
        super().__init__(name, **notes(description, role))
        self.nodes: list[WorkflowNode] = []

    @contract
    def add_node(self, node: WorkflowNode) -> Workflow:
        """Add a node behind the others, and return the workflow, so that calls chain."""
        self.nodes.append(node)
        return self

    @contract
    def add_nodes(self, nodes: Nodes) -> Workflow:
        """Add several nodes, in their order."""
        for node in nodes:
            self.add_node(node)
        return self

    def _run_in(self, context: Context) -> Steps:
        result = yield from self._chain(context)
        if result is None:
            raise ContractError(f"{type(self).__name__} {self.name!r} ran no node; add one with add_node(...)")
        return result

    def _chain(self, context: Context) -> Steps:
        """Run the nodes in order on `context`, appending each message. Returns the last one, or None."""
        result: Message | None = None
        for index, node in enumerate(self.nodes):
            follower = self.nodes[index + 1].name if index + 1 < len(self.nodes) else ""
            message: Message = yield NodeCall(node, context.extended(reader=follower))
            context.add_message(message)
            result = message
        return result


class ConditionalWorkflow(Workflow):
    """A chain whose nodes may have a condition on the context; a node whose condition is false is skipped."""

    @contract
    def __init__(self, name: str = "conditional_workflow", *, description: str = "", role: str = "") -> None:
        super().__init__(name, **notes(description, role))
        self.conditions: list[Condition | None] = []

    @contract
    def add_node(self, node: WorkflowNode, condition: Callable[..., Any] | None = None) -> Workflow:
        """Add a node behind the others. `condition(context)` decides each time whether it runs; None: always."""
        self.nodes.append(node)
        self.conditions.append(condition)
        return self

    def _chain(self, context: Context) -> Steps:
        result: Message | None = None
        for index, (node, condition) in enumerate(zip(self.nodes, self.conditions, strict=True)):
            if condition is not None and not (yield from as_steps(condition, context)):
                continue
            # Who follows is not decided yet; if nobody does, the delivery is still a part of the answer's reply.
            reader = NEXT_AGENT if index + 1 < len(self.nodes) else ""
            message: Message = yield NodeCall(node, context.extended(reader=reader))
            context.add_message(message)
            result = message
        return result


class LoopWorkflow(Workflow):
    """A chain that repeats while its loop condition holds, at most `max_iterations` times.

    The condition sees the context after each pass; without one, the chain runs `max_iterations` times.
    """

    @contract
    def __init__(
        self,
        name: str = "loop_workflow",
        max_iterations: Annotated[int, Field(ge=1)] = 10,
        *,
        description: str = "",
        role: str = "",
    ) -> None:
        super().__init__(name, **notes(description, role))
        self.max_iterations = max_iterations
        self.loop_condition: Condition | None = None

    @contract
    def set_loop_condition(self, condition: Callable[..., Any]) -> LoopWorkflow:
        """`condition(context)` is true to go on and false to stop."""
        self.loop_condition = condition
        return self

    def _chain(self, context: Context) -> Steps:
        result: Message | None = None
        for iteration in range(self.max_iterations):
            context.set_state("iteration", iteration + 1)
            result = yield from super()._chain(context)
            if self.loop_condition and not (yield from as_steps(self.loop_condition, context)):
                break
        return result


class AgentGraph(_Runnable):
    """Nodes and edges. Starts at the entry point, follows edges, ends at a finish point, where no edge leads on,
    or after `max_steps` nodes.

    Nodes are named as `add_node` names them, else by their own name, or given as objects. Every conditional edge of a
    node is tried before its plain edge, in the order in which they were added.
    """

    @contract
    def __init__(
        self,
        name: str = "agent_graph",
        max_steps: Annotated[int, Field(ge=1)] = 50,
        *,
        description: str = "",
        role: str = "",
    ) -> None:
        super().__init__(name, **notes(description, role))
        self.max_steps = max_steps
        self.nodes: dict[str, WorkflowNode] = {}
        self.edges: dict[str, str] = {}
        self.conditional_edges: dict[str, list[tuple[Condition, Mapping[Any, str] | None]]] = {}
        self.entry_point: str | None = None
        self.finish_points: set[str] = set()

    @contract
    def add_node(self, name: str | WorkflowNode | None = None, node: WorkflowNode | None = None) -> AgentGraph:
        """Add a node, `add_node(node)` under its own name or `add_node(name, node)`, and return the graph."""
        if isinstance(name, WorkflowNode) and node is None:
            name, node = name.name, name
        if node is None or isinstance(name, WorkflowNode):
            raise ContractError(f"AgentGraph {self.name!r}: add_node needs add_node(node) or add_node(name, node)")
        name = node.name if name is None else name
        if problem := label_problem(name):
            raise ContractError(f"AgentGraph {self.name!r}: the name of a node {problem}")
        if name in self.nodes:
            raise ContractError(f"AgentGraph {self.name!r}: there is a node {name!r} already; names must differ")
        self.nodes[name] = node
        return self

    @contract
    def add_edge(
        self, source: str | WorkflowNode, target: str | WorkflowNode, condition: Callable[..., Any] | None = None
    ) -> AgentGraph:
        """Go from one node to another, always or when `condition(context)` is true; both are names or nodes."""
        if condition is not None:
            return self.add_conditional_edge(source, condition, target)
        source_name = self._name_of(source)
        if source_name in self.edges:
            raise ContractError(
                f"AgentGraph {self.name!r}: {source_name!r} leads to {self.edges[source_name]!r} already; "
                "use add_conditional_edge for a choice"
            )
        self.edges[source_name] = self._name_of(target)
        return self

    @contract
    def add_conditional_edge(
        self,
        source: str | WorkflowNode,
        condition: Callable[..., Any],
        targets: str | WorkflowNode | dict[Any, str | WorkflowNode],
    ) -> AgentGraph:
        """With one target: taken when `condition(context)` is true. With a dict: the target under its result."""
        choices = targets if isinstance(targets, dict) else {True: targets}
        named = {key: self._name_of(target) for key, target in choices.items()}
        test = condition if isinstance(targets, dict) else _truth_of(condition)
        self.conditional_edges.setdefault(self._name_of(source), []).append((test, named))
        return self

    @contract
    def add_conditional_edges(
        self,
        source: str | WorkflowNode,
        routing_func: Callable[..., Any],
        targets: dict[Any, str | WorkflowNode] | None = None,
    ) -> AgentGraph:
        """Go to the node that `routing_func(context)` names, or whose name stands under its result in `targets`.

        Where the result is no node, further edges are tried; where there are none, the graph ends.
        """
        if targets is not None:
            return self.add_conditional_edge(source, routing_func, targets)
        self.conditional_edges.setdefault(self._name_of(source), []).append((routing_func, None))
        return self

    @other_names(node_name="node")
    @contract
    def set_entry_point(self, node: str | WorkflowNode) -> AgentGraph:
        """The node to start with; without it the first that was added."""
        self.entry_point = self._name_of(node)
        return self

    @other_names(node_name="node")
    @contract
    def set_finish_point(self, node: str | WorkflowNode) -> AgentGraph:
        """A node after which the graph ends. There may be several."""
        self.finish_points.add(self._name_of(node))
        return self

    def _run_in(self, context: Context) -> Steps:
        self._check_names()
        current = self.entry_point or next(iter(self.nodes))
        result: Message | None = None
        for _ in range(self.max_steps):
            message: Message = yield NodeCall(self.nodes[current], context.extended(reader=self._reader(current)))
            context.add_message(message)
            result = message
            if current in self.finish_points:
                break
            following = yield from self._following(current, context)
            if following is None:
                break
            current = following
        return result

    def _reader(self, current: str) -> str:
        """Who reads the result of a node, as far as that is decided before it has run."""
        leads_on = current in self.edges or current in self.conditional_edges
        return NEXT_AGENT if leads_on and current not in self.finish_points else ""

    def _following(self, current: str, context: Context) -> Steps:
        for condition, targets in self.conditional_edges.get(current, []):
            outcome = yield from as_steps(condition, context)
            if targets is None:
                name = self._name_of(outcome) if isinstance(outcome, (str, WorkflowNode)) else ""
                if name in self.nodes:
                    return name
            elif outcome in targets:
                return targets[outcome]
        return self.edges.get(current)

    def _name_of(self, node: str | WorkflowNode) -> str:
        """The name in the graph of a node that is given as an object: where it has several, the first."""
        if isinstance(node, str):
            return node
        return next((name for name, known in self.nodes.items() if known is node), node.name)

    def _check_names(self) -> None:
        if not self.nodes:
            raise ContractError(f"AgentGraph {self.name!r} has no nodes; add one with add_node(...)")
        used = {*self.edges, *self.edges.values(), *self.conditional_edges, *self.finish_points}
        for edges in self.conditional_edges.values():
            used |= {target for _, named in edges for target in (named or {}).values()}
        used |= {self.entry_point} if self.entry_point else set()
        for name in sorted(used - set(self.nodes)):
            hint = nearest(name, self.nodes)
            fix = f"did you mean {hint!r}?" if hint else f"nodes: {', '.join(self.nodes)}"
            raise ContractError(f"AgentGraph {self.name!r}: there is no node {name!r}; {fix}")


def _truth_of(condition: Condition) -> Condition:
    return lambda context: bool(condition(context))


def create_simple_chain(
    *links: Any, nodes: Sequence[WorkflowNode | tuple[str, WorkflowNode]] | None = None, name: str = "simple_chain"
) -> Workflow | AgentGraph:
    """Nodes in order: `create_simple_chain(first, second)`, or one list of them, makes a `Workflow`. Of
    `("name", node)` pairs it makes an `AgentGraph`, as the published function does."""
    if len(links) == 2 and isinstance(links[1], str):  # a list and a name, both by position
        links, name = links[:1], links[1]
    if nodes is not None:
        links = tuple(nodes)
    elif len(links) == 1 and isinstance(links[0], (list, tuple)) and not is_pair(links[0]):
        links = tuple(links[0])
    if all(isinstance(link, WorkflowNode) for link in links):
        return Workflow(name).add_nodes(links)
    wrong = next((link for link in links if not is_pair(link)), None)
    if wrong is not None:
        raise ContractError(f"create_simple_chain: give nodes, or (name, node) pairs, and nothing else (got {wrong!r})")
    graph = AgentGraph(name)
    for key, node in links:
        graph.add_node(key, node)
    for (source, _), (target, _) in pairwise(links):
        graph.add_edge(source, target)
    return graph.set_entry_point(links[0][0]).set_finish_point(links[-1][0])


def is_pair(link: object) -> bool:
    """Whether this is a (name, node) pair."""
    return isinstance(link, (tuple, list)) and len(link) == 2 and isinstance(link[0], str)
