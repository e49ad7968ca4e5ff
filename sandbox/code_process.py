"""One piece of code running in a jail, with its three streams: the host keeps its clock and caps its output."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import IO

from sandbox.hatchery import REAP_TIMEOUT_S, Exit, Hatchery, Jailed
from sandbox.jailed_code import OUT_OF_MEMORY
from sandbox.protocol import CodeLimitKind, CodeResult
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits

_CHUNK = 1 << 16


class JailedCode:
    """Implements `sandbox.protocol.CodeProcess`. `write` and `readline` make a conversation; `wait` ends it."""

    def __init__(self, jailed: Jailed, limits: CodeLimits, on_end: Callable[[], None]) -> None:
        self._jailed = jailed
        self._limits = limits
        self._on_end = on_end
        self._started = time.monotonic()
        self._limit: CodeLimitKind | None = None
        self._killed = False
        self._captured = {"stdout": bytearray(), "stderr": bytearray()}
        self._room = limits.output_bytes
        self._read_to = 0
        self._grown = asyncio.Condition()
        self._stdout_open = True
        self._stdin: asyncio.WriteTransport
        self._writer: _Writer
        self._readers: list[asyncio.Task[None]]
        self._clock: asyncio.TimerHandle
        self._watcher: asyncio.Task[CodeResult]

    @classmethod
    async def start(
        cls, hatchery: Hatchery, code: str, limits: CodeLimits, workspace: int | None, on_end: Callable[[], None]
    ) -> JailedCode:
        """Run `code` in a new jail. `on_end` is called when it is over, unless this raises."""
        with ExitStack() as ours:
            with ExitStack() as theirs:
                passed = [os.memfd_create("source")]
                theirs.callback(os.close, passed[0])
                files = []
                for mode in ("wb", "rb", "rb"):  # our ends of stdin, stdout, stderr
                    read, write = os.pipe()
                    end, other = (write, read) if mode == "wb" else (read, write)
                    theirs.callback(os.close, other)
                    passed.append(other)
                    files.append(ours.enter_context(os.fdopen(end, mode, 0)))
                with os.fdopen(os.dup(passed[0]), "wb") as file:
                    file.write(code.encode(errors="surrogatepass"))
                kernel_limits = {"cpu_s": limits.cpu_s, "memory_mb": limits.memory_mb, "disk_mb": limits.disk_mb}
                jailed = hatchery.spawn(passed, kernel_limits, workspace)
            ours.callback(jailed.kill)
            self = cls(jailed, limits, on_end)
            loop = asyncio.get_running_loop()
            self._stdin, self._writer = await loop.connect_write_pipe(_Writer, files[0])
            ours.pop_all()  # from here on the watcher ends them all
            self._readers = [
                asyncio.create_task(self._capture(files[1], "stdout")),
                asyncio.create_task(self._capture(files[2], "stderr")),
            ]
            self._clock = loop.call_later(limits.wall_s, self._stop, "wall_s")
            self._watcher = asyncio.create_task(self._watch())
            self._watcher.add_done_callback(_seen)
            return self

    def _stop(self, limit: CodeLimitKind) -> None:
        if self._limit is None:
            self._limit = limit
        self._jailed.kill()

    async def _capture(self, file: IO[bytes], name: str) -> None:
        """Read one stream to its end, keeping no more than there is room for."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK)
        transport = None
        try:
            transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
            while chunk := await reader.read(_CHUNK):
                self._captured[name] += chunk[: self._room]
                if len(chunk) > self._room:
                    self._stop("output_bytes")
                self._room -= min(self._room, len(chunk))
                async with self._grown:
                    self._grown.notify_all()
        finally:
            (transport or file).close()
            if name == "stdout":
                self._stdout_open = False
            async with self._grown:
                self._grown.notify_all()

    async def _watch(self) -> CodeResult:
        try:
            end = await asyncio.wait_for(asyncio.shield(self._jailed.ended), self._limits.wall_s + REAP_TIMEOUT_S)
            # A thread of the code cannot outlive its process, so the streams end now.
            await asyncio.wait_for(asyncio.gather(*self._readers), REAP_TIMEOUT_S)
            return self._describe(end)
        except TimeoutError:
            raise SandboxUnavailable(f"a jailed process did not end within {REAP_TIMEOUT_S:g} s of its kill") from None
        finally:
            self._clock.cancel()
            if not self._stdin.is_closing():
                self._stdin.abort()
            for reader in self._readers:
                reader.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)
            self._on_end()

    def _describe(self, end: Exit) -> CodeResult:
        limit, status = self._limit, end.exit_status
        if limit is None and not self._killed and end.by_cpu_limit(self._limits.cpu_s):
            limit = "cpu_s"
        if status == OUT_OF_MEMORY and b"MemoryError" in self._captured["stderr"]:
            limit, status = limit or "memory_mb", 1
        return CodeResult(
            exit_status=status,
            signal=end.signal,
            stdout=self._captured["stdout"].decode(errors="replace"),
            stderr=self._captured["stderr"].decode(errors="replace"),
            duration_s=time.monotonic() - self._started,
            limit=limit,
        )

    async def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)
            await self._writer.drained()

    async def close_stdin(self) -> None:
        if not self._stdin.is_closing():
            self._stdin.write_eof()

    async def readline(self) -> bytes:
        stdout = self._captured["stdout"]
        async with self._grown:
            while True:
                newline = stdout.find(b"\n", self._read_to)
                if newline >= 0 or not self._stdout_open:
                    break
                await self._grown.wait()
        end = newline + 1 if newline >= 0 else len(stdout)
        line = bytes(stdout[self._read_to : end])
        self._read_to = end
        return line

    async def wait(self) -> CodeResult:
        return await asyncio.shield(self._watcher)

    async def kill(self) -> None:
        self._killed = True
        self._jailed.kill()
        with suppress(SandboxUnavailable):  # a dead zygote has taken it along
            await self.wait()


class _Writer(asyncio.Protocol):
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
    feeding = asyncio.create_task(_feed(process, stdin))
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await process.kill()
        raise
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _feed(process: JailedCode, stdin: bytes) -> None:
    await process.write(stdin)
    await process.close_stdin()
