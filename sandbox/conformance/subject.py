"""A backend as the suite sees it: how to make its sandbox, and hooks that reach under it.

A hook that is None says that the backend has no such thing, or none that can be reached; checks that need it are then
reported as left out, never as passed.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from engine.protocol import Engine
from engine.session import Run
from sandbox.conformance.scripted import SHORT, Scripted, until
from sandbox.protocol import CodeResult, Sandbox
from workflow.failures import SandboxUnavailable
from workflow.limits import Limits

PRELOAD = ("sandbox.conformance.called_functions",)
"""What sandboxes under test are made with, so that calls can be tried."""


@dataclass(frozen=True)
class Backend:
    """One configuration of a backend. `make` and `unguarded` are importable as `module:function`, so that another
    process can make a sandbox too; the function takes `preload` and `max_jails` and returns a `Sandbox`, unstarted."""

    name: str
    """`Strength.backend` + "/" + `Strength.mode`, such as `process/j0`."""
    make: str
    unguarded: str | None = None
    """Makes a sandbox whose programs are plain Python (`sandbox.conformance.unguarded` preloaded in their worker)."""
    running: Callable[[Any], int] | None = None
    """How many jailed runs live now under a sandbox."""
    kill_workers: Callable[[Any], Awaitable[None]] | None = None
    """Kill, without warning, every process or container that runs jails for a sandbox."""
    stop_workers: Callable[[Any], Awaitable[Callable[[], None]]] | None = None
    """Freeze them; returns what lets them go on."""
    restart_daemon: Callable[[], Awaitable[None]] | None = None
    """Kill the daemon that the backend relies on, and start it again."""
    left_behind: Callable[[str, int], list[str]] | None = None
    """What still exists of the sandboxes of a host process, given its temporary folder and process id, each named:
    processes, files, containers."""

    def build(self, **options: Any) -> Any:
        """A new sandbox, unstarted."""
        return _imported(self.make)(**{"preload": PRELOAD, **options})

    def build_unguarded(self) -> Any:
        assert self.unguarded is not None, f"{self.name} has no unguarded sandbox"
        return _imported(self.unguarded)()

    async def why_not(self) -> str:
        """Why this configuration cannot run here; empty where it can."""
        try:
            async with self.build() as sandbox:
                strength = await sandbox.strength()
                result = await sandbox.run_code("print(6 * 7)")
        except SandboxUnavailable as error:
            return str(error).removeprefix("sandbox unavailable: ")
        except ImportError as error:
            return str(error)
        if f"{strength.backend}/{strength.mode}" != self.name:
            return f"the sandbox says that it is {strength.backend}/{strength.mode}: {strength.reason}"
        return "" if result.stdout == "42\n" else f"its first run of code failed: {result}"


@dataclass(frozen=True)
class Subject:
    """A backend under test, with a running sandbox that checks share and leave whole."""

    backend: Backend
    sandbox: Sandbox
    unguarded: Sandbox | None = None

    @asynccontextmanager
    async def fresh(self, **options: Any) -> AsyncIterator[Any]:
        """A sandbox of one's own."""
        async with self.backend.build(**options) as sandbox:
            yield sandbox

    async def program(self, source: str, engine: Engine | None = None, question: str = "6 * 7?", **limits: Any) -> Run:
        return await self.sandbox.run_program(source, question, engine=engine or Scripted(), limits=Limits(**limits))

    async def code(self, source: str, stdin: str = "", **limits: Any) -> CodeResult:
        return await self.sandbox.run_code(source, stdin=stdin, limits=SHORT.model_copy(update=limits))

    def running(self, sandbox: Any = None) -> int:
        assert self.backend.running is not None, "a check that asks this needs the hook `running`"
        return self.backend.running(sandbox or self.sandbox)

    async def all_gone(self, sandbox: Any = None) -> None:
        """Wait until no jailed run lives."""
        if self.backend.running is not None:
            await until(lambda: self.running(sandbox) == 0)


@asynccontextmanager
async def subject_of(backend: Backend) -> AsyncIterator[Subject]:
    async with backend.build() as sandbox:
        if backend.unguarded is None:
            yield Subject(backend, sandbox)
            return
        async with backend.build_unguarded() as unguarded:
            yield Subject(backend, sandbox, unguarded)


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
