"""Where completions come from: one small async protocol and the engines behind it, the drivers that run workflows.

`connect("openai:MODEL@URL")` is the one line that lets a plain Python file run its workflow. Heavy libraries are
imported by the engine that needs them, when it is built.

Not here: nodes and how they are run (`workflow`), and jails (`sandbox`). Names are loaded on first use: jails of
programs are forked from a process that needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.drivers import disconnect, drive, run_workflow
    from engine.gate import Gate
    from engine.protocol import Engine
    from engine.session import Run, Session
    from engine.spec import parse_engine
    from engine.sync_driver import drive_sync

_HOMES = {
    "drivers": ("disconnect", "drive", "run_workflow"),
    "gate": ("Gate",),
    "protocol": ("Engine",),
    "session": ("Run", "Session"),
    "spec": ("parse_engine",),
    "sync_driver": ("drive_sync",),
}

__all__ = [
    "Engine",
    "Gate",
    "Run",
    "Session",
    "connect",
    "disconnect",
    "drive",
    "drive_sync",
    "parse_engine",
    "run_workflow",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"engine.{home}"), name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def connect(engine: Engine | str, **options: Any) -> None:
    """Let workflows of this process run on an engine, given as an object or as text such as `openai:MODEL`.

    Options are those of `engine.drivers.connect`: limits, sampling, sink.
    """
    from engine import drivers, spec

    drivers.connect(spec.parse_engine(engine) if isinstance(engine, str) else engine, **options)
