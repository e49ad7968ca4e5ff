"""Drawings say what the graph says: golden Mermaid for every kind of node, and text that no name can break."""

import re
from collections.abc import Callable
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from metaagent.terminal.workflow_diagram import mermaid_text, tree
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
    create_simple_chain,
)
from workflow.graph import GraphNode, describe, whole
from workflow.labels import label_problem


def agent(name: str) -> AgentNode:
    return AgentNode(name, "prompt", max_turns=1)


def hard(context: Context) -> bool:
    return True


class Own(WorkflowNode):
    def __init__(self, name: str, first: AgentNode, second: AgentNode) -> None:
        super().__init__(name)
        self.first, self.rest = first, [second]

    def process(self, context: Context) -> Message:
        return self.first.process(context)


class OwnLoop(LoopWorkflow):
    """A program's own class that still runs as the contract's."""


def with_tools() -> AgentNode:
    tools = ToolRegistry()
    tools.register("run_code", lambda code: "")
    return AgentNode("Solver", "prompt", tool_registry=tools, max_turns=4)


def graph() -> AgentGraph:
    built = AgentGraph("G")
    for name in "abc":
        built.add_node(agent(name))
    built.add_edge("a", "b").add_edge("c", "a").set_finish_point("c")
    return built.add_conditional_edge("b", lambda context: "ok", {"ok": "c", "again": "a"})


# What stands between the question n1 and the answer, which is the last node.
GOLDEN: list[tuple[str, Callable[[], WorkflowNode], str]] = [
    ("agent", lambda: agent("A"), 'n2["A"] | n3(["answer"]) | n1 --> n2 | n2 --> n3'),
    (
        "agent with tools",
        with_tools,
        'n2["Solver<br/>tools: run_code<br/>max 4 turns"] | n3(["answer"]) | n1 --> n2 | n2 --> n3',
    ),
    (
        "chain",
        lambda: create_simple_chain([agent("a"), agent("b")], "C"),
        'subgraph n2["Workflow C"] | n3["a"] | n4["b"] | n3 --> n4 | end | n5(["answer"]) | n1 --> n3 | n4 --> n5',
    ),
    (
        "conditional",
        lambda: ConditionalWorkflow("C").add_nodes([agent("a")]).add_node(agent("b"), hard),  # type: ignore[call-arg]
        'subgraph n2["ConditionalWorkflow C"] | n3["a"] | n4["b"] | n3 -->|"if hard"| n4 | end | n5(["answer"]) | '
        'n1 --> n3 | n4 --> n5 | n3 -->|"else"| n5',
    ),
    (
        "loop",
        lambda: OwnLoop("L", max_iterations=3).add_nodes([agent("a"), agent("b")]),
        'subgraph n2["OwnLoop L · at most 3 passes"] | n3["a"] | n4["b"] | n3 --> n4 | '
        'n4 -->|"again, at most 3 passes"| n3 | end | n5(["answer"]) | n1 --> n3 | n4 --> n5',
    ),
    (
        "vote",
        lambda: EnsembleNode("E", [agent("a"), agent("b")]),
        'subgraph n2["EnsembleNode E · majority_vote"] | n3["a"] | n4["b"] | n5{{"majority vote"}} | n3 --> n5 | '
        'n4 --> n5 | end | n6(["answer"]) | n1 --> n3 | n1 --> n4 | n5 --> n6',
    ),
    (
        "judge of split votes",
        lambda: EnsembleNode("E", [agent("a"), agent("b")], consensus_agent=agent("J")),
        'subgraph n2["EnsembleNode E · majority_vote, judge where votes are split"] | n3["a"] | n4["b"] | n5["J"] | '
        'n6{{"majority vote"}} | n3 --> n6 | n4 --> n6 | n6 -->|"split"| n5 | end | '
        'n7(["answer"]) | n1 --> n3 | n1 --> n4 | n6 -->|"agreed"| n7 | n5 --> n7',
    ),
    (
        "judge",
        lambda: EnsembleNode("E", [agent("a"), agent("b")], strategy="consensus", consensus_agent=agent("J")),
        'subgraph n2["EnsembleNode E · consensus"] | n3["a"] | n4["b"] | n5["J"] | n3 --> n5 | n4 --> n5 | end | '
        'n6(["answer"]) | n1 --> n3 | n1 --> n4 | n5 --> n6',
    ),
    (
        "reflection",
        lambda: ReflectionNode("R", agent("S"), critic_agent=agent("C")),
        'subgraph n2["ReflectionNode R · at most 2 reviews"] | n3["S"] | n4["C"] | n3 -->|"at most 2 reviews"| n4 | '
        'n4 -->|"not yet correct"| n3 | end | n5(["answer"]) | n1 --> n3 | n4 -->|"correct"| n5 | '
        'n3 -->|"no reviews left"| n5',
    ),
    (
        "reflection on itself",
        lambda: ReflectionNode("R", agent("S")),
        'subgraph n2["ReflectionNode R · at most 2 reviews"] | n3["S"] | '
        'n3 -->|"reviews its own result, at most 2 reviews"| n3 | end | n4(["answer"]) | n1 --> n3 | n3 --> n4',
    ),
    (
        "reflection without reviews",
        lambda: ReflectionNode("R", agent("S"), num_iterations=0, critic_agent=agent("C")),
        'subgraph n2["ReflectionNode R · at most 0 reviews"] | n3["S"] | end | n4(["answer"]) | n1 --> n3 | n3 --> n4',
    ),
    (
        "debate",
        lambda: DebateNode("D", [agent("a"), agent("b")], judge=agent("J")),
        'subgraph n2["DebateNode D · 2 rounds"] | n3["a"] | n4["b"] | n5["J"] | n3 <-->|"2 rounds"| n4 | n3 --> n5 | '
        'n4 --> n5 | end | n6(["answer"]) | n1 --> n3 | n1 --> n4 | n5 --> n6',
    ),
    (
        "debate of one round",
        lambda: DebateNode("D", [agent("a"), agent("b")], num_rounds=1),
        'subgraph n2["DebateNode D · 1 rounds"] | n3["a"] | n4["b"] | n5{{"majority of the last answers"}} | '
        'n3 --> n5 | n4 --> n5 | end | n6(["answer"]) | n1 --> n3 | n1 --> n4 | n5 --> n6',
    ),
    (
        "router",
        lambda: RouterNode("R", {"math": agent("a"), "code": agent("b")}, lambda context: "math", "code"),
        'subgraph n2["RouterNode R · default code"] | n3{"R"} | n4["a"] | n3 -->|"math"| n4 | n5["b"] | '
        'n3 -->|"code"| n5 | end | n6(["answer"]) | n1 --> n3 | n4 --> n6 | n5 --> n6',
    ),
    (
        # b is left by its conditions, or ends the run where none of them holds; nothing leaves the finish point c.
        "graph",
        graph,
        'subgraph n2["AgentGraph G · at most 50 steps"] | n3["a"] | n4["b"] | n5["c"] | n3 --> n4 | n4 -->|"ok"| n5 | '
        'n4 -->|"again"| n3 | end | n6(["answer"]) | n1 --> n3 | n5 --> n6 | n4 -->|"else"| n6',
    ),
    (
        "node of the program's own",
        lambda: Own("O", agent("a"), agent("b")),
        'subgraph n2["Own O"] | n3[["O<br/>Own"]] | n4["a"] | n3 -.->|"may call"| n4 | n5["b"] | '
        'n3 -.->|"may call"| n5 | end | n6(["answer"]) | n1 --> n3 | n3 --> n6',
    ),
]


@pytest.mark.parametrize(("build", "expected"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN])
def test_mermaid_of_each_kind_of_node(build: Callable[[], WorkflowNode], expected: str) -> None:
    lines = [line.strip() for line in mermaid_text(describe(build())).splitlines()]
    assert lines[:2] == ["flowchart TD", 'n1(["question"])']
    assert " | ".join(lines[2:]) == expected


BOX = re.compile(r'(n\d+)(?:\["[^"\n]*"\]|\{"[^"\n]*"\}|\(\["[^"\n]*"\]\)|\[\["[^"\n]*"\]\]|\{\{"[^"\n]*"\}\})')
FRAME = re.compile(r'subgraph (n\d+)\["[^"\n]*"\]')
ARROW = re.compile(r'(n\d+) (?:-->|-\.->|<-->)(?:\|"[^"\n]*"\|)? (n\d+)')
LABEL = re.compile(r'"([^"\n]*)"')


def assert_valid(text: str) -> None:
    """Every line is of a form that Mermaid reads, frames close, arrows lead from box to box, labels are tame."""
    first, *lines = text.splitlines()
    assert first == "flowchart TD"
    boxes: list[str] = []
    arrows: list[tuple[str, str]] = []
    depth = 0
    for line in map(str.strip, lines):
        for label in LABEL.findall(line):
            assert not re.search(r"[`\\{}\[\]|$%&#<>]", re.sub(r"#\d+;|<br/>", "", label)), label
        if line == "end":
            depth -= 1
        elif FRAME.fullmatch(line):
            depth += 1
        elif found := BOX.fullmatch(line):
            boxes.append(found[1])
        elif found := ARROW.fullmatch(line):
            arrows.append((found[1], found[2]))
        else:
            raise AssertionError(f"not a line of Mermaid: {line!r}")
        assert depth >= 0
    assert depth == 0
    assert len(set(boxes)) == len(boxes)
    assert {end for arrow in arrows for end in arrow} <= set(boxes)
    reached = {boxes[0]}
    for _ in arrows:
        reached |= {target for source, target in arrows if source in reached}
    assert boxes[-1] in reached, "no way leads from the question to the answer"


names = st.text(min_size=1, max_size=12).filter(lambda name: label_problem(name) is None)
leaves = st.builds(agent, names)


def composed(inner: st.SearchStrategy[WorkflowNode]) -> st.SearchStrategy[WorkflowNode]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(lambda name, nodes: create_simple_chain(nodes, name), names, several),
        st.builds(lambda name, nodes: LoopWorkflow(name).add_nodes(nodes), names, several),
        st.builds(lambda name, node: ConditionalWorkflow(name).add_nodes([node]), names, inner),
        st.builds(EnsembleNode, names, several),
        st.builds(DebateNode, names, several),
        st.builds(lambda name, nodes: ReflectionNode(name, nodes[0], critic_agent=nodes[1]), names, several),
        st.builds(
            lambda name, routes: RouterNode(name, routes, hard), names, st.dictionaries(names, inner, min_size=1)
        ),
        st.builds(lambda name, node: AgentGraph(name).add_node(node), names, inner),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(leaves, composed, max_leaves=8))
def test_no_workflow_and_no_name_breaks_the_drawing(node: WorkflowNode) -> None:
    assert_valid(mermaid_text(describe(node)))


def test_names_are_escaped() -> None:
    node = agent("a")
    node.name = 'a"] --> n9;\n%%{init}%% <b>&#x `z` \x1b[31m\u202e'  # past the contract's check
    text = mermaid_text(describe(node))
    assert 'n2["a#34;#93; --#62; n9; #37;#37;#123;init#125;#37;#37; #60;b#62;#38;#35;x #96;z#96; #92;x1b#91;31m' in text
    assert "\u202e" not in text
    assert_valid(text)


def test_an_edge_to_a_node_that_is_not_there_is_shown_as_such() -> None:
    text = mermaid_text(describe(AgentGraph("G").add_node(agent("a")).add_edge("a", "nowhere")))
    assert 'n4[["nowhere; there is no such node"]]' in text
    assert "n3 --> n4" in text
    assert "n4 -->" not in text


def drawn(graph: GraphNode, unreachable: tuple[str, ...] = ()) -> list[str]:
    console = Console(file=StringIO(), width=200)
    console.print(tree(graph, unreachable))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().rstrip("\n").split("\n")


def test_tree_names_kind_role_tools_and_detail() -> None:
    chain = Workflow("w").add_node(EnsembleNode("E", [with_tools()], strategy="consensus", consensus_agent=agent("J")))
    chain.add_node(RouterNode("R", {"x": agent("a")}, hard, "x"))
    chain.add_node(graph())
    assert drawn(describe(chain), ("Lost", "Found")) == [
        "Workflow w",
        "├── EnsembleNode E · consensus",
        "│   ├── member AgentNode Solver · tools: run_code · max 4 turns",
        "│   └── judge AgentNode J",
        "├── RouterNode R · default x",
        "│   └── route AgentNode a · if x",
        "├── AgentGraph G · at most 50 steps",
        "│   ├── AgentNode a",
        "│   ├── AgentNode b",
        "│   ├── AgentNode c",
        "│   └── start → a; a → b; b → c (ok); b → a (again); c → end; b → end (else)",
        "└── not part of the workflow: Lost, Found",
    ]


def test_a_program_that_runs_two_workflows_is_drawn_with_both() -> None:
    flows = [Workflow("first").add_node(agent("a")), Workflow("second").add_node(agent("b"))]
    graph = whole([*flows, Workflow("second").add_node(agent("b"))])
    assert graph is not None
    text = mermaid_text(graph)
    assert all(name in text for name in ("first", "second", "runs 2 workflows itself", '-.->|"may call"|'))
    assert whole([]) is None
    assert whole(flows[:1]) == describe(flows[0])


def test_nodes_of_a_graph_are_drawn_under_their_names_there() -> None:
    same = agent("a")
    graph = AgentGraph("G").add_node("one", same).add_node("two", same).add_edge("one", "two")
    assert mermaid_text(describe(graph)).count('["a"]') == 2
    assert "n3 --> n4" in mermaid_text(describe(graph))
