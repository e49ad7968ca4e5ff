"""What a killed vLLM leaves behind, found while it lives: its processes, and its files in shared memory.

For whoever fences an engine that does not answer. Where nobody does, as when the process that vLLM was started in is
killed, a `Sweeper` ends and removes them: this file, run as a program, which needs nothing but Python. It reads Linux's
`/proc`, and touches nothing that is not vLLM's by its name.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_SHARED_MEMORY = "/dev/shm/"
_NAMES = ("psm_", "sem.mp-", "vllm_", "nccl-")
"""Of shared memory and semaphores of Python, vLLM and NCCL. Others' memory may be mapped too, such as Ray's."""
_TITLE = b"VLLM::"
"""What vLLM's processes call themselves."""
_POLL_S = 0.5
_GRACE_S = 5.0
"""For vLLM's processes to end by themselves."""
_CLOSED = b"closed"


class Sweeper:
    """A process that waits for this one to be gone, then ends vLLM's processes and removes their files and `folder`,
    unless it was told that vLLM is closed."""

    def __init__(self, folder: str) -> None:
        words = [sys.executable, "-S", "-E", __file__, str(os.getpid()), folder]
        started = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started.wait()  # what goes on is no child of this process, and not ended with its children
        assert started.stdin is not None
        self._pipe = started.stdin

    def closed(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.write(_CLOSED)
            self._pipe.close()


def sweep(owner: int, folder: str) -> None:
    """What a `Sweeper` does. Its standard input ends when the owner does, unless another process has it, too."""
    born = _born(owner)
    processes: dict[int, str] = {}
    files: set[str] = set()
    while True:
        lives = _born(owner) == born
        if select.select([0], [], [], _POLL_S if lives else 0)[0]:
            if os.read(0, len(_CLOSED)) == _CLOSED:  # also where that was its last word
                return
            break
        if not lives:
            break
        own = family(each for each in family([owner]) if _is_vllm(each))
        processes |= {each: _born(each) for each in own}
        files |= set(files_of(own))
    ends = time.monotonic() + _GRACE_S
    while left := [each for each, start in processes.items() if start and _born(each) == start]:
        files |= set(files_of(left))
        if time.monotonic() > ends:
            for each in left:
                with contextlib.suppress(OSError):
                    os.kill(each, signal.SIGKILL)
        time.sleep(_POLL_S / 5)
    held = set(files_of(_parents()))
    for path in files - held:
        Path(path).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def family(roots: Iterable[int]) -> list[int]:
    """Those of the processes `roots` that live, and all that descend from them, sorted."""
    parents = _parents()
    found, grown = parents.keys() & set(roots), -1
    while grown != len(found):
        grown = len(found)
        found |= {process for process, parent in parents.items() if parent in found}
    return sorted(found)


def files_of(processes: Iterable[int]) -> list[str]:
    """Files in shared memory, with names of those who make them for vLLM, which these processes have mapped or open.

    Processes that are gone, or are another user's, have none."""
    held = {inode for process in processes for inode in (*_mapped(process), *_opened(process))}
    found = []
    with contextlib.suppress(OSError):  # there is no shared memory
        for entry in os.scandir(_SHARED_MEMORY):
            if entry.name.startswith(_NAMES) and entry.inode() in held:
                found.append(entry.path)
    return sorted(found)


def _born(process: int) -> str:
    """When a process was started, which tells it from a later one of its number; empty if it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "XZ" else fields[19]


def _is_vllm(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(_TITLE)
    except OSError:
        return False


def _parents() -> dict[int, int]:
    """Each process that lives -> its parent."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
                state, parent = stat.rpartition(")")[2].split()[:2]  # a name may hold anything
                if state not in "XZ":
                    found[int(entry)] = int(parent)
    return found


def _mapped(process: int) -> list[int]:
    """The inodes: of a semaphore, glibc maps a file that it then gives another name."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        return [int(line.split()[4]) for line in lines if _SHARED_MEMORY in line]
    return []


def _opened(process: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith(_SHARED_MEMORY):
                    found.append(os.stat(entry.path).st_ino)
    return found


if __name__ == "__main__":
    if os.fork() == 0:
        sweep(int(sys.argv[1]), sys.argv[2])
