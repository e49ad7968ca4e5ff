"""What the tests of the process backend share: sandboxes to run in, engines to ask, processes to count."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from engine.session import Run
from sandbox import CodeResult, ProcessSandbox
from sandbox.conformance import backends
from sandbox.conformance.scripted import SHORT, Scripted, until, workflow_of
from sandbox.host.zygote_client import ZygoteClient
from sandbox.jail.walls import Mode
from workflow.limits import Limits

__all__ = ["SHORT", "Scripted", "until", "workflow_of"]


class Jail:
    """One sandbox in one mode, and the event loop that it belongs to."""

    def __init__(self, runner: asyncio.Runner, sandbox: ProcessSandbox, mode: str) -> None:
        self._runner, self.sandbox, self.mode = runner, sandbox, mode

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = 60) -> Any:
        return self._runner.run(_within(work, timeout_s))

    def run_all(self, works: dict[str, Coroutine[Any, Any, Any]], at_once: int = 4) -> dict[str, Any]:
        """Do several things side by side, which saves the time that their limits take; results by name."""
        slots = asyncio.Semaphore(at_once)

        async def one(work: Coroutine[Any, Any, Any]) -> Any:
            async with slots:
                return await work

        async def every() -> list[Any]:
            return await asyncio.gather(*map(one, works.values()))

        return dict(zip(works, self.run(every()), strict=True))

    def code(self, source: str, stdin: str = "", **limits: Any) -> CodeResult:
        return self.run(self.sandbox.run_code(source, stdin=stdin, limits=SHORT.model_copy(update=limits)))

    def program(self, source: str, engine: Any = None, question: str = "6 * 7?", **limits: Any) -> Run:
        work = self.sandbox.run_program(source, question, engine=engine or Scripted(), limits=Limits(**limits))
        return self.run(work)


async def _within(work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
    return await asyncio.wait_for(work, timeout_s)


def run_in(mode: Mode, work: Callable[[ProcessSandbox], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    """`work(sandbox)` with a sandbox of its own, closed afterwards."""

    async def main() -> Any:
        async with ProcessSandbox(mode=mode, **options) as sandbox:
            return await _within(work(sandbox), 60)

    return asyncio.run(main())


def why_not(mode: Mode) -> str:
    """Why this machine cannot run a mode; empty where it can. Probed once."""
    return backends.why_not(next(backend for backend in backends.BACKENDS if backend.name == f"process/{mode}"))


def zygotes(sandbox: ProcessSandbox) -> list[ZygoteClient]:
    return list(sandbox._zygotes.values())


def zygote_pid(sandbox: ProcessSandbox, kind: str) -> int:
    process = sandbox._zygotes[kind]._process  # type: ignore[index]
    assert process is not None
    return process.pid


def processes_of(folder: str) -> set[int]:
    """Processes whose command line names the folder of a zygote: itself, and whatever was forked from it."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if folder.encode() in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
    return found


def jailed_processes(sandbox: ProcessSandbox) -> set[int]:
    """Living children of the zygotes."""
    found: set[int] = set()
    for zygote in zygotes(sandbox):
        assert zygote._process is not None
        parent = zygote._process.pid
        with contextlib.suppress(OSError):
            for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                        found.add(int(pid))
    return found


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
