"""The one protocol behind which every engine sits: a request in, a completion out.

It does not batch, retry or cache; an engine that does so hides it behind `complete`. Conformance tests for
engines live in `tests/engine`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from workflow.completion import Completion, CompletionRequest


@runtime_checkable
class Engine(Protocol):
    """Where completions come from. Safe to call from many tasks of one event loop at once."""

    name: str
    """Shown to people and recorded in the Trace, for example `openai:qwen3-8b`."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return one completion. Raises `EngineFailed` when it cannot; never returns a made-up reply."""
        ...

    async def close(self) -> None:
        """Release connections, models and threads. Calling it twice is harmless."""
        ...
