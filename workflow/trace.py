"""The Trace: the one typed, append-only record of a run (docs/architecture.md, decision 5).

Training samples, the viewer, metrics and replay all derive from it. This module defines the events and their
JSON-lines form; it writes no files. `t` is seconds since the run started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from workflow.completion import ChatMessage, Completion, Sampling, Usage
from workflow.failures import Failure, LimitKind


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True, ser_json_inf_nan="strings")

    t: float = 0.0


class RunStarted(_Event):
    type: Literal["run_started"] = "run_started"
    run_id: str
    question: str
    program: str = ""
    """Source text of the program; empty for a workflow that runs in the host's own process."""
    engine: str
    seed: int = 0
    limits: dict[str, Any] = {}
    jail: str = ""
    """Backend and mode that ran the program, such as `process/j`; empty in the host's own process."""


class AgentTurn(_Event):
    """One agent call, written when it ends. `completion` is None when it did not come (`error` says why)."""

    type: Literal["agent_call"] = "agent_call"
    key: str
    """Unique in the run and independent of the order of arrival: node path, `#`, occurrence."""
    path: str
    agent: str
    turn: int = 0
    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = []
    sampling: Sampling = Sampling()
    completion: Completion | None = None
    error: str | None = None
    duration_s: float = 0.0


class ToolCalled(_Event):
    type: Literal["tool_call"] = "tool_call"
    path: str
    agent: str
    name: str
    arguments: dict[str, Any] = {}


class ToolReturned(_Event):
    """What the program says a tool returned (for a program's own tools, only the program knows)."""

    type: Literal["tool_result"] = "tool_result"
    path: str
    agent: str
    name: str
    content: str
    is_error: bool = False


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


class Delivered(_Event):
    type: Literal["delivery"] = "delivery"
    path: str
    agent: str
    text: str
    source: Literal["delivery", "final_answer", "solution", "excerpt"]


class Printed(_Event):
    type: Literal["print"] = "print"
    text: str


class LimitHit(_Event):
    type: Literal["limit"] = "limit"
    limit_kind: LimitKind
    limit: float
    used: float


class Answered(_Event):
    """The final answer. `from_agent` names the agent in whose reply it was found, None if in none."""

    type: Literal["answer"] = "answer"
    text: str
    from_agent: str | None = None


class RunEnded(_Event):
    """Always the last event, whatever happened."""

    type: Literal["run_ended"] = "run_ended"
    failure: Failure | None = None
    usage: Usage = Usage()


Event = Annotated[
    RunStarted | AgentTurn | ToolCalled | ToolReturned | CodeRan | Delivered | Printed | LimitHit | Answered | RunEnded,
    Field(discriminator="type"),
]

_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def event_to_json(event: Event) -> str:
    """One line of JSON, without the newline. Halves of surrogate pairs, which are no text, become `?`."""
    try:
        return event.model_dump_json(exclude_none=True)
    except PydanticSerializationError:
        text = json.dumps(event.model_dump(exclude_none=True), ensure_ascii=False, default=str)
        return text.encode(errors="replace").decode()


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
                first = error.errors()[0]
                raise ValueError(f"trace line {number}: {first['msg']} at {first['loc']}") from error
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
    def answer(self) -> Answered | None:
        return next((event for event in reversed(self.events) if isinstance(event, Answered)), None)

    @property
    def agent_turns(self) -> list[AgentTurn]:
        return [event for event in self.events if isinstance(event, AgentTurn)]

    @property
    def usage(self) -> Usage:
        done = [turn.completion.usage for turn in self.agent_turns if turn.completion]
        return Usage.total(done)
