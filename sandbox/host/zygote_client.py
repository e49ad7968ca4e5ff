"""The host's end of one zygote: start it, have it fork jails, connect their streams, learn how they ended, kill them.

One `ZygoteClient` per kind of work; it is a `sandbox.host.spawner.Spawner`. It knows streams and exit statuses, not
what runs inside a jail.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import IO, Any

from sandbox.host import zygote_process
from sandbox.host.owners import own_tag
from sandbox.host.spawner import REAP_TIMEOUT_S, CodeStreams, Exit, Jailed, JailedFolder, Spawner
from sandbox.host.workspaces import explained, open_to_read, open_to_write
from sandbox.jail import MAX_MESSAGE, RM, Kind, Mode, loading, readable, walls
from workflow.failures import SandboxUnavailable

START_TIMEOUT_S = 60.0
RETRY_S = 0.005
MORE_DESCRIPTORS = "raise `ulimit -n`"


def _abort(pipe: asyncio.WriteTransport) -> None:
    """asyncio's own fails for a pipe whose reader, a jail that has ended already, has closed it."""
    if not pipe.is_closing():
        pipe.abort()


class ZygoteClient:
    def __init__(
        self,
        kind: Kind,
        mode: Mode,
        preload: tuple[str, ...] = (),
        *,
        allow_weak: bool = False,
        packages: tuple[str, ...] = readable.CODE_PACKAGES,
    ) -> None:
        self.kind: Kind = kind
        self.mode: Mode = mode
        self.label = f"process/{mode}"
        self.preload = preload
        self.allow_weak = allow_weak
        self.packages = packages
        """Distributions that code may import."""
        self.missing = ""
        """The wall that the jails do without."""
        self.own_users = True
        """Whether each run has a user id of its own."""
        self._numbers = 0
        self._users: dict[int, int] = {}
        """Which user each living jail and workspace has (`Zygote.user`), by its number."""
        self._ending: dict[int, asyncio.Future[Exit]] = {}
        self._folders: dict[int, asyncio.Future[int]] = {}
        self._ready: asyncio.Future[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._outbox: deque[tuple[bytes, list[int]]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self.dead: str | None = None

    def _extra(self) -> list[str]:
        """What its jails may read besides Python's own files."""
        if self.kind == "program":
            return []
        return package_folders(self.preload) if self.kind == "call" else readable.code_packages(self.packages)

    async def start(self) -> None:
        """Start the zygote. Raises `SandboxUnavailable` with the reason when it cannot build its jails."""
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        try:
            # Made by the zygote, and in mode j0 only: whoever dies meanwhile, nothing is left behind.
            self._folder = os.path.join(tempfile.gettempdir(), f"metaagent-{own_tag()}-{secrets.token_hex(8)}")
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise self._not_started(error) from None
        with theirs:
            try:
                with tempfile.TemporaryFile() as errors:
                    await self._begin(theirs, errors)
            except OSError as error:
                await self.close()
                raise self._not_started(error) from None
            except BaseException:
                await self.close()
                raise

    async def _begin(self, theirs: socket.socket, errors: IO[bytes]) -> None:
        """Launch the process and wait until it is ready. `errors` is an empty file for what it says otherwise."""
        assert self._ready is not None, "made by `start`"
        self._control.setblocking(False)
        arguments = {
            "kind": self.kind,
            "mode": self.mode,
            "folder": self._folder,
            "preload": list(self.preload),
            "extra": self._extra(),
            "allow_weak": self.allow_weak,
            "modules": loading.installed(self.packages) if self.kind == "code" else [],
        }
        self._process = zygote_process.launch(theirs.fileno(), errors.fileno(), arguments)
        theirs.close()
        self._loop.add_reader(self._control, self._on_message)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._ready
        except TimeoutError:
            raise SandboxUnavailable(f"the {self.kind} zygote did not start in {START_TIMEOUT_S:g} s") from None
        except SandboxUnavailable as error:
            await self.close()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()
            if not said:
                raise
            reason = str(error).removeprefix("sandbox unavailable: ")
            raise SandboxUnavailable(f"{reason}: {said[-2000:]}") from None

    def _not_started(self, error: OSError) -> SandboxUnavailable:
        fix = MORE_DESCRIPTORS if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        return SandboxUnavailable(f"the {self.kind} zygote could not be started: {error}", fix)

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

    def spawn(
        self, fds: list[int], limits: dict[str, int], workspace: int | None = None, *, packages: bool = False
    ) -> Jailed:
        """Fork one jail that gets these descriptors (the caller closes its own copies). `packages` says that its code
        names one that may be loaded already."""
        number = self._next_number()
        ended: asyncio.Future[Exit] = self._loop.create_future()
        self._ending[number] = ended
        self._users[number] = (workspace or number) % walls.UIDS
        try:
            order = {"op": "spawn", "id": number, "limits": limits, "workspace": workspace, "packages": packages}
            self.send(order, fds)
        except BaseException:
            self._ending.pop(number, None)
            self._users.pop(number, None)
            raise
        return Jailed(number, ended, self)

    def _next_number(self) -> int:
        """A number whose user nobody has: who shares a user shares its limits, such as the one on threads."""
        taken = set(self._users.values())
        for _ in range(walls.UIDS):
            self._numbers += 1
            if self._numbers % walls.UIDS not in taken:
                break
        return self._numbers

    async def open_channel(self, limits: dict[str, int]) -> tuple[Jailed, asyncio.StreamReader, asyncio.StreamWriter]:
        with contextlib.ExitStack() as stack:
            try:
                ours, theirs = socket.socketpair()
                stack.callback(ours.close)
                with theirs:
                    jailed = self.spawn([theirs.fileno()], limits)
            except OSError as error:
                raise SandboxUnavailable(f"a jail could not be started: {error}", MORE_DESCRIPTORS) from None
            stack.callback(jailed.kill)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            stack.pop_all()
        return jailed, reader, writer

    async def open_code(
        self, source: bytes, limits: dict[str, int], workspace: int | None, streams: CodeStreams
    ) -> tuple[Jailed, asyncio.WriteTransport]:
        with contextlib.ExitStack() as ours:
            try:
                with contextlib.ExitStack() as theirs:
                    passed = [os.memfd_create("source")]
                    theirs.callback(os.close, passed[0])
                    files: list[IO[bytes]] = []
                    for mode in ("wb", "rb", "rb"):  # our ends of stdin, stdout, stderr
                        read, write = os.pipe()
                        end, other = (write, read) if mode == "wb" else (read, write)
                        theirs.callback(os.close, other)
                        passed.append(other)
                        files.append(ours.enter_context(os.fdopen(end, mode, 0)))
                    with os.fdopen(os.dup(passed[0]), "wb") as file:
                        file.write(source)
                    jailed = self.spawn(passed, limits, workspace, packages=loading.names_a_package(source))
                ours.callback(jailed.kill)
                stdin, _ = await self._loop.connect_write_pipe(lambda: streams.stdin, files[0])
                ours.callback(_abort, stdin)
                for file, protocol in ((files[1], streams.stdout), (files[2], streams.stderr)):
                    output, _ = await self._loop.connect_read_pipe(lambda protocol=protocol: protocol, file)
                    ours.callback(output.close)
            except OSError as error:
                raise SandboxUnavailable(f"code could not be started: {error}", MORE_DESCRIPTORS) from None
            ours.pop_all()
        return jailed, stdin

    def kill(self, number: int) -> None:
        with contextlib.suppress(SandboxUnavailable):  # a dead zygote has taken its jails with it
            self.send({"op": "kill", "id": number})

    def spoil(self, reason: str) -> None:
        """Nothing to do: a zygote runs nothing of its jails', so they cannot have harmed it."""

    async def make_workspace(self, disk_mb: int) -> LocalFolder:
        number = self._next_number()
        future: asyncio.Future[int] = self._loop.create_future()
        self._folders[number] = future
        self._users[number] = number % walls.UIDS
        folder: LocalFolder | None = None
        try:
            self.send({"op": "workspace", "id": number, "disk_mb": disk_mb})
            async with asyncio.timeout(REAP_TIMEOUT_S):
                folder = LocalFolder(self, number, await future)
            return folder
        except TimeoutError:
            raise SandboxUnavailable(f"the zygote made no workspace within {REAP_TIMEOUT_S:g} s") from None
        finally:
            self._folders.pop(number, None)
            if folder is None:
                self._users.pop(number, None)
                if future.done() and not future.cancelled() and future.exception() is None:  # cancelled just then
                    self._unwanted(number, future.result())

    def drop_workspace(self, number: int) -> None:
        self._users.pop(number, None)
        with contextlib.suppress(SandboxUnavailable):  # a dead zygote's workspaces are gone
            self.send({"op": "drop_workspace", "id": number})

    def _unwanted(self, number: int, fd: int) -> None:
        """Undo a workspace for which nobody waits any more."""
        os.close(fd)
        self.drop_workspace(number)

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
                self.missing, self.own_users = message["missing"], message["own_users"]
                if self._ready and not self._ready.done():
                    self._ready.set_result(None)
            case "exited":
                self._users.pop(message["id"], None)
                ended = self._ending.pop(message["id"], None)
                if ended and not ended.done():
                    ended.set_result(Exit(message["status"], message["cpu_s"]))
            case "workspace":
                folder = self._folders.get(message["id"])
                if folder and not folder.done():
                    folder.set_result(fds[0])
                else:
                    self._unwanted(message["id"], fds[0])
            case "failed":
                self._failed(message["id"], message["error"], message.get("fix", ""))

    def _failed(self, number: int, error: str, fix: str) -> None:
        reason = SandboxUnavailable(f"{self.kind} jail in mode {self.mode}: {error}", fix)
        self._users.pop(number, None)
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
                    Path(f"/proc/{pid}/{name}").write_text(f"0 0 1\n1 {walls.FIRST_UID} {walls.UIDS}\n")
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
        """End the zygote, its jails with it, and remove its folder. Goes on where the caller is cancelled meanwhile."""
        self._die("the sandbox was closed")
        self._control.close()
        if self._closing is None:
            self._closing = asyncio.create_task(self._reap())
        await asyncio.shield(self._closing)

    async def _reap(self) -> None:
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, REAP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait, REAP_TIMEOUT_S)
        if os.path.isdir(self._folder):
            await asyncio.to_thread(subprocess.run, [*RM, self._folder], timeout=REAP_TIMEOUT_S, check=False)


class LocalFolder(JailedFolder):
    """A workspace on this machine, held by its descriptor."""

    def __init__(self, spawner: Spawner, number: int, fd: int) -> None:
        super().__init__(spawner, number)
        self._fd = fd

    async def write(self, name: str, data: bytes) -> None:
        with explained(name), os.fdopen(open_to_write(self._fd, name), "wb") as file:
            file.write(data)

    async def read(self, name: str) -> bytes:
        with explained(name), os.fdopen(open_to_read(self._fd, name), "rb") as file:
            return file.read()

    def close(self) -> None:
        os.close(self._fd)


def package_folders(preload: tuple[str, ...]) -> list[str]:
    """Folders of our own packages and of the preloaded ones, which calls may have to import from."""
    folders = set()
    for name in {"sandbox", "workflow", "engine", *(module.partition(".")[0] for module in preload)}:
        module = sys.modules.get(name) or __import__(name)
        # The import hook of an editable install puts a name that is no folder into a namespace's path.
        folders |= {os.path.realpath(path) for path in getattr(module, "__path__", []) if os.path.isdir(path)}
    covered = [*readable.libraries(), *readable.packages()]
    return sorted(folder for folder in folders if not any(folder.startswith(path + "/") for path in covered))
