"""The one protocol behind which every engine sits: a request in, a completion out.

It does not batch, retry or cache; an engine that does so hides it behind `complete`. Conformance tests for
engines live in `tests/engine`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from workflow.completion import Completion, CompletionRequest
from workflow.environment import Observation
from workflow.requests import Act, CodeReply, CodeRun, Observe

if TYPE_CHECKING:
    from engine.run_clock import RunClock

Perform = Callable[[], tuple[Observation, str | None]]
"""Does in a game what was asked: what is seen then, and which agent wrote the action."""
CodeRunner = Callable[[CodeRun], Awaitable[CodeReply]]


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


MOST_ROUNDING, MEAN_ROUNDING = 8.0, 2.0
"""How many times what rounding does (`Probe.rounding`) a log-probability may be off, and all of them in the mean."""

_UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
"""Largest relative error of rounding to a type, u."""
_LEAST = 2e-4
"""Nats that nobody minds."""


Watch = Callable[[str, str], None]
"""Gets the key of a request and each piece of its reply's text as it is written, on whatever thread writes it."""


@runtime_checkable
class KnownEngine(Engine, Protocol):
    """An engine that can say what it is: its name may be that of a place, where something else is put."""

    @property
    def digest(self) -> str:
        """Of all that its replies follow from beside what is asked, such as every byte of a model's folder; "" where it
        cannot tell."""
        ...


@runtime_checkable
class GivesOnce(Engine, Protocol):
    """An engine of recorded replies, each of which is given once."""

    def was_given(self, key: str, agent: str, reply: Completion) -> None:
        """Take note that this reply was given by an earlier process, to a call that is not made again."""
        ...


@runtime_checkable
class WatchedEngine(Engine, Protocol):
    """An engine that can be watched while it writes. Requests in token ids, which have no text, are not shown."""

    watch: Watch | None
    """None unless somebody looks. After a failed attempt a reply may begin anew."""


@runtime_checkable
class SteppingEngine(Engine, Protocol):
    """The engine of one run alone, which may hold all that the run asks for as long as it likes, and see whether the
    program goes on by itself."""

    held: int
    """Requests of the run that it has not answered."""

    def attach(self, settled: Callable[[], Awaitable[None]], code_runner: CodeRunner | None, clock: RunClock) -> None:
        """Called once, before the run's first request. `settled()` returns as soon as the program only waits for
        replies, with all that it asks for having come in; where the run ends first, it may never return. `code_runner`
        runs code on no clock. The engine pauses the run's `clock` while it holds, and charges it what code takes."""
        ...

    async def run_code(self, key: str, request: CodeRun) -> CodeReply:
        """Answer a code run as `complete` does an agent call."""
        ...

    async def play(self, key: str, request: Observe | Act, perform: Perform) -> Observation:
        """Answer what is asked of a game with what `perform` returns, which is called once, at the request's turn."""
        ...


@dataclass(frozen=True)
class Probe:
    """What a model with the right weights says about some tokens: one natural log-probability, at temperature 1, per
    token after the first. Kernels that keep weights in layouts of their own can only be checked by what they do."""

    token_ids: list[int]
    logprobs: list[float]
    rounding: list[float] | None = None
    """What the rounding of two engines does to each of these, in root mean square, as `engine.weights.probe` measures
    it. None: next to nothing, as in float32."""

    def gap(self, seen: list[float]) -> float:
        """Largest absolute difference to `seen`, in nats; not a number where one of them is none."""
        gaps = self._gaps(seen)
        return math.nan if any(map(math.isnan, gaps)) else max(gaps)

    def difference(self, seen: list[float]) -> str:
        """What is wrong with `seen`; empty if nothing is."""
        said = "the probe's log-probabilities are off by"
        rounding = self.rounding or [_LEAST] * len(self.logprobs)
        times = [gap / each for gap, each in zip(self._gaps(seen), rounding, strict=True)]
        if not max(times, key=_nan_first) <= MOST_ROUNDING:  # also for NaN
            at = times.index(max(times, key=_nan_first))
            many = f"{times[at]:.3g} times what rounding does there"
            return f"{said} {self._gaps(seen)[at]:.3g} at token {at + 1}, {many}; {MOST_ROUNDING:g} may be"
        mean = math.fsum(times) / len(times)
        if mean > MEAN_ROUNDING:
            return f"{said} {mean:.3g} times what rounding does, in the mean; {MEAN_ROUNDING:g} may be"
        return ""

    def _gaps(self, seen: list[float]) -> list[float]:
        return [abs(one - other) for one, other in zip(self.logprobs, seen, strict=True)]


def _nan_first(value: float) -> float:
    return math.inf if math.isnan(value) else value


def unit_of_rounding(dtype: str) -> float:
    """The largest relative error u of rounding to a type; in root mean square it is 0.42 u, where magnitudes are spread
    evenly over a factor of two."""
    if dtype not in _UNIT:
        raise ValueError(f"dtype {dtype!r} must be one of {', '.join(_UNIT)}")
    return _UNIT[dtype]


def least_rounding(dtype: str, layers: int, spread: float = 4.0, size: float = 32.0) -> float:
    """How far log-probabilities of the same weights differ at least, in root mean square, in two engines that compute
    in `dtype`. `spread` is the standard deviation of the logits over the vocabulary, `size` the root mean square of the
    largest one and of those that are asked for; the defaults are a language model's.

    Two engines round independently of each other, so the variances of both count.

    - A layer adds to the residual stream twice, and each time the sum is rounded: 4 (0.42 u)^2 = 0.7 u^2 of relative
      variance in two engines. The errors of layers are independent: 0.7 L u^2 after L. A logit is the product of the
      last hidden state with a vector that knows nothing of its error, so the logit's error is to `spread` as that of
      the state is to the state: 0.7 L (u spread)^2.
    - The logits themselves are rounded: 2 (0.42 u size)^2 = 0.35 (u size)^2.

    What is rounded inside of a layer's branches is not in it, and is most of it where attention is sharp: a trained
    model of four layers was off by up to 14 times this. That part is measured (`engine.weights.probe`). In float32 all
    of it is far below 2e-4, which is given.
    """
    return max(_LEAST, unit_of_rounding(dtype) * math.sqrt(0.7 * layers * spread**2 + 0.35 * size**2))


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
