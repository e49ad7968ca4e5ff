"""What a killed vLLM leaves behind, found while it lives: its processes, and its files in shared memory.

For whoever fences an engine that does not answer. It reads Linux's `/proc`, kills nothing and removes nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_SHARED_MEMORY = "/dev/shm/"
_NAMES = ("psm_", "sem.mp-", "vllm_", "nccl-")
"""Of shared memory and semaphores of Python, vLLM and NCCL. Others' memory may be mapped too, such as Ray's."""


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
