"""Who made a temporary folder or a container: a tag that outlives its maker, and tells whether the maker still lives.

A process is known by the boot, the pid namespace, its id and its start time, so that a reused id is not mistaken for
it. Of a process in another namespace or on another machine nothing is known.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_TAG = re.compile(r"(\d+)-(\d+)-(\d+)-([0-9a-f]{8})")


def own_tag() -> str:
    """The tag of this process: id, start time, pid namespace, boot."""
    return f"{os.getpid()}-{_start_time(os.getpid())}-{_place()}"


def lives(tag: str) -> bool | None:
    """Whether the process behind a tag still runs; None if that cannot be seen from here."""
    match = _TAG.fullmatch(tag)
    if match is None or f"{match[3]}-{match[4]}" != _place():
        return None
    try:
        return _start_time(int(match[1])) == int(match[2])
    except OSError:
        return False


def _start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


@cache
def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{boot}"
