"""The process backend: every run in a forked, jailed process of this machine (Linux on x86_64).

Needs nothing but the kernel: namespaces where they are allowed (mode j), else landlock and seccomp alone (mode j0).
Without seccomp it refuses to run anything. What it does with its jails is in `sandbox.base`.
"""

from __future__ import annotations

import asyncio
import platform
import sys

from sandbox.base import JailSandbox
from sandbox.hatchery import Hatchery
from sandbox.jail import Kind, Mode
from sandbox.jailed import Spawner
from sandbox.protocol import Strength
from workflow.failures import SandboxUnavailable


class ProcessSandbox(JailSandbox):
    """`async with ProcessSandbox() as sandbox:`. See `sandbox.protocol.Sandbox` for what it offers.

    `preload` names modules whose functions `call` will run; their `warm()` is called once in the zygote if they have
    one. `mode` forces a mode instead of probing. Where the kernel cannot keep unrestricted code in, code and calls are
    refused unless `allow_weak`. At most `max_jails` of a kind (programs, code) run at once; more wait. Belongs
    to one event loop.
    """

    def __init__(
        self,
        *,
        preload: tuple[str, ...] = (),
        mode: Mode | None = None,
        max_jails: int = 256,
        allow_weak: bool = False,
    ) -> None:
        super().__init__(preload=preload, max_jails=max_jails)
        self._allow_weak = allow_weak
        self._mode: Mode | None = mode
        self._reason = "mode j0 was asked for" if mode == "j0" else ""
        self._probed = mode is not None
        self._starting = asyncio.Lock()
        self._hatcheries: dict[Kind, Hatchery] = {}

    async def _close(self) -> None:
        async with self._starting:
            hatcheries, self._hatcheries = list(self._hatcheries.values()), {}
            for hatchery in hatcheries:
                await hatchery.close()

    async def strength(self) -> Strength:
        missing = (await self._hatchery("code")).missing
        assert self._mode is not None, "set when a hatchery has started"
        reasons = [self._reason, f"weak, as allowed: {missing}" if missing else ""]
        return Strength(backend="process", mode=self._mode, reason="; ".join(filter(None, reasons)))

    async def _acquire(self, kind: Kind) -> Hatchery:
        return await self._hatchery(kind)

    def _release(self, spawner: Spawner) -> None:
        """Nothing to do: a zygote serves any number of jails."""

    async def _hatchery(self, kind: Kind) -> Hatchery:
        """The running zygote for a kind of work, started (or started anew after its death) when needed."""
        async with self._starting:
            self._check_open()
            hatchery = self._hatcheries.get(kind)
            if hatchery is not None and hatchery.dead is None:
                return hatchery
            if hatchery is not None:
                await hatchery.close()
            if sys.platform != "linux" or platform.machine() != "x86_64":
                raise SandboxUnavailable(
                    f"the process jail needs Linux on x86_64, this is {sys.platform} on {platform.machine()}",
                    "run inside a Linux x86_64 machine or container",
                )
            preload = self._preload if kind == "call" else ()
            if not self._probed:
                try:
                    hatchery = await self._start(kind, "j", preload)
                except SandboxUnavailable as error:
                    self._reason = str(error).removeprefix("sandbox unavailable: ")
                    hatchery = await self._start(kind, "j0", preload)
                self._mode, self._probed = hatchery.mode, True
            else:
                assert self._mode is not None
                hatchery = await self._start(kind, self._mode, preload)
            self._hatcheries[kind] = hatchery
            return hatchery

    async def _start(self, kind: Kind, mode: Mode, preload: tuple[str, ...]) -> Hatchery:
        hatchery = Hatchery(kind, mode, preload, allow_weak=self._allow_weak)
        await hatchery.start()
        return hatchery
