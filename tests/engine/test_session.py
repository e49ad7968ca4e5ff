import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fake_engines import CannedEngine, HangingEngine

from engine.authorship import MAX_READ
from engine.session import MAX_PROMPT, Session, call_seed
from workflow.completion import ChatMessage, Completion, CompletionRequest, PreviousTurn, Sampling, Usage
from workflow.failures import EngineFailed, LimitExceeded, ProgramFailed
from workflow.limits import Limits
from workflow.requests import AgentCall, AgentReply, CodeReply, CodeRun, Delivery, ToolCall, ToolReply, ToolResult
from workflow.trace import (
    AgentTurn,
    CodeRan,
    Delivered,
    LimitHit,
    Printed,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
)


def call(agent: str = "A", text: str = "hello", tools: Any = None) -> AgentCall:
    return AgentCall(agent, [{"role": "user", "content": text}], tools or [])


def serve(session: Session, key: str, request: Any) -> Any:
    session.admit(key.split("#")[0], request)
    return asyncio.run(session.serve(key, key.split("#")[0], request))


def test_an_agent_call_goes_to_the_engine_and_into_the_trace() -> None:
    engine = CannedEngine("seven")
    session = Session(engine, question="Q?", program="p", seed=3, jail="process/j")
    tools = [{"type": "function", "function": {"name": "t"}}]
    assert serve(session, "w/A#0", call(tools=tools)) == AgentReply("seven", "stop")
    (request,) = engine.requests
    assert (request.agent, request.key, request.tools) == ("A", "w/A#0", tools)
    assert request.messages == [{"role": "user", "content": "hello"}]
    started, turn = session.events
    assert isinstance(started, RunStarted)
    assert (started.question, started.program, started.seed, started.engine) == ("Q?", "p", 3, "canned")
    assert (started.limits.agent_calls, started.jail) == (64, "process/j")
    assert isinstance(turn, AgentTurn)
    assert (turn.key, turn.path, turn.agent, turn.messages, turn.tools) == (
        "w/A#0",
        "w/A",
        "A",
        request.messages,
        tools,
    )
    assert turn.completion is not None
    assert turn.completion.text == "seven"
    assert turn.sampling == request.sampling
    assert 0 <= turn.duration_s <= turn.t <= session.elapsed


def test_seeds_depend_on_the_runs_seed_and_the_key_only() -> None:
    engine = CannedEngine()
    for order in (("A#0", "A#1", "B#0"), ("B#0", "A#1", "A#0")):
        session = Session(engine, seed=5)
        for key in order:
            serve(session, key, call(key[0], text=f"asked in {order}"))
    serve(Session(engine, seed=6), "A#0", call())
    seeds = [(request.key, request.sampling.seed) for request in engine.requests]
    assert set(seeds[:3]) == set(seeds[3:6])
    assert len({seed for _, seed in seeds}) == 4
    assert seeds[6][1] == call_seed(6, "A#0") != call_seed(5, "A#0")
    assert all(seed is not None and 0 <= seed < 2**31 for _, seed in seeds)


def test_sampling_is_passed_on_and_a_seed_of_ones_own_is_kept() -> None:
    engine = CannedEngine()
    sampling = Sampling(temperature=0.3, max_tokens=7, logprobs=True, seed=11)
    serve(Session(engine, sampling=sampling), "A#0", call())
    assert engine.requests[0].sampling == sampling
    serve(Session(engine), "A#0", call())
    assert engine.requests[1].sampling == Sampling(seed=call_seed(0, "A#0"))


# Limits


def test_limits_are_reached_before_they_are_passed() -> None:
    session = Session(CannedEngine(), limits=Limits(agent_calls=2, tool_calls=2, tokens=30, output_bytes=4))
    serve(session, "A#0", call())
    serve(session, "A#1", call())  # 30 tokens
    session.admit("A", ToolCall("A", "t", {}))
    session.admit("A", CodeRun("x"))  # tool calls and code runs count together
    session.printed("é12")
    checks: list[tuple[Callable[[], object], tuple[str, float, float]]] = [
        (lambda: session.admit("A", call()), ("agent_calls", 2, 3)),
        (lambda: session.admit("A", ToolCall("A", "t", {})), ("tool_calls", 2, 3)),
        (lambda: session.admit("A", CodeRun("x")), ("tool_calls", 2, 4)),
        (lambda: session.printed("é"), ("output_bytes", 4, 6)),
    ]
    for spend, expected in checks:
        with pytest.raises(LimitExceeded) as caught:
            spend()
        assert (caught.value.limit_kind, caught.value.limit, caught.value.used) == expected
        assert f"raise Limits.{expected[0]}" in str(caught.value)


def test_the_call_that_passes_the_token_limit_is_on_record() -> None:
    session = Session(CannedEngine(), limits=Limits(tokens=14))
    with pytest.raises(LimitExceeded) as caught:
        serve(session, "A#0", call())
    assert (caught.value.limit_kind, caught.value.limit, caught.value.used) == ("tokens", 14, 15)
    run = session.finish(failure=caught.value.record())
    assert [event.type for event in run.trace.events] == ["run_started", "agent_call", "limit", "run_ended"]
    assert run.usage == Usage(prompt_tokens=10, completion_tokens=5)
    assert run.trace.events[2] == LimitHit(t=run.trace.events[2].t, limit_kind="tokens", limit=14, used=15)


@pytest.mark.parametrize("kind", ["agent_calls", "tool_calls", "tokens"])
def test_a_limit_of_zero_allows_nothing(kind: str) -> None:
    session = Session(CannedEngine(), limits=Limits.model_validate({kind: 0}))
    with pytest.raises(LimitExceeded, match=f"{kind}=0 exceeded"):
        serve(session, "A#0", ToolCall("A", "t", {}) if kind == "tool_calls" else call())


# Failures of the engine


@pytest.mark.parametrize(
    "error",
    [ConnectionError("refused"), TimeoutError("slow"), KeyError("bug"), ValueError("bug"), ProgramFailed("x", "y")],
)
def test_whatever_an_engine_raises_is_on_record(error: Exception) -> None:
    session = Session(CannedEngine(lambda request: error))
    expected = ProgramFailed if isinstance(error, ProgramFailed) else EngineFailed
    with pytest.raises(expected) as caught:
        serve(session, "A#0", call())
    turn = session.events[-1]
    assert isinstance(turn, AgentTurn)
    assert (turn.completion, turn.error) == (None, str(caught.value))
    if expected is EngineFailed:
        assert f"engine canned failed: {type(error).__name__}" in str(caught.value)
        assert caught.value.record().is_infrastructure
        assert caught.value.__cause__ is error


def test_engine_failures_pass_as_they_are() -> None:
    failed = EngineFailed("far away", "HTTP 503", attempts=4, status=503)
    with pytest.raises(EngineFailed) as caught:
        serve(Session(CannedEngine(lambda request: failed)), "A#0", call())
    assert caught.value is failed


# What a program may send


def test_what_is_no_text_does_not_reach_an_engine() -> None:
    engine = CannedEngine()
    session = Session(engine)
    serve(session, "A#0", call(text="half \ud800 é 日本", tools=[{"x": "\udfff"}]))
    assert engine.requests[0].messages == [{"role": "user", "content": "half ? é 日本"}]
    assert engine.requests[0].tools == [{"x": "?"}]
    turn = session.events[-1]
    assert isinstance(turn, AgentTurn)
    assert turn.messages == engine.requests[0].messages
    with pytest.raises(ProgramFailed, match=r"must be plain JSON.*set"):
        serve(session, "A#1", call(tools=[{"x": {1, 2}}]))
    assert len(engine.requests) == 1


def test_tool_calls_are_recorded_and_left_to_the_program() -> None:
    session = Session(CannedEngine())
    assert serve(session, "A#0", ToolCall("A", "add", {"x": 1})) == ToolReply(None)
    session.report("A", ToolResult("A", "add", "2", is_error=True))
    session.report("A", Delivery("A", "two", "delivery"))
    _, called, returned, delivered = session.events
    assert called == ToolCalled(t=called.t, path="A", agent="A", name="add", arguments={"x": 1})
    assert returned == ToolReturned(t=returned.t, path="A", agent="A", name="add", content="2", is_error=True)
    assert delivered == Delivered(t=delivered.t, path="A", agent="A", text="two", source="delivery")


def test_reports_are_no_requests() -> None:
    with pytest.raises(TypeError, match="Delivery is a report"):
        asyncio.run(Session(CannedEngine()).serve("", "A", Delivery("A", "x", "excerpt")))


def test_code_runs_go_to_the_code_runner() -> None:
    async def runner(request: CodeRun) -> CodeReply:
        return CodeReply(1, f"ran {request.code}", "err", limit="wall_s")

    session = Session(CannedEngine(), code_runner=runner)
    reply = serve(session, "A#0", CodeRun("print(1)", stdin="in"))
    assert reply == CodeReply(1, "ran print(1)", "err", limit="wall_s")
    ran = session.events[-1]
    assert isinstance(ran, CodeRan)
    assert (ran.code, ran.stdin, ran.exit_status, ran.stdout, ran.limit) == (
        "print(1)",
        "in",
        1,
        "ran print(1)",
        "wall_s",
    )
    with pytest.raises(ProgramFailed, match="no code runner"):
        serve(Session(CannedEngine()), "A#0", CodeRun("print(1)"))


# The end


def test_finish_records_open_calls_and_ends_the_trace_once() -> None:
    seen: list[Any] = []

    async def main() -> Session:
        session = Session(HangingEngine("A"), sink=seen.append)
        session.printed("some ")
        session.printed("output")
        task = asyncio.create_task(session.serve("A#0", "A", call()))
        await asyncio.sleep(0)
        first = session.finish(failure=ProgramFailed("ValueError", "x").record())
        assert session.finish(answer="other") is first
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return session

    session = asyncio.run(main())
    assert [event.type for event in session.events] == ["run_started", "print", "print", "agent_call", "run_ended"]
    turn, ended = session.events[-2:]
    assert isinstance(turn, AgentTurn)
    assert (turn.completion, turn.error) == (None, "the run ended first")
    assert isinstance(ended, RunEnded)
    run = session.finish()
    assert run.output == "some output"
    assert isinstance(session.events[1], Printed)
    assert run.failure == ended.failure
    assert run.answer is None
    assert seen == session.events == run.trace.events


def test_usage_is_the_sum_of_all_calls() -> None:
    completion = Completion(text="x", usage=Usage(prompt_tokens=3, completion_tokens=4, cost_usd=0.25))
    session = Session(CannedEngine(lambda request: completion))
    for number in range(3):
        serve(session, f"A#{number}", call())
    run = session.finish("x")
    assert run.usage == Usage(prompt_tokens=9, completion_tokens=12, cost_usd=0.75)
    assert run.trace.usage == run.usage
    assert run.trace.ended is not None
    assert run.trace.ended.usage == run.usage


# Provenance


@pytest.mark.parametrize(
    ("reply", "answer", "found"),
    [
        (r"So \boxed{7}.", r"So \boxed{7}.", True),
        (r"So \boxed{7}.", "7", True),
        (r"So \boxed{ 1,000 }.", r"\boxed{1,000}", True),
        (r"So \boxed{1, 000}.", r"\boxed{1,000}", False),  # a list is no number
        (r"So \boxed{7}.", r"The team says \boxed{7}", True),
        (r"So \boxed{7}.", r"\boxed{8}", False),
        ("The sum is 15.", "15", True),
        ("The sum is 15.", "5", False),
        ("The sum is 15.", "1", False),
        ("The sum is -5", "5", False),
        ("The sum is -5", "-5", True),
        ("The sum is 5.2", "5", False),
        ("The sum is 5.2", "2", False),
        ("The sum is 5.", "5", True),
        ("They are 3,5", "3", False),
        ("It is Paris!", "Paris", True),
        ("It is Parisian", "Paris", False),
        ("<solution>\nx = 1\n</solution>", "```\n<solution>x = 1</solution>\n```", True),
        ("<solution>\nx = 1\n</solution>", "<solution>x = 2</solution>", False),
        ("Long.\n<delivery>the plan</delivery>", "Short.\n<delivery>the plan</delivery>", True),
        ("It is Paris.\nEcho of the prompt\nI am sure.", "It is Paris.\n\nI am sure.", True),
        ("It is Paris.\nEcho of the prompt\nI am sure.", "It is Paris.\nI am not sure.", False),
        ("Long.", "Short.", False),
        ("Long.", "", False),
        ("", "", False),
        ("", "Short.", False),
        ("a(b[c", "(b[", True),
        # What would be graded was nobody's, whatever stands beside it.
        ("<delivery>no idea</delivery>", "<delivery>no idea</delivery>\n\\boxed{42}", False),
        ("<solution>x = 1</solution>", "<solution>x = 1</solution>\n\\boxed{42}", False),
        (r"\boxed{1}", "\\boxed{1}\n<solution>y = 2</solution>", False),
        (r"\boxed{1}", "\\boxed{1}\n```python\ny = 2\n```", False),
        ("```python\nx = 1\n```", "<solution>\nx = 1\n</solution>", True),
        ("Not so:\n```\nx = 1\n```\nbut:\n```python\nx = 2\n```", "```python\nx = 2\n```", True),
    ],
)
def test_an_answer_is_from_the_agent_in_whose_reply_it_stands(reply: str, answer: str, found: bool) -> None:
    session = Session(CannedEngine(reply))
    serve(session, "A#0", call("Solver"))
    run = session.finish(answer)
    assert run.answer == answer
    assert run.answer_from == ("Solver" if found else None)
    assert run.trace.answer is not None
    assert run.trace.answer.from_agent == run.answer_from


def test_the_last_agent_that_said_it_counts() -> None:
    session = Session(CannedEngine({"A": r"\boxed{7}", "B": r"yes, \boxed{7}", "C": r"\boxed{8}"}))
    for agent in "ABC":
        serve(session, f"{agent}#0", call(agent))
    assert session.finish(r"\boxed{7}").answer_from == "B"


def test_an_answer_may_join_what_several_agents_said() -> None:
    said = {"A": "<solution>\nx = 1\n</solution>", "B": r"So \boxed{7}.", "C": "Well."}
    for answer, agent in [
        ("A has <solution>x = 1</solution>, B has \\boxed{7}", "B"),
        ("A has <solution>x = 1</solution>, B has \\boxed{8}", None),
        ("A has <solution>x = 2</solution>, B has \\boxed{7}", None),
    ]:
        session = Session(CannedEngine(said))
        for name in said:
            serve(session, f"{name}#0", call(name))
        assert session.finish(answer).answer_from == agent


EXAMPLE = "Reply like \\boxed{42} in the end."


@pytest.mark.parametrize(
    ("told", "reply", "answer", "agent"),
    [
        (EXAMPLE, f"I shall:\n{EXAMPLE}", r"\boxed{42}", None),
        (EXAMPLE, f"\\boxed{{7}}\n{EXAMPLE}", r"\boxed{7}", "A"),  # what is not its own does not hide what is
        # No choice is left: whoever wrote the prompt has answered.
        (EXAMPLE, r"\boxed{42}", r"\boxed{42}", None),
        ("Say this: It is \\boxed{42}, surely.", r"It is \boxed{42}, surely.", r"\boxed{42}", None),
        (r"End with \boxed{A}, \boxed{B} or \boxed{C}.", r"\boxed{B}", r"\boxed{B}", "A"),
        (r"End with \boxed{...}.", r"\boxed{42}", r"\boxed{42}", "A"),
        ("Say:\n```python\nx = 1\n```", "<solution>\nx = 1\n</solution>", "<solution>x = 1</solution>", None),
        ("Say: <solution>x = 1</solution>", "```python\nx = 1\n```", "<solution>x = 1</solution>", None),
        ("Not <solution>x = 1</solution>", "<solution>x = 2</solution>", "<solution>x = 2</solution>", "A"),
    ],
)
@pytest.mark.parametrize("role", ["system", "user", "tool", "assistant"])
def test_what_instructions_dictate_is_nobodys(role: Any, told: str, reply: str, answer: str, agent: str | None) -> None:
    turns = [ChatMessage(role=role, content=told), ChatMessage(role="user", content="What is it?")]
    session = Session(CannedEngine(reply), question="What is it?")
    serve(session, "A#0", AgentCall("A", turns, [], 0))
    assert session.finish(answer).answer_from == agent


@pytest.mark.parametrize("box", [r"\boxed{7}", r"So it is \boxed{7}.", "<solution>\nx = 1\n</solution>"])
def test_the_question_and_what_agents_said_themselves_may_be_repeated(box: str) -> None:
    for said, question in (({"A": box, "B": box}, ""), ({"A": "Well.", "B": box}, f"Is it this?\n{box}")):
        session = Session(CannedEngine(said), question=question)
        serve(session, "A#0", call("A", "Solve."))
        serve(session, "B#0", call("B", f"{question}\n\n### From A\n{said['A']}"))
        assert session.finish(box).answer_from == "B"


def test_what_two_agents_were_told_to_say_is_neithers() -> None:
    line = r"The answer is \boxed{42}, we think."
    session = Session(CannedEngine(line))
    for name in "AB":
        serve(session, f"{name}#0", call(name, f"Repeat this line:\n{line}"))
    assert session.finish(line.replace(", we think", "")).answer_from is None


def test_a_tools_result_is_an_agents_only_where_the_agent_wrote_the_code() -> None:
    async def runs(request: CodeRun) -> CodeReply:
        return CodeReply(0, "\\boxed{9}\n", "")

    wrote = '<tool_call>{"name": "python", "arguments": {"code": "print(9)"}}</tool_call>'
    for code, agent in (("print(9)", "A"), ("print('mine')", None)):
        replies = CannedEngine(lambda request: r"\boxed{9}" if len(request.messages or []) > 1 else wrote)
        session = Session(replies, code_runner=runs)
        serve(session, "A#0", call("A", "Solve."))
        asyncio.run(session.serve("c#0", "A", CodeRun(code)))
        turns = [ChatMessage(role="user", content="Solve."), ChatMessage(role="assistant", content=wrote)]
        serve(session, "A#1", AgentCall("A", [*turns, ChatMessage(role="tool", content=r"\boxed{9}")], [], 1))
        assert session.finish(r"\boxed{9}").answer_from == agent


def test_an_agents_answer_is_its_last_one() -> None:
    every = "\n".join(rf"\boxed{{{number}}}" for number in range(10))
    for number in range(10):
        session = Session(CannedEngine(every))
        serve(session, "A#0", call("A"))
        assert session.finish(rf"\boxed{{{number}}}").answer_from == ("A" if number == 9 else None)


def test_too_long_prompts_and_answers_fail_the_run_with_a_reason() -> None:
    session = Session(CannedEngine("x"))
    with pytest.raises(ProgramFailed, match=r"the prompt of 'A' has 1,048,577 characters; the limit is 1,048,576"):
        session.admit("A", call("A", "x" * (MAX_PROMPT + 1)))
    run = session.finish("x" * (MAX_READ + 1))
    assert run.answer is None
    assert run.failure is not None
    assert run.failure.message.startswith("AnswerTooLong: the answer has 262,145 characters; the limit is 262,144")


def test_prompts_and_printed_text_are_no_provenance() -> None:
    session = Session(CannedEngine("I do not know"))
    serve(session, "A#0", call(text=r"The answer is \boxed{42}"))
    session.printed(r"\boxed{42}")
    session.report("A", Delivery("A", r"\boxed{42}", "delivery"))
    assert session.finish(r"\boxed{42}").answer_from is None


class Tokens(CannedEngine):
    """An engine that owns its tokens: extends the previous turn exactly, unless told to forget it."""

    def __init__(self, *, forgets: bool = False) -> None:
        super().__init__()
        self.forgets = forgets

    async def complete(self, request: CompletionRequest) -> Completion:
        self.requests.append(request)
        previous = request.previous
        kept = [] if previous is None or self.forgets else [*previous.prompt_token_ids, *previous.token_ids]
        said = f"turn {len(self.requests)}"
        return Completion(text=said, prompt_token_ids=[*kept, 7, 8], token_ids=[len(self.requests), 9])


TOOL = {"type": "function", "function": {"name": "t"}}


def second_turn(
    engine: Tokens,
    *,
    reply: str = "turn 1",
    path: str = "w/A",
    agent: str = "A",
    tools: Sequence[list[dict[str, Any]]] = ([], []),
) -> AgentTurn:
    session = Session(engine)
    serve(session, "w/A#0", AgentCall("A", [{"role": "user", "content": "hello"}], tools[0]))
    messages: list[ChatMessage] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": reply},
        {"role": "tool", "content": "42"},
    ]
    serve(session, f"{path}#1", AgentCall(agent, messages, tools[1], turn=1))
    last = session.events[-1]
    assert isinstance(last, AgentTurn)
    return last


def test_a_later_turn_gets_the_ids_of_the_one_before_and_says_that_it_continues_them() -> None:
    engine = Tokens()
    turn = second_turn(engine)
    assert engine.requests[1].previous == PreviousTurn(messages=1, prompt_token_ids=[7, 8], token_ids=[1, 9])
    assert turn.completion is not None
    assert turn.completion.prompt_token_ids == [7, 8, 1, 9, 7, 8]
    assert turn.continues == "w/A#0"
    assert second_turn(Tokens(), tools=([TOOL], [TOOL])).continues == "w/A#0"


def test_a_prompt_that_is_no_exact_extension_starts_a_new_sample() -> None:
    assert second_turn(Tokens(forgets=True)).continues is None


@pytest.mark.parametrize(
    "other",
    [
        {"reply": "never said"},
        {"path": "w/B"},
        {"agent": "B"},
        {"tools": ([TOOL], [])},
        {"tools": ([], [TOOL])},
        {"tools": ([TOOL], [{**TOOL, "function": {"name": "another"}}])},
    ],
)
def test_a_turn_that_only_claims_to_be_a_later_one_continues_nothing(other: dict[str, Any]) -> None:
    engine = Tokens()
    turn = second_turn(engine, **other)
    assert engine.requests[1].previous is None
    assert turn.continues is None


def test_the_trace_keeps_what_was_asked_though_the_node_changes_its_list() -> None:
    messages: list[ChatMessage] = [{"role": "user", "content": "hello"}]
    tools = [{"type": "function", "function": {"name": "t"}}]
    session = Session(CannedEngine())
    serve(session, "w/A#0", AgentCall("A", messages, tools))
    messages[0]["content"] = "changed"
    messages.append({"role": "user", "content": "more"})
    tools.clear()
    turn = session.events[-1]
    assert isinstance(turn, AgentTurn)
    assert turn.messages == [{"role": "user", "content": "hello"}]
    assert len(turn.tools) == 1


def test_code_that_runs_beside_an_agent_is_the_runs_own_time() -> None:
    class Slow(CannedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            await asyncio.sleep(0.6)
            return await super().complete(request)

    async def run_code(request: CodeRun) -> CodeReply:
        await asyncio.sleep(0.3)
        return CodeReply(0, "", "")

    session = Session(Slow(), code_runner=run_code)

    async def both() -> None:
        asked = session.serve("w/A#0", "w/A", call())
        await asyncio.gather(asked, session.serve("w/t#0", "w/t", CodeRun("print(1)")))

    asyncio.run(both())
    assert session.clock.own_s == pytest.approx(0.3, abs=0.15)
    assert session.elapsed >= 0.6


def test_a_call_is_told_as_it_begins_and_recorded_when_it_is_over() -> None:
    told: list[tuple[str, str, bool]] = []

    def hears(what: str, event: Any) -> None:
        if isinstance(event, AgentTurn):
            told.append((what, event.agent, event.completion is None))

    async def main() -> None:
        session = Session(
            HangingEngine("A"), sink=lambda event: hears("over", event), asking=lambda turn: hears("begins", turn)
        )
        await session.serve("B#0", "B", call("B"))
        task = asyncio.create_task(session.serve("A#0", "A", call()))
        await asyncio.sleep(0)
        assert told == [("begins", "B", True), ("over", "B", False), ("begins", "A", True)]
        session.finish(failure=ProgramFailed("ValueError", "x").record())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert told[3:] == [("over", "A", True)]
