"""What a check is, and the list that the `check_...` modules fill. A check raises when the backend does not hold it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sandbox.conformance.subject import Subject


@dataclass(frozen=True)
class Check:
    topic: str
    name: str
    run: Callable[[Subject], Awaitable[None]]
    needs: tuple[str, ...] = ()
    """Hooks of `Backend` without which it cannot be made."""
    slow: bool = False
    """It waits for a timeout of the sandbox's own."""

    def left_out(self, subject: Subject) -> str:
        """Why it cannot be made of a backend; empty where it can."""
        missing = [hook for hook in self.needs if getattr(subject.backend, hook) is None]
        return f"{subject.backend.name} has no {', '.join(missing)}" if missing else ""


CHECKS: list[Check] = []


def check(
    topic: str, *needs: str, slow: bool = False
) -> Callable[[Callable[[Subject], Awaitable[None]]], Callable[..., Any]]:
    """Adds a function to the list, under its own name."""

    def add(function: Callable[[Subject], Awaitable[None]]) -> Callable[..., Any]:
        CHECKS.append(Check(topic, function.__name__, function, needs, slow))
        return function

    return add


async def together(works: Mapping[str, Awaitable[Any]], at_once: int = 4) -> dict[str, Any]:
    """Results by name of things done side by side, which saves the time that their limits take."""
    slots = asyncio.Semaphore(at_once)

    async def one(work: Awaitable[Any]) -> Any:
        async with slots:
            return await work

    return dict(zip(works, await asyncio.gather(*map(one, works.values())), strict=True))


@asynccontextmanager
async def raises(kind: type[BaseException] | tuple[type[BaseException], ...], *texts: str) -> AsyncIterator[None]:
    """The body must raise `kind`, saying one of `texts` if there are any."""
    try:
        yield
    except kind as error:
        if texts and not any(text in str(error) for text in texts):
            raise AssertionError(f"{error!r} does not say any of {texts}") from error
    else:
        raise AssertionError(f"nothing was raised, expected {kind}")


def differences(expected: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where two mappings differ: name -> (expected, got)."""
    return {name: (expected[name], got.get(name)) for name in expected if expected[name] != got.get(name)}


def only(items: Iterable[Any]) -> Any:
    [item] = items
    return item
