"""Sandboxes by name, as configurations and options write them. Not here: what they do (`sandbox.host`,
`sandbox.containers`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.containers import DockerSandbox, Tier
from sandbox.host import JailSandbox, ProcessSandbox

DOCKER_TIERS: dict[str, Tier] = {
    "docker": "warm",
    "docker/warm": "warm",
    "docker/strict": "strict",
    "docker/gvisor": "gvisor",
}


def named_sandbox(name: str, preload: Sequence[str]) -> JailSandbox:
    """process, process/weak (which lets code run where the kernel cannot keep it in), docker, docker/warm,
    docker/strict or docker/gvisor. `preload` names the modules that jailed calls need. Raises ValueError for others."""
    if name in ("process", "process/weak"):
        return ProcessSandbox(preload=tuple(preload), allow_weak=name == "process/weak")
    if name not in DOCKER_TIERS:
        raise ValueError(f"there is no sandbox {name!r}. Fix: use process, process/weak, {', '.join(DOCKER_TIERS)}")
    return DockerSandbox(preload=tuple(preload), tier=DOCKER_TIERS[name])
