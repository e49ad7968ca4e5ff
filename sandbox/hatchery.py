"""The host's end of one zygote: start it, have it fork jails, learn how they ended, kill them.

One `Hatchery` per kind of work. It knows file descriptors and exit statuses, not what runs inside a jail.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import jail
from sandbox.jail import Kind, Mode
from sandbox.zygote import MAX_MESSAGE, RM
from workflow.failures import SandboxUnavailable

START_ZYGOTE = "import json, sys, sandbox.zygote; sandbox.zygote.main(**json.loads(sys.argv[1]))"
START_TIMEOUT_S = 60.0
REAP_TIMEOUT_S = 10.0
RETRY_S = 0.005


@dataclass(frozen=True)
class Exit:
    """How a jailed process ended: a wait status and what the kernel counted."""

    status: int
    cpu_s: float

    @property
    def exit_status(self) -> int | None:
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None

    @property
    def signal(self) -> int | None:
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    def by_cpu_limit(self, cpu_s: int) -> bool:
        """True if the kernel killed it for its CPU limit, given that nobody else did.

        The kernel counts that limit in clock ticks, which on a busy machine may run ahead of `cpu_s` here.
        """
        return self.signal == signal.SIGKILL and self.cpu_s >= cpu_s * 0.5


@dataclass
class Jailed:
    """One jailed process. `ended` resolves when the kernel has reaped it."""

    number: int
    ended: asyncio.Future[Exit]
    hatchery: Hatchery = field(repr=False)

    def kill(self) -> None:
        """Send SIGKILL to it (in mode j to everything in its pid namespace). Harmless once it has ended."""
        if not self.ended.done():
            with contextlib.suppress(SandboxUnavailable):  # a dead zygote has taken its jails with it
                self.hatchery.send({"op": "kill", "id": self.number})

    async def reaped(self) -> Exit:
        """Wait for its end. The caller has killed it or seen its channel close, so the wait is short."""
        try:
            return await asyncio.wait_for(asyncio.shield(self.ended), REAP_TIMEOUT_S)
        except TimeoutError:
            raise SandboxUnavailable(f"a jailed process did not end within {REAP_TIMEOUT_S:g} s of its kill") from None


class Hatchery:
    def __init__(self, kind: Kind, mode: Mode, preload: tuple[str, ...] = ()) -> None:
        self.kind: Kind = kind
        self.mode: Mode = mode
        self.preload = preload
        self._numbers = 0
        self._ending: dict[int, asyncio.Future[Exit]] = {}
        self._folders: dict[int, asyncio.Future[int]] = {}
        self._ready: asyncio.Future[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self.dead: str | None = None

    async def start(self) -> None:
        """Start the zygote. Raises `SandboxUnavailable` with the reason when it cannot build its jails."""
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._folder = tempfile.mkdtemp(prefix="metaagent-")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile() as errors:
            try:
                os.chmod(self._folder, 0o711)
                self._control.setblocking(False)
                self._process = self._launch(theirs.fileno(), errors.fileno())
                theirs.close()
                self._loop.add_reader(self._control, self._on_message)
                await asyncio.wait_for(self._ready, START_TIMEOUT_S)
                if self.mode == "j":
                    os.rmdir(self._folder)  # the zygote has made the mount on it its root, and needs it no more
            except TimeoutError:
                await self.close()
                raise SandboxUnavailable(f"the {self.kind} zygote did not start in {START_TIMEOUT_S:g} s") from None
            except SandboxUnavailable as error:
                await self.close()
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip()
                reason = str(error).removeprefix("sandbox unavailable: ")
                raise SandboxUnavailable(f"{reason}{': ' + said[-2000:] if said else ''}") from None
            except BaseException:
                await self.close()
                raise

    def _launch(self, control: int, errors: int) -> subprocess.Popen[bytes]:
        arguments = {
            "control_fd": control,
            "kind": self.kind,
            "mode": self.mode,
            "folder": self._folder,
            "preload": list(self.preload),
            "extra": package_folders(self.preload) if self.kind == "call" else [],
        }
        environment = {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONHASHSEED": "0",
            "PYTHONUTF8": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "METAAGENT_IDS": json.dumps([os.geteuid(), os.getegid()]),
        }
        return subprocess.Popen(
            [sys.executable, "-c", START_ZYGOTE, json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            cwd="/",
            pass_fds=[control],
            start_new_session=True,
        )

    def send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        """Queue a message for the zygote, with copies of descriptors. Raises when the zygote is dead."""
        if self.dead is None:
            with contextlib.ExitStack() as stack:
                copies: list[int] = []
                for fd in fds or []:
                    copies.append(os.dup(fd))
                    stack.callback(os.close, copies[-1])
                self._outbox.append((json.dumps(message).encode(), copies))
                stack.pop_all()
            self._flush()
        if self.dead is not None:
            raise SandboxUnavailable(self.dead, "run again; the zygote is started anew")

    def _flush(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        while self._outbox:
            data, fds = self._outbox[0]
            try:
                socket.send_fds(self._control, [data], fds)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS):
                    self._retry = self._loop.call_later(RETRY_S, self._flush)
                else:
                    self._die("the zygote has ended")
                return
            self._outbox.popleft()
            for fd in fds:
                os.close(fd)

    def spawn(self, fds: list[int], limits: dict[str, int], workspace: int | None = None) -> Jailed:
        """Fork one jail that gets these descriptors (the caller closes its own copies)."""
        self._numbers += 1
        number = self._numbers
        ended: asyncio.Future[Exit] = self._loop.create_future()
        self._ending[number] = ended
        try:
            self.send({"op": "spawn", "id": number, "limits": limits, "workspace": workspace}, fds)
        except BaseException:
            self._ending.pop(number, None)
            raise
        return Jailed(number, ended, self)

    async def make_workspace(self, disk_mb: int) -> tuple[int, int]:
        """A new folder for code: (its number, a directory descriptor that the caller closes)."""
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[int] = self._loop.create_future()
        self._folders[number] = future
        try:
            self.send({"op": "workspace", "id": number, "disk_mb": disk_mb})
            return number, await asyncio.wait_for(future, REAP_TIMEOUT_S)
        except TimeoutError:
            raise SandboxUnavailable(f"the zygote made no workspace within {REAP_TIMEOUT_S:g} s") from None
        finally:
            self._folders.pop(number, None)

    def drop_workspace(self, number: int) -> None:
        with contextlib.suppress(SandboxUnavailable):  # a dead zygote's workspaces are gone
            self.send({"op": "drop_workspace", "id": number})

    def _on_message(self) -> None:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._control, MAX_MESSAGE, 1)
            except BlockingIOError:
                return
            except OSError as error:
                self._die(f"the zygote's channel failed: {error}")
                return
            if not data:
                self._die("the zygote has ended")
                return
            self._handle(json.loads(data), fds)

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        match message["op"]:
            case "map_ids":
                self._map_ids(message["pid"])
            case "ready":
                if self._ready and not self._ready.done():
                    self._ready.set_result(None)
            case "exited":
                ended = self._ending.pop(message["id"], None)
                if ended and not ended.done():
                    ended.set_result(Exit(message["status"], message["cpu_s"]))
            case "workspace":
                folder = self._folders.get(message["id"])
                if folder and not folder.done():
                    folder.set_result(fds[0])
                else:  # nobody waits for it any more
                    os.close(fds[0])
                    self.drop_workspace(message["id"])
            case "failed":
                self._failed(message["id"], message["error"])

    def _failed(self, number: int, error: str) -> None:
        reason = SandboxUnavailable(f"{self.kind} jail in mode {self.mode}: {error}")
        for future in (self._ending.pop(number, None), self._folders.get(number), self._ready if not number else None):
            if future and not future.done():
                future.set_exception(reason)
                future.exception()  # seen: whoever waits gets it, nobody has to

    def _map_ids(self, pid: int) -> None:
        """Give the zygote's user namespace ids of its own, which only a privileged host can."""
        mapped = False
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):
                for name in ("uid_map", "gid_map"):
                    Path(f"/proc/{pid}/{name}").write_text(f"0 0 1\n1 {jail.FIRST_UID} {jail.UIDS}\n")
                mapped = True
        self.send({"op": "ids", "mapped": mapped})

    def _die(self, reason: str) -> None:
        """The zygote is gone and its jails with it: fail whatever waits."""
        if self.dead is not None:
            return
        self.dead = reason
        self._loop.remove_reader(self._control)
        if self._retry is not None:
            self._retry.cancel()
        while self._outbox:
            for fd in self._outbox.popleft()[1]:
                os.close(fd)
        waiting = [*self._ending.values(), *self._folders.values(), *([self._ready] if self._ready else [])]
        for future in waiting:
            if not future.done():
                future.set_exception(SandboxUnavailable(reason))
                future.exception()  # seen: whoever waits gets it, nobody has to
        self._ending.clear()

    async def close(self) -> None:
        """End the zygote, its jails with it, and remove its folder."""
        self._die("the sandbox was closed")
        self._control.close()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, REAP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait, REAP_TIMEOUT_S)
        if os.path.isdir(self._folder):
            await asyncio.to_thread(subprocess.run, [*RM, self._folder], timeout=REAP_TIMEOUT_S, check=False)


def package_folders(preload: tuple[str, ...]) -> list[str]:
    """Folders of our own packages and of the preloaded ones, which calls may have to import from."""
    folders = set()
    for name in {"sandbox", "workflow", "engine", *(module.partition(".")[0] for module in preload)}:
        module = sys.modules.get(name) or __import__(name)
        # The import hook of an editable install puts a name that is no folder into a namespace's path.
        folders |= {os.path.realpath(path) for path in getattr(module, "__path__", []) if os.path.isdir(path)}
    covered = jail.python_paths()
    return sorted(folder for folder in folders if not any(folder.startswith(path + "/") for path in covered))
