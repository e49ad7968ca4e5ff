"""What of this machine jails may read: the standard library, shared libraries, and packages; nothing else of an
environment's folder, which may hold a `pip.conf` with a token.

Code sees the packages of `CODE_PACKAGES` that are installed, with what they need. Not here: how the walls keep to that
(`sandbox.jail.walls`), and the files of images (`sandbox.image`).
"""

from __future__ import annotations

import functools
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable

CODE_PACKAGES = ("numpy", "scipy", "sympy", "mpmath", "pandas", "networkx", "sortedcontainers", "scikit-learn")
"""Distributions that code may import besides the standard library, where they are installed: what agents compute with,
and solutions of benchmarks."""


_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@functools.cache
def libraries() -> list[str]:
    """Folders and files that Python itself needs: the standard library and shared libraries.

    Kept, as is `packages`: a zygote in mode j asks again when its root is another one.
    """
    system = ["/usr/share/zoneinfo", "/usr/lib/locale", "/etc/ld.so.cache", *_shared_libraries()]
    return _real([*_standard_library(), *system])


@functools.cache
def package_folders_inside() -> list[str]:
    """Folders of packages that lie inside the standard library's own, where code must not see all that is there."""
    inside = [os.path.join(folder, name) for folder in _standard_library() for name in _PACKAGE_FOLDERS]
    return _real(path for path in inside if os.path.isdir(path))


@functools.cache
def parts() -> list[str]:
    """`libraries`, with what lies in the standard library's folder in place of the folder, but for packages."""
    own = _real(_standard_library())
    inside = [os.path.join(folder, name) for folder in own for name in os.listdir(folder)]
    beside = [path for path in libraries() if path not in own]
    return _real([*beside, *(path for path in inside if os.path.basename(path) not in _PACKAGE_FOLDERS)])


def standard_library() -> list[str]:
    """The folders of the standard library, packages that lie inside included."""
    return _real(_standard_library())


def _standard_library() -> list[str]:
    compiled = sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix})
    return [sysconfig.get_path("stdlib"), compiled]


def _shared_libraries() -> list[str]:
    """The system's folders of shared libraries, and shared libraries beside Python's own: not whatever else is
    installed below `/usr/lib` or `/usr/local/lib`."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or "none"
    found: list[str] = []
    for folder in ("/lib", "/lib64", "/usr/lib", "/usr/lib64"):
        parted = os.path.isdir(f"{folder}/{multiarch}")
        found += [f"{folder}/{multiarch}", *_objects(folder)] if parted else [folder]
    return [*found, *_objects("/usr/local/lib"), *_objects(sysconfig.get_config_var("LIBDIR") or "/lib")]


def _objects(folder: str) -> list[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if ".so" in name]


@functools.cache
def packages() -> list[str]:
    """The folders of all installed packages."""
    return _real([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()])


def code_packages(names: tuple[str, ...]) -> list[str]:
    """Files and folders of these distributions and of what they need, those that are installed."""
    from importlib.metadata import (  # the zygote, which has no use for it, stays small
        PackageNotFoundError,
        distribution,
    )

    paths: set[str] = set()
    pending, seen = list(names), set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        tops = {file.parts[0] for file in found.files or () if file.parts[0] != ".."}
        paths.update(str(found.locate_file(top)) for top in tops if top != "__pycache__")
        needs = [need for need in found.requires or () if "extra ==" not in need]
        pending += [match[0] for need in needs if (match := re.match(r"[\w.-]++", need))]
    return _real(paths)


def _real(paths: Iterable[str]) -> list[str]:
    real = sorted({os.path.realpath(path) for path in paths if os.path.exists(path)})
    # A folder below another one needs no entry of its own.
    return [path for path in real if not any(path.startswith(other + "/") for other in real)]
