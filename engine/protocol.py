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
    """Largest absolute difference that is let pass. `probe_tolerance` says what suits a model."""
    mean_tolerance: float = math.inf
    """Largest mean of the absolute differences that is let pass."""

    def gap(self, seen: list[float]) -> float:
        """Largest absolute difference to `seen`, in nats; not a number where one of them is none."""
        gaps = [abs(one - other) for one, other in zip(self.logprobs, seen, strict=True)]
        return math.nan if any(map(math.isnan, gaps)) else max(gaps)

    def difference(self, seen: list[float]) -> str:
        """What is wrong with `seen`; empty if nothing is."""
        said = "the probe's log-probabilities are off by"
        gap = self.gap(seen)
        if not gap <= self.tolerance:  # also for NaN
            return f"{said} {gap:.3g}, more than the tolerance {self.tolerance:g}"
        mean = math.fsum(abs(one - other) for one, other in zip(self.logprobs, seen, strict=True)) / len(seen)
        if mean > self.mean_tolerance:
            return f"{said} {mean:.3g} in the mean, more than the tolerance {self.mean_tolerance:g}"
        return ""


_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
"""Largest relative error of rounding to a type, u."""
_LEAST_TOLERANCE = 1e-3


def probe_tolerance(dtype: str, layers: int, spread: float = 4.0, size: float = 32.0) -> tuple[float, float]:
    """How far log-probabilities of the same weights may differ in two engines that compute in `dtype`: `tolerance` and
    `mean_tolerance` of a `Probe`. `spread` is the standard deviation of the logits over the vocabulary, `size` the
    root mean square of the largest one and of those that are asked for; the defaults are a language model's.

    Rounding has a relative error of at most u, and of 0.42 u in root mean square where magnitudes are spread evenly
    over a factor of two. Two engines round independently of each other, so the variances of both count.

    - A layer adds to the residual stream twice, and each time the sum is rounded: 4 (0.42 u)^2 = 0.7 u^2 of relative
      variance in two engines. (What is rounded inside of its branches is small beside that.) The errors of layers are
      independent: 0.7 L u^2 after L. A logit is the product of the last hidden state with a vector that knows nothing
      of its error, so the logit's error is to `spread` as that of the state is to the state: 0.7 L (u spread)^2.
    - The logits themselves are rounded: 2 (0.42 u size)^2 = 0.35 (u size)^2.

    The root of the sum is s, the difference to expect in root mean square. Measured: on four pieces of ordinary text
    SmolLM2-135M (30 layers), computed with another attention, another matrix product, token by token, or with float32
    inside or in the residual stream, is off by 0.27 to 1.4 s in root mean square, 0.14 to 0.73 s in the mean, and 6.6 s
    at most; models with the shapes of Qwen3, 28 and 36 layers deep, with random weights of deviation 0.02 to 0.08,
    by 0.6 to 2.3 s, 0.5 to 1.8 s, and 5.3 s. So the mean may be 3 s, and a single difference 10 s. In float32 both are
    far below 1e-3, which is given.

    That lets pass what changes a model no more than rounding does: weights of one step ago at a rate of 5e-6, one layer
    that is old by a hundred steps, single elements, rows of tokens that the probe does not have, a layer's queries
    where attention does little. To find those is the fingerprint's business (`engine.weights.fingerprint`). What a
    probe finds is tensors that are missing, layers and tokens in each other's place, and weights that are old by a
    hundred steps, or one layer by a thousand. Its tokens must be ordinary text (`engine.pretrained.probe_ids`): on ids
    0 to 31, which it never saw in a row, the right weights of SmolLM2 are off by up to 16 s in the mean.
    """
    if dtype not in _ROUNDING:
        raise ValueError(f"dtype {dtype!r} must be one of {', '.join(_ROUNDING)}")
    expected = _ROUNDING[dtype] * math.sqrt(0.7 * layers * spread**2 + 0.35 * size**2)
    return max(_LEAST_TOLERANCE, 10 * expected), max(_LEAST_TOLERANCE, 3 * expected)


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
