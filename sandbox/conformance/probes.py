"""Which walls a sandbox has, as seen: from verdicts on attacks, and from a few questions that are no attacks.

What is claimed stands in `sandbox.strength`; nothing here reads the claims.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Iterable

from sandbox.conformance.attacks import introspection, modules, shadowing
from sandbox.conformance.contain import Verdict
from sandbox.conformance.outside import Outside
from sandbox.conformance.subject import Subject

POLICY = {attack.family for module in (introspection, modules, shadowing) for attack in module.ATTACKS}
BY_FAMILIES: dict[str, set[str]] = {
    "file contents": {"files", "symlinks", "/proc/1/root"},
    "environment": {"environment"},
    "network": {"network", "vsock"},
    "other processes": {"ptrace", "process_vm", "/proc/self/mem", "shared memory"},
    "signals": {"signals"},
    "new processes": {"processes", "daemon", "fork bomb"},
    "privileges": {"user namespaces", "mounts", "privileges", "limits raised"},
    "kernel surface": {"io_uring", "kernel surface"},
    "memory": {"allocation", "giant string", "giant number", "zip bomb"},
    "time": {"endless sleep", "regex backtracking", "int to str", "compile bomb"},
    "output": {"output flood"},
    "one file": {"disk fill"},
    "channel": {"forged frame", "forged end", "giant frame"},
    "policy": POLICY,
    "next run": {"shared class changed"},
    "grades": {"grade changed"},
}
"""Wall -> families of attacks, all of which must be contained."""


async def _names_hidden(subject: Subject, outside: Outside) -> bool:
    code = f"import os\ntry: print(os.stat({str(outside.canary)!r}).st_size)\nexcept OSError: print('hidden')"
    return (await subject.code(code)).stdout == "hidden\n"


async def _all_files_limited(subject: Subject, outside: Outside) -> bool:
    code = "for n in range(12):\n with open(str(n), 'wb') as f: f.write(bytes(1 << 20))\nprint('all of it')"
    return (await subject.code(code, disk_mb=4)).stdout != "all of it\n"


async def _own_kernel(subject: Subject, outside: Outside) -> bool:
    code = "import os; print(os.uname().release, os.uname().version)"
    return (await subject.code(code)).stdout.strip() != f"{platform.release()} {platform.version()}"


BY_QUESTION: dict[str, Callable[[Subject, Outside], Awaitable[bool]]] = {
    "file names": _names_hidden,
    "all files": _all_files_limited,
    "own kernel": _own_kernel,
}


async def walls_seen(subject: Subject, verdicts: Iterable[Verdict], outside: Outside) -> dict[str, bool]:
    """Wall -> whether it was seen to hold. Walls about which nothing was tried are not there."""
    tried = [verdict for verdict in verdicts if not verdict.left_out]
    seen = {}
    for wall, families in BY_FAMILIES.items():
        ends = [verdict.contained for verdict in tried if verdict.attack.family in families]
        if ends:
            seen[wall] = all(ends)
    return seen | {wall: await question(subject, outside) for wall, question in BY_QUESTION.items()}
