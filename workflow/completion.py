"""What goes into an engine and what comes out: messages or token ids in, a completion out.

These types are shared by nodes, engines and the Trace. No engine lives here and nothing here talks to one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

_CONFIG = ConfigDict(extra="forbid", defer_build=True, ser_json_inf_nan="strings")


class ChatMessage(TypedDict):
    """One chat turn. A `tool` turn carries the text that a tool returned to the agent."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


FinishReason = Literal["stop", "length", "abort"]

Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
MaxTokens = Annotated[int, Field(ge=1, le=1_000_000)]


class OwnSampling(TypedDict, total=False):
    """What an agent's node asks for itself: see `AgentNode`. Bounds are those that servers have."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    temperature: Temperature
    top_p: TopP
    max_tokens: MaxTokens


@cache
def _own_sampling() -> TypeAdapter[OwnSampling]:
    return TypeAdapter(OwnSampling)


def own_sampling(**values: float | None) -> OwnSampling:
    """Those of the values that are not None. Raises pydantic's `ValidationError` for one that is out of bounds."""
    given = {name: value for name, value in values.items() if value is not None}
    return _own_sampling().validate_python(given) if given else {}


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Sampling:
    """How tokens are drawn. Recorded with every completion, since importance ratios depend on it.

    The default temperature is 1.0, the policy's own distribution: executions of one design must differ for
    group-relative advantages to carry signal.
    """

    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0 keeps every token."""
    max_tokens: int = Field(default=8192, ge=1)
    """Completion tokens; 8192 is the MetaAgent-X setting (section 4.1)."""
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False
    """Ask for one behaviour log-probability (natural log) per completion token."""

    def with_own(self, own: OwnSampling) -> Sampling:
        """The same with an agent's own values. Its `max_tokens` may be smaller, not larger."""
        if "max_tokens" in own:
            own = {**own, "max_tokens": min(own["max_tokens"], self.max_tokens)}
        return replace(self, **own)

    def with_seed(self, seed: int) -> Sampling:
        """The same with another seed. Every agent call takes one, so what has been validated is not validated again."""
        copy = object.__new__(Sampling)
        for name in Sampling.__slots__:
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "seed", seed)
        return copy


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Usage:
    """Tokens counted by the engine; `cost_usd` only where a price is configured."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prefix_tokens: int | None = None
    """Of the prompt tokens, those that the server had computed before, where it says so."""
    cost_usd: float | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def total(cls, usages: Iterable[Usage]) -> Usage:
        """The sum; its cost is known if any part's is, and so are its prefix tokens."""
        parts = list(usages)
        costs = [part.cost_usd for part in parts if part.cost_usd is not None]
        prefixes = [part.prefix_tokens for part in parts if part.prefix_tokens is not None]
        return cls(
            prompt_tokens=sum(part.prompt_tokens for part in parts),
            completion_tokens=sum(part.completion_tokens for part in parts),
            prefix_tokens=sum(prefixes) if prefixes else None,
            cost_usd=_sum(costs) if costs else None,
        )


def _sum(costs: list[float]) -> float:
    """Whatever the order; infinite where a trace that somebody made up has costs beyond all floats."""
    try:
        return math.fsum(costs)
    except OverflowError:
        return math.inf


@dataclass(slots=True, kw_only=True, config=_CONFIG)
class PreviousTurn:
    """The turn of the same agent that a request follows: its prompt was the first `messages` messages, its reply the
    next one. Engines that own their tokens extend exactly these ids."""

    messages: int
    prompt_token_ids: list[int]
    token_ids: list[int]


@dataclass(slots=True, kw_only=True, config=_CONFIG)
class CompletionRequest:
    """One question to an engine: `messages` or `token_ids`, never both.

    `agent` and `key` say who asks: `key` is unique within a run and does not depend on the order in which
    concurrent calls happen to be made (see `workflow.scheduler`). Replay and per-call seeds use it; the
    model never sees it.
    """

    messages: list[ChatMessage] | None = None
    token_ids: list[int] | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list)
    """Tool schemas, as `ToolRegistry.get_tool_schemas()` gives them."""
    previous: PreviousTurn | None = None
    """Only with `messages`; engines that get no token ids from their model do without."""
    sampling: Sampling = Sampling()
    agent: str = ""
    key: str = ""

    @model_validator(mode="after")
    def _exactly_one_prompt(self) -> CompletionRequest:
        if (self.messages is None) == (self.token_ids is None):
            raise ValueError("give either messages or token_ids")
        if self.previous is not None and (self.messages is None or len(self.messages) <= self.previous.messages):
            raise ValueError("previous goes with messages that hold its reply")
        return self


@dataclass(slots=True, kw_only=True, config=_CONFIG)
class Completion:
    """What an engine returned. Lists of ids and log-probabilities are None where the engine has none.

    `token_ids` and `logprobs` have one entry per completion token; `logprobs` are natural logs under the
    sampling actually used.
    """

    text: str
    """What the agent said; where the engine can tell, without its reasoning."""
    reasoning: str | None = None
    finish_reason: FinishReason = "stop"
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    prompt_token_ids: list[int] | None = None
    usage: Usage = Usage()
    model: str = ""
    weights_version: int | None = None
    cached: bool | None = None
    """Whether the reply came from a cache of earlier replies, which costs nothing; None without such a cache."""
