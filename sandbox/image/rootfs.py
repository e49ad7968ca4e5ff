"""Packs a root file system without any registry: this interpreter, the shared libraries that it needs, our packages and
their default dependencies, with the bytecode of all of them; of the extra `code` what is installed.

Reads only this machine and writes one tar. The same content gives the same bytes. Importing the tar into Docker is in
`sandbox.image.__main__`.
"""

from __future__ import annotations

import importlib.metadata
import io
import marshal
import os
import re
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path
from typing import IO

from sandbox.image.content import CODE_EXTRA, DEVICES, JAIL_ROOT, PACKAGES, package_folder, source_files

PYTHON = "/opt/python"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"{PYTHON}/lib/{_VERSION}/site-packages"
OURS = "/opt/metaagent"
"""Our packages lie apart from what unrestricted code may read and import."""
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "ensurepip", "tkinter",
             "__pycache__"}  # fmt: skip
_UNCHECKED_HASH = 1
_COMMANDS = ("/bin/rm",)
_FOLDERS = ("dev", "proc", "sys", "etc", "jail/dev", "jail/etc", "jail/scratch")
"""Folders of the root's own, which Docker puts something into, and some that have to be there."""


def write_rootfs(target: IO[bytes], modules: Iterable[Path] = ()) -> None:
    """Write the tar; `modules` are further files and folders that calls import.

    Everything lies below `JAIL_ROOT`, with links to it at the root.
    """
    with tarfile.open(fileobj=target, mode="w") as tar:
        files = dict(_interpreter())
        files.update(_dependencies(f"metaagent[{CODE_EXTRA}]"))
        for package in PACKAGES:
            folder = package_folder(package)
            files.update({f"{OURS}/{package}/{path.relative_to(folder)}": path for path in source_files(folder)})
        for module in modules:
            inside = [module] if module.is_file() else source_files(module)
            files.update({f"{OURS}/{path.relative_to(module.parent)}": path for path in inside})
        libraries = dict(_libraries([path for path in files.values() if _is_binary(path)]))
        for command in _COMMANDS:
            files[command] = Path(os.path.realpath(command))
        everything = {JAIL_ROOT + name: path for name, path in {**files, **libraries}.items()}
        compiled = {_cache_of(name): path for name, path in everything.items() if name.endswith(".py")}
        for folder in sorted({*_FOLDERS, *_parents([*everything, *compiled])}):
            _add_folder(tar, folder)
        for name, path in sorted(everything.items()):
            _add_file(tar, name, path.read_bytes(), executable=os.access(path, os.X_OK))
        for name, path in sorted(compiled.items()):
            if bytecode := _bytecode(path):
                _add_file(tar, name, bytecode)
        _add_link(tar, f"{JAIL_ROOT}/bin/python", f"{PYTHON}/bin/{_VERSION}")
        for name in sorted({name.split("/")[2] for name in everything} | {"scratch"}):
            _add_link(tar, name, f"{JAIL_ROOT[1:]}/{name}")
        for name, data in _loader_configuration(libraries):
            _add_file(tar, name, data)
            _add_file(tar, JAIL_ROOT + name, data)
        for name in DEVICES:
            _add_file(tar, JAIL_ROOT + name, b"")


def _interpreter() -> Iterator[tuple[str, Path]]:
    yield f"{PYTHON}/bin/{_VERSION}", Path(os.path.realpath(sys.executable))
    for name in ("stdlib", "platstdlib"):
        root = Path(sysconfig.get_path(name, vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}))
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(set(folders) - _LEFT_OUT - {"config-" + sysconfig.get_config_var("LDVERSION")})
            folders[:] = [folder for folder in folders if not folder.startswith("config-")]
            for file in names:
                if not file.endswith((".pyc", ".a")):
                    path = Path(folder) / file
                    yield f"{PYTHON}/lib/{_VERSION}/{path.relative_to(root)}", path


def _dependencies(root: str) -> Iterator[tuple[str, Path]]:
    """Files of everything that a distribution with its extras needs, but not its own. What an extra brings is left out
    where it is not installed."""
    found: set[str] = set()
    ahead = [root]
    while ahead:
        name, _, extras = ahead.pop().partition("[")
        for requirement in importlib.metadata.requires(name) or []:
            needed, condition = _applies(requirement, set(filter(None, extras.rstrip("]").split(","))))
            key = needed.lower()
            if condition and key not in found and not ("extra ==" in requirement and _is_missing(needed)):
                found.add(key)
                ahead.append(needed)
                yield from _files_of(needed.partition("[")[0])


def _is_missing(name: str) -> bool:
    try:
        importlib.metadata.distribution(name.partition("[")[0])
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def _applies(requirement: str, extras: set[str]) -> tuple[str, bool]:
    """The name (with extras) of a requirement, and whether it holds here."""
    from packaging.requirements import Requirement

    parsed = Requirement(requirement)
    name = f"{parsed.name}[{','.join(sorted(parsed.extras))}]" if parsed.extras else parsed.name
    environments = [{"extra": extra} for extra in extras] or [{"extra": ""}]
    return name, parsed.marker is None or any(parsed.marker.evaluate(values) for values in environments)


def _files_of(name: str) -> Iterator[tuple[str, Path]]:
    for file in importlib.metadata.distribution(name).files or []:
        path = Path(str(file.locate()))
        if ".." not in file.parts and file.suffix != ".pyc" and path.is_file():
            yield f"{SITE}/{file.as_posix()}", path


def _cache_of(name: str) -> str:
    folder, _, module = name.rpartition("/")
    return f"{folder}/__pycache__/{module.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"


def _bytecode(path: Path) -> bytes:
    """A module's bytecode, without which each new container would compile all that it imports. Empty if it has none.

    What this interpreter has cached, if that is up to date, with a header (PEP 552) by which nobody compares it with
    its source again: a container's files have other times.
    """
    source, stat = path.read_bytes(), path.stat()
    head = MAGIC_NUMBER + struct.pack("<3I", 0, int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size & 0xFFFFFFFF)
    try:
        cached = Path(cache_from_source(str(path))).read_bytes()
    except OSError:
        cached = b""
    if cached.startswith(head):
        code = cached[len(head) :]
    else:
        try:
            code = marshal.dumps(compile(source, str(path), "exec", dont_inherit=True))
        except (SyntaxError, ValueError):  # an example of what is not Python
            return b""
    return MAGIC_NUMBER + struct.pack("<I", _UNCHECKED_HASH) + source_hash(source) + code


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(binaries: list[Path]) -> Iterator[tuple[str, Path]]:
    """Shared libraries that the binaries load, where they are found here; packages bring their own."""
    brought = {os.path.realpath(path) for path in binaries}
    paths = sorted({str(path) for path in binaries} | {os.path.realpath(command) for command in _COMMANDS})
    output = subprocess.run(["ldd", *paths], capture_output=True, text=True, timeout=120, check=False).stdout
    for library in sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", output, re.MULTILINE))):
        if (real := os.path.realpath(library)) not in brought:
            yield library, Path(real)


def _loader_configuration(libraries: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    """`ld.so.conf` with every folder that holds a library, and the cache that the loader reads."""
    configuration = "".join(f"{folder}\n" for folder in sorted({os.path.dirname(name) for name in libraries}))
    yield "/etc/ld.so.conf", configuration.encode()
    with tempfile.TemporaryDirectory(prefix="metaagent-image-") as root:
        for name, path in libraries.items():
            copy = Path(root + name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        (Path(root) / "etc").mkdir(exist_ok=True)
        (Path(root) / "etc/ld.so.conf").write_text(configuration)
        subprocess.run(["/sbin/ldconfig", "-X", "-r", root], capture_output=True, timeout=60, check=True)
        yield "/etc/ld.so.cache", (Path(root) / "etc/ld.so.cache").read_bytes()


def _parents(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for parent in Path(name.lstrip("/")).parents:
            if str(parent) != ".":
                yield str(parent)


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("/scratch") else 0o755
    tar.addfile(info)


def _add_file(tar: tarfile.TarFile, name: str, data: bytes, *, executable: bool = False) -> None:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.size, info.mode = len(data), 0o755 if executable else 0o644
    tar.addfile(info, io.BytesIO(data))


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.type, info.linkname = tarfile.SYMTYPE, target
    tar.addfile(info)
