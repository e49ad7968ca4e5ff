"""The one protocol behind which every engine sits: a request in, a completion out.

It does not batch, retry or cache; an engine that does so hides it behind `complete`. Conformance tests for
engines live in `tests/engine`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from workflow.completion import Completion, CompletionRequest


@runtime_checkable
class Engine(Protocol):
    """Where completions come from. Safe to call from many tasks of one event loop at once."""

    @property
    def name(self) -> str:
        """Shown to people and recorded in the Trace, for example `openai:qwen3-8b`."""
        ...

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return one completion. Raises `EngineFailed` when it cannot; never returns a made-up reply."""
        ...

    async def close(self) -> None:
        """Release connections, models and threads. Calling it twice is harmless."""
        ...


@dataclass(frozen=True)
class Probe:
    """What a model with the right weights says about some tokens: one natural log-probability, at temperature 1, per
    token after the first. Kernels that keep weights in layouts of their own can only be checked by what they do."""

    token_ids: list[int]
    logprobs: list[float]
    tolerance: float = 0.05
    """Largest absolute difference; the default suits bfloat16, 1e-3 suits float32."""

    def gap(self, seen: list[float]) -> float:
        """Largest absolute difference to `seen`, in nats; not a number where one of them is none."""
        gaps = [abs(one - other) for one, other in zip(self.logprobs, seen, strict=True)]
        return math.nan if any(map(math.isnan, gaps)) else max(gaps)

    def difference(self, seen: list[float]) -> str:
        """What is wrong with `seen`; empty if nothing is."""
        gap = self.gap(seen)
        if gap <= self.tolerance:  # false for NaN
            return ""
        return f"the probe's log-probabilities are off by {gap:.3g}, more than the tolerance {self.tolerance:g}"


@runtime_checkable
class LiveEngine(Engine, Protocol):
    """An engine whose weights can be replaced while it serves, as training does after every step."""

    @property
    def weights_version(self) -> int:
        """Which weights serve now: 0 as loaded, then as the last update said. Completions carry it."""
        ...

    @property
    def probe_gap(self) -> float:
        """`Probe.gap` of the last probe; 0 before one was asked."""
        ...

    async def update_weights(self, version: int, tensors: Mapping[str, Any], probe: Probe | None = None) -> str:
        """Replace all weights as one checked step; returns their fingerprint (`engine.weights.fingerprint`).

        No completion mixes two versions, and none uses a cache of the old one. With a `probe`, the engine must also
        give its tokens the expected log-probabilities. Raises ValueError, with nothing changed, for weights that do
        not fit; `EngineFailed` when they did not go in: the engine then refuses to serve until an update succeeds.
        """
        ...
