"""What a backend gives to `sandbox.host.jail_sandbox`: spawners, which start jails, and the jails they have started.

Types only, and the little that every backend's jails share. Where jails come from is in `sandbox.host.zygote_client`
(zygotes of this machine) and `sandbox.containers` (zygotes in containers).
"""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from workflow.failures import SandboxUnavailable

REAP_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Exit:
    """How a jailed process ended: a wait status and what the kernel counted."""

    status: int
    cpu_s: float
    out_of_memory: bool = False
    """The kernel killed it since its container was out of memory."""

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
        return self.signal == signal.SIGKILL and not self.out_of_memory and self.cpu_s >= cpu_s * 0.5


class Spawner(Protocol):
    """Starts jails of one kind of work. Every method raises `SandboxUnavailable` when it cannot."""

    label: str
    """Backend and mode, as in `process/j0`."""

    async def open_channel(self, limits: dict[str, int]) -> tuple[Jailed, asyncio.StreamReader, asyncio.StreamWriter]:
        """A program's or a call's jail, and the stream to it. The caller kills the one and aborts the other."""
        ...

    async def open_code(
        self, source: bytes, limits: dict[str, int], workspace: int | None, streams: CodeStreams
    ) -> tuple[Jailed, asyncio.WriteTransport]:
        """A jail that runs `source`, and its stdin. What it prints goes to `streams`, maybe before this returns."""
        ...

    async def make_workspace(self, disk_mb: int) -> JailedFolder: ...

    def drop_workspace(self, number: int) -> None: ...

    def kill(self, number: int) -> None:
        """Send SIGKILL to a jail. Harmless once it has ended."""
        ...

    def spoil(self, reason: str) -> None:
        """Something went wrong here; a backend may replace what served it when its other jails have ended."""
        ...


@dataclass(frozen=True)
class CodeStreams:
    """Who is told what happens on a code jail's three streams; the outputs are closed by the other side."""

    stdin: asyncio.BaseProtocol
    stdout: asyncio.Protocol
    stderr: asyncio.Protocol


class Jailed:
    """One jailed process. `ended` resolves when the kernel has reaped it."""

    __slots__ = ("_spawner", "ended", "number")

    def __init__(self, number: int, ended: asyncio.Future[Exit], spawner: Spawner) -> None:
        self.number, self.ended, self._spawner = number, ended, spawner

    def kill(self) -> None:
        """Send SIGKILL to it (in mode j to everything in its pid namespace). Harmless once it has ended."""
        if not self.ended.done():
            self._spawner.kill(self.number)

    async def reaped(self) -> Exit:
        """Wait for its end. The caller has killed it or seen its channel close, so the wait is short."""
        try:
            async with asyncio.timeout(REAP_TIMEOUT_S):
                return await asyncio.shield(self.ended)
        except TimeoutError:
            self._spawner.spoil("a jailed process did not end")
            raise SandboxUnavailable(f"a jailed process did not end within {REAP_TIMEOUT_S:g} s of its kill") from None


class JailedFolder(ABC):
    """A workspace of some spawner; it lives as long as what serves it. Satisfies `sandbox.protocol.Workspace`."""

    def __init__(self, spawner: Spawner, number: int) -> None:
        self.spawner, self.number = spawner, number

    @abstractmethod
    async def write(self, name: str, data: bytes) -> None: ...

    @abstractmethod
    async def read(self, name: str) -> bytes: ...

    @abstractmethod
    def close(self) -> None: ...
