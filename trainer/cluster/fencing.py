"""Ending a process for good: with its group, seen gone, and without what it would leave behind. Linux only; knows no
Ray and no engine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

POLL_S = 0.05
SWEPT = ("/dev/shm/", "/tmp/")
"""Where leftovers are removed, and nowhere else."""


def fenced(pid: int, group: int, children: Sequence[int], leftovers: Sequence[str], within_s: float) -> str:
    """Kill `pid`, its process group where it leads one, and `children`; wait until they are gone, and remove
    `leftovers`. Returns what is still there, empty if nothing is."""
    pids = {pid, *children, *(_members(group) if group == pid else ())} - {os.getpid()}
    ends = time.monotonic() + within_s
    while True:
        for each in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        pids |= set(_members(group)) if group == pid else set()
        left = sorted(each for each in pids if _lives(each))
        if not left:
            break
        if time.monotonic() > ends:
            return f"processes {', '.join(map(str, left))} are still there {within_s:g} s after SIGKILL"
        time.sleep(POLL_S)
    return "; ".join(filter(None, map(_removed, leftovers)))


def _members(group: int) -> list[int]:
    """Processes of a group."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (each / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    found.append(int(each.name))
    return found


def _lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def _removed(path: str) -> str:
    """What stood in the way of removing a leftover; empty if it is gone."""
    if not os.path.abspath(path).startswith(SWEPT):
        return ""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)  # somebody else may be at it
            return f"{path} cannot be removed" if os.path.exists(path) else ""
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""
