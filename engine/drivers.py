"""Drivers: the small loops that connect a `workflow.scheduler.Scheduler` to whoever answers its requests.

`drive` serves a run on an event loop, thousands at once; a jail has `engine.sync_driver`. `run_workflow` and `connect`
are for workflows of the host's own, trusted process. For programs that are not trusted there is the sandbox.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

from engine.protocol import Engine
from engine.session import Run, Session, Sink
from workflow import bridge
from workflow.completion import Sampling
from workflow.failures import Failure, LimitExceeded, MetaAgentError, ProgramFailed
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
    try:
        issued = _admitted(scheduler.take(), session)
        while not scheduler.done:
            if len(issued) == 1:
                # Nothing else is under way: no task is needed to wait for one reply.
                alone = issued[0]
                scheduler.reply(alone.key, await session.serve(alone.key, alone.path, alone.request))
                issued = _admitted(scheduler.take(), session)
            else:
                issued = await _serve_together(issued, scheduler, session)
        return scheduler.result()
    finally:
        scheduler.close()


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
                task = loop.create_task(session.serve(each.key, each.path, each.request))
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
) -> Run:
    """Run a trusted workflow in this process. Never raises for what the run did: see `Run.failure`."""
    session = Session(
        engine, question=question, limits=limits, sampling=sampling, seed=seed, sink=sink, own_sampling=True
    )
    answer: str | None = None
    failure: Failure | None = None
    try:
        message: Message = await _within_wall(NodeCall(node, Context.for_question(question)), session)
        answer = message.content
    except asyncio.CancelledError:
        session.finish(failure=ProgramFailed("Cancelled", "the run was cancelled").record())
        raise
    except Exception as error:
        failure = _failure(error)
    return session.finish(answer, failure)


async def _within_wall(request: Request, session: Session) -> Any:
    """Serve one request tree. Raises `LimitExceeded` when the wall limit ends it, else what it raised."""
    wall_s = session.limits.wall_s
    clock = asyncio.timeout(wall_s)
    result: Any = None
    try:
        async with clock:
            result = await drive(Scheduler(root_steps(request)), session)
    except TimeoutError:
        if not clock.expired():
            raise  # the program's own
    if clock.expired():  # also where an engine has not minded that it was cancelled
        raise LimitExceeded("wall_s", wall_s, session.elapsed)
    return result


def _failure(error: Exception) -> Failure:
    known = error if isinstance(error, MetaAgentError) else ProgramFailed(type(error).__name__, str(error))
    return known.record()


class _Connection:
    """An engine on an event loop of its own thread, so that plain code (and notebooks) can block on it."""

    def __init__(self, engine: Engine, limits: Limits, sampling: Sampling, sink: Sink | None) -> None:
        self.engine = engine
        self._limits, self._sampling, self._sink = limits, sampling, sink
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="metaagent-engine", daemon=True)
        self._thread.start()

    @property
    def is_caller(self) -> bool:
        """Whether this is asked by what runs on it."""
        return threading.current_thread() is self._thread

    def __call__(self, request: Request) -> Any:
        if self.is_caller:
            raise RuntimeError(
                "a generator cannot call process() or run(): it would wait for itself. Make it a plain function, "
                "or write `yield NodeCall(node, context)`"
            )
        future = asyncio.run_coroutine_threadsafe(self._perform(request), self._loop)
        try:
            return future.result()  # the run's wall limit bounds this wait
        except BaseException:
            future.cancel()  # interrupted: agents must not go on unseen
            raise

    async def _perform(self, request: Request) -> Any:
        question = request.context.question if isinstance(request, NodeCall) else ""
        session = Session(
            self.engine,
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

    def close(self) -> None:
        """End what still runs, then the engine, then the thread."""
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
            # Suspended plain calls are greenlets of this thread: they have to be unwound in it, and before it ends.
            await asyncio.wait(under_way, timeout=10)
        await self.engine.close()


_connection: _Connection | None = None


def connect(
    engine: Engine,
    *,
    limits: Limits | None = None,
    sampling: Sampling | None = None,
    sink: Sink | None = None,
) -> None:
    """Let workflows of this process run on `engine`: afterwards `workflow.run(question)` works in plain Python.

    Connecting again replaces the engine. The code that runs is trusted: nothing is jailed. Raises TypeError for
    what is no engine, and what `disconnect` raises.
    """
    global _connection
    if not isinstance(engine, Engine):
        raise TypeError(f"{engine!r} is no engine: it needs a name, async complete(request) and async close()")
    disconnect()
    _connection = _Connection(engine, limits or Limits(), sampling or Sampling(), sink)
    bridge.connect(_connection)


def disconnect() -> None:
    """Undo `connect` and close the engine. Harmless when nothing is connected.

    What still runs is cancelled. Raises RuntimeError in a node that runs on the engine: it would wait for itself.
    """
    global _connection
    if _connection is not None:
        if _connection.is_caller:
            raise RuntimeError(
                "a node cannot close the engine that it runs on: it would wait for itself. Call connect() and "
                "disconnect() where the run was started"
            )
        closing, _connection = _connection, None
        bridge.connect(None)
        closing.close()
