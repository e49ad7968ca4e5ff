"""The configurations of this project's own backends, each with its hooks. `BACKENDS` lists them all.

A backend of somebody else's needs no entry here: build a `Backend` and hand it to the suite.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.conformance.docker_backends import DOCKER
from sandbox.conformance.subject import Backend
from sandbox.host import ProcessSandbox, ZygoteClient
from sandbox.jail import Kind, Mode

UNGUARDED = "sandbox.conformance.unguarded"
_HERE = "sandbox.conformance.backends"


def process_j(**options: Any) -> ProcessSandbox:
    return ProcessSandbox(mode="j", **options)


def process_j0(**options: Any) -> ProcessSandbox:
    return ProcessSandbox(mode="j0", **options)


class _UnguardedProcess(ProcessSandbox):
    async def _start(self, kind: Kind, mode: Mode, preload: tuple[str, ...]) -> ZygoteClient:
        return await super()._start(kind, mode, (UNGUARDED,) if kind == "program" else preload)


def unguarded_j() -> ProcessSandbox:
    return _UnguardedProcess(mode="j")


def unguarded_j0() -> ProcessSandbox:
    return _UnguardedProcess(mode="j0")


def _zygotes(sandbox: ProcessSandbox) -> list[int]:
    """Of the zygotes that live: process ids."""
    running = [zygote for zygote in sandbox._zygotes.values() if zygote.dead is None]
    return [zygote._process.pid for zygote in running if zygote._process is not None]


def _jails(sandbox: ProcessSandbox) -> int:
    """Living children of the zygotes."""
    found = 0
    for zygote in _zygotes(sandbox):
        with contextlib.suppress(OSError):
            for pid in Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split():
                with contextlib.suppress(OSError):
                    found += Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return found


async def _kill_zygotes(sandbox: ProcessSandbox) -> None:
    for pid in _zygotes(sandbox):
        os.kill(pid, signal.SIGKILL)


async def _stop_zygotes(sandbox: ProcessSandbox) -> Callable[[], None]:
    stopped = _zygotes(sandbox)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return go_on


def _left_of_process(folder: str, host: int) -> list[str]:
    """Processes whose command line names the folder (a zygote, and whatever was forked from it), and files in it."""
    found = [str(path) for path in Path(folder).iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (host, os.getpid()):
            with contextlib.suppress(OSError):
                if f"{folder}/".encode() in (entry / "cmdline").read_bytes():
                    found.append(f"process {entry.name}")
    return found


def _process(mode: Mode) -> Backend:
    return Backend(
        name=f"process/{mode}",
        make=f"{_HERE}:process_{mode}",
        unguarded=f"{_HERE}:unguarded_{mode}",
        running=_jails,
        kill_workers=_kill_zygotes,
        stop_workers=_stop_zygotes,
        left_behind=_left_of_process,
    )


BACKENDS: tuple[Backend, ...] = (_process("j"), _process("j0"), *DOCKER)
_reasons: dict[str, str] = {}


def why_not(backend: Backend) -> str:
    """Why this machine cannot run a configuration; empty where it can. Asked once."""
    if backend.name not in _reasons:
        _reasons[backend.name] = asyncio.run(backend.why_not())
    return _reasons[backend.name]
