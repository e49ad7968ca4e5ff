"""Metrics on disk: one JSON object per line and step, cut back to the checkpoint from which a run goes on.

It knows no metric but `step`, and draws nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel


def append(path: Path, line: BaseModel) -> None:
    """Add a line; it is the system's, but not synced to disk, when this returns. An OSError names the file."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line.model_dump_json() + "\n")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def cut(path: Path, step: int) -> None:
    """Drop what a run that is resumed after `step` will write again: lines of later steps, and one cut short.

    The file is replaced whole or stays as it was; without one nothing happens.
    """
    if not path.exists():
        return
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if _step(line) <= step]
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _step(line: bytes) -> float:
    if not line.endswith(b"\n"):
        return float("inf")
    try:
        return json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return float("inf")
