"""One test for each thing that the released workflow DSL of the papers gets wrong."""

import json

import pytest
from canned import run

from workflow import (
    AgentGraph,
    AgentNode,
    ConditionalWorkflow,
    Context,
    DebateNode,
    EnsembleNode,
    LoopWorkflow,
    ReflectionNode,
    ToolRegistry,
    Workflow,
)
from workflow.requests import AgentCall
from workflow.text import last_boxed


def agent(name: str, tools: ToolRegistry | None = None, **config: int) -> AgentNode:
    return AgentNode(name, f"You are {name}.", tools, **config)


def tools_with(**functions: object) -> ToolRegistry:
    registry = ToolRegistry()
    for name, function in functions.items():
        registry.register(
            name,
            function,
            f"the tool {name}",
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        )
    return registry


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


# "conditional, loop and graph workflows always fail with agents"


def test_conditional_workflow_works_with_agents() -> None:
    workflow = ConditionalWorkflow()
    workflow.add_node(agent("Solver"))
    workflow.add_node(agent("Skipped"), lambda context: "unsure" in context.get_latest_message().content)
    workflow.add_node(agent("Judge"), condition=lambda context: True)
    outcome = run(workflow, {"Solver": r"sure: \boxed{7}", "Judge": r"\boxed{7}"})
    assert outcome.agents == ["Solver", "Judge"]
    assert outcome.content == r"\boxed{7}"


def test_loop_workflow_works_with_agents() -> None:
    loop = LoopWorkflow(max_iterations=5)
    loop.add_node(agent("Worker"))
    loop.set_loop_condition(lambda context: "done" not in context.get_latest_message().content)
    outcome = run(loop, {"Worker": ["step", "step", "done", "too far"]})
    assert (outcome.agents, outcome.content) == (["Worker"] * 3, "done")


def test_graph_workflow_works_with_agents() -> None:
    graph = AgentGraph()
    for name in ("Plan", "Do", "Check"):
        graph.add_node(agent(name))
    graph.set_entry_point("Plan").set_finish_point("Check")
    graph.add_edge("Plan", "Do").add_edge("Do", "Check")
    outcome = run(graph, lambda call: f"{call.agent} is done")
    assert (outcome.agents, outcome.content) == (["Plan", "Do", "Check"], "Check is done")


# 'a critique ending in "INCORRECT" counts as CORRECT'


def test_incorrect_is_not_correct() -> None:
    node = ReflectionNode("r", agent("Solver"), num_iterations=1, critic_agent=agent("Critic"))
    refused = run(node, {"Solver": ["5", "7"], "Critic": "The sum is wrong. INCORRECT"})
    assert refused.agents == ["Solver", "Critic", "Solver"]
    assert (refused.content, refused.message.metadata["accepted"]) == ("7", False)
    accepted = run(node, {"Solver": ["7"], "Critic": "The sum is right. CORRECT"})
    assert accepted.agents == ["Solver", "Critic"]
    assert accepted.message.metadata["accepted"] is True


# r"a custom reflection prompt with `\boxed{}` crashes in `str.format`"


@pytest.mark.parametrize(
    "braces", [r"\boxed{}", "{", "}", "{}", "{0}", "{answer}", '{"a": {"b": 1}}', "{{question}}", "%s"]
)
def test_reflection_prompts_may_hold_any_braces(braces: str) -> None:
    node = ReflectionNode(
        "r",
        agent("Solver"),
        num_iterations=1,
        reflection_prompt=f"Review {{solution}} for {{question}}. Write {braces}.",
        critic_agent=agent("Critic"),
        refinement_prompt=f"Mend {{solution}} as {{critique}} says. Write {braces}.",
    )
    outcome = run(node, {"Solver": [r"It is \boxed{8}", r"\boxed{7}"], "Critic": "{solution} is INCORRECT"}, "3 + 4?")
    expected = braces.replace("{question}", "3 + 4?")
    assert rf"Review It is \boxed{{8}} for 3 + 4?. Write {expected}." in outcome.prompts("Critic")[0]
    # What is filled in is not filled in again.
    told = outcome.prompts("Solver")[1]
    assert rf"Mend It is \boxed{{8}} as {{solution}} is INCORRECT says. Write {expected}." in told


# 'majority vote takes a deduplicated "last" box (5, 7, 5 gives 7)'


def test_majority_vote_of_5_7_5_is_5() -> None:
    node = EnsembleNode("e", [agent("A"), agent("B"), agent("C")])
    outcome = run(node, {"A": r"\boxed{5}", "B": r"\boxed{7}", "C": r"\boxed{5}"})
    assert last_boxed(outcome.content) == "5"
    assert outcome.message.metadata["winner"] == "A"


def test_the_last_box_of_one_reply_that_boxes_5_7_5_is_5() -> None:
    assert last_boxed(r"\boxed{5} or \boxed{7}? No: \boxed{5}") == "5"


# r"an echoed prompt's `\boxed{42}` wins when the agent boxes nothing"

ECHOED = (
    "You are an expert.\n"
    "- Put your final answer in \\boxed{} format\n"
    "- Example: The answer is \\boxed{42}\n"
    "- Hand your result on inside <delivery>...</delivery>, as in <delivery>the sum is 42</delivery>\n"
    "<delivery>\nyour result here\n</delivery>\n"
    "Wrap code in <solution>...</solution>."
)


def test_an_echoed_prompts_box_does_not_win() -> None:
    node = EnsembleNode("e", [AgentNode(name, ECHOED) for name in "ABC"])
    outcome = run(node, {"A": ECHOED + "\nI do not know.", "B": ECHOED, "C": r"So it is \boxed{7}"})
    assert [vote["answer"] for vote in outcome.message.metadata["votes"]] == [None, None, "7"]
    assert last_boxed(outcome.content) == "7"
    alone = run(AgentNode("A", ECHOED), {"A": ECHOED + "\nI do not know."})
    assert last_boxed(alone.content) is None
    assert "I do not know." in alone.content


def test_an_echoed_reflection_prompts_box_does_not_win() -> None:
    example = "Example: The answer is \\boxed{42}"
    prompts = {"reflection_prompt": f"Review {{solution}}.\n{example}", "refinement_prompt": f"Mend it.\n{example}"}
    node = ReflectionNode("r", agent("Solver"), 1, critic_agent=agent("Critic"), **prompts)
    outcome = run(node, {"Solver": [r"\boxed{8}", f"Mend it.\n{example}\nNo idea."], "Critic": "INCORRECT"})
    assert last_boxed(outcome.content) is None


def test_an_answer_that_the_prompt_mentions_still_counts() -> None:
    outcome = run(AgentNode("A", ECHOED), {"A": "3 * 14 makes\n\\boxed{42}"})
    assert last_boxed(outcome.content) == "42"


def test_agreeing_with_another_agent_in_its_own_words_is_no_echo() -> None:
    line = r"**Therefore, the answer is \boxed{116}.**"
    chain = Workflow().add_nodes([agent("Solver"), agent("Verifier")])
    assert last_boxed(run(chain, lambda call: line).content) == "116"
    node = ReflectionNode("r", agent("Solver"), 1, "Review {solution}", agent("Critic"), "Mend {solution}")
    kept = run(node, {"Solver": [line, f"I stand by it.\n{line}"], "Critic": "INCORRECT"})
    assert last_boxed(kept.content) == "116"


def test_a_verdict_that_the_prompt_spells_out_still_counts() -> None:
    critic = AgentNode("Critic", "End with one of these lines:\nVerdict: CORRECT\nVerdict: INCORRECT")
    node = ReflectionNode("r", agent("Solver"), critic_agent=critic)
    outcome = run(node, {"Solver": "7", "Critic": "All is well.\nVerdict: CORRECT"})
    assert outcome.agents == ["Solver", "Critic"]


# "and its echoed instructions earn the delivery reward"


def test_echoed_instructions_are_no_delivery() -> None:
    outcome = run(AgentNode("A", ECHOED), {"A": ECHOED + "\nThe sum is 7."})
    assert outcome.message.metadata["delivery_source"] == "excerpt"
    assert outcome.deliveries[-1].source == "excerpt"
    chain = Workflow().add_nodes([agent("A"), agent("B")])
    request = "Your result goes to B. Put what B needs, and nothing else, inside <delivery>...</delivery>."
    echoed = run(chain, {"A": f"{request}\nThe sum is 7.", "B": "ok"})
    assert request in echoed.prompts("A")[0]
    assert echoed.deliveries[0].source == "excerpt"
    assert echoed.deliveries[0].text == "The sum is 7."


def test_a_delivery_of_ones_own_counts_beside_an_echo() -> None:
    outcome = run(AgentNode("A", ECHOED), {"A": ECHOED + "\n<delivery>the sum is 7</delivery>"})
    assert outcome.deliveries[-1] == outcome.deliveries[0]
    assert (outcome.deliveries[0].text, outcome.deliveries[0].source) == ("the sum is 7", "delivery")


# "a failed ensemble member shifts labels and weights"


def test_a_failed_member_keeps_its_label() -> None:
    members = [agent("A"), agent("B"), agent("C")]
    node = EnsembleNode("e", members, "consensus", agent("Judge"))
    outcome = run(node, {"A": r"\boxed{1}", "B": ValueError("no luck"), "C": r"\boxed{3}", "Judge": r"\boxed{3}"})
    shown = outcome.prompts("Judge")[0]
    assert "### From 1. A\n\\boxed{1}" in shown
    assert "### From 2. B\n(failed: ValueError: no luck)" in shown
    assert "### From 3. C\n\\boxed{3}" in shown


def test_a_failed_member_shifts_no_weights() -> None:
    node = EnsembleNode("e", [agent("A"), agent("B"), agent("C")], "weighted_vote", weights=[0.1, 5.0, 0.2])
    outcome = run(node, {"A": r"\boxed{1}", "B": ValueError("no luck"), "C": r"\boxed{3}"})
    assert last_boxed(outcome.content) == "3"
    assert outcome.message.metadata["votes"] == [
        {"member": "A", "answer": "1", "weight": 0.1},
        {"member": "B", "answer": None, "weight": 5.0},
        {"member": "C", "answer": "3", "weight": 0.2},
    ]


def test_a_failed_debater_keeps_its_label() -> None:
    node = DebateNode("d", [agent("A"), agent("B")], agent("Judge"), num_rounds=1)
    outcome = run(node, {"A": ValueError("no luck"), "B": "seven", "Judge": "7"})
    assert "### From 1. A\n(failed" in outcome.prompts("Judge")[0]
    assert "### From 2. B\nseven" in outcome.prompts("Judge")[0]


# "only the first tool call is served"


def test_all_tool_calls_of_one_reply_are_served() -> None:
    registry = tools_with(double=lambda x: 2 * x, triple=lambda x: 3 * x)
    first = f"Both:\n{call('double', x=2)}\n{call('triple', x=5)} and {call('double', x=50)}"
    outcome = run(agent("A", registry), {"A": [first, r"\boxed{119}"]})
    assert [(each.name, each.arguments) for each in outcome.tool_calls] == [
        ("double", {"x": 2}),
        ("triple", {"x": 5}),
        ("double", {"x": 50}),
    ]
    assert [turn["role"] for turn in outcome.calls[0].messages] == ["system", "user"]
    turns = outcome.calls[1].messages
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "tool", "tool", "tool"]
    assert [turn["content"] for turn in turns[3:]] == ["4", "15", "100"]
    assert turns[2]["content"] == first


# "tool schemas never reach the model in training"


def test_tool_schemas_reach_the_agent_call() -> None:
    registry = tools_with(double=lambda x: 2 * x)
    outcome = run(agent("A", registry), {"A": [call("double", x=1), "2"]})
    schema = {
        "type": "function",
        "function": {
            "name": "double",
            "description": "the tool double",
            "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        },
    }
    assert [each.tools for each in outcome.calls] == [[schema], [schema]]
    assert [each.turn for each in outcome.calls] == [0, 1]
    assert run(agent("B"), {"B": "x"}).calls[0].tools == []


# What the contract adds on tool calls: problems go to the agent, nothing is raised.


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"name": "double", "arguments": {"x": 1}', "not valid JSON"),
        ("double(1)", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"arguments": {"x": 1}}', "has no name"),
        ('["double"]', "has no name"),
        ('{"name": "double", "arguments": [1]}', "arguments of 'double' must be a JSON object"),
        ('{"name": "double", "arguments": "{x}"}', "must be a JSON object"),
        ('{"name": "doubel", "arguments": {"x": 1}}', "unknown tool 'doubel'. Did you mean 'double'? Available"),
        ('{"name": "double", "arguments": {}}', "missing 'x'"),
        ('{"name": "double", "arguments": {"x": 1, "y": 2}}', "unknown 'y'. Expected: x"),
    ],
)
def test_bad_tool_calls_are_told_to_the_agent(body: str, told: str) -> None:
    registry = tools_with(double=lambda x: 2 * x)
    outcome = run(agent("A", registry), {"A": [f"<tool_call>{body}</tool_call>", "7"]})
    answer = outcome.calls[1].messages[-1]
    assert answer["role"] == "tool"
    assert answer["content"].startswith("Error: ")
    assert told in answer["content"]
    assert outcome.tool_calls == []
    assert [result.is_error for result in outcome.results] == [True]


def test_tool_errors_are_told_to_the_agent() -> None:
    def broken(x: int) -> int:
        raise ZeroDivisionError("division by zero")

    outcome = run(agent("A", tools_with(broken=broken)), {"A": [call("broken", x=1), "7"]})
    assert outcome.calls[1].messages[-1]["content"] == "Error: ZeroDivisionError: division by zero"
    assert [(result.name, result.is_error) for result in outcome.results] == [("broken", True)]


def test_a_tool_that_calls_exit_does_not_end_the_run() -> None:
    def leave(x: int) -> None:
        raise SystemExit(x)

    outcome = run(agent("A", tools_with(leave=leave)), {"A": [call("leave", x=3), "7"]})
    assert "exit(3) was called" in outcome.calls[1].messages[-1]["content"]
    assert outcome.content == "7"


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "double", "arguments": {"x": 21}}',
        '{"name": "double", "parameters": {"x": 21}}',
        '{"name": "double", "arguments": "{\\"x\\": 21}"}',
        '\n```json\n{"name": "double", "arguments": {"x": 21}}\n```\n',
        '```\n{"name": "double", "arguments": {"x": 21}}```',
    ],
)
def test_parameters_are_accepted_for_arguments_and_so_are_fences(body: str) -> None:
    outcome = run(agent("A", tools_with(double=lambda x: 2 * x)), {"A": [f"<tool_call>{body}</tool_call>", "7"]})
    assert outcome.calls[1].messages[-1]["content"] == "42"


def test_calls_are_made_even_when_the_prompt_shows_the_same_call() -> None:
    example = '<tool_call>\n{"name": "double", "arguments": {"x": 1}}\n</tool_call>'
    one_line = example.replace("\n", "")
    node = AgentNode("A", f"Call tools like this:\n{example}\nor\n{one_line}", tools_with(double=lambda x: 2 * x))
    for reply in (example, one_line):
        outcome = run(node, {"A": [reply, "7"]})
        assert [each.arguments for each in outcome.tool_calls] == [{"x": 1}], reply


def test_a_downstream_agent_sees_the_delivery_and_not_the_whole_reply() -> None:
    chain = Workflow().add_nodes([agent("A"), agent("B")])
    seen: list[AgentCall] = []

    def reply(call: AgentCall) -> str:
        seen.append(call)
        return "Long thought.\n<delivery>just this</delivery>" if call.agent == "A" else "ok"

    run(chain, reply, "The question")
    prompt = seen[1].messages[-1]["content"]
    assert prompt == "The question\n\n### From A\njust this"


def test_context_given_by_hand_reaches_the_agent() -> None:
    outcome = run(agent("A"), {"A": "7"}, context=Context())
    assert outcome.calls[0].messages == [
        {"role": "system", "content": "You are A."},
        {"role": "user", "content": ""},
    ]
