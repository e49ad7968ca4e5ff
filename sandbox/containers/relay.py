"""The relay: the process that a container runs. It starts a zygote and carries bytes between its jails and the host.

It speaks frames (`sandbox.containers.wire`) on stdin and stdout and ends when stdin does, and the container with it.
One thread, one poll loop; it never looks into what a jail sends. The zygote is a process of its own, as on the host,
so that no jail is forked from memory that has held the bytes of another.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from typing import Any

from sandbox.containers import wire
from sandbox.containers.ports import LOST, Job, Ports
from sandbox.host import workspaces
from sandbox.jail import MAX_MESSAGE, START, Kind, kernel, loading, readable

MAX_REQUEST = 1 << 30
_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_BUSY = (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS)


class Relay(Ports):
    def __init__(self, control: socket.socket, kind: Kind, host_in: int, host_out: int) -> None:
        super().__init__(host_out)
        self.control, self.kind, self.host_in = control, kind, host_in
        self.frames = wire.Frames(MAX_REQUEST)
        self.folders: dict[int, int] = {}
        self.to_zygote: deque[tuple[bytes, list[int]]] = deque()
        self.zygote_busy = False
        self.oom_kills = _oom_kills()

    def serve(self) -> None:
        """Carry bytes until the host or the zygote is gone."""
        for fd in (self.host_in, self.host_out, self.control.fileno()):
            os.set_blocking(fd, False)
        self.poll.register(self.host_in, select.POLLIN)
        self.poll.register(self.host_out, 0)
        self.poll.register(self.control, select.POLLIN)
        while self.alive:
            for fd, events in self.poll.poll(self.patience()):
                if fd == self.host_in:
                    self.from_host()
                elif fd == self.control.fileno():
                    if events & select.POLLOUT:
                        self.flush_control()
                    if events & ~select.POLLOUT:
                        self.from_zygote()
                elif fd == self.host_out:
                    if events & LOST:
                        self.alive = False
                elif fd in self.streams:
                    self.on_stream(self.streams[fd], events)
            self.flush()

    # The host

    def from_host(self) -> None:
        try:
            data = os.read(self.host_in, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.alive = False
            return
        for operation, number, stream, payload in self.frames.feed(data):
            try:
                self.on_frame(operation, number, stream, payload)
            except (OSError, ValueError) as error:
                self.fail(number, str(error), getattr(error, "errno", None) or 0)

    def on_frame(self, operation: int, number: int, stream_number: int, payload: bytes) -> None:
        match operation:
            case wire.SPAWN:
                self.spawn(number, payload)
            case wire.KILL:
                if job := self.jobs.get(number):
                    job.killed = True
                    if job.exit is not None:
                        self.on_exit(job)  # nobody waits for the rest
                    else:
                        self.tell_zygote({"op": "kill", "id": number})
            case wire.WORKSPACE:
                self.tell_zygote({"op": "workspace", "id": number, **json.loads(payload)})
            case wire.DROP_WORKSPACE:
                self.drop_workspace(number)
            case wire.READ_FILE | wire.WRITE_FILE:
                self.open_file(number, operation, json.loads(payload))
            case wire.DATA | wire.EOF | wire.CREDIT:
                job = self.jobs.get(number)
                stream = job.streams.get(stream_number) if job else None
                if stream is None:
                    return  # it has just ended
                if operation == wire.CREDIT:
                    stream.window += wire.COUNT.unpack(payload)[0]
                    self.watch(stream)
                elif stream.writes:
                    if operation == wire.DATA:
                        stream.pending.append(payload)
                    else:
                        stream.ends = True
                    self.write(stream)

    # The zygote

    def tell_zygote(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        """Send a message, or keep it while the zygote is busy; the descriptors are closed then."""
        self.to_zygote.append((json.dumps(message).encode(), fds or []))
        self.flush_control()

    def flush_control(self) -> None:
        while self.to_zygote:
            data, fds = self.to_zygote[0]
            try:
                socket.send_fds(self.control, [data], fds)
            except OSError as error:
                if error.errno in _BUSY:
                    break
                self.alive = False
                return
            self.to_zygote.popleft()
            for fd in fds:
                os.close(fd)
        if self.zygote_busy != bool(self.to_zygote):
            self.zygote_busy = bool(self.to_zygote)
            self.poll.register(self.control, select.POLLIN | (select.POLLOUT if self.zygote_busy else 0))

    def from_zygote(self) -> None:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self.fail(0, "the zygote has ended" + (": out of memory" if self.oom_killed() else ""))
                self.alive = False
                return
            message = json.loads(data)
            number = message.get("id", 0)
            match message["op"]:
                case "ready":
                    self.send(wire.READY, 0)
                case "workspace":
                    self.folders[number] = fds[0]
                    self.send(wire.DONE, number)
                case "failed":
                    if job := self.jobs.pop(number, None):
                        self.close_all(job)
                    self.fail(number, message["error"], fix=message.get("fix", ""))
                    self.alive = bool(number)
                case "exited":
                    if job := self.jobs.get(number):
                        status, killed = message["status"], job.killed
                        oom = os.WIFSIGNALED(status) and not killed and self.oom_killed()
                        job.exit = wire.EXIT.pack(status, message["cpu_s"], oom)
                        self.on_exit(job)

    def oom_killed(self) -> bool:
        before, self.oom_kills = self.oom_kills, _oom_kills()
        return self.oom_kills > before

    def on_exit(self, job: Job) -> None:
        """What the jail has left in its pipes is still read; of a killed one only what the host has room for."""
        for stream in list(job.streams.values()):
            if not stream.reads:
                self.close(stream)
            elif job.killed:
                while stream.reads and stream.window > 0 and self.read(stream):
                    pass
                self.close(stream)
        self.end_if_over(job)

    # Jails

    def spawn(self, number: int, payload: bytes) -> None:
        head, _, source = payload.partition(b"\n")
        order = json.loads(head)
        job = Job(number)
        theirs: list[int] = []
        try:
            if self.kind == "code":
                theirs.append(os.memfd_create("source"))
                written = 0
                while written < len(source):
                    written += os.write(theirs[0], memoryview(source)[written:])
                for stream in (wire.STDIN, wire.STDOUT, wire.STDERR):
                    read, write = os.pipe()
                    ours, other = (write, read) if stream == wire.STDIN else (read, write)
                    theirs.append(other)
                    self.add(job, stream, ours, reads=ours == read, writes=ours == write)
            else:
                one, other = socket.socketpair()
                theirs.append(other.detach())
                self.add(job, wire.CHANNEL, one.detach(), reads=True, writes=True)
        except BaseException:
            self.close_all(job)
            for fd in theirs:
                os.close(fd)
            raise
        self.jobs[number] = job
        self.tell_zygote({"op": "spawn", "id": number, **order}, theirs)

    # Workspaces

    def drop_workspace(self, number: int) -> None:
        folder = self.folders.pop(number, None)
        if folder is not None:
            os.close(folder)
            self.tell_zygote({"op": "drop_workspace", "id": number})

    def open_file(self, number: int, operation: int, order: dict[str, Any]) -> None:
        folder = self.folders[order["workspace"]]
        reads = operation == wire.READ_FILE
        fd = (workspaces.open_to_read if reads else workspaces.open_to_write)(folder, order["name"])
        job = self.jobs[number] = Job(number, is_file=True)
        self.add(job, 0, fd, reads=reads, writes=not reads)


def _oom_kills() -> int:
    """How often the kernel has killed in this container for want of memory; 0 where it does not say."""
    for path in _OOM_COUNTERS:
        with contextlib.suppress(OSError), open(path) as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0


def main() -> None:
    """The command of a container: `python -m sandbox.containers.relay '{"kind": "code", ...}'`."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    kind: Kind = options["kind"]
    folder = tempfile.mkdtemp(prefix="metaagent-", dir=options.get("folder"))
    os.chmod(folder, 0o711)
    preload: list[str] = options.get("preload", [])
    extra: list[str] = []
    if kind == "call":
        from sandbox.host import package_folders  # much that the relay does not need

        extra = package_folders(tuple(preload))
    elif kind == "code":  # an image holds nobody's secrets
        extra = readable.packages()
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = {
        "control_fd": theirs.fileno(),
        "kind": kind,
        "mode": "j0",
        "folder": folder,
        "preload": preload,
        "extra": extra,
        "chroot": options.get("chroot", ""),
        "processes": options.get("processes"),
        "modules": loading.installed(loading.MODULES) if kind == "code" else [],
    }
    # An interpreter of its own: whatever the relay holds, each jail would pay for.
    subprocess.Popen(
        [sys.executable, "-c", START, json.dumps(arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    # Its memory has held what jails say: no process may look into it.
    kernel.take([kernel.prctl(kernel.PR_SET_DUMPABLE, 0)])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Relay(control, kind, 0, 1).serve()


if __name__ == "__main__":
    main()
