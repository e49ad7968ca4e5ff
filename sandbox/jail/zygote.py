"""The zygote: a small trusted process that has everything imported and forks one jail per run.

Started by `sandbox.host.process_sandbox` with a control socket; one zygote per kind of work (programs, code, calls), so
that they never share a process. Single-threaded; it interprets nothing that comes out of a jail. That for code has a
child with numpy, sympy and scipy loaded, from which code that names them is forked as soon as it is ready.

Control messages are JSON datagrams. To the zygote: `spawn` (with the jail's file descriptors), `kill`,
`workspace`, `drop_workspace`. From it: `ready`, `exited`, `failed` (also sent by a child whose walls could not be put
up; it then runs nothing), `workspace`. When the host hangs up, its jails and folders go with it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from sandbox.jail import child_zygote, kernel, loading, walls
from sandbox.jail.child_zygote import ChildZygote
from sandbox.jail.kernel import Step
from sandbox.jail.walls import FIRST_OWN_FD, MAX_MESSAGE, JailLimits, Kind, Mode, Walls, close_all_but, go_first

START = "import json, sys, sandbox.jail.zygote; sandbox.jail.zygote.main(**json.loads(sys.argv[1]))"
"""The command of a zygote's interpreter, with the arguments of `main` as JSON."""
RM = ["/bin/rm", "-rf", "--"]
"""What code leaves may be huge, and deeper than `shutil.rmtree` can recurse."""
_FD = struct.Struct("i")
_FDS_SIZE = socket.CMSG_SPACE(8 * _FD.size)
_DECODER = json.JSONDecoder()
"""`json.loads` does more around it, which writes to many a page (see `kernel.Step`)."""
Job = Callable[[list[int]], None]


class Zygote:
    def __init__(
        self,
        control: socket.socket,
        kind: Kind,
        mode: Mode,
        folder: str,
        job: Job,
        many_uids: bool,
        walls: Walls,
        chroot: str,
        contained: bool,
        modules: list[str],
        proc: int = -1,
        is_child: bool = False,
    ) -> None:
        """`modules` are what its child loads, which measures itself with `proc`; without any it has no child."""
        self.control = control
        self.pid = os.getpid()
        # Only where jails cannot see their parent; gVisor's kernel has no such descriptors.
        self.pidfd: int | None = None
        if mode == "j":
            self.pidfd = kernel.move_descriptor(os.pidfd_open(self.pid), FIRST_OWN_FD)
        self.own = sorted(fd for fd in (control.fileno(), self.pidfd) if fd is not None)
        self.closing = close_all_but([0, 1, 2, 3, *self.own])
        self.kind: Kind = kind
        self.mode: Mode = mode
        self.job, self.folder = job, folder
        self.many_uids, self.walls = many_uids, walls
        self.chroot, self.contained, self.is_child = chroot, contained, is_child
        self.modules, self.proc = modules, proc
        self.child: ChildZygote | None = None
        self.home = [kernel.Variable(name) for name in ("HOME", "TMPDIR")] if mode == "j0" else []
        self.first: list[Step] = [("oom_score_adj", go_first, ())] if contained else []
        self.root: list[Step] = []
        if mode == "j":
            self.root = kernel.enter_root("/jail")
        elif chroot:
            self.root.append(("change_root", kernel.change_root, (chroot,)))
        self.buffer = bytearray(MAX_MESSAGE)
        self.running: dict[int, int] = {}
        self.children, self.cpu_s = 0, 0.0
        """Processes that are yet to be reaped, and what all others together have used."""

    def send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        data = json.dumps(message).encode()
        if fds:
            socket.send_fds(self.control, [data], fds)
        else:
            self.control.send(data)

    def serve(self) -> None:
        """Answer until the host hangs up."""
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake)
        self.poll = select.poll()
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(self.woken, select.POLLIN)
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.woken and os.read(fd, 512):  # a byte for each signal
                    self.reap()
                elif self.child is not None and fd == self.child.control.fileno():
                    self.from_child(self.child)
                elif not self.receive():
                    return

    def receive(self) -> bool:
        size, received, _, _ = self.control.recvmsg_into([self.buffer], _FDS_SIZE)
        if not size:
            return False
        fds = [fd for (fd,) in _FD.iter_unpack(received[0][2])] if received else []
        message, _ = _DECODER.raw_decode(self.buffer[:size].decode())
        try:
            match message["op"]:
                case "spawn":
                    if self.child is None or not self.child.takes(message, fds):
                        self.spawn(message, fds)
                case "kill":
                    if self.child is not None:
                        self.child.kill(message)
                    for pid, number in self.running.items():
                        if number == message["id"]:
                            os.kill(pid, signal.SIGKILL)
                case "workspace":
                    self.make_workspace(message["id"], message["disk_mb"])
                case "drop_workspace":
                    self.drop_workspace(message["id"])
        except OSError as error:
            self.send({"op": "failed", "id": message["id"], "error": str(error)})
        finally:
            for fd in fds:
                os.close(fd)
        if message.get("packages") and self.modules and self.child is None:
            self.child = ChildZygote(self.be_child)
            self.children += 1
            self.poll.register(self.child.control, select.POLLIN)
        return True

    def reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.children -= 1
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            before, self.cpu_s = self.cpu_s, usage.ru_utime + usage.ru_stime
            number = self.running.pop(pid, None)
            if number is None:
                continue
            cpu_s = self.cpu_s - before
            self.control.send(b'{"op": "exited", "id": %d, "status": %d, "cpu_s": %f}' % (number, status, cpu_s))
            if self.mode == "j0" and self.kind != "program":
                self.remove(self.scratch_path(number))

    def end(self) -> None:
        """The host has hung up: end every jail, then remove the folder (in mode j it is gone with the mount)."""
        if self.child is not None:
            self.child.end()
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
        for pid in self.running:
            os.waitpid(pid, 0)
        if self.mode == "j0" and not self.is_child:
            os.execv(RM[0], [*RM, self.folder])

    def remove(self, path: str) -> None:
        """Delete a folder if there is one; unless it is empty, in a process of its own, which `reap` will meet."""
        try:
            os.rmdir(path)
        except OSError:
            if os.path.isdir(path):
                if os.fork() == 0:
                    try:
                        os.execv(RM[0], [*RM, path])
                    finally:
                        os._exit(1)
                self.children += 1

    def be_child(self, control: socket.socket) -> None:
        if self.orphaned():
            return
        kernel.take([("close", os.close, (fd,)) for fd in (*self.own, self.woken, self.wake)])
        loading.load(self.modules, "/jail" if self.mode == "j" else "")
        self.walls.grow(child_zygote.address_space_mb(self.proc))
        os.close(self.proc)
        zygote = Zygote(
            socket.socket(fileno=kernel.move_descriptor(control.detach(), FIRST_OWN_FD)),
            self.kind,
            self.mode,
            self.folder,
            loading.freshened(self.job),
            self.many_uids,
            self.walls,
            self.chroot,
            self.contained,
            modules=[],
            is_child=True,
        )
        gc.collect()
        gc.freeze()
        zygote.send({"op": "ready"})
        zygote.serve()
        zygote.end()

    def from_child(self, child: ChildZygote) -> None:
        """What the child says of its jails is for the host. Its end is the end of its jails."""
        said = child.control.recv(MAX_MESSAGE)
        if said:
            if child.passes_on(_DECODER.raw_decode(said.decode())[0]):
                self.control.send(said)
            return
        self.poll.unregister(child.control)
        child.control.close()
        for number, workspace in child.serves.items():
            self.send({"op": "exited", "id": number, "status": signal.SIGKILL, "cpu_s": 0.0})
            if self.mode == "j0" and not workspace:
                self.remove(self.scratch_path(number))
        if not child.ready:  # it cannot load them
            self.modules = []
        self.child = None

    def spawn(self, message: dict[str, Any], fds: list[int]) -> None:
        number = message["id"]
        if self.mode == "j0" and self.kind != "program" and not message["workspace"]:
            self.make_folder(self.scratch_path(number), self.user(message))
        steps = self.steps(message, fds)
        pid = kernel.clone(walls.PER_RUN_NAMESPACES) if self.mode == "j" else os.fork()
        if pid:
            self.running[pid] = number
            self.children += 1
            return
        try:
            try:
                signal.set_wakeup_fd(-1)
                kernel.take(steps)
                # From here on the zygote's death kills this process; it must not have died before.
                if self.orphaned():
                    os._exit(1)
            except BaseException as error:
                # Over the zygote's own channel, which no jail keeps: nothing that runs in one can say this.
                self.send({"op": "failed", "id": number, "error": f"{type(error).__name__}: {error}"})
                os._exit(1)
            for fd in self.own:
                os.close(fd)
            self.job([3])
        finally:
            os._exit(1)

    def steps(self, message: dict[str, Any], fds: list[int]) -> Iterable[Step]:
        """What makes a child a run's jail, in order."""
        limits = JailLimits(**message["limits"])
        workspace = message["workspace"]
        mounts: list[Step] = []
        if self.mode == "j":
            work = walls.WORK
            if workspace:
                mounts.append(kernel.mount(self.workspace_path(workspace), "/jail" + work, None, kernel.MS_BIND))
            elif self.kind != "program":
                mounts.append(walls.work_folder("/jail" + work, limits.disk_mb))
        elif self.kind == "program":
            work = self.folder + "/empty"
        else:
            work = self.workspace_path(workspace) if workspace else self.scratch_path(message["id"])
            for variable in self.home:
                variable.set(work)
        # The run's descriptors find their places: for code its streams 0 to 2, and 3 for the other.
        placing: list[Step] = [("dup2", os.dup2, (fd, place)) for place, fd in enumerate(fds[1:])]
        placing.append(("dup2", os.dup2, (fds[0], 3)))
        putting_up = self.walls.steps(limits, self.user(message), work, self.closing)
        return chain(self.first, mounts, placing, self.root, putting_up)

    def orphaned(self) -> bool:
        """In a child: whether the zygote has ended."""
        if self.pidfd is None:
            return os.getppid() != self.pid
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def user(self, message: dict[str, Any]) -> int | None:
        """The user id of a run, if it can have one of its own. Runs in one workspace share theirs."""
        if not self.many_uids:
            return None
        # Inside the zygote's user namespace its ids start at 1.
        return (message["workspace"] or message["id"]) % walls.UIDS + (1 if self.mode == "j" else walls.FIRST_UID)

    def workspace_path(self, number: int) -> str:
        return f"{'' if self.mode == 'j' else self.folder}/workspaces/{int(number)}"

    def scratch_path(self, number: int) -> str:
        """Mode j0: where a run without a workspace works. In mode j that is a tmpfs of the run's own."""
        return f"{self.folder}/scratch/{int(number)}"

    def make_workspace(self, number: int, disk_mb: int) -> None:
        """A folder for a run's code: in mode j a tmpfs of its own, so that its size is limited."""
        path = self.workspace_path(number)
        if self.mode == "j":
            os.mkdir(path)
            kernel.take([walls.work_folder(path, disk_mb)])
        else:
            self.make_folder(path, self.user({"workspace": number}))
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.send({"op": "workspace", "id": number}, [fd])
        finally:
            os.close(fd)

    def make_folder(self, path: str, uid: int | None) -> None:
        os.mkdir(path, 0o700)
        if uid is not None:
            os.chown(path, uid, uid)

    def drop_workspace(self, number: int) -> None:
        path = self.workspace_path(number)
        if self.mode == "j":
            kernel.take([kernel.unmount(path)])
            os.rmdir(path)
        else:
            self.remove(path)


def main(
    control_fd: int,
    kind: Kind,
    mode: Mode,
    folder: str,
    preload: list[str],
    extra: list[str],
    allow_weak: bool = False,
    chroot: str = "",
    processes: int | None = None,
    modules: list[str] | None = None,
) -> None:
    control = socket.socket(fileno=kernel.move_descriptor(control_fd, FIRST_OWN_FD))
    os.umask(0o022)
    with loading.fewer_fork_hooks():
        module = importlib.import_module("sandbox.jail.run_code" if kind == "code" else "sandbox.jail.run_program")
        job: Job = module.run_call if kind == "call" else module.run
        for name in preload:
            loaded = importlib.import_module(name)
            if hasattr(loaded, "warm"):
                loaded.warm()
        module.warm()
    proc = kernel.move_descriptor(os.open("/proc", os.O_PATH | os.O_DIRECTORY), FIRST_OWN_FD)
    base_mb = child_zygote.address_space_mb(proc)
    silence = os.open("/dev/null", os.O_RDWR)
    try:
        if mode == "j":
            many_uids = walls.enter_namespaces(control, kind, extra)
        else:
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, 0o711)
            for name in ("empty", "scratch", "workspaces"):
                os.mkdir(f"{folder}/{name}")
            os.chmod(f"{folder}/empty", 0o555)
            many_uids = walls.may_change_users() and (kind == "program" or walls.shared_files_reachable(extra))
        built = Walls(
            mode,
            kind,
            own_users=many_uids,
            root="/jail",
            work=folder,
            extra=extra,
            base_mb=base_mb,
            allow_weak=allow_weak,
            chrooted=bool(chroot),
            processes=processes,
        )
    except OSError as error:
        fix = walls.WALL_FIX if error.errno == errno.ENOSYS else ""
        control.send(json.dumps({"op": "failed", "id": 0, "error": str(error), "fix": fix}).encode())
        return
    os.environ.clear()
    work = walls.WORK if mode == "j" else folder + "/empty"
    os.environ.update({"PATH": "/nonexistent", "LANG": "C.UTF-8", "HOME": work, "TMPDIR": work})
    if kind == "program":  # whose clock shows UTC; C code would ask for the machine's zone
        os.environ["TZ"] = "UTC0"
        time.tzset()
    if kind == "code":  # numpy starts a thread for each core
        os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    contained = processes is not None
    zygote = Zygote(control, kind, mode, folder, job, many_uids, built, chroot, contained, modules or [], proc)
    # What is alive now stays shared with every child: keep the collector from touching it.
    gc.collect()
    gc.freeze()
    with contextlib.suppress(ConnectionError):
        zygote.send({"op": "ready", "missing": built.missing, "own_users": many_uids})
        os.dup2(silence, 2)  # what a jail inherits as its stderr
        os.close(silence)
        zygote.serve()
    zygote.end()
