"""The structure of workflows as plain data."""

import pytest

from workflow import (
    AgentGraph,
    AgentNode,
    ConditionalWorkflow,
    Context,
    DebateNode,
    EnsembleNode,
    LoopWorkflow,
    Message,
    ReflectionNode,
    RouterNode,
    ToolRegistry,
    Workflow,
    WorkflowNode,
)
from workflow.graph import GraphNode, describe, main_workflow, reachable, structure


class Poll(WorkflowNode):
    """A program's own node, which does as it likes with its agents."""

    def __init__(self, *agents: AgentNode) -> None:
        super().__init__("poll")
        self.agents = agents

    def process(self, context: Context) -> Message:
        raise NotImplementedError


class Chatty(AgentNode):
    """Runs as its base does."""


class Judges(EnsembleNode):
    """Runs as its base does."""


def agent(name: str) -> AgentNode:
    return AgentNode(name, "p")


def outline(graph: GraphNode) -> list[tuple[str, str, str]]:
    return [(node.role, node.kind, node.name) for node in graph.walk()]


def test_every_kind_of_node_shows_what_it_is_made_of() -> None:
    tools = ToolRegistry()
    tools.register("run", print)
    solver = AgentNode("S", "p", tools, max_turns=4)
    chain = Workflow("w").add_nodes(
        [
            EnsembleNode("e", [agent("A"), agent("B")], "consensus", agent("J")),
            ReflectionNode("r", solver, 3, critic_agent=agent("C")),
            DebateNode("d", [agent("X"), agent("Y")], agent("K")),
            RouterNode("o", {"m": agent("M"), "n": agent("N")}, lambda c: "m", "n"),
            LoopWorkflow("l", 7).add_node(agent("L")),
        ]
    )
    graph = describe(chain)
    assert outline(graph) == [
        ("step", "Workflow", "w"),
        ("step", "EnsembleNode", "e"),
        ("member", "AgentNode", "A"),
        ("member", "AgentNode", "B"),
        ("judge", "AgentNode", "J"),
        ("step", "ReflectionNode", "r"),
        ("solver", "AgentNode", "S"),
        ("critic", "AgentNode", "C"),
        ("step", "DebateNode", "d"),
        ("debater", "AgentNode", "X"),
        ("debater", "AgentNode", "Y"),
        ("judge", "AgentNode", "K"),
        ("step", "RouterNode", "o"),
        ("route", "AgentNode", "M"),
        ("route", "AgentNode", "N"),
        ("step", "LoopWorkflow", "l"),
        ("step", "AgentNode", "L"),
    ]
    details = {node.name: node.detail for node in graph.walk() if node.detail}
    assert details == {
        "e": "consensus",
        "r": "at most 3 reviews",
        "S": "max 4 turns",
        "d": "2 rounds",
        "o": "default n",
        "l": "at most 7 passes",
    }
    assert {node.name: node.condition for node in graph.walk() if node.condition} == {"M": "m", "N": "n"}
    assert [node.tools for node in graph.walk() if node.name == "S"] == [["run"]]
    assert GraphNode.model_validate_json(graph.model_dump_json()) == graph


def test_graphs_show_their_edges_and_conditional_steps_say_so() -> None:
    graph = AgentGraph("g", 9).add_node(agent("A")).add_node(agent("B"))
    graph.add_edge("A", "B").add_conditional_edge("B", lambda c: "x", {"again": "A"})
    graph.add_conditional_edge("B", lambda c: True, "A").set_finish_point("B")
    shown = describe(graph)
    assert [(edge.source, edge.target, edge.label) for edge in shown.edges] == [
        ("", "A", ""),
        ("A", "B", ""),
        ("B", "A", "again"),
        ("B", "A", "True"),
        ("B", "", ""),
    ]

    def is_long(context: Context) -> bool:
        return True

    conditional = ConditionalWorkflow()
    conditional.add_node(agent("A"))
    conditional.add_node(agent("B"), is_long)
    conditional.add_node(agent("C"), lambda context: True)
    assert [child.condition for child in describe(conditional).children] == ["", "is_long", "condition"]


def test_own_nodes_own_what_they_hold_and_cycles_are_cut() -> None:
    class Own(WorkflowNode):
        def __init__(self, *parts: WorkflowNode) -> None:
            super().__init__("own")
            self.first, self.rest, self.named = parts[0], list(parts[1:-1]), {"last": parts[-1]}

        def process(self, context: Context) -> Message:
            return Message("x")

    node = Own(agent("A"), agent("B"), agent("C"))
    assert [child.name for child in describe(node).children] == ["A", "B", "C"]
    assert (describe(node).kind, describe(node).base) == ("Own", "WorkflowNode")

    class Careful(AgentNode):
        pass

    assert (describe(Careful("c", "p")).kind, describe(Careful("c", "p")).base) == ("Careful", "AgentNode")
    loop = Workflow("loop")
    loop.add_node(loop)
    assert [child.detail for child in describe(loop).children] == ["(itself again)"]
    assert reachable([loop]) == {id(loop)}
    assert reachable([node]) == {id(node), *(id(part) for part in (node.first, *node.rest, *node.named.values()))}


def test_the_workflow_that_a_program_means() -> None:
    one, two, flow, graph = agent("1"), agent("2"), Workflow("f"), AgentGraph("g")
    assert main_workflow({"workflow": flow, "later": graph}) is flow
    assert main_workflow({"flow": flow, "graph": graph, "one": one}) is graph
    assert main_workflow({"one": one, "two": two}) is two
    assert main_workflow({"workflow": "text", "one": one}) is one
    assert main_workflow({"x": 1}) is None


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (Workflow().add_node(agent("A")), "single"),
        (Workflow().add_nodes([agent("A"), agent("B")]), "pipeline"),
        (EnsembleNode("e", [agent("A")]), "ensemble"),
        (ReflectionNode("r", EnsembleNode("e", [agent("A")])), "reflection"),
        (DebateNode("d", [agent("A"), agent("B")]), "debate"),
        (RouterNode("r", {"a": agent("A")}, lambda c: "a"), "router"),
        (AgentGraph("g").add_node(agent("A")), "graph"),
        (Workflow().add_nodes([agent("A"), LoopWorkflow("l").add_node(agent("B"))]), "loop"),
        (ConditionalWorkflow("c").add_node(agent("A")), "conditional"),
        (AgentGraph("g").add_node(RouterNode("r", {"a": agent("A")}, lambda c: "a")), "router"),
        (Poll(agent("A")), "single"),
        (Poll(agent("A"), agent("B")), "other"),
        (Workflow().add_nodes([agent("A"), Poll(), agent("B")]), "pipeline"),
        (Workflow(), "other"),
        (Chatty("A", "p"), "single"),
        (Judges("e", [agent("A"), agent("B")]), "ensemble"),
    ],
)
def test_structure(node: WorkflowNode, name: str) -> None:
    assert structure(describe(node)) == name


def test_prompts_are_told_apart_byte_for_byte() -> None:
    prompts = ["p", "p", "p ", "", "\ud800"]
    nodes = describe(Workflow().add_nodes([AgentNode(f"A{n}", prompt) for n, prompt in enumerate(prompts)])).children
    assert nodes[0].prompt == nodes[1].prompt
    assert len({node.prompt for node in nodes}) == 4
    assert describe(Workflow()).prompt == ""
