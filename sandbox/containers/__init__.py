"""The Docker backend: jails inside hardened containers. Start with `DockerSandbox`; needs the extra `docker`.

Names are loaded on first use: inside a container (`relay`, `wire`) there is no Docker client. Not here: what is in the
image (`sandbox.image`), and what is done with jails (`sandbox.host`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.containers import daemon, leftovers, wire
    from sandbox.containers.daemon import OWNER_LABEL, SESSION_LABEL, Box, Daemon, Tier, connect
    from sandbox.containers.docker_sandbox import DockerSandbox

_HOMES = {
    "docker_sandbox": ("DockerSandbox",),
    "daemon": ("OWNER_LABEL", "SESSION_LABEL", "Box", "Daemon", "Tier", "connect"),
}

__all__ = [
    "OWNER_LABEL",
    "SESSION_LABEL",
    "Box",
    "Daemon",
    "DockerSandbox",
    "Tier",
    "connect",
    "daemon",
    "leftovers",
    "wire",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"sandbox.containers.{home}"), name)
    raise AttributeError(f"module 'sandbox.containers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
