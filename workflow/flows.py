"""Workflows: how nodes are put in order. Chains, conditions, loops and graphs.

A workflow is itself a node, so workflows nest. Nothing here talks to a model or a sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from workflow.agent import Nodes, WorkflowNode
from workflow.bridge import as_steps, perform
from workflow.checks import contract, nearest
from workflow.failures import ContractError
from workflow.messages import Context, Message
from workflow.requests import NodeCall, Steps

Condition = Callable[[Context], Any]

NEXT_AGENT = "the next agent"
"""Who reads a result where only a condition on it decides who that is."""


class _Runnable(WorkflowNode):
    """What chains and graphs share: they run on a question."""

    def run(self, question: str, initial_state: dict[str, Any] | None = None) -> Message:
        """Run on a question and return the last message.

        Works inside a jailed program, inside any other run, and in plain Python once an engine is connected.
        """
        return perform(NodeCall(self, Context.for_question(question, initial_state)))


class Workflow(_Runnable):
    """A chain: each node sees the question and the deliveries of the nodes before it."""

    @contract
    def __init__(self, name: str = "workflow") -> None:
        super().__init__(name)
        self.nodes: list[WorkflowNode] = []

    @contract
    def add_node(self, node: WorkflowNode) -> Workflow:
        self.nodes.append(node)
        return self

    @contract
    def add_nodes(self, nodes: Nodes) -> Workflow:
        for node in nodes:
            self.add_node(node)
        return self

    def steps(self, context: Context) -> Steps:
        context = context.extended()
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
    def __init__(self, name: str = "conditional_workflow") -> None:
        super().__init__(name)
        self.conditions: list[Condition | None] = []

    @contract
    def add_node(self, node: WorkflowNode, condition: Callable[..., Any] | None = None) -> Workflow:
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
    def __init__(self, name: str = "loop_workflow", max_iterations: Annotated[int, Field(ge=1)] = 10) -> None:
        super().__init__(name)
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

    Nodes are named by their own name or given as objects. Every conditional edge of a node is tried before its
    plain edge, in the order in which they were added.
    """

    @contract
    def __init__(self, name: str = "agent_graph", max_steps: Annotated[int, Field(ge=1)] = 50) -> None:
        super().__init__(name)
        self.max_steps = max_steps
        self.nodes: dict[str, WorkflowNode] = {}
        self.edges: dict[str, str] = {}
        self.conditional_edges: dict[str, list[tuple[Condition, Mapping[Any, str]]]] = {}
        self.entry_point: str | None = None
        self.finish_points: set[str] = set()

    @contract
    def add_node(self, node: WorkflowNode) -> AgentGraph:
        if node.name in self.nodes:
            raise ContractError(f"AgentGraph {self.name!r}: there is a node {node.name!r} already; names must differ")
        self.nodes[node.name] = node
        return self

    @contract
    def add_edge(self, source: str | WorkflowNode, target: str | WorkflowNode) -> AgentGraph:
        source_name = _name_of(source)
        if source_name in self.edges:
            raise ContractError(
                f"AgentGraph {self.name!r}: {source_name!r} leads to {self.edges[source_name]!r} already; "
                "use add_conditional_edge for a choice"
            )
        self.edges[source_name] = _name_of(target)
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
        named = {key: _name_of(target) for key, target in choices.items()}
        test = condition if isinstance(targets, dict) else _truth_of(condition)
        self.conditional_edges.setdefault(_name_of(source), []).append((test, named))
        return self

    @contract
    def set_entry_point(self, node: str | WorkflowNode) -> AgentGraph:
        self.entry_point = _name_of(node)
        return self

    @contract
    def set_finish_point(self, node: str | WorkflowNode) -> AgentGraph:
        self.finish_points.add(_name_of(node))
        return self

    def steps(self, context: Context) -> Steps:
        self._check_names()
        context = context.extended()
        current = self.entry_point or next(iter(self.nodes))
        result: Message | None = None
        for _ in range(self.max_steps):
            leads_on = current not in self.finish_points and (
                current in self.edges or current in self.conditional_edges
            )
            reader = NEXT_AGENT if leads_on else ""
            message: Message = yield NodeCall(self.nodes[current], context.extended(reader=reader))
            context.add_message(message)
            result = message
            if current in self.finish_points:
                break
            following = yield from self._following(current, context)
            if following is None:
                break
            current = following
        return result

    def _following(self, current: str, context: Context) -> Steps:
        for condition, targets in self.conditional_edges.get(current, []):
            outcome = yield from as_steps(condition, context)
            if outcome in targets:
                return targets[outcome]
        return self.edges.get(current)

    def _check_names(self) -> None:
        if not self.nodes:
            raise ContractError(f"AgentGraph {self.name!r} has no nodes; add one with add_node(...)")
        used = {*self.edges, *self.edges.values(), *self.conditional_edges, *self.finish_points}
        used |= {target for edges in self.conditional_edges.values() for _, named in edges for target in named.values()}
        used |= {self.entry_point} if self.entry_point else set()
        for name in sorted(used - set(self.nodes)):
            hint = nearest(name, self.nodes)
            fix = f"did you mean {hint!r}?" if hint else f"nodes: {', '.join(self.nodes)}"
            raise ContractError(f"AgentGraph {self.name!r}: there is no node {name!r}; {fix}")


def _truth_of(condition: Condition) -> Condition:
    return lambda context: bool(condition(context))


def _name_of(node: str | WorkflowNode) -> str:
    return node if isinstance(node, str) else node.name


def create_simple_chain(nodes: Nodes, name: str = "simple_chain") -> Workflow:
    """A `Workflow` of the given nodes, in order."""
    return Workflow(name).add_nodes(nodes)
