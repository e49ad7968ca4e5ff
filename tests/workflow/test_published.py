"""The published contract, name by name: what its public classes offer, and what becomes of it here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from canned import run

import workflow
from workflow import (
    AgentGraph,
    AgentNode,
    ConditionalWorkflow,
    Context,
    DebateNode,
    EnsembleNode,
    LoopWorkflow,
    Message,
    MessageType,
    ReflectionNode,
    RouterNode,
    ToolRegistry,
    Workflow,
    WorkflowNode,
    create_simple_chain,
)
from workflow.checks import IGNORED_ARGUMENTS, other_names_of
from workflow.completion import Sampling
from workflow.failures import ContractError
from workflow.graph import describe
from workflow.published import MODULES

OFFERED: dict[Any, dict[str, str]] = {
    Message: {
        "__init__": "content message_type metadata sender recipient",
        "to_dict": "",
        "from_dict": "data",
    },
    Context: {
        "__init__": "messages state metadata",
        "add_message": "message",
        "get_messages_by_type": "message_type",
        "get_latest_message": "message_type",
        "set_state": "key value",
        "get_state": "key default",
    },
    WorkflowNode: {"__init__": "name", "process": "context", "__call__": "context"},
    ToolRegistry: {
        "__init__": "",
        "register": "name func description parameters",
        "get_tool": "name",
        "list_tools": "",
        "get_tool_schemas": "",
        "call_tool": "name parameters",
    },
    AgentNode: {
        "__init__": "name system_prompt tool_registry ai_client max_turns enable_conversation_logging "
        "description role temperature top_p max_tokens"
    },
    EnsembleNode: {"__init__": "name agents strategy consensus_agent weights description role"},
    ReflectionNode: {
        "__init__": "name agent num_iterations reflection_prompt critic_agent refinement_prompt include_history "
        "description role"
    },
    DebateNode: {"__init__": "name debaters judge num_rounds description role"},
    RouterNode: {"__init__": "name routes routing_func default_route description role"},
    Workflow: {
        "__init__": "name ai_client tokenizer server_address ppo_trainer_config enable_thinking",
        "add_node": "node",
        "add_nodes": "nodes",
        "run": "input_message initial_state",
        "run_with_context": "context",
    },
    ConditionalWorkflow: {
        "__init__": "name",
        "add_node": "node condition",
        "add_nodes": "nodes",
        "run": "input_message initial_state",
        "run_with_context": "context",
    },
    LoopWorkflow: {
        "__init__": "name max_iterations",
        "set_loop_condition": "condition",
        "run": "input_message initial_state",
        "run_with_context": "context",
    },
    AgentGraph: {
        "__init__": "name max_steps",
        "add_node": "name node",
        "add_edge": "source target condition",
        "add_conditional_edges": "source routing_func",
        "set_entry_point": "node_name",
        "set_finish_point": "node_name",
        "run": "input_message initial_state",
    },
    import_module("workflow.nodes.router_node").create_keyword_router: {
        "": "name keyword_routes default_node case_sensitive"
    },
}
"""Every public class and method of the published contract with its arguments. All of them are accepted here."""

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "content that is no text": (lambda: Message(content={"a": 1}), "string"),  # type: ignore[arg-type]
    "other arguments of nodes": (lambda: AgentNode("A", "p", verbose=True), "unknown argument 'verbose'"),  # type: ignore[call-arg]
    "a second plain edge": (
        lambda: AgentGraph().add_edge("a", "b").add_edge("a", "c"),
        "leads to 'b' already; use add_conditional_edge",
    ),
    "a name of two nodes": (
        lambda: AgentGraph().add_node("a", AgentNode("A", "p")).add_node("a", AgentNode("B", "p")),
        "names must differ",
    ),
    "a temperature that no server takes": (lambda: AgentNode("A", "p", temperature=3), "less than or equal to 2"),
    "an unknown strategy": (lambda: EnsembleNode("E", [AgentNode("A", "p")], strategy="best"), "'majority_vote'"),  # type: ignore[arg-type]
}
"""What the published contract lets pass and this one refuses, with words of the reason."""


def accepts(function: Callable[..., Any], argument: str) -> bool:
    parameters = inspect.signature(function).parameters
    return other_names_of(function).get(argument, argument) in parameters or argument in IGNORED_ARGUMENTS


@pytest.mark.parametrize(
    ("owner", "method"),
    [(owner, method) for owner, methods in OFFERED.items() for method in methods],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_every_method_accepts_every_argument(owner: Any, method: str) -> None:
    function = getattr(owner, method) if method else owner
    target = owner if method == "__init__" else function
    assert [name for name in OFFERED[owner][method].split() if not accepts(target, name)] == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_why(what: str) -> None:
    build, reason = REFUSED[what]
    with pytest.raises(ContractError, match=reason):
        build()


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_names_in_plain_python_too(module: str) -> None:
    for name in MODULES[module]:
        value = getattr(import_module(module), name)
        assert value is getattr(workflow, name, value), name
    assert module.startswith("workflow")


# What it means


def agent(name: str, **more: Any) -> AgentNode:
    return AgentNode(name, f"You are {name}.", **more)


def judged(*answers: str, strategy: Any = "majority_vote") -> tuple[list[str], Message]:
    members = [agent(f"M{index}") for index in range(len(answers))]
    ensemble = EnsembleNode("E", members, strategy=strategy, consensus_agent=agent("Judge"))
    replies = {member.name: answer for member, answer in zip(members, answers, strict=True)}
    outcome = run(ensemble, {**replies, "Judge": r"\boxed{9}"})
    return outcome.agents, outcome.message


@pytest.mark.parametrize(
    ("answers", "asked", "winner"),
    [
        ([r"\boxed{4}", r"\boxed{4}", r"\boxed{5}"], True, r"\boxed{9}"),
        ([r"\boxed{4}", r"\boxed{ 4 }", "no idea"], False, r"\boxed{4}"),
        (["no idea", "nor have I"], False, "no idea"),
    ],
)
def test_a_judge_beside_a_majority_vote_decides_where_votes_are_split(
    answers: list[str], asked: bool, winner: str
) -> None:
    agents, message = judged(*answers)
    assert ("Judge" in agents, message.content) == (asked, winner)
    assert message.metadata["all_responses"] == answers
    assert message.metadata["strategy"] == "majority_vote"


def test_a_weighted_vote_asks_no_judge_and_needs_no_weights() -> None:
    agents, message = judged(r"\boxed{4}", r"\boxed{5}", strategy="weighted_vote")
    assert ("Judge" in agents, message.content) == (False, r"\boxed{4}")


def test_the_graph_has_the_judge_where_it_may_be_asked() -> None:
    def roles(strategy: Any) -> list[str]:
        ensemble = EnsembleNode("E", [agent("A"), agent("B")], strategy=strategy, consensus_agent=agent("J"))
        return [child.role for child in describe(ensemble).children]

    assert roles("majority_vote") == roles("consensus") == ["member", "member", "judge"]
    assert roles("weighted_vote") == ["member", "member"]


def test_nodes_of_a_graph_have_names_of_their_own_there() -> None:
    same = agent("Solver")
    graph = AgentGraph().add_node("first", same).add_node("again", same).add_node(node=agent("Last"))
    graph.add_edge("first", "again").add_edge("again", "Last", condition=lambda context: len(context.messages) == 3)
    graph.set_entry_point(node_name="first").set_finish_point(node_name="Last")
    assert run(graph, lambda call: call.agent).agents == ["Solver", "Solver", "Last"]
    shown = describe(graph)
    assert [(child.name, child.place) for child in shown.children] == [
        ("Solver", "first"),
        ("Solver", "again"),
        ("Last", "Last"),
    ]


@pytest.mark.parametrize(("chosen", "ran"), [("B", ["A", "B"]), ("nobody", ["A"]), (None, ["A"])])
def test_a_function_names_the_next_node(chosen: str | None, ran: list[str]) -> None:
    graph = AgentGraph().add_node("A", agent("A")).add_node("B", agent("B")).add_node("C", agent("C"))
    graph.set_entry_point("A").set_finish_point("B")
    graph.add_conditional_edges("A", routing_func=lambda context: chosen)
    assert run(graph, lambda call: "ok").agents == ran
    mapped = AgentGraph().add_node(agent("A")).add_node(agent("B")).add_conditional_edges("A", len_of, {1: "B"})
    assert {edge.target for edge in describe(graph).edges if edge.source == "A"} == {"A", "B", "C"}
    assert {edge.label for edge in describe(mapped).edges if edge.source == "A"} == {"1"}


def len_of(context: Context) -> int:
    return len(context.messages)


def test_a_chain_of_pairs_is_a_graph_and_one_of_nodes_a_workflow() -> None:
    pairs = create_simple_chain(("one", agent("A")), ("two", agent("B")))
    assert isinstance(pairs, AgentGraph)
    assert (pairs.entry_point, pairs.finish_points, pairs.edges) == ("one", {"two"}, {"one": "two"})
    assert run(pairs, lambda call: call.agent).agents == ["A", "B"]
    for chain in (
        create_simple_chain([agent("A"), agent("B")], "named"),
        create_simple_chain(nodes=[agent("A"), agent("B")], name="named"),
        create_simple_chain(agent("A"), agent("B"), name="named"),
    ):
        assert (type(chain), chain.name, len(chain.nodes)) == (Workflow, "named", 2)
    assert isinstance(create_simple_chain([("one", agent("A"))]), AgentGraph)


def test_a_run_on_a_context_adds_to_it_what_the_nodes_say() -> None:
    chain = Workflow("w").add_nodes([agent("A"), agent("B")])
    context = Context()
    context.add_message(Message("Q?", MessageType.USER_INPUT))
    outcome = run(lambda: chain.run_with_context(context), lambda call: f"{call.agent} speaks")
    assert outcome.content == "B speaks"
    assert [message.content for message in context.messages] == ["Q?", "A speaks", "B speaks"]
    with pytest.raises(ContractError, match="must be a Context"):
        chain.run_with_context("Q?")  # type: ignore[arg-type]


def test_a_called_node_adds_its_message_and_a_processed_one_does_not() -> None:
    context = Context.for_question("Q?")
    node = agent("A")

    def program() -> Message:
        node.process(context)
        assert len(context.messages) == 1
        message = node(context)
        context.add_message(message)  # some programs do this, too
        return message

    run(program, lambda call: "hello")
    assert [message.content for message in context.messages] == ["Q?", "hello"]


def test_run_takes_its_published_name_but_not_both() -> None:
    flow = Workflow().add_node(agent("A"))
    assert run(lambda: flow.run(input_message="Q?"), lambda call: "hi").content == "hi"  # type: ignore[call-arg]
    with pytest.raises(ContractError, match="'input_message' is 'question'"):
        flow.run("Q?", input_message="Q?", question="Q?")  # type: ignore[call-arg]


def test_messages_become_dicts_and_come_back() -> None:
    message = Message("4", MessageType.FINAL_RESULT, {"a": 1}, sender="A", recipient="B")
    data = message.to_dict()
    assert data == {"content": "4", "type": "final_result", "metadata": {"a": 1}, "sender": "A", "recipient": "B"}
    assert Message.from_dict(data) == message
    data["metadata"]["a"] = 2
    assert message.metadata == {"a": 1}
    with pytest.raises(ContractError, match='"content" and "type"'):
        Message.from_dict({"content": "4"})
    assert {"TOOL_CALL", "INTERMEDIATE", "FINAL_RESULT"} <= set(MessageType.__members__)


def test_what_an_ensemble_says_is_found_as_an_agents_response() -> None:
    context = Context([Message("a"), Message("b", MessageType.ENSEMBLE_RESULT), Message("c", MessageType.CRITIQUE)])
    latest = context.get_latest_message(MessageType.AGENT_RESPONSE)
    assert latest is not None
    assert latest.content == "b"
    assert len(context.get_messages_by_type(MessageType.AGENT_RESPONSE)) == 2
    assert len(context.get_messages_by_type(MessageType.ENSEMBLE_RESULT)) == 1


def test_a_tool_is_a_mapping_too() -> None:
    registry = ToolRegistry()
    registry.register("double", lambda x: 2 * x, "Doubles.", {"type": "object", "properties": {"x": {}}})
    tool: Any = registry.get_tool("double")
    assert (tool["description"], tool["function"](4), dict(tool)["parameters"]["type"]) == ("Doubles.", 8, "object")
    assert (list(tool), "function" in tool, tool.get("nothing", 1)) == (
        ["function", "description", "parameters"],
        True,
        1,
    )
    with pytest.raises(KeyError):
        tool["name_"]
    assert registry.call_tool("double", parameters={"x": 2}) == 4  # type: ignore[call-arg]


def test_notes_are_kept_and_told_to_nobody() -> None:
    nodes = [
        agent("A", description="solves", role="solver"),
        EnsembleNode("E", [agent("A")], description="solves", role="solver"),
        Workflow("w", description="solves", role="solver"),
    ]
    for node in nodes:
        assert (node.description, node.role, node.config) == (
            "solves",
            "solver",
            {"description": "solves", "role": "solver"},
        )
    assert (agent("A").role, agent("A").config) == ("", {})
    assert "solver" not in str(run(nodes[0], lambda call: "x").calls[0].messages)


class Critic(WorkflowNode):
    role = "of its own"

    def process(self, context: Context) -> Message:
        self.logger.info("%s", "starts")
        return Message("fine")


def test_nodes_of_a_program_keep_their_own_attributes_and_have_a_silent_logger() -> None:
    assert Critic("C").role == "of its own"
    assert run(Critic("C"), {}).message.sender == "C"


def test_prompts_of_a_reflection_may_use_the_published_placeholders() -> None:
    node = ReflectionNode(
        "R",
        agent("S"),
        1,
        reflection_prompt="Q {question} R {response} {other}",
        critic_agent=agent("C"),
        refinement_prompt="C {reflection}",
    )
    outcome = run(node, {"S": ["first", "second"], "C": "Verdict: INCORRECT"}, "Why?")
    assert "Q Why? R first {other}" in outcome.prompts("C")[0]
    assert "C Verdict: INCORRECT" in outcome.prompts("S")[1]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("Let me compute.\n```python\nprint(6 * 7)\n```\n", ["print(6 * 7)"]),
        ("```python\na\n```\nand\n```python\nb\n```\n", ["a", "b"]),
        ("```\nprint(1)\n```\n", []),
        ("<solution>\n```python\nprint(1)\n```\n</solution>", []),
    ],
)
def test_python_blocks_are_run_by_a_tool_of_that_name(reply: str, code: list[str]) -> None:
    ran: list[str] = []
    tools = ToolRegistry()
    tools.register("python_execute", lambda code: ran.append(code) or "42", "Runs code.", {"properties": {"code": {}}})
    outcome = run(agent("A", tool_registry=tools), {"A": [reply, r"\boxed{42}"]})
    assert ran == code
    assert (outcome.content == r"\boxed{42}") is bool(code)
    other = ToolRegistry()
    other.register("run", print, "Runs code.", {"properties": {"code": {}}})
    assert run(agent("A", tool_registry=other), {"A": reply}).agents == ["A"]


def test_a_keyword_router_takes_the_first_keyword() -> None:
    router = import_module("workflow.nodes.router_node").create_keyword_router
    node = router("R", {"Sum": agent("Adder"), "times": agent("Multiplier")}, agent("Other"))
    assert run(node, lambda call: "x", "the sum of 2 times 3").agents == ["Adder"]
    assert run(node, lambda call: "x", "what?").agents == ["Other"]
    exact = router("R", {"Sum": agent("Adder")}, agent("Other"), case_sensitive=True)
    assert run(exact, lambda call: "x", "the sum").agents == ["Other"]


# An agent's own sampling


def test_an_agent_asks_for_its_own_sampling_and_only_for_what_it_names() -> None:
    calls = run(agent("A", temperature=0.2, max_tokens=100), lambda call: "x").calls
    assert calls[0].sampling == {"temperature": 0.2, "max_tokens": 100}
    assert run(agent("A"), lambda call: "x").calls[0].sampling == {}


def test_own_sampling_lowers_the_length_and_never_raises_it() -> None:
    base = Sampling(temperature=1.0, max_tokens=500, top_k=3)
    assert base.with_own({"temperature": 0.0, "max_tokens": 9}) == Sampling(temperature=0.0, max_tokens=9, top_k=3)
    assert base.with_own({"max_tokens": 900, "top_p": 0.5}) == Sampling(max_tokens=500, top_p=0.5, top_k=3)


@pytest.mark.parametrize("value", ["hot", -1, float("nan"), 3, [1]])
def test_sampling_that_a_program_spoils_later_is_its_own_failure(value: object) -> None:
    node = agent("A")
    node.temperature = value  # type: ignore[assignment]
    with pytest.raises(ContractError, match="AgentNode 'A': temperature"):
        assert run(node, lambda call: "x").message
