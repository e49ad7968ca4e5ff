"""Where other people's code runs: jailed programs, jailed code, jailed calls. Start with `ProcessSandbox`.

`protocol` is what every backend offers, `strength` what each configuration enforces, `frames` what a jail and its host
speak. Not here: who answers the agents of a program (`engine`), and what an answer is worth (`tasks`).

The names are loaded on first use: the process that forks jails of code imports from here too, and is faster the less
it holds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.host import ProcessSandbox
    from sandbox.protocol import CodeProcess, CodeResult, Description, Sandbox, Strength, Workspace

__all__ = ["CodeProcess", "CodeResult", "Description", "ProcessSandbox", "Sandbox", "Strength", "Workspace"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sandbox' has no attribute {name!r}")
    return getattr(
        import_module("sandbox.host.process_sandbox" if name == "ProcessSandbox" else "sandbox.protocol"), name
    )


def __dir__() -> list[str]:
    return __all__
