"""The process backend: every run in a forked, jailed process of this machine (Linux on x86_64).

Needs nothing but the kernel: namespaces where they are allowed (mode j), else landlock and seccomp alone (mode j0).
Without seccomp it refuses to run anything.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Any

from pydantic import JsonValue

from engine.protocol import Engine
from engine.session import Run, Session
from sandbox.broker import Broker, Outcome
from sandbox.code_process import JailedCode, collect
from sandbox.frames import FrameError, encode, read_frame
from sandbox.hatchery import Hatchery, Jailed
from sandbox.jail import Kind, Mode
from sandbox.protocol import CodeResult, Description, Strength, Workspace
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import (
    Failure,
    Finding,
    LimitExceeded,
    MetaAgentError,
    ProgramFailed,
    SandboxUnavailable,
)
from workflow.limits import CodeLimits, Limits
from workflow.requests import CodeReply, CodeRun
from workflow.trace import Event

DESCRIBE_LIMITS = Limits(wall_s=20, cpu_s=10, agent_calls=0, tool_calls=0)


class JailedFolder:
    """A workspace: a folder that code runs share, held by its descriptor. It lives as long as its zygote."""

    def __init__(self, hatchery: Hatchery, number: int, fd: int) -> None:
        self.hatchery, self.number, self._fd = hatchery, number, fd

    def write(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(_plain(name), flags, 0o666, dir_fd=self._fd)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, 0o666)

    def read(self, name: str) -> bytes:
        fd = os.open(_plain(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._fd)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileNotFoundError(f"{name!r} in the workspace is not a regular file")
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)

    def close(self) -> None:
        os.close(self._fd)


def _plain(name: str) -> str:
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"workspace file name {name!r} must be a plain name without folders")
    return name


class ProcessSandbox:
    """`async with ProcessSandbox() as sandbox:`. See `sandbox.protocol.Sandbox` for what it offers.

    `preload` names modules whose functions `call` will run; their `warm()` is called once in the zygote if they have
    one. `mode` forces a mode instead of probing. At most `max_jails` of a kind (programs, code, calls) run at once;
    more wait. Belongs to one event loop.
    """

    def __init__(self, *, preload: tuple[str, ...] = (), mode: Mode | None = None, max_jails: int = 256) -> None:
        self._preload = preload
        self._mode: Mode | None = mode
        self._reason = "mode j0 was asked for" if mode == "j0" else ""
        self._probed = mode is not None
        # Apart, since a program waits for the code that it runs.
        kinds: tuple[Kind, ...] = ("program", "code", "call")
        self._slots = {kind: asyncio.Semaphore(max_jails) for kind in kinds}
        self._starting = asyncio.Lock()
        self._hatcheries: dict[Kind, Hatchery] = {}
        self._code: set[JailedCode] = set()
        self._closed = False

    async def __aenter__(self) -> ProcessSandbox:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that still runs, and refuse anything more."""
        self._closed = True
        async with self._starting:
            hatcheries, self._hatcheries = list(self._hatcheries.values()), {}
            for hatchery in hatcheries:
                await hatchery.close()
        for process in list(self._code):
            await process.kill()

    async def strength(self) -> Strength:
        await self._hatchery("code")
        assert self._mode is not None, "set when a hatchery has started"
        return Strength(backend="process", mode=self._mode, reason=self._reason)

    async def _hatchery(self, kind: Kind) -> Hatchery:
        """The running zygote for a kind of work, started (or started anew after its death) when needed."""
        async with self._starting:
            if self._closed:
                raise SandboxUnavailable("the sandbox is closed", "build another one")
            hatchery = self._hatcheries.get(kind)
            if hatchery is not None and hatchery.dead is None:
                return hatchery
            if hatchery is not None:
                await hatchery.close()
            if sys.platform != "linux" or platform.machine() != "x86_64":
                raise SandboxUnavailable(
                    f"the process jail needs Linux on x86_64, this is {sys.platform} on {platform.machine()}",
                    "run inside a Linux x86_64 machine or container",
                )
            preload = self._preload if kind == "call" else ()
            if not self._probed:
                try:
                    hatchery = await self._start(kind, "j", preload)
                except SandboxUnavailable as error:
                    self._reason = str(error).removeprefix("sandbox unavailable: ")
                    hatchery = await self._start(kind, "j0", preload)
                self._mode, self._probed = hatchery.mode, True
            else:
                assert self._mode is not None
                hatchery = await self._start(kind, self._mode, preload)
            self._hatcheries[kind] = hatchery
            return hatchery

    async def _start(self, kind: Kind, mode: Mode, preload: tuple[str, ...]) -> Hatchery:
        hatchery = Hatchery(kind, mode, preload)
        await hatchery.start()
        return hatchery

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
    ) -> Run:
        hatchery = await self._hatchery("program")
        async with self._slots["program"], AsyncExitStack() as stack:
            session = Session(
                engine,
                question=question,
                program=source,
                limits=limits,
                sampling=sampling,
                seed=seed,
                sink=sink,
                code_runner=_ProgramCode(self, stack),
                jail=f"process/{hatchery.mode}",
            )
            job = {"op": "run", "source": source, "question": question, "seed": seed}
            try:
                outcome = await self._serve_program(hatchery, session, job)
            except MetaAgentError as error:
                outcome = Outcome(failure=error.record())
            except asyncio.CancelledError:
                session.finish(failure=ProgramFailed("Cancelled", "the run was cancelled").record())
                raise
            except Exception as error:  # of the engine or of ours, not of the program
                session.finish(failure=SandboxUnavailable(f"the run broke: {type(error).__name__}: {error}").record())
                raise
        return session.finish(outcome.answer, outcome.failure)

    async def describe(self, source: str, question: str = "") -> Description:
        hatchery = await self._hatchery("program")
        job = {"op": "describe", "source": source, "question": question, "seed": 0}
        async with self._slots["program"]:
            session = Session(_NoEngine(), question=question, program=source, limits=DESCRIBE_LIMITS)
            try:
                outcome = await self._serve_program(hatchery, session, job)
            except SandboxUnavailable:
                raise
            except MetaAgentError as error:
                outcome = Outcome(failure=error.record())
        if outcome.described is not None:
            return Description(graph=outcome.described.graph, unreachable=outcome.described.unreachable)
        return Description(findings=_findings(outcome.failure))

    async def _serve_program(self, hatchery: Hatchery, session: Session, job: dict[str, Any]) -> Outcome:
        """Spawn a jail for the job and serve it; turns the way in which it ended into an outcome."""
        limits = session.limits
        kernel_limits = {"cpu_s": limits.cpu_s, "memory_mb": limits.memory_mb}
        clock = asyncio.timeout(limits.wall_s - session.elapsed)
        try:
            async with clock, _channel(hatchery, kernel_limits) as (jailed, reader, writer):
                outcome = await Broker(session, reader, writer).serve(job)
                if not outcome.is_silent:
                    return outcome
                return Outcome(failure=(await _cause_of_death(jailed, limits.cpu_s)).record())
        except FrameError as error:
            return Outcome(failure=ProgramFailed("FrameError", f"the program or the question: {error}").record())
        except TimeoutError:
            if not clock.expired():  # somebody else's, such as an engine's
                raise
            raise LimitExceeded("wall_s", limits.wall_s, session.elapsed) from None

    async def run_code(
        self, code: str, *, stdin: str = "", limits: CodeLimits | None = None, workspace: Workspace | None = None
    ) -> CodeResult:
        process = await self.start_code(code, limits=limits, workspace=workspace)
        return await collect(process, stdin.encode(errors="replace"))

    async def start_code(
        self, code: str, *, limits: CodeLimits | None = None, workspace: Workspace | None = None
    ) -> JailedCode:
        if workspace is None:
            hatchery, number = await self._hatchery("code"), None
        elif isinstance(workspace, JailedFolder):
            hatchery, number = workspace.hatchery, workspace.number
        else:
            raise TypeError(f"workspace {workspace!r} is not one of this sandbox's; use sandbox.workspace()")
        slots = self._slots["code"]
        await slots.acquire()

        def over() -> None:
            self._code.discard(process)
            slots.release()

        try:
            process = await JailedCode.start(hatchery, code, limits or CodeLimits(), number, over)
        except OSError as error:
            slots.release()
            raise SandboxUnavailable(f"code could not be started: {error}", "raise `ulimit -n`") from None
        except BaseException:
            slots.release()
            raise
        self._code.add(process)
        return process

    @asynccontextmanager
    async def workspace(self, disk_mb: int = 64) -> AsyncIterator[JailedFolder]:
        hatchery = await self._hatchery("code")
        number, fd = await hatchery.make_workspace(disk_mb)
        folder = JailedFolder(hatchery, number, fd)
        try:
            yield folder
        finally:
            folder.close()
            hatchery.drop_workspace(number)

    async def call(self, target: str, payload: JsonValue, *, wall_s: float = 10.0, memory_mb: int = 1024) -> JsonValue:
        module = target.partition(":")[0]
        if module not in self._preload:
            raise ValueError(f"{target}: build the sandbox with preload=({module!r}, ...) so that it can be called")
        hatchery = await self._hatchery("call")
        kernel_limits = {"cpu_s": int(wall_s) + 1, "memory_mb": memory_mb}
        started = time.monotonic()
        clock = asyncio.timeout(wall_s)
        try:
            async with self._slots["call"], clock, _channel(hatchery, kernel_limits) as (jailed, reader, writer):
                writer.write(encode({"target": target, "payload": payload}))
                read = await read_frame(reader)
                if read is None:
                    raise await _cause_of_death(jailed, kernel_limits["cpu_s"])
        except TimeoutError:
            raise LimitExceeded("wall_s", wall_s, time.monotonic() - started) from None
        except FrameError as error:
            raise ProgramFailed("FrameError", str(error)) from None
        match read[0]:
            case {"op": "result", "value": value}:
                return value
            case {"op": "out_of_memory"}:
                raise LimitExceeded("memory_mb", memory_mb, memory_mb)
            case {"op": "failed", "error_type": str(kind), "message": str(message)}:
                raise ProgramFailed(kind, message)
        raise ProgramFailed("ProtocolError", f"the call of {target} replied {str(read[0])[:200]!r}")


class _ProgramCode:
    """Runs the code that one program asks for through `subprocess.run`; all of it shares one workspace."""

    def __init__(self, sandbox: ProcessSandbox, stack: AsyncExitStack) -> None:
        self._sandbox, self._stack = sandbox, stack
        self._opening = asyncio.Lock()
        self._folder: JailedFolder | None = None

    async def __call__(self, request: CodeRun) -> CodeReply:
        async with self._opening:
            if self._folder is None:
                self._folder = await self._stack.enter_async_context(self._sandbox.workspace())
        limits = CodeLimits()
        if request.timeout_s is not None and request.timeout_s < limits.wall_s:  # nan is not
            limits = limits.model_copy(update={"wall_s": max(request.timeout_s, 0.01)})
        result = await self._sandbox.run_code(request.code, stdin=request.stdin, limits=limits, workspace=self._folder)
        status = result.exit_status if result.exit_status is not None else -(result.signal or 9)
        return CodeReply(status, result.stdout, result.stderr, result.limit)


class _NoEngine:
    """Stands in where no agent is ever asked: a description ends at the first request."""

    name = "none"

    async def complete(self, request: CompletionRequest) -> Completion:
        raise SandboxUnavailable("a program that is only described asked for an agent")

    async def close(self) -> None:
        return None


@asynccontextmanager
async def _channel(
    hatchery: Hatchery, limits: dict[str, int]
) -> AsyncIterator[tuple[Jailed, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A jailed process with a channel to it; whatever happens, it is dead afterwards."""
    with ExitStack() as stack:
        try:
            ours, theirs = socket.socketpair()
            stack.callback(ours.close)
            with theirs:
                jailed = hatchery.spawn([theirs.fileno()], limits)
        except OSError as error:
            raise SandboxUnavailable(f"a jail could not be started: {error}", "raise `ulimit -n`") from None
        stack.callback(jailed.kill)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        stack.pop_all()
    try:
        yield jailed, reader, writer
    finally:
        jailed.kill()
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _cause_of_death(jailed: Jailed, cpu_limit_s: int) -> LimitExceeded | ProgramFailed:
    """Why a program's channel closed without a last word."""
    end = await jailed.reaped()
    if end.by_cpu_limit(cpu_limit_s):
        return LimitExceeded("cpu_s", cpu_limit_s, end.cpu_s)
    how = f"signal {end.signal}" if end.signal else f"exit status {end.exit_status}"
    return ProgramFailed("Died", f"the process ended without an answer ({how})")


def _findings(failure: Failure | None) -> list[Finding]:
    """A failure met while describing a program, as findings of a check."""
    if failure is None:
        return []
    if failure.kind == "program_rejected":
        return [Finding.model_validate(item) for item in failure.fields["findings"]]
    line = failure.fields.get("line") or 0
    return [
        Finding(
            line=line,
            code="build-failed",
            message=f"building the workflow failed: {failure.message}",
            fix="mend what the message names; the program must build its workflow without errors",
        )
    ]
