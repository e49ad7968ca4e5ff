"""What sandboxes of processes that were killed left behind: containers, and temporary folders of the process backend.

Each carries the tag of its owner (`sandbox.host.owners`). What belongs to a living process, or to one that cannot be
seen from here, is never touched.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sandbox.containers.daemon import KIND_LABEL, OWNER_LABEL, TIER_LABEL, explained, remove_container
from sandbox.host import owners
from sandbox.jail import RM

_FOLDER = re.compile(r"metaagent-(\d+-\d+-\d+-[0-9a-f]{8})-\w+")
_REMOVAL_TIMEOUT_S = 60


@dataclass(frozen=True)
class Found:
    """Something that a sandbox made. `owner_lives` is None where that cannot be seen from here."""

    what: Literal["container", "folder"]
    name: str
    """The id of a container, the path of a folder."""
    detail: str
    owner_lives: bool | None


def folders() -> list[Found]:
    """Folders of zygotes in the temporary folder that belong to this user."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).iterdir()):
        match = _FOLDER.fullmatch(path.name)
        if match is None:
            continue
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            found.append(Found("folder", str(path), f"of {_owner(match[1])}", owners.lives(match[1])))
    return found


def containers(api: Any) -> list[Found]:
    """Containers of sandboxes that the daemon has, whatever their state."""
    with explained("containers were listed"):
        listed = api.containers(all=True, filters={"label": OWNER_LABEL})
    found = []
    for entry in listed:
        labels = entry.get("Labels") or {}
        owner = labels.get(OWNER_LABEL, "")
        detail = f"{labels.get(TIER_LABEL)}, for {labels.get(KIND_LABEL)}, {entry.get('State')}, of {_owner(owner)}"
        found.append(Found("container", entry["Id"], detail, owners.lives(owner)))
    return found


def remove(found: Found, api: Any = None) -> None:
    """Remove what a dead process left. Refuses what may still be in use."""
    if found.owner_lives is not False:
        raise ValueError(f"the {found.what} {found.name} may still be in use: {found.detail}")
    if found.what == "container":
        with explained(f"the container {found.name[:12]} was removed"):
            remove_container(api, found.name)
    else:
        subprocess.run([*RM, found.name], timeout=_REMOVAL_TIMEOUT_S, check=True, capture_output=True)


def _owner(tag: str) -> str:
    return f"process {tag.partition('-')[0]}"
