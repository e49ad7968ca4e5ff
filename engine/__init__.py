"""Where completions come from: one small async protocol and the engines behind it, the drivers that run workflows.

`connect("openai:MODEL@URL")` is the one line that lets a plain Python file run its workflow. Heavy libraries are
imported by the engine that needs them, when it is built.
"""

from __future__ import annotations

from typing import Any

from engine import drivers
from engine.drivers import disconnect, drive, drive_sync, run_workflow
from engine.protocol import Engine
from engine.session import Run, Session
from engine.spec import parse_engine

__all__ = [
    "Engine",
    "Run",
    "Session",
    "connect",
    "disconnect",
    "drive",
    "drive_sync",
    "parse_engine",
    "run_workflow",
]


def connect(engine: Engine | str, **options: Any) -> None:
    """Let workflows of this process run on an engine, given as an object or as text such as `openai:MODEL`.

    Options are those of `engine.drivers.connect`: limits, sampling, sink.
    """
    drivers.connect(parse_engine(engine) if isinstance(engine, str) else engine, **options)
