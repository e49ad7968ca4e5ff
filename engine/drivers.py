"""Drivers: the small loops that connect a `workflow.scheduler.Scheduler` to whoever answers its requests.

`drive` serves a run on an event loop, thousands at once; a jail has `engine.sync_driver`. `run_workflow` and `connect`
are for workflows of the host's own, trusted process. For programs that are not trusted there is the sandbox.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any

from engine.protocol import CodeRunner, Engine, SteppingEngine
from engine.session import Run, Session, Sink
from workflow import bridge
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed, Failure, MetaAgentError, ProgramFailed, stopped
from workflow.game import Game
from workflow.limits import Limits
from workflow.messages import Context, Message
from workflow.nodes import WorkflowNode
from workflow.requests import Delivery, NodeCall, Request, Steps, ToolResult
from workflow.scheduler import Issued, Scheduler


def root_steps(request: Request) -> Steps:
    """A run that makes one request and returns its reply."""
    return (yield request)


async def drive(scheduler: Scheduler, session: Session) -> Any:
    """Advance a run to its end, all its open requests at once. Returns its result or raises what it raised.

    A limit or an engine failure ends the run at once: open requests are cancelled and nodes unwound.
    """
    session.driven(partial(_settled, scheduler))
    try:
        issued = _admitted(scheduler.take(), session)
        while not scheduler.done:
            if len(issued) == 1:
                # Nothing else is under way: no task is needed to wait for one reply.
                alone = issued[0]
                scheduler.reply(alone.key, await session.serve(alone.key, alone.path, alone.request, alone.place))
                issued = _admitted(scheduler.take(), session)
            else:
                issued = await _serve_together(issued, scheduler, session)
        return scheduler.result()
    finally:
        scheduler.close()


async def _settled(scheduler: Scheduler, engine: SteppingEngine) -> None:
    """Until the engine holds all that the nodes wait for: they go on by themselves where a tool is announced."""
    while scheduler.waiting != engine.held:
        await asyncio.sleep(0)


async def _serve_together(issued: list[Issued], scheduler: Scheduler, session: Session) -> list[Issued]:
    """Serve requests side by side, and those that follow, until none is under way but those returned, at most one."""
    loop = asyncio.get_running_loop()
    serving: dict[asyncio.Task[Any], str] = {}
    finished: deque[asyncio.Task[Any]] = deque()
    waiting: asyncio.Future[None] | None = None

    def on_done(task: asyncio.Task[Any]) -> None:
        finished.append(task)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    try:
        while (serving or len(issued) > 1) and not scheduler.done:
            for each in issued:
                task = loop.create_task(session.serve(each.key, each.path, each.request, each.place))
                serving[task] = each.key
                task.add_done_callback(on_done)
            if not finished:
                waiting = loop.create_future()
                await waiting
            task = finished.popleft()
            scheduler.reply(serving.pop(task), task.result())
            issued = _admitted(scheduler.take(), session)
        return issued
    finally:
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.gather(*serving, return_exceptions=True)


def _admitted(issued: list[Issued], session: Session) -> list[Issued]:
    """Pass reports on and count requests; returns the requests, which want a reply."""
    requests = []
    for each in issued:
        if isinstance(each.request, (Delivery, ToolResult)):
            session.report(each.path, each.request)
        else:
            session.admit(each.path, each.request)
            requests.append(each)
    return requests


async def run_workflow(
    node: WorkflowNode,
    question: str,
    engine: Engine,
    *,
    limits: Limits | None = None,
    sampling: Sampling | None = None,
    seed: int = 0,
    sink: Sink | None = None,
    game: Game | None = None,
    code_runner: CodeRunner | None = None,
) -> Run:
    """Run a trusted workflow in this process. Never raises for what the run did: see `Run.failure`. `game` is where the
    game begins that its nodes play (`workflow.environment.Environment`), `code_runner` runs what its nodes ask to
    have run (`workflow.requests.CodeRun`)."""
    session = Session(
        engine,
        question=question,
        limits=limits,
        sampling=sampling,
        seed=seed,
        sink=sink,
        own_sampling=True,
        game=game,
        code_runner=code_runner,
    )
    answer: str | None = None
    failure: Failure | None = None
    try:
        message: Message = await _within_wall(NodeCall(node, Context.for_question(question)), session)
        answer = message.content
    except asyncio.CancelledError:
        session.finish(failure=stopped().record())
        raise
    except Exception as error:
        failure = _failure(error)
    return session.finish(answer, failure)


async def _within_wall(request: Request, session: Session) -> Any:
    """Serve one request tree. Raises what the run's clock ends it with, else what it raised."""
    async with session.clock.bounding():
        return await drive(Scheduler(root_steps(request)), session)


def _failure(error: Exception) -> Failure:
    known = error if isinstance(error, MetaAgentError) else ProgramFailed(type(error).__name__, str(error))
    return known.record()


class _Connection:
    """An engine on an event loop of its own thread. Runs go on in the threads that ask for them, so that plain code may
    compute, wait for threads of its own whose agents ask here too, be interrupted, and use `asyncio.run`."""

    def __init__(self, engine: Engine, limits: Limits, sampling: Sampling, sink: Sink | None) -> None:
        self.name = engine.name
        self._engine, self._limits, self._sampling, self._sink = engine, limits, sampling, sink
        self._here = threading.local()
        self._asking, self._closed = threading.Lock(), False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="metaagent-engine", daemon=True)
        self._thread.start()

    @property
    def is_caller(self) -> bool:
        """Whether this is asked by the engine."""
        return threading.current_thread() is self._thread

    def __call__(self, request: Request) -> Any:
        if self.is_caller:
            raise RuntimeError("an engine cannot run a workflow on itself: it would wait for itself")
        if getattr(self._here, "has_run", False):
            raise RuntimeError(
                "a generator cannot call process() or run(): its run would wait for another one. Make it a plain "
                "function, or write `yield NodeCall(node, context)`"
            )
        self._here.has_run = True
        outer = bridge.swap_event_loop()  # in a notebook one runs already
        try:
            return _run(self._perform(request))
        finally:
            bridge.swap_event_loop(outer)
            self._here.has_run = False

    async def complete(self, request: CompletionRequest) -> Completion:
        """The engine's reply, from its thread."""
        with self._asking:  # whoever closes it then finds what has been asked
            if self._closed:
                raise self._gone()
            asked = asyncio.run_coroutine_threadsafe(self._complete(request), self._loop)
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise  # it is the run
            raise self._gone() if self._closed else EngineFailed(self.name, "it cancelled a call itself") from None

    async def _complete(self, request: CompletionRequest) -> Completion:
        try:
            return await self._engine.complete(request)
        except (SystemExit, KeyboardInterrupt) as error:  # which would end the thread
            raise EngineFailed(self.name, f"{type(error).__name__}: {error}") from None

    def _gone(self) -> EngineFailed:
        return EngineFailed(self.name, "it was disconnected while a run was under way")

    async def _perform(self, request: Request) -> Any:
        question = request.context.question if isinstance(request, NodeCall) else ""
        session = Session(
            self,
            question=question,
            limits=self._limits,
            sampling=self._sampling,
            sink=self._sink,
            own_sampling=True,
        )
        try:
            result = await _within_wall(request, session)
        except Exception as error:
            session.finish(failure=_failure(error))
            raise
        session.finish(result.content if isinstance(result, Message) else None)
        return result

    async def close(self) -> None:
        """A run does not close the engine."""

    def disconnect(self) -> None:
        """End what the engine does, then the engine, then its thread."""
        with self._asking:
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=30)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=30)
            if not self._thread.is_alive():
                self._loop.close()

    async def _close(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way, timeout=10)
        await self._engine.close()


def _run(run: Coroutine[Any, Any, Any]) -> Any:
    """`asyncio.run`, but for two things: the thread's own event loop stays what it is, and an interrupt is raised where
    the thread is, which may be in a node's code."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(run)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


_connection: _Connection | None = None


def connect(
    engine: Engine,
    *,
    limits: Limits | None = None,
    sampling: Sampling | None = None,
    sink: Sink | None = None,
) -> None:
    """Let workflows of this process run on `engine`: afterwards `workflow.run(question)` works in plain Python.

    Connecting again replaces the engine. The code that runs is trusted: nothing is jailed. What an agent of a thread of
    a node's own is asked is a run of its own, with limits of its own. Raises TypeError for what is no engine, and what
    `disconnect` raises.
    """
    global _connection
    if not isinstance(engine, Engine):
        raise TypeError(f"{engine!r} is no engine: it needs a name, async complete(request) and async close()")
    disconnect()
    _connection = _Connection(engine, limits or Limits(), sampling or Sampling(), sink)
    bridge.connect(_connection)


def disconnect() -> None:
    """Undo `connect` and close the engine. Harmless when nothing is connected.

    Runs that go on end with `EngineFailed` as soon as they ask an agent. Raises RuntimeError in the engine's own code.
    """
    global _connection
    if _connection is not None:
        if _connection.is_caller:
            raise RuntimeError("an engine cannot close itself: it would wait for itself")
        closing, _connection = _connection, None
        bridge.connect(None)
        closing.disconnect()


def _is_cancelled() -> bool:
    """Whether it is the caller that is being cancelled, and not just what it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
