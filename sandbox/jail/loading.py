"""What zygotes load before they fork beside their own work: the packages that code computes with.

Importing one in a jail takes 0.2 s to a second; a zygote that holds them takes two to three times as long for every
fork. So only the child of the code zygote holds them, which serves the code that names one (`sandbox.jail.zygote`).
Not here: which packages jails may read (`sandbox.jail.readable`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MODULES = {
    "numpy": ("numpy", "numpy.random", "numpy.linalg"),
    "sympy": ("sympy",),
    "scipy": ("scipy", "scipy.integrate", "scipy.linalg", "scipy.optimize", "scipy.special"),
}
"""Distribution -> what of it is loaded. Other parts of scipy are imported by the code that needs them."""
_NAMED = re.compile(rb"\b(?:numpy|scipy|sympy)\b")


def names_a_package(source: bytes) -> bool:
    """Whether code looks as if it imports one of them. A wrong guess costs a slower fork or an import."""
    return _NAMED.search(source) is not None


def installed(packages: Iterable[str]) -> list[str]:
    """The modules to load of these distributions, where they are installed."""
    return [
        module for name in packages if name in MODULES and importlib.util.find_spec(name) for module in MODULES[name]
    ]


def load(modules: Iterable[str], root: str) -> None:
    """Import modules as a jail finds them, whose root is `root` (empty: this process's own)."""
    with contextlib.ExitStack() as stack:
        if root:
            outside = os.open("/", os.O_PATH | os.O_DIRECTORY)
            stack.callback(os.close, outside)
            os.chroot(root)
            stack.callback(os.chroot, ".")
            stack.callback(os.fchdir, outside)
        os.chdir("/")
        with fewer_fork_hooks():
            for name in modules:
                importlib.import_module(name)


def freshened(job: Callable[[list[int]], None]) -> Callable[[list[int]], None]:
    """The job, whose forks draw random numbers of their own, as they do where each imports numpy for itself."""
    random: Any = sys.modules.get("numpy.random")
    if random is None:
        return job

    def fresh(fds: list[int]) -> None:
        random.seed()
        job(fds)

    return fresh


@contextlib.contextmanager
def fewer_fork_hooks() -> Iterator[None]:
    """Keep what is imported from putting its locks right after each fork: a zygote has one thread, which holds none.

    That would be a good part of what a run costs.
    """
    register: Callable[..., None] = os.register_at_fork

    def register_others(**hooks: Callable[[], object]) -> None:
        if not any(hook.__module__ in ("threading", "logging") for hook in hooks.values()):
            register(**hooks)

    os.register_at_fork = register_others
    try:
        yield
    finally:
        os.register_at_fork = register
