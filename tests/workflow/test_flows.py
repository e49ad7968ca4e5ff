"""Chains, conditions, loops and graphs, with canned replies."""

from typing import Any

import pytest
from canned import run

from workflow import AgentGraph, AgentNode, ConditionalWorkflow, Context, LoopWorkflow, Message, Workflow, WorkflowNode
from workflow.failures import ContractError, NoEngineConnected


def agent(name: str) -> AgentNode:
    return AgentNode(name, f"You are {name}.")


def says(context: Context, text: str) -> bool:
    latest = context.get_latest_message()
    return latest is not None and text in latest.content


class SetState(WorkflowNode):
    def process(self, context: Context) -> Message:
        context.set_state(self.name, context.get_state(self.name, 0) + 1)
        return Message(f"{self.name}={context.get_state(self.name)}", sender=self.name)


def test_each_node_of_a_chain_sees_the_question_and_what_came_before() -> None:
    chain = Workflow().add_nodes([agent("A"), agent("B"), agent("C")])
    outcome = run(chain, lambda call: f"<delivery>{call.agent}'s part</delivery>", "Q?")
    assert outcome.prompts("C") == ["Q?\n\n### From A\nA's part\n\n### From B\nB's part"]
    assert outcome.content == "<delivery>C's part</delivery>"


def test_run_inside_a_run_and_initial_state() -> None:
    chain = Workflow().add_nodes([SetState("count"), agent("A")])

    def program() -> Message:
        first = chain.run("Q1", {"count": 4})
        second = chain.run(f"{first.content}?", initial_state={"count": 6})
        return Message(f"{first.content} {second.content}")

    outcome = run(program, lambda call: call.messages[1]["content"].split("### From count\n")[1])
    assert outcome.content == "count=5 count=7"


def test_run_without_an_engine_says_how_to_connect_one() -> None:
    with pytest.raises(NoEngineConnected, match=r'import engine; engine.connect\("openai:'):
        Workflow().add_node(agent("A")).run("Q?")
    with pytest.raises(NoEngineConnected, match="metaagent run FILE"):
        agent("A").process(Context.for_question("Q?"))


@pytest.mark.parametrize("kind", [Workflow, ConditionalWorkflow, LoopWorkflow])
def test_an_empty_workflow_says_so(kind: type[Workflow]) -> None:
    outcome = run(kind("w"), {})
    assert isinstance(outcome.error, ContractError)
    assert f"{kind.__name__} 'w' ran no node; add one with add_node" in str(outcome.error)


def test_workflows_nest_and_leave_the_outer_context_alone() -> None:
    inner = Workflow("inner").add_nodes([agent("A"), agent("B")])
    outer = Workflow("outer").add_nodes([inner, agent("C")])
    outcome = run(outer, lambda call: f"{call.agent}!", "Q?")
    assert outcome.keys == ["inner/A#0", "inner/B#0", "C#0"]
    assert outcome.prompts("C") == ["Q?\n\n### From B\nB!"]
    for kind in (ConditionalWorkflow, AgentGraph):
        other = kind("outer")
        other.add_node(inner)
        other.add_node(agent("C"))
        if isinstance(other, AgentGraph):
            other.add_edge(inner, "C")
        assert run(other, lambda call: f"{call.agent}!", "Q?").prompts("C") == outcome.prompts("C")


def test_a_condition_may_ask_an_agent_and_skipping_everything_is_an_error() -> None:
    judge = agent("Judge")
    workflow = ConditionalWorkflow().add_node(agent("A"), lambda c: "yes" in judge.process(c).content)
    assert run(workflow, {"Judge": "yes", "A": "x"}).agents == ["Judge", "A"]
    outcome = run(workflow, {"Judge": "no"})
    assert "ran no node" in str(outcome.error)


def test_loop_without_a_condition_runs_max_iterations() -> None:
    loop = LoopWorkflow("l", max_iterations=3).add_node(SetState("n"))
    outcome = run(loop, {})
    assert outcome.content == "n=3"


def test_loop_condition_sees_state_and_iteration() -> None:
    seen: list[Any] = []

    def go_on(context: Context) -> bool:
        seen.append((context.get_state("iteration"), context.get_state("n")))
        return context.get_state("n") < 2

    loop = LoopWorkflow("l").set_loop_condition(go_on)
    loop.add_nodes([SetState("n"), agent("A")])
    outcome = run(loop, {"A": ["x", "y"]})
    assert seen == [(1, 1), (2, 2)]
    assert outcome.content == "y"
    assert "### From A\nx" in outcome.prompts("A")[1]


def test_graph_edges_conditions_and_finish() -> None:
    graph = AgentGraph("g", max_steps=10)
    for name in ("Write", "Test", "Publish"):
        graph.add_node(agent(name))
    graph.add_edge("Write", "Test").add_conditional_edge("Test", lambda c: says(c, "bad"), "Write")
    graph.add_edge("Test", "Publish").set_finish_point("Publish")
    replies = {"Write": ["v1", "v2"], "Test": ["bad", "good"], "Publish": "done"}
    outcome = run(graph, replies)
    assert outcome.agents == ["Write", "Test", "Write", "Test", "Publish"]
    assert outcome.content == "done"


def test_graph_choice_by_result_and_objects_for_names() -> None:
    start, left, right = agent("Start"), agent("Left"), agent("Right")
    graph = AgentGraph().add_node(left).add_node(right).add_node(start).set_entry_point(start)
    graph.add_conditional_edge(start, lambda c: "l" if says(c, "go left") else "r", {"l": left, "r": right})
    assert run(graph, {"Start": "go left", "Left": "x"}).agents == ["Start", "Left"]
    assert run(graph, {"Start": "go right", "Right": "x"}).agents == ["Start", "Right"]


def test_graph_conditional_edges_come_before_the_plain_one_in_order() -> None:
    graph = AgentGraph()
    for name in ("A", "B", "C", "D"):
        graph.add_node(agent(name))
    graph.add_edge("A", "D")
    graph.add_conditional_edge("A", lambda c: says(c, "b"), "B").add_conditional_edge("A", lambda c: True, {True: "C"})
    assert run(graph, {"A": "b", "B": "x"}).agents == ["A", "B"]
    assert run(graph, {"A": "x", "C": "x"}).agents == ["A", "C"]


def test_a_finish_point_ends_even_where_an_edge_leads_on() -> None:
    graph = AgentGraph().add_node(agent("A")).add_node(agent("B")).add_edge("A", "B").set_finish_point("A")
    assert run(graph, {"A": "x"}).agents == ["A"]


def test_graph_stops_after_max_steps() -> None:
    graph = AgentGraph(max_steps=4).add_node(agent("A")).add_edge("A", "A")
    assert run(graph, {"A": ["1", "2", "3", "4"]}).content == "4"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda graph: graph.add_edge("Plan", "Don"), "there is no node 'Don'; did you mean 'Do'?"),
        (lambda graph: graph.add_edge("Zzz", "Do"), "there is no node 'Zzz'; nodes: Plan, Do"),
        (lambda graph: graph.set_entry_point("Pan"), "no node 'Pan'"),
        (lambda graph: graph.set_finish_point("Pan"), "no node 'Pan'"),
        (lambda graph: graph.add_conditional_edge("Plan", bool, {1: "Dx"}), "no node 'Dx'"),
    ],
)
def test_graph_names_that_are_no_nodes_are_named_before_anything_runs(build: Any, message: str) -> None:
    graph = AgentGraph("g").add_node(agent("Plan")).add_node(agent("Do"))
    build(graph)
    outcome = run(graph, {})
    assert isinstance(outcome.error, ContractError)
    assert message in str(outcome.error)


def test_a_graph_without_nodes_says_so() -> None:
    assert "AgentGraph 'g' has no nodes" in str(run(AgentGraph("g"), {}).error)


def test_errors_of_nodes_come_out_of_every_workflow() -> None:
    chain = Workflow().add_nodes([agent("A"), agent("B")])
    outcome = run(chain, {"A": ValueError("no luck")})
    assert repr(outcome.error) == "ValueError('no luck')"
    assert outcome.agents == ["A"]


def test_where_a_condition_decides_who_reads_a_result_a_delivery_is_asked_for_all_the_same() -> None:
    request = "Your result goes to the next agent."
    conditional = ConditionalWorkflow().add_node(agent("A")).add_node(agent("B"), lambda context: says(context, "A's"))
    outcome = run(conditional, lambda call: f"<delivery>{call.agent}'s part</delivery>", "Q?")
    assert [request in outcome.prompts(name)[0] for name in "AB"] == [True, False]

    graph = AgentGraph().add_node(agent("A")).add_node(agent("B")).add_edge("A", "B").set_finish_point("B")
    outcome = run(graph, lambda call: f"<delivery>{call.agent}'s part</delivery>", "Q?")
    assert [request in outcome.prompts(name)[0] for name in "AB"] == [True, False]
