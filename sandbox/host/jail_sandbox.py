"""What every backend's sandbox does the same way: serve programs, run code, keep workspaces, make jailed calls.

A backend says where jails come from (`_acquire`, `_release`); the rest, the wall clock and the meaning of each end
included, is here. Nothing here knows a process, a descriptor or a container.
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Self

from pydantic import JsonValue

from engine.protocol import Engine
from engine.session import Run, Session
from sandbox.frames import FrameError, encode, read_frame
from sandbox.host.broker import Broker, Described, Outcome
from sandbox.host.code_process import JailedCode, collect
from sandbox.host.program_code import ProgramCode
from sandbox.host.spawner import Jailed, JailedFolder, Spawner
from sandbox.jail import Kind
from sandbox.protocol import CodeResult, Description, Strength, Workspace, over_limit
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import (
    Failure,
    Finding,
    LimitExceeded,
    MetaAgentError,
    ProgramFailed,
    SandboxUnavailable,
    stopped,
)
from workflow.game import Game
from workflow.limits import CodeLimits, Limits
from workflow.trace import AgentTurn, Event

DESCRIBE_LIMITS = Limits(wall_s=20, cpu_s=2, agent_calls=0, tool_calls=0)


class JailSandbox(ABC):
    """Satisfies `sandbox.protocol.Sandbox`. At most `max_jails` of a kind (programs, code) run at once. Calls and
    descriptions compute and wait for nothing, so of these only two per core do."""

    def __init__(self, *, preload: tuple[str, ...], max_jails: int) -> None:
        self._preload = preload
        self.max_jails = max_jails
        # Apart, since a program waits for the code that it runs.
        kinds: tuple[Kind, ...] = ("program", "code")
        self._slots = {kind: asyncio.Semaphore(max_jails) for kind in kinds}
        # More at once would only use up each other's time limits.
        self._computing = asyncio.Semaphore(min(max_jails, 2 * len(os.sched_getaffinity(0))))
        self._code: set[JailedCode] = set()
        self._ending: asyncio.Task[None] | None = None

    @abstractmethod
    async def _acquire(self, kind: Kind) -> Spawner:
        """What starts the next jail of a kind; every one is handed back with `_release`."""

    @abstractmethod
    def _release(self, spawner: Spawner) -> None: ...

    @abstractmethod
    async def strength(self) -> Strength: ...

    @abstractmethod
    async def _close(self) -> None:
        """End every jail and whatever serves them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that still runs, and refuse anything more. Goes on where the caller is cancelled meanwhile."""
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await self._close()
        for process in list(self._code):
            await process.kill()

    def _check_open(self) -> None:
        if self._ending is not None:
            raise SandboxUnavailable("the sandbox is closed", "build another one")

    @asynccontextmanager
    async def _spawner(self, kind: Kind) -> AsyncIterator[Spawner]:
        spawner = await self._acquire(kind)
        try:
            yield spawner
        finally:
            self._release(spawner)

    async def run_program(
        self,
        source: str,
        question: str,
        *,
        engine: Engine,
        limits: Limits | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        sink: Callable[[Event], None] | None = None,
        asking: Callable[[AgentTurn], None] | None = None,
        own_sampling: bool = False,
        game: Game | None = None,
    ) -> Run:
        async with self._slots["program"], self._spawner("program") as spawner, AsyncExitStack() as stack:
            session = Session(
                engine,
                question=question,
                program=source,
                limits=limits,
                sampling=sampling,
                seed=seed,
                sink=sink,
                asking=asking,
                code_runner=ProgramCode(self, stack),
                game=game,
                jail=spawner.label,
                own_sampling=own_sampling,
            )
            job = {"op": "run", "source": source, "question": question, "seed": seed, "game": game is not None}
            try:
                outcome = await self._serve_program(spawner, session, job)
            except MetaAgentError as error:
                outcome = Outcome(failure=error.record())
            except asyncio.CancelledError:
                session.finish(failure=stopped().record())
                raise
            except Exception as error:  # of the engine or of ours, not of the program
                session.finish(failure=SandboxUnavailable(f"the run broke: {type(error).__name__}: {error}").record())
                raise
        return session.finish(outcome.answer, outcome.failure)

    async def describe(self, source: str, question: str = "") -> Description:
        """Nobody knows what problem a program will be run on: one that names `environment` is let play first, and is
        described without a game where that shows nothing."""
        if "environment" not in source:
            return await self._describe(source, question, game=False)
        played = await self._describe(source, question, game=True)
        if played.graph is not None:
            return played
        plain = await self._describe(source, question, game=False)
        return played if plain.graph is None else plain

    async def _describe(self, source: str, question: str, *, game: bool) -> Description:
        job = {"op": "describe", "source": source, "question": question, "seed": 0, "game": game}
        async with self._computing, self._spawner("program") as spawner:
            session = Session(_NoEngine(), question=question, program=source, limits=DESCRIBE_LIMITS)
            try:
                outcome = await self._serve_program(spawner, session, job)
            except SandboxUnavailable:
                raise
            except MetaAgentError as error:
                if isinstance(error, LimitExceeded) and error.limit_kind == "wall_s":
                    # It waits for nothing but the processor, whose time has a limit of its own.
                    said = f"a program got too little of the processor while it was built: {error}"
                    raise SandboxUnavailable(said, "run less on this machine at once") from None
                outcome = Outcome(failure=error.record())
        if outcome.described is not None:
            found = outcome.described
            return Description(graph=found.graph, unreachable=found.unreachable, findings=_stopped(found))
        return Description(findings=_findings(outcome.failure))

    async def _serve_program(self, spawner: Spawner, session: Session, job: dict[str, Any]) -> Outcome:
        """Spawn a jail for the job and serve it; turns the way in which it ended into an outcome."""
        limits = session.limits
        kernel_limits = {"cpu_s": limits.cpu_s, "memory_mb": limits.memory_mb}
        try:
            async with session.clock.bounding(), _channel(spawner, kernel_limits) as (jailed, reader, writer):
                outcome = await Broker(session, reader, writer).serve(job)
                if outcome.broke_protocol:
                    spawner.spoil("a program broke the protocol")
                if not outcome.is_silent:
                    return outcome
                return Outcome(failure=(await _cause_of_death(jailed, limits.cpu_s, limits.memory_mb)).record())
        except FrameError as error:
            return Outcome(failure=ProgramFailed("FrameError", f"the program or the question: {error}").record())
        except LimitExceeded as error:
            if error.limit_kind == "wall_s":
                spawner.spoil("a run timed out")
            raise

    async def run_code(
        self, code: str, *, stdin: str = "", limits: CodeLimits | None = None, workspace: Workspace | None = None
    ) -> CodeResult:
        process = await self.start_code(code, limits=limits, workspace=workspace)
        return await collect(process, stdin.encode(errors="replace"))

    async def start_code(
        self, code: str, *, limits: CodeLimits | None = None, workspace: Workspace | None = None
    ) -> JailedCode:
        if workspace is not None and not isinstance(workspace, JailedFolder):
            raise TypeError(f"workspace {workspace!r} is not one of this sandbox's; use sandbox.workspace()")
        slots = self._slots["code"]
        await slots.acquire()
        spawner: Spawner | None = None

        def over() -> None:
            self._code.discard(process)
            free()

        def free() -> None:
            slots.release()
            if workspace is None and spawner is not None:
                self._release(spawner)

        try:
            spawner = await self._acquire("code") if workspace is None else workspace.spawner
            number = None if workspace is None else workspace.number
            process = await JailedCode.start(spawner, code, limits or CodeLimits(), number, over)
        except BaseException:
            free()
            raise
        self._code.add(process)
        return process

    @asynccontextmanager
    async def workspace(self, disk_mb: int = 64) -> AsyncIterator[JailedFolder]:
        async with self._spawner("code") as spawner:
            folder = await spawner.make_workspace(disk_mb)
            try:
                yield folder
            finally:
                folder.close()
                spawner.drop_workspace(folder.number)

    async def call(
        self, target: str, payload: JsonValue, *, cpu_s: int = 10, wall_s: float = 60.0, memory_mb: int = 1024
    ) -> JsonValue:
        module = target.partition(":")[0]
        if module not in self._preload:
            raise ValueError(f"{target}: build the sandbox with preload=({module!r}, ...) so that it can be called")
        kernel_limits = {"cpu_s": cpu_s, "memory_mb": memory_mb}
        async with self._computing, self._spawner("call") as spawner:
            started = time.monotonic()
            try:
                async with asyncio.timeout(wall_s), _channel(spawner, kernel_limits) as (jailed, reader, writer):
                    writer.write(encode({"target": target, "payload": payload}))
                    read = await read_frame(reader)
                    if read is None:
                        raise await _cause_of_death(jailed, cpu_s, memory_mb)
            except TimeoutError:
                spawner.spoil("a call timed out")
                raise LimitExceeded("wall_s", wall_s, time.monotonic() - started) from None
            except FrameError as error:
                spawner.spoil("a call broke the protocol")
                raise ProgramFailed("FrameError", str(error)) from None
        match read[0]:
            case {"op": "result", "value": value}:
                return value
            case {"op": "out_of_memory"}:
                raise LimitExceeded("memory_mb", memory_mb, memory_mb)
            case {"op": "failed", "error_type": str(kind), "message": str(message)}:
                raise ProgramFailed(kind, message)
        raise ProgramFailed("ProtocolError", f"the call of {target} replied {str(read[0])[:200]!r}")


class _NoEngine:
    """Stands in where no agent is ever asked: a program that is described gives itself its replies."""

    name = "none"

    async def complete(self, request: CompletionRequest) -> Completion:
        raise SandboxUnavailable("a program that is only described asked for an agent")

    async def close(self) -> None:
        return None


@asynccontextmanager
async def _channel(
    spawner: Spawner, limits: dict[str, int]
) -> AsyncIterator[tuple[Jailed, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A jailed process with a channel to it; whatever happens, it is dead afterwards."""
    jailed, reader, writer = await spawner.open_channel(limits)
    try:
        yield jailed, reader, writer
    finally:
        jailed.kill()
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _cause_of_death(jailed: Jailed, cpu_limit_s: int, memory_limit_mb: int) -> LimitExceeded | ProgramFailed:
    """Why a program's channel closed without a last word."""
    end = await jailed.reaped()
    if end.out_of_memory:
        return LimitExceeded("memory_mb", memory_limit_mb, memory_limit_mb)
    if end.by_cpu_limit(cpu_limit_s):
        return LimitExceeded("cpu_s", cpu_limit_s, end.cpu_s)
    how = f"signal {end.signal}" if end.signal else f"exit status {end.exit_status}"
    return ProgramFailed("Died", f"the process ended without an answer ({how})")


def _stopped(described: Described) -> list[Finding]:
    """Why a description says nothing of the workflow: no fault of the program's, but its author should know."""
    error = described.stopped
    if error is None or described.graph is not None:
        return []
    return [
        Finding(
            line=error.line or 0,
            code="build-unclear",
            message=f"the workflow could not be seen: code that is run while the program is built gets no real reply "
            f"in the check, and what is done with it raised {error.error_type}: {error.message[:300]}",
            fix="run code in a node's process or in a tool, or build the workflow before this line",
            severity="warning",
        )
    ]


def _findings(failure: Failure | None) -> list[Finding]:
    """A failure met while describing a program, as findings of a check."""
    if failure is None:
        return []
    if failure.kind == "program_rejected":
        return [Finding.model_validate(item) for item in failure.fields["findings"]]
    if failure.kind == "limit_exceeded":
        return [over_limit(failure.fields["limit_kind"], failure.fields["limit"])]
    line = failure.fields.get("line") or 0
    return [
        Finding(
            line=line,
            code="build-failed",
            message=f"building the workflow failed: {failure.message}",
            fix="mend what the message names; the program must build its workflow without errors",
        )
    ]
