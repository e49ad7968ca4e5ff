"""The zygote: a small trusted process that has everything imported and forks one jail per run.

Started by `sandbox.process` with a control socket; one zygote per kind of work (programs, code, calls), so that they
never share a process. Single-threaded; it interprets nothing that comes out of a jail.

Control messages are JSON datagrams. To the zygote: `spawn` (with the jail's file descriptors), `kill`,
`workspace`, `drop_workspace`. From it: `ready`, `exited`, `failed`, `workspace`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from sandbox import jail, kernel
from sandbox.jail import JailLimits, Kind, Mode

MAX_MESSAGE = 1 << 16
SETUP_FAILED = 120
"""Exit status of a child whose walls could not be put up; it has run nothing."""
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
        extra: list[str],
        base_mb: int,
    ) -> None:
        self.control = control
        self.kind, self.mode, self.job = kind, mode, job
        self.folder = folder
        self.many_uids = many_uids
        self.extra = extra
        self.base_mb = base_mb
        self.running: dict[int, int] = {}
        self.spawned = 0

    def send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        socket.send_fds(self.control, [json.dumps(message).encode()], fds or [])

    def serve(self) -> None:
        """Answer until the host hangs up."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == woken:
                    with contextlib.suppress(BlockingIOError):
                        os.read(woken, 4096)
                    self.reap()
                elif not self.receive():
                    return

    def receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE, 8)
        if not data:
            return False
        message = json.loads(data)
        try:
            match message["op"]:
                case "spawn":
                    self.spawn(message, fds)
                case "kill":
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
        return True

    def reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.running.pop(pid, None)
            if number is not None:
                self.send(
                    {
                        "op": "exited",
                        "id": number,
                        "status": status,
                        "cpu_s": usage.ru_utime + usage.ru_stime,
                        "max_rss_mb": usage.ru_maxrss / 1024,
                    }
                )

    def spawn(self, message: dict[str, Any], fds: list[int]) -> None:
        self.spawned += 1
        namespaces = jail.PER_RUN_NAMESPACES if self.mode == "j" else 0
        pid = kernel.clone(namespaces) if namespaces else os.fork()
        if pid:
            self.running[pid] = message["id"]
            return
        try:
            self.become_jail(message, fds)
            self.job(fds)
        except BaseException as error:
            # Only what happens before the walls are up can be told; afterwards the job reports for itself.
            with contextlib.suppress(OSError):
                os.write(2, f"jail: {type(error).__name__}: {error}\n".encode())
            os._exit(SETUP_FAILED)
        finally:
            os._exit(0)

    def become_jail(self, message: dict[str, Any], fds: list[int]) -> None:
        """In the child: put up every wall. Raises OSError when one fails."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        limits = JailLimits(**message["limits"], base_mb=self.base_mb)
        uid = None
        if self.many_uids:
            # Inside the zygote's user namespace its ids start at 1.
            uid = self.spawned % jail.UIDS + (1 if self.mode == "j" else jail.FIRST_UID)
        workspace = message.get("workspace")
        work = self.workspace_path(workspace) if workspace else self.folder + "/empty"
        if self.mode == "j":
            target = "/jail" + jail.WORK
            if workspace:
                kernel.mount(work, target, None, kernel.MS_BIND)
            elif self.kind != "program":
                size = f"size={limits.disk_mb}m,nr_inodes=4096,mode=777"
                kernel.mount("none", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, size)
            work = jail.WORK
        self.keep_only(fds)
        if self.mode == "j":
            kernel.enter_root("/jail")
        jail.enter(self.mode, self.kind, limits, uid, work, self.extra)

    def keep_only(self, fds: list[int]) -> None:
        """Move the run's descriptors to 3, 4, ... (code: 0-2 are its own streams) and close all others."""
        if self.kind == "code":
            source, *streams = (os.dup(fd) for fd in fds)
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.dup2(source, 3)
            fds[:] = [3]
        else:
            os.dup2(os.dup(fds[0]), 3)
            fds[:] = [3]
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        os.set_inheritable(3, True)

    def workspace_path(self, number: int) -> str:
        return f"{'' if self.mode == 'j' else self.folder}/workspaces/{int(number)}"

    def make_workspace(self, number: int, disk_mb: int) -> None:
        """A folder for a run's code: in mode j a tmpfs of its own, so that its size is limited."""
        path = self.workspace_path(number)
        os.mkdir(path)
        if self.mode == "j":
            data = f"size={disk_mb}m,nr_inodes=4096,mode=777"
            kernel.mount("none", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, data)
        os.chmod(path, 0o777)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.send({"op": "workspace", "id": number}, [fd])
        finally:
            os.close(fd)

    def drop_workspace(self, number: int) -> None:
        path = self.workspace_path(number)
        if self.mode == "j":
            kernel.unmount(path)
            os.rmdir(path)
        else:
            shutil.rmtree(path, ignore_errors=True)


def enter_namespaces(control: socket.socket, kind: Kind, folder: str, extra: list[str]) -> bool:
    """Mode j: give the zygote its own namespaces and a root that holds only the jail's. True if it has many user ids.

    The network namespace is shared by this zygote's jails and holds nothing but an unused loopback; their seccomp
    filters allow no sockets.
    """
    kernel.unshare(
        kernel.CLONE_NEWUSER
        | kernel.CLONE_NEWNS
        | kernel.CLONE_NEWNET
        | kernel.CLONE_NEWIPC
        | kernel.CLONE_NEWUTS
        | kernel.CLONE_NEWCGROUP
    )
    # Only the host can map more than one id; it answers whether it did.
    control.send(json.dumps({"op": "map_ids", "pid": os.getpid()}).encode())
    many = json.loads(control.recv(MAX_MESSAGE))["mapped"]
    if not many:
        uid, gid = json.loads(os.environ["METAAGENT_IDS"])
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("none", folder, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    for name in ("jail", "workspaces"):
        os.mkdir(f"{folder}/{name}")
    jail.build_root(f"{folder}/jail", kind, extra)
    kernel.enter_root(folder)
    return many


def main(control_fd: int, kind: Kind, mode: Mode, folder: str, preload: list[str], extra: list[str]) -> None:
    control = socket.socket(fileno=control_fd)
    module = importlib.import_module("sandbox.jailed_code" if kind == "code" else "sandbox.worker")
    job: Job = module.run_call if kind == "call" else module.run
    for name in preload:
        loaded = importlib.import_module(name)
        if hasattr(loaded, "warm"):
            loaded.warm()
    with open("/proc/self/statm") as statm:
        base_mb = int(statm.read().split()[0]) * resource.getpagesize() // (1 << 20) + 16
    silence = os.open("/dev/null", os.O_RDWR)
    try:
        if mode == "j":
            many_uids = enter_namespaces(control, kind, folder, extra)
        else:
            for name in ("empty", "workspaces"):
                os.makedirs(f"{folder}/{name}", exist_ok=True)
            os.chmod(f"{folder}/empty", 0o555)
            many_uids = os.geteuid() == 0 and (kind == "program" or jail.shared_files_reachable(extra))
    except OSError as error:
        control.send(json.dumps({"op": "failed", "id": 0, "error": str(error)}).encode())
        return
    os.environ.clear()
    os.environ.update({"HOME": jail.WORK, "TMPDIR": jail.WORK, "PATH": "/nonexistent", "LANG": "C.UTF-8"})
    zygote = Zygote(control, kind, mode, folder, job, many_uids, extra, base_mb)
    # What is alive now stays shared with every child: keep the collector from touching it.
    gc.collect()
    gc.freeze()
    zygote.send({"op": "ready", "mode": mode})
    os.dup2(silence, 2)  # what a jail inherits as its stderr
    os.close(silence)
    zygote.serve()


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    main(**arguments)
