"""Trusted functions for the tests of `Sandbox.call`, each behaving in one way."""

from __future__ import annotations

import os
import time
from typing import Any

WARMED = []


def warm() -> None:
    WARMED.append(os.getpid())


def double(payload: Any) -> Any:
    return {"doubled": payload * 2}


def warmed(payload: Any) -> Any:
    return len(WARMED)


def fail(payload: Any) -> Any:
    raise ValueError(f"bad payload {payload!r}")


def leave(payload: Any) -> Any:
    raise SystemExit(3)


def interrupt(payload: Any) -> Any:
    raise KeyboardInterrupt


def sleep(payload: float) -> Any:
    time.sleep(payload)


def spin(payload: Any) -> Any:
    while True:
        pass


def fill(payload: int) -> Any:
    return len(b"x" * (payload << 20))


def unserialisable(payload: Any) -> Any:
    return {"set": {1, 2}}


def huge(payload: int) -> Any:
    return "x" * payload


def deep(payload: int) -> Any:
    value: Any = 1
    for _ in range(payload):
        value = [value]
    return value


def die(payload: int) -> Any:
    os._exit(payload)


def read(payload: str) -> Any:
    with open(payload) as file:
        return file.read()


def remember(payload: Any) -> Any:
    WARMED.append(payload)
    return len(WARMED)
