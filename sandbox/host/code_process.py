"""One piece of code running in a jail, with its three streams: the host keeps its clock and caps its output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from sandbox.host.spawner import REAP_TIMEOUT_S, CodeStreams, Exit, Jailed, Spawner
from sandbox.jail import DISK_FULL, OUT_OF_MEMORY
from sandbox.protocol import CodeLimitKind, CodeResult
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits


class JailedCode:
    """Implements `sandbox.protocol.CodeProcess`. `write` and `readline` make a conversation; `wait` ends it."""

    def __init__(self, spawner: Spawner, limits: CodeLimits, on_end: Callable[[], None]) -> None:
        self._spawner = spawner
        self._limits = limits
        self._on_end = on_end
        self._started = time.monotonic()
        self._limit: CodeLimitKind | None = None
        self._killed = False
        self._room = limits.output_bytes
        self._read_to = self._searched_to = 0
        self._writer = _Writer()
        self._stdout, self._stderr = _Output(self), _Output(self)
        self._grown = asyncio.Event()
        self._silent = asyncio.Event()
        """Both outputs have ended."""
        self._jailed: Jailed | None = None
        self._stdin: asyncio.WriteTransport
        self._clock: asyncio.TimerHandle
        self._watcher: asyncio.Task[CodeResult]

    @classmethod
    async def start(
        cls, spawner: Spawner, code: str, limits: CodeLimits, workspace: int | None, on_end: Callable[[], None]
    ) -> JailedCode:
        """Run `code` in a new jail. `on_end` is called when it is over, unless this raises."""
        self = cls(spawner, limits, on_end)
        kernel_limits = {"cpu_s": limits.cpu_s, "memory_mb": limits.memory_mb, "disk_mb": limits.disk_mb}
        streams = CodeStreams(self._writer, self._stdout, self._stderr)
        source = code.encode(errors="surrogatepass")
        self._jailed, self._stdin = await spawner.open_code(source, kernel_limits, workspace, streams)
        if self._limit is not None:  # it has already printed too much
            self._jailed.kill()
        self._clock = asyncio.get_running_loop().call_later(limits.wall_s, self._time_out)
        self._watcher = asyncio.create_task(self._watch(self._jailed))
        self._watcher.add_done_callback(_seen)
        return self

    def _time_out(self) -> None:
        self._spawner.spoil("a run timed out")
        self._stop("wall_s")

    def _stop(self, limit: CodeLimitKind) -> None:
        if self._limit is None:
            self._limit = limit
        if self._jailed is not None:
            self._jailed.kill()

    def printed(self, output: _Output, data: bytes) -> None:
        """Keep no more than there is room for."""
        output.captured += data[: self._room]
        if len(data) > self._room:
            self._stop("output_bytes")
        self._room -= min(self._room, len(data))
        self._grown.set()

    def closed(self) -> None:
        self._grown.set()
        if not self._stdout.open and not self._stderr.open:
            self._silent.set()

    async def _watch(self, jailed: Jailed) -> CodeResult:
        try:
            async with asyncio.timeout(self._limits.wall_s + 2 * REAP_TIMEOUT_S):
                end = await asyncio.shield(jailed.ended)
                # A thread of the code cannot outlive its process, so the streams end now.
                await self._silent.wait()
            return self._describe(end)
        except TimeoutError:
            self._spawner.spoil("a jailed process did not end")
            raise SandboxUnavailable(f"a jailed process did not end within {REAP_TIMEOUT_S:g} s of its kill") from None
        finally:
            self._clock.cancel()
            if self._stdin.get_write_buffer_size() or not self._stdin.is_closing():
                self._stdin.abort()
            self._stdout.stop()
            self._stderr.stop()
            self._on_end()

    def _describe(self, end: Exit) -> CodeResult:
        limit, status = self._limit, end.exit_status
        if limit is None and not self._killed:
            if end.out_of_memory:
                limit = "memory_mb"
            elif end.by_cpu_limit(self._limits.cpu_s):
                limit = "cpu_s"
        if status == OUT_OF_MEMORY and b"MemoryError" in self._stderr.captured:
            limit, status = limit or "memory_mb", 1
        elif status == DISK_FULL and b"Error: [Errno " in self._stderr.captured:
            limit, status = limit or "disk_mb", 1
        return CodeResult(
            exit_status=status,
            signal=end.signal,
            stdout=self._stdout.captured.decode(errors="replace"),
            stderr=self._stderr.captured.decode(errors="replace"),
            duration_s=time.monotonic() - self._started,
            limit=limit,
        )

    async def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)
            await self._writer.drained()

    def feed(self, stdin: bytes) -> None:
        """All that it will ever read. What does not fit yet is kept here until it does, or until the end."""
        if not self._stdin.is_closing():
            self._stdin.write(stdin)
            self._stdin.write_eof()

    async def close_stdin(self) -> None:
        if not self._stdin.is_closing():
            self._stdin.write_eof()

    async def readline(self) -> bytes:
        stdout = self._stdout.captured
        while True:
            newline = stdout.find(b"\n", max(self._read_to, self._searched_to))
            if newline >= 0 or not self._stdout.open:
                break
            self._searched_to = len(stdout)
            self._grown.clear()
            await self._grown.wait()
        end = newline + 1 if newline >= 0 else len(stdout)
        line = bytes(stdout[self._read_to : end])
        self._read_to = end
        return line

    async def wait(self) -> CodeResult:
        return await asyncio.shield(self._watcher)

    async def kill(self) -> None:
        self._killed = True
        assert self._jailed is not None, "nobody has it before it has started"
        self._jailed.kill()
        with suppress(SandboxUnavailable):  # a dead zygote has taken it along
            await self.wait()


class _Output(asyncio.Protocol):
    """One of the outputs: what was captured of it, and whether more may come."""

    def __init__(self, code: JailedCode) -> None:
        self._code = code
        self._transport: asyncio.BaseTransport | None = None
        self.captured = bytearray()
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._code.printed(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._code.closed()

    def stop(self) -> None:
        """Read no more, as when the jail did not end."""
        if self.open and self._transport is not None:
            self._transport.close()


class _Writer(asyncio.BaseProtocol):
    """Lets a writer wait while the pipe to stdin is full."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pause_writing(self) -> None:
        self._open.clear()

    def resume_writing(self) -> None:
        self._open.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.set()

    async def drained(self) -> None:
        await self._open.wait()


def _seen(watcher: asyncio.Task[CodeResult]) -> None:
    """What went wrong is for whoever waits; nobody has to."""
    if not watcher.cancelled():
        watcher.exception()


async def collect(process: JailedCode, stdin: bytes) -> CodeResult:
    """Feed stdin and wait for the end; kills the process when the caller is cancelled."""
    try:
        process.feed(stdin)
        return await process.wait()
    except (asyncio.CancelledError, MemoryError):
        await process.kill()
        raise
