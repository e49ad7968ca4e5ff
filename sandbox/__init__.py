"""Where other people's code runs: jailed programs, jailed code, jailed calls. Start with `ProcessSandbox`.

The names are loaded on first use: the process that forks jails of code imports from here too, and is faster the less
it holds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.process import ProcessSandbox
    from sandbox.protocol import CodeProcess, CodeResult, Description, Sandbox, Strength, Workspace

__all__ = ["CodeProcess", "CodeResult", "Description", "ProcessSandbox", "Sandbox", "Strength", "Workspace"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sandbox' has no attribute {name!r}")
    return getattr(import_module("sandbox.process" if name == "ProcessSandbox" else "sandbox.protocol"), name)


def __dir__() -> list[str]:
    return __all__
