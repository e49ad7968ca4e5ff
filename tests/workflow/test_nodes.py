"""What agents, ensembles, debates, reflections and routers do, with canned replies."""

from typing import Any

import pytest
from canned import run

from workflow import (
    AgentNode,
    Context,
    DebateNode,
    EnsembleNode,
    Message,
    MessageType,
    ReflectionNode,
    RouterNode,
    ToolRegistry,
    Workflow,
    WorkflowNode,
)
from workflow.failures import ContractError
from workflow.requests import AgentReply
from workflow.text import last_boxed, verdict

TOOL = '<tool_call>{"name": "check", "arguments": {}}</tool_call>'


def agent(name: str, tools: ToolRegistry | None = None, **config: Any) -> AgentNode:
    return AgentNode(name, f"You are {name}.", tools, **config)


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register("check", lambda: "ok", "Check it.")
    return registry


# Agents


def test_an_agent_without_tools_takes_one_turn() -> None:
    outcome = run(agent("A"), {"A": f"I try {TOOL}"}, "Q?")
    assert len(outcome.calls) == 1
    assert outcome.calls[0].messages == [
        {"role": "system", "content": "You are A."},
        {"role": "user", "content": "Q?"},
    ]
    message = outcome.message
    assert (message.sender, message.message_type) == ("A", MessageType.AGENT_RESPONSE)
    assert message.metadata["finish_reason"] == "stop"


def test_an_empty_system_prompt_is_left_out() -> None:
    assert [turn["role"] for turn in run(AgentNode("A", ""), {"A": "x"}).calls[0].messages] == ["user"]


def test_finish_reason_is_the_last_replys() -> None:
    outcome = run(agent("A"), {"A": AgentReply("cut o", "length")})
    assert outcome.message.metadata["finish_reason"] == "length"


@pytest.mark.parametrize("max_turns", [1, 2, 3])
def test_max_turns_bounds_the_tool_loop(tools: ToolRegistry, max_turns: int) -> None:
    outcome = run(agent("A", tools, max_turns=max_turns), lambda call: f"turn {call.turn} {TOOL}")
    assert [call.turn for call in outcome.calls] == list(range(max_turns))
    assert len(outcome.tool_calls) == max_turns - 1  # the last turn's call could not be answered


@pytest.mark.parametrize(
    ("replies", "box"),
    [
        ([f"\\boxed{{5}} {TOOL}", r"Better: \boxed{7}"], "7"),
        ([f"\\boxed{{5}} {TOOL}", "The check agrees."], "5"),
        ([f"Let me see. {TOOL}", r"\boxed{7}"], "7"),
        ([f"Let me see. {TOOL}", "I give up."], None),
        ([f"\\boxed{{5}} {TOOL}", f"Hm. {TOOL}", "Fine."], "5"),
        ([f"\\boxed{{5}} {TOOL}", f"\\boxed{{6}} {TOOL}", "Fine."], "6"),
    ],
)
def test_the_result_of_an_earlier_turn_is_kept(tools: ToolRegistry, replies: list[str], box: str | None) -> None:
    outcome = run(agent("A", tools), {"A": replies})
    assert last_boxed(outcome.content) == box
    assert replies[-1] in outcome.content


def test_a_verdict_after_the_tools_counts_although_an_earlier_turn_quotes_a_result(tools: ToolRegistry) -> None:
    critic = agent("Critic", tools)
    node = ReflectionNode("r", agent("Solver"), num_iterations=3, critic_agent=critic)
    replies = {"Solver": r"\boxed{7}", "Critic": [f"The claim is \\boxed{{7}}. {TOOL}", "All pass.\nVerdict: CORRECT"]}
    outcome = run(node, replies)
    assert outcome.agents == ["Solver", "Critic", "Critic"]
    assert verdict(outcome.calls[2].messages[2]["content"]) is None


def test_tool_output_that_is_not_text_is_shown_as_text(tools: ToolRegistry) -> None:
    for value, shown in ((None, "None"), ([1, 2], "[1, 2]"), (7, "7"), ("plain", "plain")):
        tools.register("check", lambda value=value: value, parameters={})
        assert run(agent("A", tools), {"A": [TOOL, "x"]}).calls[1].messages[-1]["content"] == shown


def test_a_tool_may_ask_agents_itself(tools: ToolRegistry) -> None:
    helper = agent("Helper")
    tools.register("check", lambda: helper.process(Context.for_question("help!")).content)
    outcome = run(agent("A", tools), {"A": [TOOL, "thanks"], "Helper": "here you are"})
    assert outcome.agents == ["A", "Helper", "A"]
    assert outcome.calls[2].messages[-1]["content"] == "here you are"


def test_only_downstream_readers_are_announced() -> None:
    chain = Workflow().add_nodes([agent("A"), agent("B")])
    outcome = run(chain, lambda call: "x", "Q?")
    assert "Your result goes to B." in outcome.prompts("A")[0]
    assert outcome.prompts("B") == ["Q?\n\n### From A\nx"]


# The registry itself


def test_registry(tools: ToolRegistry) -> None:
    tools.register("add", lambda a, b=0: a + b, "Add.", {"properties": {"a": {}, "b": {}}, "required": ["a"]})
    assert tools.list_tools() == ["check", "add"]
    assert tools.call_tool("add", {"a": 3, "b": 4}) == 7
    assert tools.get_tool("none") is None
    found = tools.get_tool("add")
    assert found is not None
    assert found.description == "Add."
    for name, arguments, problem in (
        ("add", {}, "missing 'a'"),
        ("add", {"a": 1, "c": 2}, "unknown 'c'"),
        ("ad", {}, "unknown tool 'ad'. Did you mean 'add'?"),
    ):
        with pytest.raises(ValueError, match=problem.replace("?", r"\?")):
            tools.call_tool(name, arguments)
    assert tools.call_tool("check", {}) == "ok"
    tools.register("check", lambda: "replaced")
    assert tools.call_tool("check", {}) == "replaced"
    assert [schema["function"]["name"] for schema in tools.get_tool_schemas()] == ["check", "add"]
    assert tools.get_tool_schemas()[0]["function"]["parameters"] == {"type": "object", "properties": {}}


# Ensembles


def members(*names: str) -> list[WorkflowNode]:
    return [agent(name) for name in names]


def test_ensemble_members_get_the_same_context() -> None:
    outcome = run(EnsembleNode("e", members("A", "B", "C")), {"A": "1", "B": "2", "C": "3"}, "Q?")
    assert outcome.prompts("A") == outcome.prompts("B") == outcome.prompts("C") == ["Q?"]
    assert (outcome.message.sender, outcome.message.message_type) == ("e", MessageType.ENSEMBLE_RESULT)


def test_ensemble_members_do_not_see_what_others_add_to_their_context() -> None:
    class TwoSteps(WorkflowNode):
        def process(self, context: Context) -> Message:
            context.add_message(agent(f"{self.name}1").process(context))
            return agent(f"{self.name}2").process(context)

    for node in (EnsembleNode("e", [TwoSteps("A"), TwoSteps("B")]), DebateNode("d", [TwoSteps("A"), TwoSteps("B")])):
        outcome = run(node, lambda call: f"from {call.agent}")
        assert "from A1" in outcome.prompts("A2")[0]
        assert "from B1" not in outcome.prompts("A2")[0]
        assert "from A1" not in outcome.prompts("B2")[0]


@pytest.mark.parametrize(
    ("replies", "winner"),
    [
        ([r"\boxed{5}", r"\boxed{7}", r"\boxed{7}"], "B"),
        ([r"\boxed{5}", "<solution>x = 1</solution>", "<solution>\nx = 1\n</solution>"], "B"),
        (["Final answer: 5", "<delivery>7</delivery>", r"\boxed{7}"], "B"),
        (["no idea", "none here", "nor here"], "A"),
        (["no idea", "none here", r"\boxed{7}"], "C"),
    ],
)
def test_majority_vote_reads_boxes_solutions_and_deliveries(replies: list[str], winner: str) -> None:
    outcome = run(EnsembleNode("e", members("A", "B", "C")), dict(zip("ABC", replies, strict=True)))
    assert outcome.message.metadata["winner"] == winner
    assert outcome.content == replies["ABC".index(winner)]


def test_weights_by_name_and_by_position_mean_the_same() -> None:
    replies = {"A": r"\boxed{5}", "B": r"\boxed{7}", "C": r"\boxed{5}"}
    for weights in ([1, 3, 1], {"B": 3}, {"A": 1, "B": 3, "C": 1}):
        node = EnsembleNode("e", members("A", "B", "C"), "weighted_vote", weights=weights)
        assert run(node, replies).message.metadata["winner"] == "B", weights
    ignored = EnsembleNode("e", members("A", "B", "C"), weights=[1, 3, 1])
    assert run(ignored, replies).message.metadata["winner"] == "A"  # a majority has no weights


def test_consensus_shows_every_delivery_to_the_judge_and_returns_its_message() -> None:
    node = EnsembleNode("e", members("A", "B"), "consensus", agent("Judge"))
    replies = {"A": "long\n<delivery>five</delivery>", "B": "seven", "Judge": r"B is right: \boxed{7}"}
    outcome = run(node, replies, "Q?")
    assert outcome.prompts("Judge") == ["Q?\n\n### From 1. A\nfive\n\n### From 2. B\nseven"]
    assert "Your result goes to Judge." in outcome.prompts("A")[0]
    assert (outcome.content, outcome.message.metadata["judge"]) == (r"B is right: \boxed{7}", "Judge")


@pytest.mark.parametrize("strategy", ["majority_vote", "consensus"])
def test_an_ensemble_whose_members_all_fail_says_why(strategy: Any) -> None:
    node = EnsembleNode("e", members("A", "B"), strategy, agent("Judge"))
    outcome = run(node, {"A": ValueError("no luck"), "B": KeyError("x")})
    assert str(outcome.error) == "e: every member failed (A: no luck; B: 'x')"
    assert "Judge" not in outcome.agents


def test_ensembles_nest() -> None:
    inner = EnsembleNode("inner", members("A", "B", "C"))
    outer = EnsembleNode("outer", [inner, agent("D"), agent("E")])
    replies = {"A": r"\boxed{5}", "B": r"\boxed{7}", "C": r"\boxed{7}", "D": r"\boxed{5}", "E": r"\boxed{7}"}
    assert run(outer, replies).message.metadata["winner"] == "inner"


# Debates


def test_debate_rounds_and_judge() -> None:
    node = DebateNode("d", members("A", "B"), agent("Judge"), num_rounds=2)
    outcome = run(node, {"A": ["a1", "a2"], "B": ["b1", "b2"], "Judge": "a wins"}, "Q?")
    assert outcome.agents == ["A", "B", "A", "B", "Judge"]
    first, second = outcome.prompts("A")
    assert "b1" not in first
    assert "### From 1. A\na1\n\n### From 2. B\nb1\n\nRound 2 of the debate." in second
    assert outcome.prompts("Judge") == ["Q?\n\n### From 1. A\na2\n\n### From 2. B\nb2"]
    assert (outcome.content, outcome.message.sender) == ("a wins", "d")


def test_debate_without_a_judge_votes_on_the_last_round() -> None:
    node = DebateNode("d", members("A", "B", "C"))
    seven, five = r"\boxed{7}", r"\boxed{5}"
    outcome = run(node, {"A": [seven, five], "B": [seven, seven], "C": [five, seven]})
    assert last_boxed(outcome.content) == "7"
    assert outcome.message.metadata["winner"] == "B"


def test_a_debate_whose_debaters_all_fail_says_why() -> None:
    node = DebateNode("d", members("A", "B"), agent("Judge"), num_rounds=1)
    outcome = run(node, {"A": ValueError("x"), "B": ValueError("y")})
    assert str(outcome.error) == "d: every member failed (A: x; B: y)"


# Reflections


def test_reflection_solves_critiques_and_refines() -> None:
    node = ReflectionNode("r", agent("Solver"), num_iterations=2, critic_agent=agent("Critic"))
    outcome = run(node, {"Solver": ["one", "two", "three"], "Critic": ["bad", "still bad"]}, "Q?")
    assert outcome.agents == ["Solver", "Critic", "Solver", "Critic", "Solver"]
    assert (outcome.content, outcome.message.sender) == ("three", "r")
    assert (outcome.message.metadata["accepted"], outcome.message.metadata["rounds"]) == (False, 2)
    second = outcome.prompts("Critic")[1]
    assert "two" in second
    assert "one" not in second
    third = outcome.prompts("Solver")[2]
    assert "### From Critic\nstill bad" in third
    assert "\nbad" not in third


def test_reflection_stops_at_a_verdict() -> None:
    node = ReflectionNode("r", agent("Solver"), num_iterations=5, critic_agent=agent("Critic"))
    outcome = run(node, {"Solver": ["one", "two"], "Critic": ["Verdict: INCORRECT", "Verdict: CORRECT"]})
    assert (outcome.content, outcome.message.metadata["rounds"]) == ("two", 2)
    assert outcome.message.metadata["accepted"] is True


def test_without_a_critic_the_agent_reviews_itself() -> None:
    outcome = run(ReflectionNode("r", agent("Solver"), 1), {"Solver": ["one", "CORRECT"]})
    assert outcome.agents == ["Solver", "Solver"]
    assert outcome.content == "one"


def test_no_iterations_mean_no_review() -> None:
    assert run(ReflectionNode("r", agent("Solver"), 0), {"Solver": ["one"]}).agents == ["Solver"]


def test_include_history_shows_all_earlier_attempts() -> None:
    node = ReflectionNode("r", agent("Solver"), 2, critic_agent=agent("Critic"), include_history=True)
    outcome = run(node, {"Solver": ["one", "two", "three"], "Critic": ["bad", "still bad"]})
    third = outcome.prompts("Solver")[2]
    positions = [third.index(text) for text in ("one", "\nbad", "two", "still bad")]
    assert positions == sorted(positions)
    assert "one" in outcome.prompts("Critic")[1]


# Routers


def test_router_picks_one_route() -> None:
    node = RouterNode("r", {"math": agent("M"), "code": agent("C")}, lambda context: context.question, "math")
    assert run(node, {"C": "x"}, "code").agents == ["C"]
    outcome = run(node, {"M": "x"}, "poetry")
    assert outcome.agents == ["M"]
    assert (outcome.message.metadata["route"], outcome.message.sender) == ("math", "r")


def test_router_without_a_matching_route_says_so() -> None:
    node = RouterNode("r", {"math": agent("M")}, lambda context: "code")
    outcome = run(node, {})
    assert isinstance(outcome.error, ContractError)
    for part in ("'r'", "'code'", "'default'", "'math'"):
        assert part in str(outcome.error)


def test_routing_function_may_ask_an_agent() -> None:
    classifier = agent("Classifier")
    node = RouterNode("r", {"math": agent("M"), "code": agent("C")}, lambda c: classifier.process(c).content.strip())
    assert run(node, {"Classifier": " code ", "C": "x"}).agents == ["Classifier", "C"]


# Own nodes


def test_an_own_node_calls_agents_imperatively() -> None:
    class Twice(WorkflowNode):
        def __init__(self, inner: WorkflowNode) -> None:
            super().__init__("twice")
            self.inner = inner

        def process(self, context: Context) -> Message:
            first = self.inner.process(context)
            second = self.inner(context.extended(first))
            return Message(f"{first.content}+{second.content}", sender=self.name)

    outcome = run(Twice(agent("A")), {"A": ["1", "2"]})
    assert outcome.content == "1+2"
    assert outcome.keys == ["A#0", "A#1"]


def test_an_own_node_may_return_text_or_be_a_generator() -> None:
    class Text(WorkflowNode):
        def process(self, context: Context) -> Any:
            return context.question.upper()

    outcome = run(Text("t"), {}, "hello")
    assert (outcome.content, outcome.message.sender) == ("HELLO", "t")

    class Lazy(WorkflowNode):
        def process(self, context: Context) -> Any:
            from workflow.requests import NodeCall

            message = yield NodeCall(agent("A"), context)
            return f"lazily {message.content}"

    assert run(Lazy("l"), {"A": "seven"}).content == "lazily seven"


@pytest.mark.parametrize(("result", "shown"), [(None, "NoneType"), (7, "int"), ([], "list")])
def test_an_own_node_that_returns_no_message_says_so(result: object, shown: str) -> None:
    class Wrong(WorkflowNode):
        def process(self, context: Context) -> Any:
            return result

    outcome = run(Wrong("w"), {})
    assert isinstance(outcome.error, ContractError)
    assert str(outcome.error) == f"Wrong 'w': process returned {shown}, not a Message"


def test_an_own_node_without_process_says_so() -> None:
    class Empty(WorkflowNode):
        pass

    outcome = run(Empty("e"), {})
    assert isinstance(outcome.error, ContractError)
    assert "Empty 'e' defines neither process(context) nor steps" in str(outcome.error)


def test_an_own_node_without_a_name_says_what_to_call() -> None:
    class Nameless(WorkflowNode):
        def __init__(self) -> None:
            pass

        def process(self, context: Context) -> Any:
            return "x"

    with pytest.raises(AttributeError, match=r"'Nameless'.*call super\(\).__init__\(name\)"):
        EnsembleNode("e", [Nameless()])
    outcome = run(Workflow().add_node(Nameless()), {})
    assert "call super().__init__(name)" in str(outcome.error)
    with pytest.raises(AttributeError, match=r"'AgentNode' object has no attribute 'nmae'$"):
        agent("A").nmae  # noqa: B018  # the access is what is tested


def test_tool_arguments_may_have_any_name(tools: ToolRegistry) -> None:
    tools.register("check", lambda function, args, self, name: [function, args, self, name])
    arguments = '{"function": "f", "args": 1, "self": 2, "name": 3}'
    reply = f'<tool_call>{{"name": "check", "arguments": {arguments}}}</tool_call>'
    outcome = run(agent("A", tools), {"A": [reply, "x"]})
    assert outcome.calls[1].messages[-1]["content"] == "['f', 1, 2, 3]"
