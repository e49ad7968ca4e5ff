"""The Docker backend: jails inside hardened containers. Start with `DockerSandbox`; needs the extra `docker`.

Importing this loads no Docker client: inside a container (`relay`, `wire`) there is none.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.containers.backend import DockerSandbox

__all__ = ["DockerSandbox"]


def __getattr__(name: str) -> Any:
    if name == "DockerSandbox":
        from sandbox.containers.backend import DockerSandbox

        return DockerSandbox
    raise AttributeError(f"module 'sandbox.containers' has no attribute {name!r}")
