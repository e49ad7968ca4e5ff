"""The process backend: every run in a forked, jailed process of this machine (Linux on x86_64).

Needs nothing but the kernel: namespaces where they are allowed (mode j), else landlock and seccomp alone (mode j0).
Without seccomp it refuses to run anything. What it does with its jails is in `sandbox.host.jail_sandbox`.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys

from sandbox.host.jail_sandbox import JailSandbox
from sandbox.host.spawner import Spawner
from sandbox.host.zygote_client import ZygoteClient
from sandbox.jail import Kind, Mode, readable
from sandbox.protocol import Strength
from workflow.failures import SandboxUnavailable


class ProcessSandbox(JailSandbox):
    """`async with ProcessSandbox() as sandbox:`. See `sandbox.protocol.Sandbox` for what it offers.

    `preload` names modules whose functions `call` will run; their `warm()` is called once in the zygote if they have
    one. `mode` forces a mode instead of probing. Where the kernel cannot keep unrestricted code in, code and calls are
    refused unless `allow_weak`. Code may import the distributions `code_packages` where they are installed. At most
    `max_jails` of a kind (programs, code) run at once; more wait. Belongs to one event loop.
    """

    def __init__(
        self,
        *,
        preload: tuple[str, ...] = (),
        mode: Mode | None = None,
        max_jails: int = 256,
        allow_weak: bool = False,
        code_packages: tuple[str, ...] = readable.CODE_PACKAGES,
    ) -> None:
        super().__init__(preload=preload, max_jails=max_jails)
        self._allow_weak, self._code_packages = allow_weak, code_packages
        self._mode: Mode | None = mode
        self._reason = "mode j0 was asked for" if mode == "j0" else ""
        self._probed = mode is not None
        self._starting = asyncio.Lock()
        self._zygotes: dict[Kind, ZygoteClient] = {}

    async def _close(self) -> None:
        async with self._starting:
            zygotes, self._zygotes = list(self._zygotes.values()), {}
            for zygote in zygotes:
                await zygote.close()

    async def strength(self) -> Strength:
        zygote = await self._zygote("code")
        assert self._mode is not None, "set when a zygote has started"
        reasons = [self._reason, f"weak, as allowed: {zygote.missing}" if zygote.missing else ""]
        if self._mode == "j0" and os.geteuid() == 0 and not zygote.own_users:
            reasons.append("code runs as root, as runs cannot have users of their own here; start as another user")
        return Strength(backend="process", mode=self._mode, reason="; ".join(filter(None, reasons)))

    async def _acquire(self, kind: Kind) -> ZygoteClient:
        return await self._zygote(kind)

    def _release(self, spawner: Spawner) -> None:
        """Nothing to do: a zygote serves any number of jails."""

    async def _zygote(self, kind: Kind) -> ZygoteClient:
        """The running zygote for a kind of work, started (or started anew after its death) when needed."""
        async with self._starting:
            self._check_open()
            zygote = self._zygotes.get(kind)
            if zygote is not None and zygote.dead is None:
                return zygote
            if zygote is not None:
                await zygote.close()
            if sys.platform != "linux" or platform.machine() != "x86_64":
                raise SandboxUnavailable(
                    f"the process jail needs Linux on x86_64, this is {sys.platform} on {platform.machine()}",
                    "run inside a Linux x86_64 machine or container",
                )
            preload = self._preload if kind == "call" else ()
            if not self._probed:
                try:
                    zygote = await self._start(kind, "j", preload)
                except SandboxUnavailable as error:
                    self._reason = str(error).removeprefix("sandbox unavailable: ")
                    zygote = await self._start(kind, "j0", preload)
                self._mode, self._probed = zygote.mode, True
            else:
                assert self._mode is not None
                zygote = await self._start(kind, self._mode, preload)
            self._zygotes[kind] = zygote
            return zygote

    async def _start(self, kind: Kind, mode: Mode, preload: tuple[str, ...]) -> ZygoteClient:
        zygote = ZygoteClient(kind, mode, preload, allow_weak=self._allow_weak, packages=self._code_packages)
        await zygote.start()
        return zygote
