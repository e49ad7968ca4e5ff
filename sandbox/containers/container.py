"""The host's end of one container: frames over its attached stdio, and the jails and workspaces behind them.

A `Connection` is a `sandbox.host.spawner.Spawner`. What the relay says is not believed further than a jail is: lengths
and windows are checked, unknown numbers are ignored, and what breaks the protocol ends the container. Creating and
removing containers is for `sandbox.containers.daemon`, choosing one for `sandbox.containers.pool`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.containers import wire
from sandbox.containers.streams import JailStream
from sandbox.host import REAP_TIMEOUT_S, CodeStreams, Exit, Jailed, JailedFolder, explained, plain
from sandbox.jail import Kind, loading
from sandbox.protocol import WorkspaceError
from workflow.failures import SandboxUnavailable

FILE_TIMEOUT_S = 60.0
AUTOPSY_TIMEOUT_S = 5.0
OUT_OF_MEMORY = "it was out of memory"
_ERRORS_KEPT = 4096
_AGAIN = "run again; the container is replaced"


@dataclass
class _Job:
    """What waits behind one number: a jail, a workspace that is made, a file that is read or written."""

    ended: asyncio.Future[Any]
    is_jail: bool
    streams: dict[int, JailStream] = field(default_factory=dict)
    killed: asyncio.TimerHandle | None = None


class Connection(asyncio.Protocol):
    """Speaks to one relay, through Docker's multiplexed streams or (`docker=False`) through plain pipes.

    `on_lost(self)` is called once, when nothing can be run here any more; `lost` then says why. `autopsy` finds out why
    a container ended.
    """

    def __init__(
        self,
        kind: Kind,
        label: str,
        on_lost: Callable[[Connection], None],
        *,
        docker: bool = True,
        autopsy: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self.kind: Kind = kind
        self.label = label
        self.lost: str | None = None
        self.spoiled = ""
        self.errors = bytearray()
        """The end of the relay's stderr."""
        self._on_lost = on_lost
        self._docker = docker
        self._autopsy = autopsy
        self._examination: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._frames = wire.Frames(wire.MAX_REPLY)
        self._undivided = bytearray()
        self._numbers = 0
        self._jobs: dict[int, _Job] = {}
        self._outbox: list[bytes] = []
        self._transport: asyncio.WriteTransport | None = None

    @property
    def idle(self) -> bool:
        return not self._jobs

    async def ready(self, timeout_s: float) -> None:
        """Wait until the zygote inside can build its jails. Raises `SandboxUnavailable` with what it said."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.fail(f"the {self.kind} container did not get ready in {timeout_s:g} s")
            raise SandboxUnavailable(self._with_errors(self.lost or "")) from None

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.lost is None and self._autopsy is not None:
            self._examination = asyncio.create_task(self._examine(self._autopsy))
        else:
            self.fail("the container has ended")

    async def _examine(self, autopsy: Callable[[], Awaitable[str]]) -> None:
        self.spoil("it has ended")
        try:
            cause = await asyncio.wait_for(autopsy(), AUTOPSY_TIMEOUT_S)
        except Exception as error:
            cause = f"why is not known ({type(error).__name__})"
        if cause == OUT_OF_MEMORY and len(self._jobs) == 1:  # then it is clear whose doing it was
            (number,) = self._jobs
            self._end(number, Exit(signal.SIGKILL, 0.0, out_of_memory=True))
        self.fail(f"the container has ended: {cause}")

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        try:
            for part in self._divided(data) if self._docker else (data,):
                for operation, number, stream, payload in self._frames.feed(part):
                    self._on_frame(operation, number, stream, payload)
        except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
            self.fail(f"the relay broke the protocol: {type(error).__name__}: {error}"[:500])

    def _divided(self, data: bytes) -> list[bytes]:
        """The stdout in Docker's stream: each part has a byte for its source, three zeros, and a length."""
        pending = self._undivided
        pending += data
        parts = []
        at = 0
        while len(pending) - at >= 8:
            source, length = pending[at], int.from_bytes(pending[at + 4 : at + 8])
            if source not in (1, 2) or length > wire.MAX_REPLY:
                raise wire.WireError(f"a part of source {source} and {length} bytes")
            if len(pending) - at - 8 < length:
                break
            part = bytes(pending[at + 8 : at + 8 + length])
            if source == 1:
                parts.append(part)
            else:
                self.add_errors(part)
            at += 8 + length
        del pending[:at]
        return parts

    def add_errors(self, data: bytes) -> None:
        self.errors += data
        del self.errors[:-_ERRORS_KEPT]

    def _with_errors(self, reason: str) -> str:
        said = self.errors.decode(errors="replace").strip()
        return f"{reason}: {said[-2000:]}" if said else reason

    def _send(self, operation: int, number: int, payload: bytes = b"", stream: int = 0) -> None:
        """Frames of one turn of the loop leave together."""
        if self.lost is None:
            if not self._outbox:
                self._loop.call_soon(self._flush)
            self._outbox.append(wire.frame(operation, number, payload, stream))

    def _flush(self) -> None:
        if self._outbox and self._transport is not None:
            self._transport.write(b"".join(self._outbox))
        self._outbox.clear()

    def close(self) -> None:
        """Hang up: the relay ends, and its jails and its container with it."""
        self.fail("the sandbox was closed")

    def fail(self, reason: str) -> None:
        """Nothing more can be had from this container: whatever waits for it is told so."""
        if self.lost is not None:
            return
        self.lost = reason
        self._outbox.clear()
        if self._transport is not None:
            self._transport.abort()
        error = SandboxUnavailable(self._with_errors(reason), _AGAIN)
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # seen: whoever waits gets it, nobody has to
        for number in list(self._jobs):
            self._end(number, error)
        self._on_lost(self)

    # Frames

    def _on_frame(self, operation: int, number: int, stream_number: int, payload: bytes) -> None:
        if operation == wire.READY and number == 0:
            if not self._ready.done():
                self._ready.set_result(None)
            return
        if operation == wire.FAILED and number == 0:
            message = _object(payload)
            self._give_up(str(message["error"])[:2000], str(message["fix"])[:500])
            return
        job = self._jobs.get(number)
        if job is None:
            return  # it has just ended
        match operation:
            case wire.DATA | wire.EOF | wire.CREDIT:
                stream = job.streams.get(stream_number)
                if stream is None:
                    raise wire.WireError(f"no stream {stream_number}")
                if operation == wire.DATA:
                    stream.received(payload)
                elif operation == wire.EOF:
                    stream.ended()
                else:
                    stream.credited(wire.COUNT.unpack(payload)[0])
            case wire.EXITED:
                status, cpu_s, out_of_memory = wire.EXIT.unpack(payload)
                if out_of_memory:
                    self.spoil(OUT_OF_MEMORY)
                self._end(number, Exit(status, cpu_s, out_of_memory))
            case wire.DONE:
                self._end(number, None)
            case wire.FAILED:
                self._end(number, _exception(f"{self.kind} jail in {self.label}", job, _object(payload)))
            case _:
                raise wire.WireError(f"operation {operation}")

    def _give_up(self, error: str, fix: str) -> None:
        if not self._ready.done():
            said = SandboxUnavailable(self._with_errors(f"{self.kind} jail in {self.label}: {error}"), fix)
            self._ready.set_exception(said)
            self._ready.exception()
        self.fail(error)

    def _begin(self, operation: int, order: dict[str, Any], data: bytes = b"") -> tuple[int, _Job]:
        if self.lost is not None:
            raise SandboxUnavailable(self._with_errors(self.lost), _AGAIN)
        self._numbers += 1
        job = self._jobs[self._numbers] = _Job(self._loop.create_future(), operation == wire.SPAWN)
        self._send(operation, self._numbers, json.dumps(order).encode() + data)
        return self._numbers, job

    def _end(self, number: int, result: Any) -> None:
        job = self._jobs.pop(number, None)
        if job is None:
            return
        if job.killed is not None:
            job.killed.cancel()
        for stream in job.streams.values():
            stream.ended()
        if not job.ended.done():
            if isinstance(result, Exception):
                job.ended.set_exception(result)
                job.ended.exception()  # seen: whoever waits gets it, nobody has to
            else:
                job.ended.set_result(result)

    def _stream(self, number: int, stream_number: int, job: _Job, protocol: asyncio.BaseProtocol) -> JailStream:
        def send(operation: int, payload: bytes) -> None:
            if number in self._jobs:
                self._send(operation, number, payload, stream_number)

        stream = JailStream(send, protocol, self._loop)
        job.streams[stream_number] = stream
        stream.start()
        return stream

    # What a spawner does

    async def open_channel(self, limits: dict[str, int]) -> tuple[Jailed, asyncio.StreamReader, asyncio.StreamWriter]:
        number, job = self._begin(wire.SPAWN, {"limits": limits, "workspace": None})
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        transport = self._stream(number, wire.CHANNEL, job, protocol)
        return Jailed(number, job.ended, self), reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def open_code(
        self, source: bytes, limits: dict[str, int], workspace: int | None, streams: CodeStreams
    ) -> tuple[Jailed, asyncio.WriteTransport]:
        order = {"limits": limits, "workspace": workspace, "packages": loading.names_a_package(source)}
        number, job = self._begin(wire.SPAWN, order, b"\n" + source)
        self._stream(number, wire.STDOUT, job, streams.stdout)
        self._stream(number, wire.STDERR, job, streams.stderr)
        return Jailed(number, job.ended, self), self._stream(number, wire.STDIN, job, streams.stdin)

    def kill(self, number: int) -> None:
        job = self._jobs.get(number)
        if job is not None and job.killed is None:
            self._send(wire.KILL, number)
            # A little sooner than whoever waits for it gives up.
            job.killed = self._loop.call_later(REAP_TIMEOUT_S * 0.9, self.fail, "a jailed process did not end")

    def spoil(self, reason: str) -> None:
        """Run nothing new here; the pool removes the container when what runs has ended."""
        self.spoiled = self.spoiled or reason

    async def make_workspace(self, disk_mb: int) -> ContainedFolder:
        number, job = self._begin(wire.WORKSPACE, {"disk_mb": disk_mb})
        try:
            await self._within(job, REAP_TIMEOUT_S, "made no workspace")
        except asyncio.CancelledError:
            job.ended.add_done_callback(lambda _: self.drop_workspace(number))  # nobody waits for it any more
            raise
        return ContainedFolder(self, number, disk_mb)

    def drop_workspace(self, number: int) -> None:
        self._send(wire.DROP_WORKSPACE, number)

    async def read_file(self, workspace: int, name: str, limit: int) -> bytes:
        number, job = self._begin(wire.READ_FILE, {"workspace": workspace, "name": name})
        contents = _Contents(limit)
        self._stream(number, 0, job, contents)
        await self._within(job, FILE_TIMEOUT_S, f"did not read {name!r}")
        if contents.too_long:
            raise WorkspaceError(errno.EFBIG, f"workspace file {name!r} is over the workspace's size of {limit} bytes")
        return bytes(contents.data)

    async def write_file(self, workspace: int, name: str, data: bytes) -> None:
        number, job = self._begin(wire.WRITE_FILE, {"workspace": workspace, "name": name})
        stream = self._stream(number, 0, job, asyncio.Protocol())
        stream.write(data)
        stream.write_eof()
        await self._within(job, FILE_TIMEOUT_S, f"did not write {name!r}")

    async def _within(self, job: _Job, timeout_s: float, failure: str) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(job.ended)
        except TimeoutError:
            self.fail(f"the relay {failure} within {timeout_s:g} s")
            raise SandboxUnavailable(f"the relay {failure} within {timeout_s:g} s") from None


class ContainedFolder(JailedFolder):
    """A workspace in a container."""

    def __init__(self, spawner: Connection, number: int, disk_mb: int) -> None:
        super().__init__(spawner, number)
        self._connection, self._size = spawner, disk_mb << 20

    async def write(self, name: str, data: bytes) -> None:
        with explained(name):
            await self._connection.write_file(self.number, _named(name), data)

    async def read(self, name: str) -> bytes:
        with explained(name):
            return await self._connection.read_file(self.number, _named(name), self._size)

    def close(self) -> None:
        """Nothing is held on this side."""


class _Contents(asyncio.Protocol):
    """Collects a file, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.too_long = False
        self._limit = limit

    def data_received(self, data: bytes) -> None:
        self.too_long = self.too_long or len(self.data) + len(data) > self._limit
        if not self.too_long:
            self.data += data


def _named(name: str) -> str:
    if "\0" in name:
        raise ValueError("embedded null byte")
    return plain(name)


def _object(payload: bytes) -> dict[str, Any]:
    message = json.loads(payload)
    if not isinstance(message, dict):
        raise wire.WireError("not an object")
    return message


def _exception(where: str, job: _Job, message: dict[str, Any]) -> Exception:
    error, code = str(message["error"])[:2000], message["errno"]
    if not job.is_jail and isinstance(code, int) and code:
        return OSError(code, os.strerror(code))
    if not job.is_jail and "regular file" in error:
        return FileNotFoundError(error)
    return SandboxUnavailable(f"{where}: {error}", str(message["fix"])[:500])
