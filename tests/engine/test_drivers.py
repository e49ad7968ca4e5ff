"""The drivers: on an event loop, over a channel, and in a plain Python process with an engine connected."""

import asyncio
import contextlib
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fake_engines import BarrierEngine, CannedEngine, HangingEngine

import engine
from engine import Engine, Run, Session, connect, disconnect, drive_sync, run_workflow
from engine.drivers import root_steps
from engine.guarded import completed_within
from workflow import (
    AgentNode,
    Context,
    DebateNode,
    EnsembleNode,
    LoopWorkflow,
    Message,
    ReflectionNode,
    ToolRegistry,
    Workflow,
    WorkflowNode,
)
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.failures import EngineFailed, LimitExceeded, MetaAgentError, NoEngineConnected, ProgramFailed
from workflow.limits import Limits
from workflow.requests import Delivery, NodeCall, Parallel, Steps, ToolResult
from workflow.scheduler import Issued, Scheduler
from workflow.trace import AgentTurn, Event, RunEnded, event_to_dict

ROOT = Path(__file__).parents[2]


def agent(name: str, tools: ToolRegistry | None = None) -> AgentNode:
    return AgentNode(name, f"You are {name}.", tools)


def drive_async(node: WorkflowNode, engine: Engine, **options: Any) -> Run:
    return asyncio.run(run_workflow(node, "Q?", engine, **options))


def drive_over_a_channel(node: WorkflowNode, engine: Engine, **options: Any) -> Run:
    """`drive_sync` against a session on an event loop of another thread, as a jail and its host do it."""
    session = Session(engine, question="Q?", own_sampling=True, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    replies: queue.Queue[tuple[str, Any]] = queue.Queue()
    open_calls = []

    def send(issued: Issued) -> None:
        request = issued.request
        if isinstance(request, (Delivery, ToolResult)):
            session.report(issued.path, request)
            return
        session.admit(issued.path, request)
        future = asyncio.run_coroutine_threadsafe(session.serve(issued.key, issued.path, request, issued.place), loop)
        future.add_done_callback(lambda done: done.cancelled() or replies.put((issued.key, done)))
        open_calls.append(future)

    def receive() -> tuple[str, Any]:
        key, done = replies.get(timeout=10)
        return key, done.result()

    try:
        message = drive_sync(Scheduler(root_steps(NodeCall(node, Context.for_question("Q?")))), send, receive)
        return session.finish(message.content)
    except MetaAgentError as error:
        return session.finish(failure=error.record())
    finally:
        for future in open_calls:
            future.cancel()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=5)
        loop.close()


both_drivers = pytest.mark.parametrize("drive", [drive_async, drive_over_a_channel])
Driver = Callable[..., Run]


class Plain(WorkflowNode):
    """Calls its parts one after the other, in plain Python, at some depth."""

    def __init__(self, name: str, *parts: WorkflowNode) -> None:
        super().__init__(name)
        self.parts = parts

    def process(self, context: Context) -> Message:
        return Message(" ".join(self._ask(context, part, 20) for part in self.parts), sender=self.name)

    def _ask(self, context: Context, part: WorkflowNode, depth: int) -> str:
        return part.process(context).content if depth == 0 else self._ask(context, part, depth - 1)


class Failing(WorkflowNode):
    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(name)
        self.error = error

    def process(self, context: Context) -> Message:
        raise self.error


# Concurrency


def test_an_engine_that_cancels_a_call_itself_has_failed_and_the_caller_goes_on() -> None:
    def cancels(request: CompletionRequest) -> str:
        raise asyncio.CancelledError

    for node in (agent("A"), EnsembleNode("e", [agent("A"), agent("B")])):
        run = drive_async(Workflow().add_node(node), CannedEngine(cancels))
        assert run.failure is not None
        assert run.failure.kind == "engine_failed"
        assert "it cancelled a call itself" in run.failure.message


@both_drivers
@pytest.mark.parametrize(
    ("node", "together", "calls"),
    [
        (EnsembleNode("e", [agent(name) for name in "ABCD"]), 4, 4),
        (DebateNode("d", [agent(name) for name in "ABC"], num_rounds=3), 3, 9),
        (EnsembleNode("e", [EnsembleNode(name, [agent("A"), agent("B")]) for name in "xyz"]), 6, 6),
        (EnsembleNode("e", [Plain("p", agent("A"), agent("B")), Plain("q", agent("C"), agent("D"))]), 2, 4),
        (Workflow().add_nodes([EnsembleNode(n, [agent("A"), agent("B")]) for n in "xy"]), 2, 4),
    ],
    ids=["ensemble", "debate", "nested", "plain", "chain"],
)
def test_members_and_debaters_of_a_round_overlap(drive: Driver, node: WorkflowNode, together: int, calls: int) -> None:
    engine = BarrierEngine(together, r"\boxed{7}")
    run = drive(node, engine)
    assert run.failure is None
    assert run.answer is not None
    assert "7" in run.answer
    assert len(engine.requests) == calls


def test_many_runs_share_one_loop() -> None:
    node = EnsembleNode("e", [agent("A"), agent("B")], "consensus", agent("J"))
    engine = CannedEngine(lambda request: f"\\boxed{{{request.messages[1]['content'][0]}}}", delay=0.01)

    async def main() -> list[Run]:
        return await asyncio.gather(*(run_workflow(node, f"{n % 10} is it", engine) for n in range(100)))

    runs = asyncio.run(main())
    assert [run.answer for run in runs] == [f"\\boxed{{{n % 10}}}" for n in range(100)]
    assert len({run.trace.started.run_id for run in runs if run.trace.started}) == 100


# The same run whatever drives it


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register("double", lambda x: 2 * x, "Double it.", {"properties": {"x": {"type": "integer"}}})
    return registry


CALL = '<tool_call>{"name": "double", "arguments": {"x": 21}}</tool_call>'


def skeleton(run: Run) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(sorted((k, repr(v)) for k, v in event_to_dict(event).items() if k not in ("t", "duration_s", "run_id")))
        for event in run.trace.events
    )


def test_both_drivers_leave_the_same_trace_in_any_order_of_replies(tools: ToolRegistry) -> None:
    node = Workflow().add_nodes(
        [
            EnsembleNode(
                "e", [agent("T", tools), Plain("p", agent("A"), agent("B")), agent("C")], "consensus", agent("J")
            ),
            ReflectionNode("r", agent("S"), critic_agent=agent("K")),
        ]
    )

    def reply(request: CompletionRequest) -> str:
        assert request.messages is not None
        if request.agent == "T" and request.messages[-1]["role"] == "user":
            return CALL
        return "Verdict: CORRECT" if request.agent == "K" else f"<delivery>{request.agent}</delivery> \\boxed{{7}}"

    class Shuffled(CannedEngine):
        async def _wait(self, request: CompletionRequest) -> None:
            await asyncio.sleep(random.random() / 100)

    runs = [drive(node, Shuffled(reply), seed=3) for drive in (drive_async, drive_over_a_channel) for _ in range(3)]
    assert runs[0].failure is None
    assert runs[0].answer_from == "S"
    assert len(runs[0].trace.agent_turns) == 8
    for run in runs[1:]:
        assert skeleton(run) == skeleton(runs[0])
    other = drive_async(node, Shuffled(reply), seed=4)
    seeds = {turn.key: turn.sampling.seed for turn in runs[0].trace.agent_turns}
    assert all(turn.sampling.seed != seeds[turn.key] for turn in other.trace.agent_turns)


@both_drivers
def test_a_plain_node_calls_agents_at_any_depth(drive: Driver) -> None:
    inner = Workflow("w").add_node(EnsembleNode("e", [Plain("b", agent("A"), Plain("c", agent("B")))]))
    engine = CannedEngine(lambda request: request.agent)
    run = drive(Plain("a", inner, agent("C")), engine)
    assert run.answer == "A B C"
    assert [request.key.split("/")[:3] for request in engine.requests[:2]] == [["a", "w", "e"]] * 2


@both_drivers
def test_tools_are_called_and_recorded(drive: Driver, tools: ToolRegistry) -> None:
    engine = CannedEngine(lambda request: CALL if len(request.messages or []) == 2 else "done")
    run = drive(agent("A", tools), engine)
    assert [event.type for event in run.trace.events] == [
        "run_started",
        "agent_call",
        "tool_call",
        "tool_result",
        "agent_call",
        "delivery",
        "answer",
        "run_ended",
    ]
    assert engine.requests[1].messages is not None
    assert engine.requests[1].messages[-1] == {"role": "tool", "content": "42"}


# Limits


@both_drivers
@pytest.mark.parametrize(
    ("limits", "kind", "limit", "used", "calls"),
    [
        (Limits(agent_calls=3), "agent_calls", 3, 4, 3),
        (Limits(tokens=40), "tokens", 40, 45, 3),
        (Limits(tool_calls=2), "tool_calls", 2, 3, 3),
    ],
)
def test_limits_end_the_run_with_their_fields(
    drive: Driver, tools: ToolRegistry, limits: Limits, kind: str, limit: int, used: int, calls: int
) -> None:
    run = drive(LoopWorkflow().add_node(agent("A", tools)), CannedEngine(CALL), limits=limits)
    assert run.answer is None
    assert run.failure is not None
    assert run.failure.kind == "limit_exceeded"
    assert run.failure.fields == {"limit_kind": kind, "limit": limit, "used": used}
    assert len(run.trace.agent_turns) == calls
    assert [event.type for event in run.trace.events[-2:]] == ["limit", "run_ended"]


@both_drivers
def test_a_program_cannot_catch_a_limit(drive: Driver) -> None:
    class Stubborn(WorkflowNode):
        def process(self, context: Context) -> Message:
            try:
                while True:
                    agent("A").process(context)
            except Exception:
                return Message("went on")

    run = drive(EnsembleNode("e", [Stubborn("s"), Stubborn("t")]), CannedEngine(), limits=Limits(agent_calls=4))
    assert run.failure is not None
    assert run.failure.fields["limit_kind"] == "agent_calls"


def test_a_hanging_engine_ends_a_run_which_keeps_what_was_in_flight() -> None:
    node = Workflow().add_nodes([agent("A"), EnsembleNode("e", [agent("B"), agent("C"), agent("D")])])
    engine = HangingEngine("B", "D", reply="done")
    run = drive_async(node, engine, limits=Limits(wall_s=0.05, reply_s=0.1))
    assert run.failure is not None
    assert run.failure.kind == "engine_failed"
    assert "no reply within reply_s=0.1" in run.failure.message
    assert sorted(engine.cancelled) == ["B", "D"]
    done = {turn.agent: turn.completion is not None for turn in run.trace.agent_turns}
    assert done == {"A": True, "C": True, "B": False, "D": False}
    lost = [turn for turn in run.trace.agent_turns if turn.completion is None]
    assert all(turn.error and turn.messages and turn.duration_s > 0.05 for turn in lost)
    assert isinstance(run.trace.events[-1], RunEnded)


def test_a_hanging_engine_also_ends_a_single_call() -> None:
    run = drive_async(agent("A"), HangingEngine("A"), limits=Limits(reply_s=0.05))
    assert run.failure is not None
    assert run.failure.kind == "engine_failed"
    assert [turn.agent for turn in run.trace.agent_turns] == ["A"]


# Failures


def test_the_limit_of_a_reply_holds_with_an_engine_that_does_not_mind_being_cancelled() -> None:
    class Deaf(CannedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.3)
            return await super().complete(request)

    chain = Workflow("chain").add_nodes([agent("A"), agent("B"), agent("C")])
    for node, calls in ((chain, 1), (agent("A"), 1)):
        asked = Deaf(lambda request: "\\boxed{1}")
        run = drive_async(node, asked, limits=Limits(reply_s=0.1))
        assert (run.answer, run.failure and run.failure.kind) == (None, "engine_failed")
        assert len(run.trace.agent_turns) == calls


def test_an_engine_that_ends_for_nobody_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a run nor a Designer: its call is left behind."""
    monkeypatch.setattr("engine.guarded.MINDS_S", 0.05)
    let_go = threading.Event()

    class Stone(CannedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            while not let_go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.02)
            raise RuntimeError("heard by nobody")

    stone = Stone(lambda request: "")

    async def held() -> list[float]:
        took = []
        for waits in (
            run_workflow(agent("A"), "q?", stone, limits=Limits(reply_s=0.1)),
            completed_within(stone, CompletionRequest(messages=[{"role": "user", "content": "q?"}]), 0.1),
        ):
            began = time.monotonic()
            with contextlib.suppress(EngineFailed):
                found = await waits
                assert isinstance(found, Run)
                assert found.failure is not None
                assert found.failure.kind == "engine_failed"
            took.append(time.monotonic() - began)
        let_go.set()
        await asyncio.sleep(0.1)
        return took

    assert max(asyncio.run(held())) < 5


def test_an_engine_that_is_no_coroutine_has_failed() -> None:
    class Plain(CannedEngine):
        def complete(self, request: CompletionRequest) -> Any:
            raise RuntimeError("at once")

    class Nothing(CannedEngine):
        def complete(self, request: CompletionRequest) -> Any:
            return None

    for asked, said in ((Plain(lambda request: ""), "at once"), (Nothing(lambda request: ""), "await")):
        run = drive_async(agent("A"), asked)
        assert run.failure is not None
        assert run.failure.kind == "engine_failed"
        assert said in run.failure.message


@both_drivers
def test_an_engine_failure_ends_the_run_and_cancels_the_others(drive: Driver) -> None:
    log: list[str] = []

    class Careful(WorkflowNode):
        def process(self, context: Context) -> Message:
            try:
                return agent("B").process(context)
            except Exception:
                log.append("caught")
                return Message("saved")
            finally:
                log.append("unwound")

    engine = HangingEngine("B", reply={"A": EngineFailed("far", "HTTP 500", 3, 500), "B": "x"})
    started = time.monotonic()
    run = drive(EnsembleNode("e", [Careful("c"), agent("A")]), engine)
    assert time.monotonic() - started < 5
    assert run.failure is not None
    assert run.failure.kind == "engine_failed"
    assert run.failure.fields == {"engine": "far", "attempts": 3, "status": 500}
    assert log == ["unwound"]
    assert {turn.agent: turn.completion for turn in run.trace.agent_turns} == {"A": None, "B": None}


@pytest.mark.parametrize("error", [TimeoutError("read timed out"), ConnectionError("refused"), KeyError("bug")])
def test_an_engines_own_error_is_no_fault_of_the_program(error: Exception) -> None:
    run = drive_async(agent("A"), CannedEngine(lambda request: error))
    assert run.failure is not None
    assert run.failure.kind == "engine_failed"
    assert type(error).__name__ in run.failure.message


@pytest.mark.parametrize("error", [TimeoutError("mine"), ValueError("mine"), SystemExit(3)])
def test_a_programs_own_error_is_a_failed_program(error: BaseException) -> None:
    run = drive_async(Failing("f", error), CannedEngine())
    assert run.failure is not None
    assert run.failure.kind == "program_failed"
    assert str(error) in run.failure.message
    assert run.trace.events[-1] == RunEnded(t=run.trace.events[-1].t, failure=run.failure)


def test_a_failed_member_does_not_end_the_run() -> None:
    node = EnsembleNode("e", [Failing("f", ValueError("no luck")), agent("A")])
    assert drive_async(node, CannedEngine("seven")).answer == "seven"


def test_answers_that_no_agent_gave_are_marked() -> None:
    class Inventive(WorkflowNode):
        def process(self, context: Context) -> Message:
            agent("A").process(context)
            return Message(r"\boxed{42}")

    run = drive_async(Inventive("i"), CannedEngine(r"\boxed{7}"))
    assert (run.answer, run.answer_from) == (r"\boxed{42}", None)
    honest = drive_async(Workflow().add_nodes([agent("A"), agent("B")]), CannedEngine({"A": "no", "B": r"\boxed{7}"}))
    assert (honest.answer, honest.answer_from) == (r"\boxed{7}", "B")


def test_a_cancelled_run_is_unwound() -> None:
    log: list[str] = []
    events: list[Event] = []

    class Careful(WorkflowNode):
        def process(self, context: Context) -> Message:
            try:
                return agent("A").process(context)
            finally:
                log.append("unwound")

    async def main() -> None:
        run = run_workflow(Careful("c"), "Q?", HangingEngine("A"), sink=events.append)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.05)

    asyncio.run(main())
    assert log == ["unwound"]
    assert [event.type for event in events] == ["run_started", "agent_call", "run_ended"]
    last = events[-1]
    assert isinstance(last, RunEnded)
    assert last.failure is not None
    assert "cancelled" in last.failure.message


def test_drive_sync_unwinds_when_the_channel_breaks() -> None:
    log: list[str] = []

    class Careful(WorkflowNode):
        def process(self, context: Context) -> Message:
            try:
                return agent("A").process(context)
            finally:
                log.append("unwound")

    def receive() -> tuple[str, Any]:
        raise EOFError("the channel is closed")

    scheduler = Scheduler(root_steps(NodeCall(Careful("c"), Context.for_question("Q?"))))
    with pytest.raises(EOFError):
        drive_sync(scheduler, lambda issued: None, receive)
    assert log == ["unwound"]


# An engine connected to this process


def wait_until(holds: Callable[[], bool]) -> None:
    """The engine's thread is told that a call is over; it may take a moment."""
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def connected() -> Iterator[Callable[..., CannedEngine]]:
    def start(engine: CannedEngine, **options: Any) -> CannedEngine:
        connect(engine, **options)
        return engine

    yield start
    disconnect()


def test_connected_workflows_and_nodes_run_in_plain_code(connected: Callable[..., CannedEngine]) -> None:
    events: list[Event] = []
    engine = connected(BarrierEngine(2, r"\boxed{7}"), sink=events.append)
    workflow = Workflow().add_node(EnsembleNode("e", [agent("A"), agent("B")]))
    assert workflow.run("Q?").content == r"\boxed{7}"
    assert events[0].type == "run_started"
    assert events[-1].type == "run_ended"
    assert engine.requests[0].messages == [
        {"role": "system", "content": "You are A."},
        {"role": "user", "content": "Q?"},
    ]
    disconnect()
    assert engine.closed == 1
    disconnect()
    with pytest.raises(NoEngineConnected):
        workflow.run("Q?")


def test_a_single_node_runs_in_plain_code(connected: Callable[..., CannedEngine]) -> None:
    connected(CannedEngine("seven"))
    assert agent("A").process(Context.for_question("Q?")).content == "seven"


def test_connecting_again_replaces_the_engine(connected: Callable[..., CannedEngine]) -> None:
    first = connected(CannedEngine("one"))
    connected(CannedEngine("two"))
    assert Workflow().add_node(agent("A")).run("Q?").content == "two"
    assert (first.closed, first.requests) == (1, [])


def test_an_engine_that_fails_to_close_can_be_replaced(connected: Callable[..., CannedEngine]) -> None:
    class Clinging(CannedEngine):
        async def close(self) -> None:
            raise OSError("cannot close")

    connected(Clinging())
    with pytest.raises(OSError, match="cannot close"):
        disconnect()
    connected(CannedEngine("two"))
    assert Workflow().add_node(agent("A")).run("Q?").content == "two"


@pytest.mark.parametrize("wrong", [None, 7, object(), CannedEngine.complete])
def test_connecting_what_is_no_engine_says_so(wrong: Any) -> None:
    with pytest.raises(TypeError, match="is no engine: it needs a name"):
        connect(wrong)


def test_connected_runs_keep_their_limits_and_raise(connected: Callable[..., CannedEngine]) -> None:
    events: list[Event] = []
    limits = Limits(reply_s=0.1, agent_calls=1)
    engine = connected(HangingEngine("H", reply="x"), limits=limits, sink=events.append)
    chain = Workflow().add_nodes([agent("A"), agent("B")])
    hangs = Workflow().add_node(agent("H"))
    for workflow, failure, told in ((chain, LimitExceeded, "agent_calls=1"), (hangs, EngineFailed, "reply_s=0.1")):
        with pytest.raises(failure, match=told) as caught:
            workflow.run("Q?")
        assert isinstance(events[-1], RunEnded)
        assert events[-1].failure == caught.value.record()
    wait_until(lambda: engine.cancelled == ["H"])
    assert Workflow().add_node(agent("A")).run("Q?").content == "x"  # every run has its own budget


@pytest.mark.parametrize("error", [ValueError("mine"), TimeoutError("mine")])
def test_connected_runs_raise_what_the_program_raised_and_record_it(
    connected: Callable[..., CannedEngine], error: Exception
) -> None:
    events: list[Event] = []
    connected(CannedEngine(), sink=events.append)
    with pytest.raises(type(error), match="mine"):
        Workflow().add_node(Failing("f", error)).run("Q?")
    assert isinstance(events[-1], RunEnded)
    assert events[-1].failure == ProgramFailed(type(error).__name__, "mine").record()


def test_exit_in_a_node_does_not_leave_the_caller_waiting(connected: Callable[..., CannedEngine]) -> None:
    connected(CannedEngine())
    with pytest.raises(RuntimeError, match=r"exit\(3\) was called"):
        Workflow().add_node(Failing("f", SystemExit(3))).run("Q?")


def test_works_inside_a_running_event_loop(connected: Callable[..., CannedEngine]) -> None:
    connected(CannedEngine("seven"))

    async def cell() -> str:
        return Workflow().add_node(Plain("p", agent("A"))).run("Q?").content

    assert asyncio.run(cell()) == "seven"


def test_several_threads_may_run_workflows(connected: Callable[..., CannedEngine]) -> None:
    connected(BarrierEngine(3, "seven"))
    answers: list[str] = []
    workflow = Workflow().add_node(agent("A"))
    threads = [threading.Thread(target=lambda: answers.append(workflow.run("Q?").content)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert answers == ["seven"] * 3


def test_disconnecting_ends_runs_that_are_under_way(connected: Callable[..., CannedEngine]) -> None:
    engine = connected(HangingEngine("A"))
    ended: list[BaseException] = []

    def run() -> None:
        try:
            Workflow().add_node(agent("A")).run("Q?")
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not engine.requests:
        time.sleep(0.01)
    disconnect()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert len(ended) == 1


def test_disconnecting_unwinds_plain_code_in_its_own_thread_and_leaves_no_thread(
    connected: Callable[..., CannedEngine],
) -> None:
    engine = connected(HangingEngine("A"))
    unwound: list[str] = []

    class Deep(WorkflowNode):
        """Plain code, suspended at some depth, whose unwinding can be seen."""

        def process(self, context: Context) -> Message:
            try:
                return EnsembleNode("e", [agent("A"), agent("B")]).process(context)
            finally:
                unwound.append(threading.current_thread().name)

    def run() -> None:
        with pytest.raises(EngineFailed, match="it was disconnected while a run was under way"):
            Workflow().add_nodes([Deep("d")]).run("Q?")

    thread = threading.Thread(target=run, daemon=True, name="caller")
    thread.start()
    while "A" not in [request.agent for request in engine.requests]:
        time.sleep(0.01)
    disconnect()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert unwound == ["caller"]
    assert engine.closed == 1
    assert "metaagent-engine" not in [each.name for each in threading.enumerate()]


@pytest.mark.parametrize("close", [disconnect, lambda: connect(CannedEngine("other"))])
def test_a_run_whose_engine_is_gone_says_so(connected: Callable[..., CannedEngine], close: Callable[[], None]) -> None:
    engine = connected(CannedEngine("seven"))

    class Closing(WorkflowNode):
        def process(self, context: Context) -> Message:
            close()
            return agent("A").process(context)

    with pytest.raises(EngineFailed, match="disconnected while a run was under way"):
        Workflow().add_nodes([Closing("c")]).run("Q?")
    assert (engine.closed, engine.requests) == (1, [])


class InThreads(WorkflowNode):
    """Asks its agents from threads of its own, all at once."""

    def process(self, context: Context) -> Message:
        agents = [agent(name) for name in "ABC"]
        with ThreadPoolExecutor() as pool:
            return Message("".join(pool.map(lambda each: each.process(context).content, agents)))


class OnItsLoop(WorkflowNode):
    """Asks its agents on an event loop of its own, in threads and without."""

    def process(self, context: Context) -> Message:
        async def asked(name: str) -> str:
            await asyncio.sleep(0)
            return agent(name).process(context).content

        async def main() -> str:
            in_threads = (asyncio.to_thread(agent(name).process, context) for name in "ABC")
            said = [message.content for message in await asyncio.gather(*in_threads)]
            return "".join([*said, *await asyncio.gather(asked("D"), asked("E"))])

        return Message(asyncio.run(main()))


@pytest.mark.parametrize("caller", ["script", "notebook", "thread"])
@pytest.mark.parametrize(("node", "answer"), [(InThreads, "ABC"), (OnItsLoop, "ABCDE")])
def test_plain_nodes_may_have_threads_and_event_loops(
    connected: Callable[..., CannedEngine], node: type[WorkflowNode], answer: str, caller: str
) -> None:
    class Barrier(BarrierEngine):
        async def _wait(self, request: CompletionRequest) -> None:
            if request.agent in "ABC":
                await super()._wait(request)

    connected(Barrier(3, lambda request: request.agent), limits=Limits(wall_s=20))

    def run() -> str:
        return Workflow().add_node(Plain("p", node("n"))).run("Q?").content

    async def cell() -> str:
        assert asyncio.get_running_loop()
        answer = run()
        await asyncio.sleep(0)
        return answer

    if caller == "thread":
        with ThreadPoolExecutor() as pool:
            assert pool.submit(run).result(timeout=30) == answer
    else:
        assert (run() if caller == "script" else asyncio.run(cell())) == answer


def test_an_event_loop_of_a_node_is_unwound_with_it() -> None:
    unwound: list[str] = []

    class Waiting(WorkflowNode):
        def process(self, context: Context) -> Message:
            async def main() -> Message:
                try:
                    await asyncio.sleep(0)
                    return agent("A").process(context)
                finally:
                    unwound.append(type(asyncio.get_running_loop()).__name__)

            return asyncio.run(main())

    run = drive_async(Workflow().add_node(Waiting("w")), HangingEngine("A"), limits=Limits(reply_s=0.2))
    assert run.failure is not None
    assert "reply_s" in run.failure.message
    assert len(unwound) == 1


def test_event_loops_of_two_nodes_leave_nothing_with_the_callers_loop() -> None:
    class OwnLoop(WorkflowNode):
        def process(self, context: Context) -> Message:
            async def main() -> Message:
                await asyncio.sleep(0.01 if self.name == "B" else 0)
                return agent(self.name).process(context)

            return asyncio.run(main())

    class FirstInFirstOut(CannedEngine):
        async def _wait(self, request: CompletionRequest) -> None:
            await asyncio.sleep(0.05 if request.agent == "A" else 0.2)

    async def caller() -> tuple[Any, Any]:
        before = sys.get_asyncgen_hooks()
        run = await run_workflow(EnsembleNode("e", [OwnLoop("A"), OwnLoop("B")]), "Q?", FirstInFirstOut("7"))
        assert run.answer == "7"
        return before, sys.get_asyncgen_hooks()

    before, after = asyncio.run(caller())
    assert before == after


def test_a_run_that_asks_while_the_engine_closes_ends(connected: Callable[..., CannedEngine]) -> None:
    class SlowToClose(CannedEngine):
        async def close(self) -> None:
            closing.set()
            await asyncio.sleep(0.3)

    closing = threading.Event()

    class Later(WorkflowNode):
        def process(self, context: Context) -> Message:
            assert closing.wait(5)
            return agent("A").process(context)

    connected(SlowToClose())
    with ThreadPoolExecutor() as pool:
        run = pool.submit(Workflow().add_node(Later("l")).run, "Q?")
        time.sleep(0.1)
        disconnect()
        with pytest.raises(EngineFailed, match="disconnected"):
            run.result(timeout=5)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_engine_that_exits_ends_the_run_and_no_more(
    connected: Callable[..., CannedEngine], error: BaseException
) -> None:
    replies: list[Any] = ["seven", error]
    connected(CannedEngine(lambda request: replies.pop()))
    with pytest.raises(EngineFailed, match=f"{type(error).__name__}|it cancelled a call itself"):
        Workflow().add_node(agent("A")).run("Q?")
    assert Workflow().add_node(agent("A")).run("Q?").content == "seven"


def test_an_engine_that_closes_itself_is_told_so(connected: Callable[..., CannedEngine]) -> None:
    connected(CannedEngine(lambda request: disconnect()))
    with pytest.raises(EngineFailed, match="an engine cannot close itself"):
        Workflow().add_node(agent("A")).run("Q?")


def test_plain_code_that_holds_the_thread_past_the_wall_limit_ends_the_run(
    connected: Callable[..., CannedEngine],
) -> None:
    class Slow(WorkflowNode):
        def process(self, context: Context) -> Message:
            time.sleep(0.2)
            return Message("late")

    connected(CannedEngine(), limits=Limits(wall_s=0.1))
    with pytest.raises(LimitExceeded, match="wall_s"):
        Workflow().add_node(Slow("s")).run("Q?")


def test_an_interrupt_reaches_plain_code() -> None:
    # Whoever runs the tests in the background may have them ignore interrupts.
    source = """
import signal, time, engine
signal.signal(signal.SIGINT, signal.default_int_handler)
from workflow import Message, Workflow, WorkflowNode
from workflow.completion import Completion
class Mine:
    name = "mine"
    async def complete(self, request): return Completion(text="x")
    async def close(self): print("closed")
class Slow(WorkflowNode):
    def process(self, context):
        print("slow", flush=True)
        time.sleep(60)
        return Message("late")
engine.connect(Mine())
try:
    Workflow().add_node(Slow("s")).run("Q?")
except KeyboardInterrupt:
    print("interrupted")
engine.disconnect()
"""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "slow\n"
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=20)[0] == "interrupted\nclosed\n"


def test_an_engine_that_runs_a_workflow_on_itself_is_told_so(connected: Callable[..., CannedEngine]) -> None:
    connected(CannedEngine(lambda request: Workflow().add_node(agent("B")).run("again").content))
    with pytest.raises(EngineFailed, match="cannot run a workflow on itself"):
        Workflow().add_node(agent("A")).run("Q?")


def test_an_interrupt_stops_the_agents_too(connected: Callable[..., CannedEngine]) -> None:
    engine = connected(HangingEngine("A"))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            Workflow().add_node(agent("A")).run("Q?")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    wait_until(lambda: engine.cancelled == ["A"])


def test_a_generator_that_calls_process_is_told_so_and_does_not_wait_for_itself(
    connected: Callable[..., CannedEngine],
) -> None:
    class Mixed(WorkflowNode):
        def steps(self, context: Context) -> Steps:
            yield Parallel([])
            return agent("A").process(context)

    connected(CannedEngine())
    with pytest.raises(RuntimeError, match="a generator cannot call process"):
        Workflow().add_node(Mixed("m")).run("Q?")


def test_engines_can_be_named_by_text() -> None:
    with pytest.raises(ValueError, match="unknown engine 'opnai:x'"):
        engine.connect("opnai:x")


# Files that people run with plain `python`

FILE = """
from workflow import AgentNode, EnsembleNode, Workflow
{connect}
workflow = Workflow().add_node(EnsembleNode("e", [AgentNode("A", "p"), AgentNode("B", "p")]))
{main}
"""
RUN = 'print("ANSWER", workflow.run("What is 3 + 4?").content)'
IN_FILE_ENGINE = """
import engine
from workflow.completion import Completion

class Mine:
    name = "mine"
    async def complete(self, request):
        return Completion(text=f"\\\\boxed{{7}} said {request.agent}")
    async def close(self):
        pass

engine.connect(Mine())
"""
NOTEBOOK = f"""
import asyncio
async def cell():
    {RUN}
asyncio.run(cell())
"""


def plain_python(tmp_path: Path, connect: str, main: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "hand_written.py"
    path.write_text(FILE.format(connect=connect, main=main))
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment
    )


def test_a_file_without_an_engine_says_how_to_connect_one(tmp_path: Path) -> None:
    ended = plain_python(tmp_path, "", RUN)
    assert ended.returncode == 1
    last = ended.stderr.split("NoEngineConnected: ")[1]
    assert "no engine is connected" in last
    assert 'import engine; engine.connect("openai:' in last
    assert "metaagent run FILE" in last


@pytest.mark.parametrize("main", [RUN, NOTEBOOK], ids=["script", "notebook"])
def test_a_file_with_one_line_that_connects_works(tmp_path: Path, main: str) -> None:
    ended = plain_python(tmp_path, IN_FILE_ENGINE, main)
    assert ended.stderr == ""
    assert ended.stdout == "ANSWER \\boxed{7} said A\n"
    assert ended.returncode == 0


def test_usage_counts_every_call() -> None:
    completion = Completion(text="x", usage=Usage(prompt_tokens=2, completion_tokens=3))
    run = drive_async(EnsembleNode("e", [agent("A"), agent("B")]), CannedEngine(lambda request: completion))
    assert run.usage == Usage(prompt_tokens=4, completion_tokens=6)
    assert all(isinstance(turn, AgentTurn) for turn in run.trace.agent_turns)
