"""The relay's descriptors: its ends of jails' channels and pipes, files of workspaces, and the way to the host.

Bytes move here, under the windows of `sandbox.containers.wire`; what the host asks for and what the zygote reports is
in `sandbox.containers.relay`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections import deque

from sandbox.containers import wire

MAX_PENDING = 1 << 20
"""Bytes waiting for the host above which no more are taken from jails."""
LINGER_S = 0.01
"""How long what is in no hurry waits for more that can go with it: every write to the host is handed on by the
container's shim and by the Docker daemon, which wake for it."""
LOST = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Stream:
    """One descriptor: the relay's end of a jail's channel, of one of its pipes, or a file of a workspace."""

    def __init__(self, job: Job, number: int, fd: int, *, reads: bool, writes: bool) -> None:
        self.job, self.number, self.fd = job, number, fd
        self.reads, self.writes = reads, writes
        self.window = wire.WINDOW
        self.pending: deque[bytes] = deque()
        self.written = 0
        self.ends = False
        """The host has sent its last byte."""

    @property
    def events(self) -> int:
        reading = select.POLLIN if self.reads and self.window > 0 else 0
        return reading | (select.POLLOUT if self.pending else 0)


class Job:
    """A jail, or the reading or writing of a file."""

    def __init__(self, number: int, *, is_file: bool = False) -> None:
        self.number = number
        self.is_file = is_file
        self.killed = False
        self.exit: bytes | None = None
        self.streams: dict[int, Stream] = {}


class Ports:
    def __init__(self, host_out: int) -> None:
        self.host_out = host_out
        self.poll = select.poll()
        self.out: deque[bytes] = deque()
        self.pending = 0
        self.due: float | None = None
        """When `out` has to go; None while it is empty."""
        self.blocked = False
        self.flooded = False
        self.jobs: dict[int, Job] = {}
        self.streams: dict[int, Stream] = {}
        self.alive = True

    def send(self, operation: int, number: int, payload: bytes = b"", stream: int = 0, *, hurries: bool = True) -> None:
        data = wire.frame(operation, number, payload, stream)
        self.out.append(data)
        self.pending += len(data)
        if hurries or self.pending >= wire.CHUNK:
            self.due = 0.0
        elif self.due is None:
            self.due = time.monotonic() + LINGER_S

    def fail(self, number: int, error: str, code: int = 0, fix: str = "") -> None:
        self.send(wire.FAILED, number, json.dumps({"error": error[:4000], "errno": code, "fix": fix}).encode())

    def patience(self) -> float | None:
        """Milliseconds to wait for events at most."""
        return None if self.due is None or self.blocked else max(0.0, (self.due - time.monotonic()) * 1000)

    def flush(self) -> None:
        """Send what is due, and with it all else."""
        if self.due is None or self.due > time.monotonic():
            return
        while self.out:
            data = self.out[0] if len(self.out) == 1 else b"".join(self.out)
            self.out.clear()
            try:
                written = os.write(self.host_out, data)
            except BlockingIOError:
                written = 0
            except OSError:
                self.alive = False
                return
            self.pending -= written
            if written < len(data):
                self.out.append(data[written:])
                break
        else:
            self.due = None
        if self.blocked != bool(self.out):
            self.blocked = bool(self.out)
            self.poll.register(self.host_out, select.POLLOUT if self.blocked else 0)
        if self.flooded != (self.pending > MAX_PENDING):
            self.flooded = not self.flooded
            for stream in self.streams.values():
                self.watch(stream)

    def add(self, job: Job, number: int, fd: int, *, reads: bool, writes: bool) -> None:
        os.set_blocking(fd, False)
        stream = Stream(job, number, fd, reads=reads, writes=writes)
        job.streams[number] = self.streams[fd] = stream
        self.watch(stream)

    def watch(self, stream: Stream) -> None:
        events = stream.events & ~(select.POLLIN if self.flooded else 0)
        if events or not stream.reads:  # a reader without events would be woken by every hang-up
            self.poll.register(stream.fd, events)
        else:
            with contextlib.suppress(KeyError):
                self.poll.unregister(stream.fd)

    def on_stream(self, stream: Stream, events: int) -> None:
        if events & select.POLLOUT and stream.pending:
            self.write(stream)
        if stream.fd not in self.streams:
            return
        if stream.reads and events & (select.POLLIN | LOST):
            if stream.window > 0:
                self.read(stream)
        elif events & LOST:
            self.lose(stream)

    def read(self, stream: Stream) -> bool:
        """Take what is there and hand it on; False when there is nothing now."""
        try:
            data = os.read(stream.fd, min(stream.window, wire.CHUNK))
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            stream.window -= len(data)
            # A jail whose stdin has ended gets no more answers: what it says can go with its end. (The one stream of a
            # channel or a file has the same number as stdin.)
            self.send(wire.DATA, stream.job.number, data, stream.number, hurries=wire.STDIN in stream.job.streams)
            if stream.window <= 0 or self.flooded:
                self.watch(stream)
            return True
        job = stream.job
        if not job.is_file:
            self.send(wire.EOF, job.number, b"", stream.number, hurries=False)
        self.close(stream)
        if job.is_file:
            self.finish_file(job)
        self.end_if_over(job)
        return False

    def write(self, stream: Stream) -> None:
        """Pass on what the host has sent, as far as the other end takes it."""
        while stream.pending:
            data = stream.pending.popleft()
            try:
                written = os.write(stream.fd, data)
            except BlockingIOError:
                written = 0
            except OSError as error:
                if stream.job.is_file:
                    self.close(stream)
                    self.jobs.pop(stream.job.number, None)
                    self.fail(stream.job.number, str(error), error.errno or 0)
                    return
                self.lose(stream)
                return
            stream.written += written
            if written < len(data):
                stream.pending.appendleft(data[written:])
                break
        if stream.written >= wire.WINDOW // 2:
            self.send(wire.CREDIT, stream.job.number, wire.COUNT.pack(stream.written), stream.number)
            stream.written = 0
        if stream.ends and not stream.pending:
            self.stop_writing(stream)
        else:
            self.watch(stream)

    def lose(self, stream: Stream) -> None:
        """Nobody reads at the other end any more; the host shall send no more."""
        stream.pending.clear()
        self.send(wire.EOF, stream.job.number, b"", stream.number, hurries=False)
        self.stop_writing(stream)

    def stop_writing(self, stream: Stream) -> None:
        if stream.reads:  # a channel
            stream.writes = False
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(stream.fd)) as end:
                end.shutdown(socket.SHUT_WR)
            self.watch(stream)
            return
        self.close(stream)
        if stream.job.is_file:
            self.finish_file(stream.job)

    def close(self, stream: Stream) -> None:
        with contextlib.suppress(KeyError):
            self.poll.unregister(stream.fd)
        if self.streams.pop(stream.fd, None) is not None:
            os.close(stream.fd)
        stream.job.streams.pop(stream.number, None)
        stream.reads = stream.writes = False
        stream.pending.clear()

    def close_all(self, job: Job) -> None:
        for stream in list(job.streams.values()):
            self.close(stream)

    def end_if_over(self, job: Job) -> None:
        if job.exit is not None and not job.streams and self.jobs.pop(job.number, None) is not None:
            self.send(wire.EXITED, job.number, job.exit)

    def finish_file(self, job: Job) -> None:
        if self.jobs.pop(job.number, None) is not None:
            self.send(wire.DONE, job.number)
