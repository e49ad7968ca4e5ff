"""The host's side of jails: the sandbox that serves runs, the broker that answers them, clocks, caps, workspaces.

What comes out of a jail is checked here. Not here: walls (`sandbox.jail`) and containers (`sandbox.containers`). Names
are loaded on first use: a container's relay needs two of these modules and not the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.host import owners, workspaces
    from sandbox.host.jail_sandbox import JailSandbox
    from sandbox.host.process_sandbox import ProcessSandbox
    from sandbox.host.program_code import ProgramCode
    from sandbox.host.spawner import REAP_TIMEOUT_S, CodeStreams, Exit, Jailed, JailedFolder, Spawner
    from sandbox.host.workspaces import explained, plain
    from sandbox.host.zygote_client import ZygoteClient, package_folders

_HOMES = {
    "jail_sandbox": ("JailSandbox",),
    "process_sandbox": ("ProcessSandbox",),
    "program_code": ("ProgramCode",),
    "spawner": (
        "CodeStreams",
        "Exit",
        "Jailed",
        "JailedFolder",
        "REAP_TIMEOUT_S",
        "Spawner",
    ),
    "workspaces": ("explained", "plain"),
    "zygote_client": (
        "ZygoteClient",
        "package_folders",
    ),
}

__all__ = [
    "REAP_TIMEOUT_S",
    "CodeStreams",
    "Exit",
    "JailSandbox",
    "Jailed",
    "JailedFolder",
    "ProcessSandbox",
    "ProgramCode",
    "Spawner",
    "ZygoteClient",
    "explained",
    "owners",
    "package_folders",
    "plain",
    "workspaces",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"sandbox.host.{home}"), name)
    raise AttributeError(f"module 'sandbox.host' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
