"""The Docker backend: every run in a jailed process inside a hardened container (Linux on x86_64).

Three tiers. `warm`: runs of a kind share containers that stay; each run is a fork of a zygote in one of them, behind
landlock and seccomp as in mode j0. `strict`: a container of its own for each run or workspace, from a few that are
ready. `gvisor`: as strict, on gVisor's kernel instead of the machine's. What is done with jails is in
`sandbox.host.jail_sandbox`.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
from collections.abc import Callable
from functools import partial

from sandbox.containers.container import Connection
from sandbox.containers.daemon import Box, Daemon, Started, Tier
from sandbox.containers.pool import Container, Pool
from sandbox.host import JailSandbox, Spawner
from sandbox.image import image_tag
from sandbox.jail import Kind
from sandbox.protocol import Strength

READY_TIMEOUT_S = 60.0
STARTS_AT_ONCE = 3


class DockerSandbox(JailSandbox):
    """`async with DockerSandbox() as sandbox:`. See `sandbox.protocol.Sandbox` for what it offers.

    `preload` names modules, present in the image, whose functions `call` will run. `image` is the one that
    `python -m sandbox.image` builds unless another is named. `box` is what each container may use. At most
    `max_containers` exist at once, and `max_jails` of a kind (programs, code) run at once, at most `jails_each`
    in one warm container; more wait. `spares` one-shot containers of each kind in use are kept ready. Belongs to one
    event loop.
    """

    def __init__(
        self,
        *,
        preload: tuple[str, ...] = (),
        tier: Tier = "warm",
        image: str | None = None,
        max_containers: int = 8,
        max_jails: int = 256,
        jails_each: int = 32,
        spares: int = 2,
        box: Box | None = None,
    ) -> None:
        super().__init__(preload=preload, max_jails=max_jails)
        self._tier: Tier = tier
        self._image = image or image_tag()
        self._box = box or Box()
        self._session = secrets.token_hex(8)
        self._daemon = Daemon(self._session)
        self._opening = asyncio.Lock()
        self._open = False
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE)
        self._pool = Pool(
            self._bring_up,
            max_containers=max_containers,
            jails_each=jails_each,
            spares=None if tier == "warm" else spares,
        )
        self._holding: dict[Spawner, Container] = {}

    async def strength(self) -> Strength:
        spawner = await self._acquire("code")
        container = self._holding[spawner]
        # Nothing has run in it: a one-shot container may serve a run after all.
        container.used = False
        container.held -= 1
        return Strength(backend="docker", mode=self._tier)

    async def _acquire(self, kind: Kind) -> Spawner:
        self._check_open()
        if not self._open:
            async with self._opening:
                if not self._open:
                    await asyncio.to_thread(self._daemon.open, self._image, self._tier)
                    self._pool.enough = math.ceil(self._daemon.cpus / min(self._box.cpus, self._daemon.cpus))
                    self._open = True
        container = await self._pool.acquire(kind)
        self._holding[container.connection] = container
        return container.connection

    def _release(self, spawner: Spawner) -> None:
        container = self._holding[spawner]
        self._pool.release(container)
        if not container.held:
            self._holding.pop(spawner, None)

    async def _close(self) -> None:
        await self._pool.close()
        await asyncio.to_thread(self._daemon.close)

    async def _bring_up(self, kind: Kind, on_lost: Callable[[Connection], None]) -> Container:
        preload = self._modules(kind)
        async with self._starts:
            started = await asyncio.to_thread(self._daemon.start, self._image, kind, self._tier, self._box, preload)

            async def remove() -> None:
                await asyncio.to_thread(self._daemon.remove, started.id)

            connection = Connection(kind, f"docker/{self._tier}", on_lost, autopsy=partial(self._autopsy, started))
            try:
                await _connect(connection, started.socket)
                await connection.ready(READY_TIMEOUT_S)
            except BaseException:
                started.socket.close()
                await remove()
                raise
        return Container(connection, remove)

    def _modules(self, kind: Kind) -> tuple[str, ...]:
        """What the zygotes of a kind import beforehand."""
        return self._preload if kind == "call" else ()

    async def _autopsy(self, started: Started) -> str:
        return await asyncio.to_thread(self._daemon.autopsy, started)


async def _connect(connection: Connection, stdio: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    if stdio.family == socket.AF_UNIX:
        await loop.create_unix_connection(lambda: connection, sock=stdio)
    else:
        await loop.create_connection(lambda: connection, sock=stdio)
