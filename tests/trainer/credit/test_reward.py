"""The reward of a run, worked out from MetaAgent-X, Eq. 10, on runs of real workflows graded in real jails."""

import asyncio
import random
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engine.drivers import run_workflow
from engine.session import Run
from metaagent.terminal.transcript import print_transcript
from sandbox.protocol import Sandbox
from tasks import CallTest, CallTests, PlanPathLevel, Problem, StdinTest, StdinTests
from tasks.environments import begins, problem_of
from tasks.grading import grade
from trainer.credit.reward import FORMAT_WEIGHT, conversations, correctness, delivery_format, paper_reward
from workflow import (
    AgentNode,
    Context,
    DebateNode,
    EnsembleNode,
    Message,
    ReflectionNode,
    ToolRegistry,
    Workflow,
    WorkflowNode,
)
from workflow.agent import FROM
from workflow.completion import ChatMessage, Completion, CompletionRequest, Usage
from workflow.environment import Environment
from workflow.failures import EngineFailed, LimitExceeded, ProgramFailed, ProgramRejected, SandboxUnavailable
from workflow.limits import CodeLimits, Limits
from workflow.place import Place
from workflow.requests import Act, NodeCall, Parallel, Steps
from workflow.trace import AgentTurn, Rewarded, RewardTerm, Trace

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]
Replies = Mapping[str, str | Sequence[str]]

PUBLISHED = Path(__file__).parents[4] / "shared" / "papers" / "designer-scripts"
SEVEN = Problem(id="seven", question="What is 3 + 4?", domain="math", gold="7")
INCREMENT = Problem(
    id="inc",
    question="Increment.",
    domain="code",
    tests=CallTests(fn_name="inc", tests=[CallTest(args=[n], expected=n + 1) for n in (1, 2, 3)]),
)


class Canned:
    """Says for each agent its reply, or its replies in their order, the last one again and again."""

    name = "canned"

    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.asked: dict[str, int] = {}

    async def complete(self, request: CompletionRequest) -> Completion:
        said = self.replies[request.agent]
        replies = [said] if isinstance(said, str) else said
        number = self.asked.get(request.agent, 0)
        self.asked[request.agent] = number + 1
        return Completion(text=replies[min(number, len(replies) - 1)], usage=Usage(completion_tokens=1))

    async def close(self) -> None:
        return None


def run(node: WorkflowNode, replies: Replies, problem: Problem = SEVEN, **options: Any) -> Run:
    ended = run_workflow(node, problem.question, Canned(replies), **options)
    return asyncio.run(asyncio.wait_for(ended, timeout=30))


def explained(reward: Rewarded) -> tuple[float, ...]:
    """Total, then the values of the terms, which explain it."""
    assert [(term.name, term.weight) for term in reward.terms] == [
        ("correct", 1.0),
        ("solution format", 0.2),
        ("delivery format", 0.2),
    ]
    assert reward.total == pytest.approx(sum(term.value * term.weight for term in reward.terms), abs=1e-12)
    assert 0 <= reward.total <= 1.4
    assert all(term.reason for term in reward.terms)
    return (reward.total, *(term.value for term in reward.terms))


def reasons(reward: Rewarded) -> list[str]:
    return [term.reason for term in reward.terms]


def single() -> Workflow:
    return Workflow("w").add_node(AgentNode("Solver", "Solve. Example: The answer is \\boxed{7}"))


def chain() -> Workflow:
    return Workflow("w").add_nodes([AgentNode("Planner", "Plan."), AgentNode("Solver", "Solve.")])


# Eq. 10: R = R_correct + 0.4 * (solution format + delivery format) / 2


@pytest.mark.parametrize(
    ("planner", "solver", "expected"),
    [
        ("<delivery>Add.</delivery>", "\\boxed{7}", (1.4, 1, 1, 1)),  # 1 + 0.4 * (1 + 1) / 2
        ("Add.", "\\boxed{7}", (1.2, 1, 1, 0)),  # 1 + 0.4 * (1 + 0) / 2
        ("<delivery>Add.</delivery>", "\\boxed{8}", (0.4, 0, 1, 1)),
        ("<delivery>Add.</delivery>", "It is 7.", (0.2, 0, 0, 1)),
        ("Add.", "\\boxed{8}", (0.2, 0, 1, 0)),
        ("Add.", "It is 7.", (0.0, 0, 0, 0)),
        ("<delivery>Add.", "\\boxed{7", (0.0, 0, 0, 0)),  # neither is closed
        ("<delivery>...</delivery>", "\\boxed{7}", (1.2, 1, 1, 0)),  # holds nothing
    ],
)
def test_metaagent_x_eq_10(in_jail: InJail, planner: str, solver: str, expected: tuple[float, ...]) -> None:
    ended = run(chain(), {"Planner": planner, "Solver": solver})
    assert explained(in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ('Down.\n#### ["D", "R"]', (1.4, 1, 1, 1)),
        ('#### ["R", "D"]', (0.4, 0, 1, 1)),
        ('["D", "R"]', (1.4, 1, 1, 1)),
        ("down, right", (0.2, 0, 0, 1)),
        ('#### ["' + "]" * 3000 + '",' + "[" * 3000, (0.2, 0, 0, 1)),
    ],
)
def test_a_game_is_rewarded_for_its_answer_as_one_action(in_jail: InJail, said: str, values: tuple[float, ...]) -> None:
    game = problem_of(PlanPathLevel(level="@#\n.G"))
    ended = run(single(), {"Solver": said}, game, game=begins(game))
    reward = in_jail(lambda sandbox: paper_reward(game, ended, sandbox))
    assert explained(reward) == pytest.approx(values)
    assert reasons(reward)[1] == ("Solver's answer is an action" if values[2] else "Solver's answer is not an action")


def test_an_action_that_the_program_adds_to_an_agents_answer_is_nobodys(in_jail: InJail) -> None:
    game = problem_of(PlanPathLevel(level="@#\n.G"))

    class Adds(WorkflowNode):
        def process(self, context: Any) -> Any:
            said = AgentNode("Solver", "Solve.").process(context)
            return Message(content=said.content + '\n#### ["D", "R"]')

    ended = run(Workflow("w").add_node(Adds("Adds")), {"Solver": "\\boxed{8}"}, game, game=begins(game))
    assert in_jail(lambda sandbox: correctness(game, ended, sandbox))[:2] == (
        0.0,
        "the answer stands in no agent's reply",
    )


SQUARE = problem_of(PlanPathLevel(level="@#\n.G"))


class Player(WorkflowNode):
    """Plays until it is over: its agent acts each time, or the program adds something of its own."""

    def __init__(self, name: str, adds: str = "") -> None:
        super().__init__(name)
        self.agent, self.adds = AgentNode("Planner", "Plan."), adds

    def process(self, context: Any) -> Any:
        environment = Environment()
        while not environment.observe("Planner").done:
            said = self.agent.process(Context.for_question("Next?"))
            environment.act("Planner", self.adds or said)
        return said


@pytest.mark.parametrize(
    ("said", "adds", "values", "reason"),
    [
        (['["D"]', '#### ["R"]'], "", (1.4, 1, 1, 1), "solved, 2 actions"),
        (['["R"]', '["D", "R"]'], "", (1.4, 1, 1, 1), "solved, 2 actions"),  # an illegal move costs a turn
        (["down", '["D", "R"]'], "", (1.3, 1, 0.5, 1), "solved, 2 actions"),
        (['["U"]'], "", (0.4, 0, 1, 1), "not solved, 4 actions"),
        (["down"], "", (0.2, 0, 0, 1), "not solved, 4 actions"),
        (["down"], '["D", "R"]', (0.2, 0, 0, 1), "action 1 of 1 stands in no agent's reply"),
        (["", '["D", "R"]'], "", (1.3, 1, 0.5, 1), "solved, 2 actions"),  # what does nothing needs no author
    ],
)
def test_a_game_that_is_played_is_rewarded_for_where_it_ends(
    in_jail: InJail, said: list[str], adds: str, values: tuple[float, ...], reason: str
) -> None:
    ended = run(Workflow("w").add_node(Player("P", adds)), {"Planner": said}, SQUARE, game=begins(SQUARE))
    reward = in_jail(lambda sandbox: paper_reward(SQUARE, ended, sandbox))
    assert explained(reward) == pytest.approx(values)
    assert reasons(reward)[0] == reason


def test_what_is_done_after_the_end_changes_nothing(in_jail: InJail) -> None:
    class Late(WorkflowNode):
        def process(self, context: Any) -> Any:
            said = AgentNode("Planner", "Plan.").process(context)
            for text in (said, "pass", said):
                Environment().act("Planner", text)
            return said

    ended = run(Workflow("w").add_node(Late("L")), {"Planner": '["D", "R"]'}, SQUARE, game=begins(SQUARE))
    reward = in_jail(lambda sandbox: paper_reward(SQUARE, ended, sandbox))
    assert reasons(reward)[0] == "solved, 1 actions"
    assert explained(reward) == pytest.approx((1.4, 1, 1, 1))


def test_proposals_earn_nothing(in_jail: InJail) -> None:
    class Proposes(WorkflowNode):
        def process(self, context: Any) -> Any:
            said = AgentNode("Tool", "Propose.").process(context)
            assert Environment().propose("Tool", said).done
            return AgentNode("Planner", "Plan.").process(context)

    replies = {"Tool": '["D", "R"]', "Planner": "no"}
    ended = run(Workflow("w").add_node(Proposes("P")), replies, SQUARE, game=begins(SQUARE))
    assert in_jail(lambda sandbox: correctness(SQUARE, ended, sandbox))[0] == 0


def test_metaagent_x_eq_10_lambda(in_jail: InJail) -> None:
    assert FORMAT_WEIGHT == 0.4
    ended = run(chain(), {"Planner": "<delivery>Add.</delivery>", "Solver": "\\boxed{7}"})
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox, format_weight=0.1))
    assert [term.weight for term in reward.terms] == [1.0, 0.05, 0.05]
    assert reward.total == pytest.approx(1.1)


def test_reasons_say_what_was_seen(in_jail: InJail) -> None:
    ended = run(chain(), {"Planner": "Add.", "Solver": "\\boxed{7}"})
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))
    assert reasons(reward) == [
        "correct",
        "Solver's answer is in a box",
        "0 of 1 messages between agents are deliveries",
    ]
    assert reward.t == ended.duration_s
    ended = run(single(), {"Solver": "7"}, INCREMENT)
    reward = in_jail(lambda sandbox: paper_reward(INCREMENT, ended, sandbox))
    assert reasons(reward)[:2] == ["no_answer", "Solver's answer is not in a <solution> block"]


# Code


@pytest.mark.parametrize(
    ("body", "expected", "reason"),
    [
        ("return n + 1", (1.4, 1, 1, 1), "correct"),
        ("return n + 1 if n < 3 else 0", (0.4, 0, 1, 1), "2 of 3 tests passed"),  # binary: no share of the tests
        ("return n + 1 if n > 1 else 0", (0.4, 0, 1, 1), "0 of 3 tests passed"),  # stops at the first failure
        ("raise ValueError(n)", (0.4, 0, 1, 1), "0 of 3 tests passed"),
    ],
)
def test_code_is_correct_where_all_tests_pass(
    in_jail: InJail, body: str, expected: tuple[float, ...], reason: str
) -> None:
    ended = run(single(), {"Solver": f"<solution>\ndef inc(n):\n    {body}\n</solution>"}, INCREMENT)
    reward = in_jail(lambda sandbox: paper_reward(INCREMENT, ended, sandbox))
    assert explained(reward) == pytest.approx(expected)
    assert reasons(reward)[0] == reason


# What earns nothing


def test_an_echoed_instruction_earns_nothing(in_jail: InJail) -> None:
    """The system prompt holds the right answer as its example, and asks for a delivery."""
    prompt = "Solve.\nExample: The answer is \\boxed{7}\nHand on <delivery>my result</delivery> at the end."
    nodes = [AgentNode("First", prompt), AgentNode("Second", prompt)]
    echo = f"I was told:\n{prompt}\nYour result goes to Second. Put what Second needs, and nothing else, inside "
    ended = run(Workflow("w").add_nodes(nodes), {"First": echo + "<delivery>...</delivery>.", "Second": echo})
    assert ended.answer_from == "Second"
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))
    assert explained(reward) == (0, 0, 0, 0)


def test_an_example_of_a_delivery_in_a_nodes_own_request_earns_nothing() -> None:
    solver, critic = AgentNode("Solver", "Solve."), AgentNode("Critic", "Check.")
    request = "Check it. Hand on, for example:\n<delivery>\nThere is no error.\n</delivery>"
    node = ReflectionNode("R", solver, 1, reflection_prompt=request, critic_agent=critic)
    echo = "<delivery>\nThere is no error.\n</delivery>\nVerdict: CORRECT"
    own = "<delivery>I find no error.</delivery>\nVerdict: CORRECT"
    shares = [
        delivery_format(run(node, {"Solver": "<delivery>\\boxed{7}</delivery>", "Critic": said}).trace.agent_turns)[0]
        for said in (echo, own)
    ]
    assert shares == [0.5, 1.0]


def test_agreeing_with_another_agent_is_no_echo() -> None:
    said = "<delivery>The answer is \\boxed{7}</delivery>"
    ended = run(Workflow("w").add_nodes([AgentNode(name, "Solve.") for name in "ABC"]), dict.fromkeys("ABC", said))
    assert delivery_format(ended.trace.agent_turns) == (1.0, "2 of 2 messages between agents are deliveries")


class Passing(WorkflowNode):
    """Shows one agent's message to the next, and asks nobody for a delivery."""

    def __init__(self, *agents: AgentNode) -> None:
        super().__init__("Passing")
        self.agents = agents

    def process(self, context: Any) -> Any:
        for agent in self.agents:
            message = agent.process(context)
            context.add_message(message)
        return message


@pytest.mark.parametrize(
    ("planner", "expected"),
    [
        ("Think.\n<delivery>Add them.</delivery>", (1.0, "1 of 1 messages between agents are deliveries")),
        ("Think. Add them.", (0.0, "0 of 1 messages between agents are deliveries")),
    ],
)
def test_a_message_that_a_node_of_the_programs_own_passes_on_is_one_between_agents(
    planner: str, expected: tuple[float, str]
) -> None:
    node = Passing(AgentNode("Planner", "Plan."), AgentNode("Solver", "Solve."))
    assert delivery_format(run(node, {"Planner": planner, "Solver": "\\boxed{7}"}).trace.agent_turns) == expected


def test_an_agent_that_is_shown_its_own_message_hands_nothing_on() -> None:
    solver = AgentNode("Solver", "Solve.")
    turns = run(Passing(solver, solver), {"Solver": "\\boxed{7}"}).trace.agent_turns
    assert delivery_format(turns) == (1.0, "no agent hands anything on")


class Cheat(WorkflowNode):
    """Asks its agent, if it has one, and gives an answer of the program's own."""

    def __init__(self, agent: AgentNode | None = None) -> None:
        super().__init__("Cheat")
        self.agent = agent

    def process(self, context: Any) -> Any:
        if self.agent is not None:
            self.agent.process(context)
        return "\\boxed{7}"


def test_an_answer_that_no_agent_produced_earns_nothing(in_jail: InJail) -> None:
    ended = run(Cheat(), {})
    assert (ended.answer, ended.answer_from) == ("\\boxed{7}", None)
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))
    assert explained(reward) == (0, 0, 0, 0)
    assert reasons(reward) == [
        "the answer stands in no agent's reply",
        "no agent gave an answer",
        "no agent said anything",
    ]
    ended = run(Cheat(AgentNode("Bystander", "Wait.")), {"Bystander": "I do not know."})
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))
    assert explained(reward) == pytest.approx((0.2, 0, 0, 1))


@pytest.mark.parametrize(
    "failed",
    [ProgramFailed("ValueError", "bad"), ProgramRejected([]), LimitExceeded("tokens", 10, 11)],
    ids=lambda failed: failed.kind,
)
def test_a_failed_run_has_zero_in_every_term(in_jail: InJail, failed: Any) -> None:
    good = run(chain(), {"Planner": "<delivery>Add.</delivery>", "Solver": "\\boxed{7}"})
    ended = good.model_copy(update={"failure": failed.record()})
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))
    assert explained(reward) == (0, 0, 0, 0)
    assert set(reasons(reward)) == {f"the run failed: {failed.kind}"}


def test_a_run_that_passed_its_limit_has_zero_in_every_term(in_jail: InJail) -> None:
    ended = run(chain(), {"Planner": "<delivery>\\boxed{7}</delivery>", "Solver": "x"}, limits=Limits(agent_calls=1))
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))
    assert explained(reward) == (0, 0, 0, 0)


@pytest.mark.parametrize("failed", [EngineFailed("vllm", "gone"), SandboxUnavailable("no jail")])
def test_a_failure_of_the_infrastructure_never_becomes_a_reward(in_jail: InJail, failed: Any) -> None:
    ended = run(single(), {"Solver": "\\boxed{7}"}).model_copy(update={"failure": failed.record()})
    with pytest.raises(ValueError, match=f"a run that ended with {failed.kind} has no reward. Fix: run it again"):
        in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))


# The share of deliveries

MARKED, BARE = "<delivery>It is \\boxed{7}</delivery>", "It is \\boxed{7}"


def share(node: WorkflowNode, replies: Replies) -> tuple[float, str]:
    ended = run(node, replies)
    assert ended.failure is None
    return delivery_format(ended.trace.agent_turns)


def said(kept: int, asked: int) -> tuple[float, str]:
    return kept / asked, f"{kept} of {asked} messages between agents are deliveries"


def test_a_single_agent_hands_nothing_on() -> None:
    assert share(single(), {"Solver": BARE}) == (1.0, "no agent hands anything on")


def test_an_ensemble_hands_on_to_its_judge_only() -> None:
    members = [AgentNode(name, "Solve.") for name in "ABC"]
    judged = EnsembleNode("E", members, strategy="consensus", consensus_agent=AgentNode("Judge", "Decide."))
    replies = {"A": MARKED, "B": BARE, "C": MARKED, "Judge": BARE}
    assert share(judged, replies) == said(2, 3)
    assert share(EnsembleNode("E", members), replies) == (1.0, "no agent hands anything on"), "a vote reads boxes"
    # With a node behind it, the members and the judge hand on too.
    after = Workflow("w").add_nodes([judged, AgentNode("Last", "Say it.")])
    assert share(after, {**replies, "Last": BARE}) == said(2, 4)


def test_reflection_counts_each_round() -> None:
    node = ReflectionNode("R", AgentNode("Solver", "Solve."), 2, critic_agent=AgentNode("Critic", "Check."))
    bad, good = "Verdict: INCORRECT", "<delivery>Wrong.</delivery> Verdict: INCORRECT"
    # Solver, critic, solver, critic, solver: three of five are marked.
    assert share(node, {"Solver": [MARKED, BARE, MARKED], "Critic": [bad, good]}) == said(3, 5)
    # An agent that reviews itself has one path for both: five conversations all the same.
    alone = ReflectionNode("R", AgentNode("Solver", "Solve."), 2)
    assert share(alone, {"Solver": [MARKED, bad, BARE, good, BARE]}) == said(2, 5)


def test_a_debate_without_a_judge() -> None:
    debate = DebateNode("D", [AgentNode("A", "Argue."), AgentNode("B", "Argue.")], num_rounds=2)
    assert share(debate, {"A": [MARKED, BARE], "B": MARKED}) == said(3, 4)


TOOL_CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("replies", "kept"),
    [
        ([TOOL_CALL, MARKED], 1),
        ([f"{MARKED}\n{TOOL_CALL}", "The tool agrees."], 1),  # still the last result that it gave
        ([f"{MARKED}\n{TOOL_CALL}", "Then rather \\boxed{8}"], 0),  # this is what is handed on
        ([TOOL_CALL, BARE], 0),
    ],
)
def test_a_conversation_is_one_message(replies: list[str], kept: int) -> None:
    registry = ToolRegistry()
    registry.register("look", lambda: "7", "Look.", {"type": "object", "properties": {}})
    node = Workflow("w").add_nodes([AgentNode("Solver", "Solve.", registry), AgentNode("Last", "Say it.")])
    ended = run(node, {"Solver": replies, "Last": BARE})
    assert delivery_format(ended.trace.agent_turns) == said(kept, 1)
    # It is the same that the workflow itself handed on.
    (handed_on,) = [
        event.source for event in ended.trace.events if event.type == "delivery" and event.agent == "Solver"
    ]
    assert (handed_on == "delivery") == bool(kept)
    assert [[turn.agent for turn in talk] for talk in conversations(ended.trace.agent_turns)] == [
        ["Solver"] * 2,
        ["Last"],
    ]


@pytest.mark.parametrize(
    ("body", "timed_out", "correct"),
    [("time.sleep(60)", True, 0), ("while True: pass", False, 0), ("return n + 1", False, 1), ("return n", False, 0)],
)
def test_a_solution_that_a_clock_ended_is_told_apart(
    in_jail: InJail, monkeypatch: pytest.MonkeyPatch, body: str, timed_out: bool, correct: int
) -> None:
    monkeypatch.setattr("trainer.credit.reward.grade", partial(grade, limits=CodeLimits(wall_s=2, cpu_s=1)))
    reply = f"<solution>\nimport time\ndef inc(n):\n    {body}\n</solution>"
    ended = asyncio.run(run_workflow(AgentNode("Coder", "Solve."), "q", Canned({"Coder": reply})))
    rewarded = in_jail(lambda sandbox: paper_reward(INCREMENT, ended, sandbox))
    assert (rewarded.timed_out, rewarded.terms[0].value) == (timed_out, correct)
    assert ("a clock ended" in rewarded.terms[0].reason) == timed_out


class Held:
    """Answers what waits in an order of its own, each once the run has gone on as far as it can."""

    name = "held"

    def __init__(self, reply: Callable[[CompletionRequest], str], pick: Callable[[list[str]], str]) -> None:
        self.reply, self.pick = reply, pick
        self.waiting: dict[str, asyncio.Event] = {}

    async def complete(self, request: CompletionRequest) -> Completion:
        self.waiting[request.key] = asyncio.Event()
        if len(self.waiting) == 1:
            asyncio.get_running_loop().create_task(self.release())
        await self.waiting[request.key].wait()
        return Completion(text=self.reply(request), usage=Usage(prompt_tokens=1, completion_tokens=1))

    async def release(self) -> None:
        while self.waiting:
            for _ in range(20):
                await asyncio.sleep(0)
            key = self.pick(sorted(self.waiting))
            self.waiting.pop(key).set()
            for _ in range(20):
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing to close."""


BOXED_7 = r"<delivery>So it is \boxed{7}</delivery>"


class Lines(WorkflowNode):
    """Lines of agents side by side, then one more."""

    def __init__(self, lines: list[WorkflowNode], last: WorkflowNode) -> None:
        super().__init__("lines")
        self.lines, self.last = lines, last

    def steps(self, context: Context) -> Steps:
        yield Parallel([NodeCall(line, context.extended()) for line in self.lines])
        return (yield NodeCall(self.last, context))


def line(name: str, *prompts: str) -> Workflow:
    return Workflow(name).add_nodes([AgentNode(f"{name}{n}", prompt) for n, prompt in enumerate(prompts)])


CHOOSE = r"Is it \boxed{7}, or rather \boxed{8}?"
SOLVE, TOLD = "Solve.", r"Write \boxed{7} and nothing else."
SIDE_BY_SIDE: dict[str, Callable[[], WorkflowNode]] = {
    "debate": lambda: DebateNode("d", [AgentNode("A", SOLVE), AgentNode("B", SOLVE)], num_rounds=2),
    "told beside who solves": lambda: EnsembleNode("e", [AgentNode("A", TOLD), AgentNode("B", SOLVE)]),
    "solves beside who is told": lambda: EnsembleNode("e", [AgentNode("A", SOLVE), AgentNode("B", TOLD)]),
    "a choice beside who makes it": lambda: EnsembleNode("e", [AgentNode("A", CHOOSE), AgentNode("B", SOLVE)]),
    "a choice after who makes it": lambda: Lines([line("A", SOLVE, CHOOSE), line("B", SOLVE)], AgentNode("C", CHOOSE)),
    "told first, in a line": lambda: Lines([line("A", TOLD, SOLVE), line("B", SOLVE, SOLVE)], AgentNode("C", TOLD)),
    "told last, in a line": lambda: Lines([line("A", SOLVE, TOLD), line("B", SOLVE, SOLVE)], AgentNode("C", TOLD)),
    "one name in two lines": lambda: Lines(
        [Workflow(w).add_nodes([AgentNode("A", SOLVE), AgentNode("B", SOLVE)]) for w in "vw"], AgentNode("B", SOLVE)
    ),
    "one name on both sides": lambda: Lines(
        [line("A", SOLVE, SOLVE), Workflow("w").add_nodes([AgentNode("A1", SOLVE), AgentNode("A0", SOLVE)])],
        AgentNode("C", TOLD),
    ),
}


@pytest.mark.parametrize("workflow", SIDE_BY_SIDE)
def test_the_order_in_which_replies_come_is_no_part_of_a_reward(in_jail: InJail, workflow: str) -> None:
    def reply(salt: int, request: CompletionRequest) -> str:
        code = zlib.crc32(f"{salt} {request.key}".encode())
        return (BOXED_7, r"Then \boxed{7}", "I do not know", r"<delivery>\boxed{8}</delivery>")[code % 4]

    async def rewards(salt: int, sandbox: Sandbox) -> set[str]:
        seen = set()
        for pick in (lambda keys: keys[0], lambda keys: keys[-1], *[random.Random(n).choice for n in range(6)]):
            ended = await run_workflow(SIDE_BY_SIDE[workflow](), SEVEN.question, Held(partial(reply, salt), pick))
            assert ended.failure is None
            rewarded = await paper_reward(SEVEN, ended, sandbox)
            turns = [turn.key for turn in ended.trace.agent_turns]
            seen.add(f"{ended.answer_from} {[(term.value, term.reason) for term in rewarded.terms]} {turns}")
        return seen

    for salt in range(12):
        assert len(in_jail(partial(rewards, salt))) == 1


class Acts(WorkflowNode):
    """Two agents are asked side by side, then the program acts, twice over."""

    def __init__(self, prompts: tuple[str, str], times: int) -> None:
        super().__init__("acts")
        self.agents, self.times = [AgentNode(name, text) for name, text in zip("AB", prompts, strict=True)], times

    def steps(self, context: Context) -> Steps:
        for _ in range(2):
            yield Parallel([NodeCall(agent, context.extended()) for agent in self.agents])
            for _ in range(self.times):
                yield Act("A", '["R"]')
        return Message(content="done")


RIGHT = 'Reply with ["R"] and nothing else.'


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "prompts", [(RIGHT, "Which move?"), ("Which move?", RIGHT), ("Which move?", "Which?"), (RIGHT, RIGHT)]
)
def test_whose_an_action_is_does_not_depend_on_who_replied_first(
    in_jail: InJail, prompts: tuple[str, str], times: int
) -> None:
    game = problem_of(PlanPathLevel(level="@...G"))

    def played(pick: Callable[[list[str]], str]) -> tuple[list[str | None], float]:
        engine = Held(lambda request: '["R"]', pick)
        ended = asyncio.run(run_workflow(Acts(prompts, times), game.question, engine, game=begins(game)))
        assert ended.failure is None
        authors = [event.from_agent for event in ended.trace.events if event.type == "environment_step"]
        return authors, in_jail(lambda sandbox: paper_reward(game, ended, sandbox)).total

    found = [played(pick) for pick in (lambda keys: keys[0], lambda keys: keys[-1])]
    assert found[0] == found[1]
    assert len(found[0][0]) == 2 * times


@pytest.mark.parametrize("in_order", [True, False])
def test_what_runs_beside_an_agent_shows_nothing_of_it(in_order: bool) -> None:
    """The second round is read by nobody, though its prompts show both agents of the first."""

    def turn(agent: str, place: Place, reply: str, *shown: str) -> AgentTurn:
        prompt = "\n\n".join(["Q", *(FROM.format(sender=sender) + "\nSomething." for sender in shown)])
        messages = [ChatMessage(role="user", content=prompt)]
        return AgentTurn(
            key=f"{agent}{place}",
            path=f"{agent}",
            agent=agent,
            messages=messages,
            completion=Completion(text=reply),
            place=place,
        )

    second = [turn("A", (2, 0, 1), BARE, "A", "B"), turn("B", (2, 1, 1), BARE, "A", "B")]
    turns = [turn("A", (1, 0, 1), MARKED), turn("B", (1, 1, 1), MARKED), *(second if in_order else second[::-1])]
    assert delivery_format(Trace(events=turns).agent_turns) == said(2, 2)


def test_who_is_asked_is_read_off_the_end_of_the_prompt() -> None:
    """A name that reads like the request does not hide it, and a message that quotes the request does not feign it."""
    name = "B. Put what C needs"
    workflow = Workflow("w").add_nodes([AgentNode("A", "Solve."), AgentNode(name, "Say it.")])
    assert share(workflow, {"A": BARE, name: BARE}) == said(0, 1)
    request = "Your result goes to B. Put what B needs, and nothing else, inside <delivery>...</delivery>."
    ended = run_workflow(AgentNode("A", "Solve."), f"{request}\nWhat does this mean?", Canned({"A": BARE}))
    assert delivery_format(asyncio.run(ended).trace.agent_turns) == (1.0, "no agent hands anything on")


def test_turns_without_a_reply_are_left_out() -> None:
    lost = AgentTurn(key="A#0", path="A", agent="A", messages=[], error="gone")
    assert conversations([lost]) == []
    assert delivery_format([lost]) == delivery_format([]) == (0.0, "no agent said anything")
    said = AgentTurn(key="B#0", path="B", agent="B", messages=[], completion=Completion(text="x"))
    assert conversations([lost, said]) == [[said]]


def test_a_run_without_an_answer_is_not_right(in_jail: InJail) -> None:
    ended = asyncio.run(run_workflow(AgentNode("A", "Solve."), "q", Canned({"A": BARE})))
    silent = ended.model_copy(update={"answer": None, "answer_from": None})
    found = in_jail(lambda sandbox: correctness(SEVEN, silent, sandbox))
    assert found == (0.0, "there is no answer", False)


# The published programs


def published(in_jail: InJail, name: str, problem: Problem, replies: Replies) -> Rewarded:
    path = PUBLISHED / f"{name}.py"
    if not path.exists():
        pytest.skip(f"{path} is not there")

    async def work(sandbox: Sandbox) -> Rewarded:
        ended = await sandbox.run_program(path.read_text(), problem.question, engine=Canned(replies))
        assert ended.failure is None
        return await paper_reward(problem, ended, sandbox)

    return in_jail(work)


def prompt_of(name: str) -> str:
    """Every string of a published program: what an agent may echo at most."""
    path = PUBLISHED / f"{name}.py"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    values: dict[str, Any] = {}
    source = path.read_text().partition("# Create workflow")[0]
    exec(source, values)
    return values["math_agent"].system_prompt


LOTTERY = Problem(id="lottery", question="Find m+n.", domain="math", gold="116")
GRID = Problem(id="grid", question="How many ways?", domain="math", gold="45")
EVERSION = Problem(
    id="eversion",
    question="Find the minimum k.",
    domain="code",
    tests=StdinTests(
        tests=[
            StdinTest(stdin="2\n5\n2 4 1 5 3\n5\n5 3 2 4 1\n", stdout="1\n2"),
            StdinTest(stdin="1\n1\n9", stdout="0"),
        ]
    ),
)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Of 210 draws 1 wins: 1/115.\n\\boxed{116}", (1.4, 1, 1, 1)),
        ("\\boxed{115}", (0.4, 0, 1, 1)),
        ("It is 116.", (0.2, 0, 0, 1)),
    ],
)
def test_the_published_single_agent(in_jail: InJail, reply: str, expected: tuple[float, ...]) -> None:
    reward = published(in_jail, "case1_single_agent", LOTTERY, {"MathSolver": reply})
    assert explained(reward) == pytest.approx(expected)


def test_the_published_single_agent_that_echoes_its_prompt(in_jail: InJail) -> None:
    """Its example `\\boxed{42}` is no answer, even where 42 would be right."""
    fortytwo = LOTTERY.model_copy(update={"gold": "42"})
    echo = prompt_of("case1_single_agent")
    assert "\\boxed{42}" in echo
    reward = published(in_jail, "case1_single_agent", fortytwo, {"MathSolver": echo})
    assert explained(reward) == pytest.approx((0.2, 0, 0, 1))


@pytest.mark.parametrize(
    ("solvers", "judge", "expected"),
    [
        ([MARKED, MARKED, MARKED], "\\boxed{45}", (1.4, 1, 1, 1)),
        ([MARKED, BARE, MARKED], "\\boxed{45}", (1 + 0.2 + 0.4 / 3, 1, 1, 2 / 3)),
        ([BARE, BARE, MARKED], "Solver 3 is right.", (0.2 / 3, 0, 0, 1 / 3)),
    ],
)
def test_the_published_ensemble(in_jail: InJail, solvers: list[str], judge: str, expected: tuple[float, ...]) -> None:
    names = ("AlgebraicSolver", "GeometricSolver", "CombinatorialSolver")
    replies = {**dict(zip(names, solvers, strict=True)), "MathJudge": judge}
    assert explained(published(in_jail, "case2_ensemble_judge", GRID, replies)) == pytest.approx(expected)


def test_the_published_solver_and_tester(in_jail: InJail) -> None:
    path = PUBLISHED / "case3_final_solution.py"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    call = '<tool_call>{"name": "execute_code", "arguments": {"code": "print(6 * 7)"}}</tool_call>'
    right = f"<delivery>\n<solution>\n{path.read_text()}\n</solution>\n</delivery>"
    wrong = "<solution>\nprint(1)\n</solution>"
    passed, failed = "All pass.\nFinal verdict: CORRECT", "<delivery>Test 2 fails.</delivery>\nVerdict: INCORRECT"
    # The solver tests, then hands on its first try unmarked; the tester's report and the second try are marked; the
    # last report is not: two of four.
    replies = {"CodeSolver": [call, wrong, right], "UnitTestAgent": [failed, passed]}
    reward = published(in_jail, "case3_solver_tester", EVERSION, replies)
    assert explained(reward) == pytest.approx((1.3, 1, 1, 0.5))
    # Nobody ever finds the error: the answer is the first try, and one message of two is marked.
    replies = {"CodeSolver": [call, wrong], "UnitTestAgent": f"<delivery>Fine.</delivery> {passed}"}
    reward = published(in_jail, "case3_solver_tester", EVERSION, replies)
    assert explained(reward) == pytest.approx((0.3, 0, 1, 0.5))
    assert reasons(reward)[0] == "0 of 2 tests passed"


# In the trace


def test_the_reward_goes_into_the_trace_and_is_shown(in_jail: InJail, tmp_path: Path) -> None:
    ended = run(chain(), {"Planner": "Add.", "Solver": "\\boxed{7}"})
    reward = in_jail(lambda sandbox: paper_reward(SEVEN, ended, sandbox))
    assert ended.trace.reward is None
    trace = Trace(events=[*ended.trace.events, reward])
    read = Trace.from_lines(list(trace.lines()))
    assert read.reward == reward
    assert read.events == trace.events
    console = Console(file=StringIO(), soft_wrap=True)
    print_transcript(console, read)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    for line in (
        "Reward  1.2",
        "correct          1 x 1: correct",
        "solution format  1 x 0.2: Solver's answer is in a box",
        "delivery format  0 x 0.2: 0 of 1 messages between agents are deliveries",
    ):
        assert line in shown
    assert shown.index("Done") < shown.index("Reward  1.2")


def test_a_later_reward_replaces_an_earlier_one() -> None:
    first, second = (
        Rewarded(total=total, terms=[RewardTerm(name="a", value=total, weight=1, reason="r")]) for total in (1, 2)
    )
    assert Trace(events=[first, second]).reward == second
