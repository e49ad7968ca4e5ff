"""Metrics on disk: one JSON object per line and step, cut back to the checkpoint from which a run goes on.

It knows no metric but `step`, and draws nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel

from trainer.disk import plain_files

MAX_METRICS = 1 << 30
"""Bytes."""


def append(path: Path, line: BaseModel) -> None:
    """Add a line; it is the system's, but not synced to disk, when this returns. An OSError names the file."""
    try:
        with plain_files.appended(path) as file:
            file.write(line.model_dump_json().encode() + b"\n")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def cut(path: Path, step: int) -> None:
    """Drop what a run that is resumed after `step` will write again: lines of later steps, and one cut short.

    The file is replaced whole or stays as it was; without one nothing happens.
    """
    if not os.path.lexists(path):
        return
    lines = plain_files.read(path, MAX_METRICS).splitlines(keepends=True)
    plain_files.replace(path, b"".join(line for line in lines if _step(line) <= step))


def _step(line: bytes) -> float:
    if not line.endswith(b"\n"):
        return float("inf")
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return float("inf")
    return step if type(step) is int else float("inf")
