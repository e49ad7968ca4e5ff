"""The Trace: the one typed, append-only record of a run (docs/architecture.md, decision 5).

Training samples, the viewer, metrics and replay all derive from it. This module defines the events and their
JSON-lines form; it writes no files. `t` is seconds since the run started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from workflow.completion import ChatMessage, Completion, OwnSampling, Sampling, Usage
from workflow.failures import Failure, LimitKind
from workflow.limits import Limits
from workflow.place import Place


@dataclass(slots=True, kw_only=True)
class _Event:
    # Checked when it is read back; a session writes thousands a second, so writing one checks nothing.
    __pydantic_config__ = ConfigDict(extra="forbid")

    t: float = 0.0


@dataclass(slots=True, kw_only=True)
class RunStarted(_Event):
    type: Literal["run_started"] = "run_started"
    run_id: str
    question: str
    program: str = ""
    """Source text of the program; empty for a workflow that runs in the host's own process."""
    engine: str
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling | None = None
    """Of the run; an agent's own may hold instead. None in traces from before it was kept, and so is `own_sampling`."""
    own_sampling: bool | None = None
    """Whether agents were sampled as their nodes ask."""
    jail: str = ""
    """Backend and mode that ran the program, such as `process/j`; empty in the host's own process."""


@dataclass(slots=True, kw_only=True)
class AgentTurn(_Event):
    """One agent call, written when it ends. `completion` is None when it did not come (`error` says why)."""

    type: Literal["agent_call"] = "agent_call"
    key: str
    """Unique in the run and independent of the order of arrival: node path, `#`, occurrence."""
    path: str
    agent: str
    turn: int = 0
    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = field(default_factory=list)
    sampling: Sampling = field(default_factory=Sampling)
    overruled: OwnSampling | None = None
    """What the agent's own node asked for and did not get: the sampling of the run held."""
    completion: Completion | None = None
    continues: str | None = None
    """Key of the turn whose prompt and completion ids this turn's prompt begins with, token for token. None begins a
    new training sample (decision 6): a first turn, an engine without token ids, or a template that cannot extend."""
    error: str | None = None
    written: str = ""
    """Where it did not come, what the engine had written of it by then, as far as somebody watched."""
    duration_s: float = 0.0
    place: Place = ()
    """Independent of the order of arrival, too. Empty in traces from before it was kept."""


@dataclass(slots=True, kw_only=True)
class ToolCalled(_Event):
    type: Literal["tool_call"] = "tool_call"
    path: str
    agent: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ToolReturned(_Event):
    """What the program says a tool returned (for a program's own tools, only the program knows)."""

    type: Literal["tool_result"] = "tool_result"
    path: str
    agent: str
    name: str
    content: str
    is_error: bool = False


@dataclass(slots=True, kw_only=True)
class CodeRan(_Event):
    type: Literal["code_run"] = "code_run"
    path: str = ""
    code: str
    stdin: str = ""
    exit_status: int
    stdout: str
    stderr: str
    limit: str | None = None
    duration_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class EnvironmentStepped(_Event):
    """An action in the game that the run plays, or a proposal of one. What is not here follows from the game's rules
    and these texts."""

    type: Literal["environment_step"] = "environment_step"
    path: str = ""
    agent: str
    """As whom the program acted."""
    text: str
    commit: bool
    """False for a proposal, of which nothing stayed."""
    from_agent: str | None = None
    """Who wrote this action, or the code that printed it; None where no agent did."""
    action: list[Any] | None = None
    """As it was read; None where the text could not be."""
    legal: bool
    wrong: str = ""
    """Why it could not be read, or what ended it."""
    before: str
    after: str
    """Digests of the positions."""
    done: bool
    solved: bool


@dataclass(slots=True, kw_only=True)
class Delivered(_Event):
    type: Literal["delivery"] = "delivery"
    path: str
    agent: str
    text: str
    source: Literal["delivery", "final_answer", "solution", "excerpt"]


@dataclass(slots=True, kw_only=True)
class Printed(_Event):
    type: Literal["print"] = "print"
    text: str


@dataclass(slots=True, kw_only=True)
class LimitHit(_Event):
    type: Literal["limit"] = "limit"
    limit_kind: LimitKind
    limit: float
    used: float


@dataclass(slots=True, kw_only=True)
class Answered(_Event):
    """The final answer. `from_agent` names the agent in whose reply it was found, None if in none."""

    type: Literal["answer"] = "answer"
    text: str
    from_agent: str | None = None


@dataclass(slots=True, kw_only=True)
class RunEnded(_Event):
    """Always the last event of the run itself, whatever happened."""

    type: Literal["run_ended"] = "run_ended"
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


MAX_REWARD = 1e100
"""Whose square is still a number: credit takes variances."""


@dataclass(slots=True, kw_only=True)
class RewardTerm:
    """One addend of a reward, which is the sum of value times weight."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    value: float
    weight: float
    reason: str


@dataclass(slots=True, kw_only=True)
class Rewarded(_Event):
    """What training gave for the run, and why; it comes after the run's end, where a run was rewarded at all."""

    type: Literal["reward"] = "reward"
    total: float
    terms: list[RewardTerm]
    timed_out: bool = False
    """A clock ended what was graded, so that it is no part of any update."""

    def __post_init__(self) -> None:
        """Raises ValueError for what is no number, or beyond `MAX_REWARD`."""
        for name, value in [
            ("total", self.total),
            *((repr(term.name), term.value * term.weight) for term in self.terms),
        ]:
            if not abs(value) <= MAX_REWARD:
                raise ValueError(f"a reward whose {name} is {value} teaches nothing. Fix: the reward function")


@dataclass(slots=True, kw_only=True)
class CandidateDrawn(_Event):
    """One of the replies that were drawn for an agent's call while a policy learned (`search`), and what it earned. The
    run itself went on with the chosen one, which is the call's `AgentTurn`, too."""

    type: Literal["candidate"] = "candidate"
    key: str
    """Of the call."""
    agent: str
    number: int
    chosen: bool
    completion: Completion
    reward: float
    terms: list[RewardTerm]
    timed_out: bool = False
    """As of `Rewarded`."""


@dataclass(slots=True, kw_only=True)
class TurnRewarded(_Event):
    """What the only reply to an agent's call earned by itself while a policy learned."""

    type: Literal["turn_rewarded"] = "turn_rewarded"
    key: str
    """Of the call."""
    agent: str
    reward: float
    terms: list[RewardTerm]
    timed_out: bool = False
    """As of `Rewarded`."""


@dataclass(slots=True, kw_only=True)
class Valued(_Event):
    """What a search thought of the reply to an agent's call (`search`); the run is the path that it chose."""

    type: Literal["valued"] = "valued"
    key: str
    """Of the call."""
    agent: str
    value: float | None = None
    """Of the state after the reply, as what guided the search said; None where nothing did."""
    guide: Literal["V", "psi"] = "V"
    """What `value` is: of a model of values or the grader, or the reply's mean log-probability."""
    q: float | None = None
    """Q of the reply, of tree search alone."""
    visits: int = 0
    """N."""
    siblings: int = 1
    """Replies drawn at this call, this one included."""

    @property
    def said(self) -> str:
        """In a few words."""
        parts = [] if self.value is None else [f"{self.guide} {self.value:.3g}"]
        parts += [] if self.q is None else [f"Q {self.q:.3g} in {self.visits:,} visit{'s' * (self.visits != 1)}"]
        return ", ".join([*parts, f"one of {self.siblings:,}" if self.siblings > 1 else "the only one drawn"])


Event = Annotated[
    RunStarted
    | AgentTurn
    | ToolCalled
    | ToolReturned
    | CodeRan
    | EnvironmentStepped
    | Delivered
    | Printed
    | LimitHit
    | Answered
    | RunEnded
    | CandidateDrawn
    | TurnRewarded
    | Valued
    | Rewarded,
    Field(discriminator="type"),
]

_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def event_to_json(event: Event) -> str:
    """One line of JSON, without the newline. Halves of surrogate pairs, which are no text, become `?`."""
    try:
        return to_json(event, exclude_none=True, inf_nan_mode="strings").decode()
    except PydanticSerializationError:
        return json.dumps(event_to_dict(event), ensure_ascii=False).encode(errors="replace").decode()


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as plain JSON values, without what is None."""
    return to_jsonable_python(event, exclude_none=True, inf_nan_mode="strings", fallback=str)


def _wrong(error: ValidationError) -> str:
    """What is wrong with a line that is no event, in words."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return f"it is no JSON ({first['msg'].removeprefix('Invalid JSON: ')})"
    if first["type"] == "union_tag_not_found":
        return "it is no event, as it has no `type`"
    if first["type"] == "union_tag_invalid":
        return f"it is no event, as there is no type {str(first.get('ctx', {}).get('tag'))[:80]!r}"
    if not first["loc"]:
        return "it is no event, as it is no JSON object"
    kind, *place = (str(part)[:80] for part in first["loc"])
    return f"{first['msg']} at {'.'.join((kind, *place))}"


class Trace(BaseModel):
    """All events of one run, in the order in which they were recorded."""

    events: list[Event] = []

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Trace:
        """Parse JSON lines. A torn last line, as a killed writer leaves, is dropped; any other is an error."""
        numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        events: list[Event] = []
        for position, (number, line) in enumerate(numbered):
            try:
                events.append(_EVENT.validate_json(line))
            except ValidationError as error:
                torn = position == len(numbered) - 1 and not line.endswith("\n")
                if torn:
                    break
                raise ValueError(f"trace line {number}: {_wrong(error)}") from error
        return cls(events=events)

    def lines(self) -> Iterator[str]:
        return (event_to_json(event) + "\n" for event in self.events)

    @property
    def started(self) -> RunStarted | None:
        return next((event for event in self.events if isinstance(event, RunStarted)), None)

    @property
    def ended(self) -> RunEnded | None:
        return next((event for event in self.events if isinstance(event, RunEnded)), None)

    @property
    def reward(self) -> Rewarded | None:
        return next((event for event in reversed(self.events) if isinstance(event, Rewarded)), None)

    @property
    def answer(self) -> Answered | None:
        return next((event for event in reversed(self.events) if isinstance(event, Answered)), None)

    @property
    def agent_turns(self) -> list[AgentTurn]:
        """In the order of a run whose branches follow one another; `events` are in the order in which they ended."""
        return sorted((event for event in self.events if isinstance(event, AgentTurn)), key=lambda turn: turn.place)

    @property
    def usage(self) -> Usage:
        done = [turn.completion.usage for turn in self.agent_turns if turn.completion]
        return Usage.total(done)
