"""A sandbox whose jails are behind a relay, as in a container, but in a plain process of this machine: no Docker."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from typing import Any

from sandbox.containers.container import Connection
from sandbox.host.jail_sandbox import JailSandbox
from sandbox.host.spawner import Spawner
from sandbox.jail.walls import Kind
from sandbox.protocol import Strength


class RelaySandbox(JailSandbox):
    def __init__(self, folder: str, *, preload: tuple[str, ...] = (), max_jails: int = 64) -> None:
        super().__init__(preload=preload, max_jails=max_jails)
        self.folder = folder
        self.connections: dict[Kind, Connection] = {}
        self.processes: dict[Kind, subprocess.Popen[bytes]] = {}
        self._starting = asyncio.Lock()

    async def _acquire(self, kind: Kind) -> Connection:
        self._check_open()
        async with self._starting:
            if kind not in self.connections:
                self.connections[kind], self.processes[kind] = await start_relay(
                    kind, self.folder, self._preload if kind == "call" else ()
                )
            return self.connections[kind]

    def _release(self, spawner: Spawner) -> None:
        return None

    async def strength(self) -> Strength:
        await self._acquire("code")
        return Strength(backend="process", mode="j0")

    async def _close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        for process in self.processes.values():
            await asyncio.to_thread(process.wait, 20)


async def start_relay(
    kind: Kind, folder: str, preload: tuple[str, ...] = ()
) -> tuple[Connection, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    options = {"kind": kind, "preload": list(preload), "folder": folder}
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox.containers.relay", json.dumps(options)],
        stdin=theirs,
        stdout=theirs,
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": "0"},
    )
    theirs.close()
    connection = Connection(kind, "relay/j0", lambda _: None, docker=False)
    await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=ours)
    await connection.ready(60)
    return connection, process


def run_relay(folder: Any, work: Any, **options: Any) -> Any:
    """`work(sandbox)` with a sandbox of its own, closed afterwards."""

    async def main() -> Any:
        async with RelaySandbox(str(folder), **options) as sandbox:
            return await asyncio.wait_for(work(sandbox), 90)

    return asyncio.run(main())
