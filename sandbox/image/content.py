"""Which code an image must hold: a hash of this code, in the image's label and in the default tag.

Light: the Docker backend asks at its start whether an image fits. Packing is in `sandbox.image.rootfs`.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

CODE_LABEL = "metaagent.code"
REPOSITORY = "metaagent-sandbox"
JAIL_ROOT = "/jail"
"""Holds all of the image's files; what else lies at its root are links into it. So a jail can be given it as a root."""
DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
"""What a jail with that root gets of the container's devices."""
CODE_EXTRA = "code"
"""The extra of this project with what code computes with."""
PACKAGES = ("workflow", "engine", "sandbox", "tasks", "templates", "designer")
"""What jails may run: programs, code, and the functions of calls."""


def package_folder(name: str) -> Path:
    spec = find_spec(name)
    places = [
        Path(place) for place in (spec.submodule_search_locations if spec else None) or [] if Path(place).is_dir()
    ]
    if not places:
        raise FileNotFoundError(f"package {name} is not installed as a folder")
    return places[0]


def source_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@cache
def code_hash() -> str:
    """Changes with every file of our packages."""
    digest = hashlib.sha256()
    for name in PACKAGES:
        folder = package_folder(name)
        for path in source_files(folder):
            data = path.read_bytes()
            digest.update(f"{name}/{path.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


def image_tag() -> str:
    return f"{REPOSITORY}:{code_hash()}"
