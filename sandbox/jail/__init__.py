"""The walls, and what runs inside them: the zygote that forks jails, namespaces, landlock, seccomp, the programs' and
the code's runner.

Not here: the host's side (`sandbox.host`), which believes nothing that comes out. Names are loaded on first use: jails
are forked from a process that imports from here and should hold little.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.jail import kernel, loading, readable, run_code, run_program, walls
    from sandbox.jail.kernel import CLONE_NEWUSER
    from sandbox.jail.loading import fewer_fork_hooks
    from sandbox.jail.run_code import DISK_FULL, OUT_OF_MEMORY
    from sandbox.jail.seccomp import CLONE_NEW_ANY, NAMES
    from sandbox.jail.walls import MAX_MESSAGE, Kind, Mode, Walls, enter_namespaces
    from sandbox.jail.zygote import RM, START, Zygote

_HOMES = {
    "kernel": ("CLONE_NEWUSER",),
    "loading": ("fewer_fork_hooks",),
    "run_code": (
        "DISK_FULL",
        "OUT_OF_MEMORY",
    ),
    "seccomp": (
        "CLONE_NEW_ANY",
        "NAMES",
    ),
    "walls": (
        "MAX_MESSAGE",
        "Kind",
        "Mode",
        "Walls",
        "enter_namespaces",
    ),
    "zygote": (
        "RM",
        "START",
        "Zygote",
    ),
}

__all__ = [
    "CLONE_NEWUSER",
    "CLONE_NEW_ANY",
    "DISK_FULL",
    "MAX_MESSAGE",
    "NAMES",
    "OUT_OF_MEMORY",
    "RM",
    "START",
    "Kind",
    "Mode",
    "Walls",
    "Zygote",
    "enter_namespaces",
    "fewer_fork_hooks",
    "kernel",
    "loading",
    "readable",
    "run_code",
    "run_program",
    "walls",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"sandbox.jail.{home}"), name)
    raise AttributeError(f"module 'sandbox.jail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
