"""Serves the requests of one run: asks the engine, counts against the limits, writes the Trace.

One `Session` per run, whatever drives the run. It believes nothing that a program says about itself: counts and
provenance come from what passed through here. It neither advances nodes (`workflow.scheduler`) nor keeps a clock for
the wall limit (the driver does).
"""

from __future__ import annotations

import json
import re
import time
import uuid
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from engine.protocol import Engine
from workflow.completion import Completion, CompletionRequest, Sampling, Usage
from workflow.failures import EngineFailed, Failure, LimitExceeded, LimitKind, MetaAgentError, ProgramFailed
from workflow.limits import Limits
from workflow.requests import (
    AgentCall,
    AgentReply,
    CodeReply,
    CodeRun,
    Delivery,
    Leaf,
    Report,
    ToolCall,
    ToolReply,
    ToolResult,
)
from workflow.text import delivery, last_boxed, solution_block, vote_key
from workflow.trace import (
    AgentTurn,
    Answered,
    CodeRan,
    Delivered,
    Event,
    LimitHit,
    Printed,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    Trace,
)

_ROLES = ("system", "user", "assistant", "tool")

Sink = Callable[[Event], None]
CodeRunner = Callable[[CodeRun], Awaitable[CodeReply]]


class Run(BaseModel):
    """How one run ended. A bad run is data: `failure` says what happened and the trace is kept."""

    answer: str | None = None
    answer_from: str | None = None
    """Agent in whose reply the answer was found; None marks an answer that no agent produced."""
    failure: Failure | None = None
    output: str = ""
    """What the program printed."""
    trace: Trace
    usage: Usage = Usage()
    duration_s: float = 0.0
    jail: str = ""


@dataclass(slots=True)
class _OpenCall:
    path: str
    call: AgentCall
    sampling: Sampling
    started: float


def call_seed(seed: int, key: str) -> int:
    """Seed of one agent call: depends on the run's seed and the call's key, not on the order of arrival."""
    return zlib.crc32(f"{seed}/{key}".encode()) & 0x7FFFFFFF


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


def _whole(text: str) -> re.Pattern[str] | None:
    """Finds `text` as it stands, not as part of a longer word or number: 5 is not in 15, -5 or 5.2."""
    if not text:
        return None
    before = (r"(?<![\w-])(?<!\d[.,])" if text[0].isdigit() else r"(?<!\w)") if text[0].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if text[-1].isalnum() else ""
    return re.compile(before + re.escape(text) + after)


def _as_text(value: Any) -> Any:
    """A JSON value that can be sent: halves of surrogate pairs become `?`. Raises `ProgramFailed` for other values.

    What a program asks must not make an engine fail.
    """
    if isinstance(value, list) and all(type(item) is dict and _is_plain(item) for item in value):
        return value  # what nearly every call is
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ProgramFailed(type(error).__name__, f"an agent call must be plain JSON: {error}") from None
    return value if text.isascii() else json.loads(text.encode(errors="replace"))


def _is_plain(turn: dict[str, Any]) -> bool:
    content = turn.get("content")
    return len(turn) == 2 and type(content) is str and content.isascii() and turn.get("role") in _ROLES


class Session:
    """The host's side of one run. `sink` gets every event as it happens; a killed run keeps what was recorded."""

    def __init__(
        self,
        engine: Engine,
        *,
        question: str = "",
        program: str = "",
        limits: Limits | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        sink: Sink | None = None,
        code_runner: CodeRunner | None = None,
        jail: str = "",
    ) -> None:
        self.engine = engine
        self.limits = limits or Limits()
        self.sampling = sampling or Sampling()
        self.seed = seed
        self.jail = jail
        self.events: list[Event] = []
        self._sink = sink
        self._code_runner = code_runner
        self._start = time.monotonic()
        self._used: dict[LimitKind, int] = {"agent_calls": 0, "tokens": 0, "tool_calls": 0, "output_bytes": 0}
        self._usage: list[Usage] = []
        self._output: list[str] = []
        self._replies: list[tuple[str, str]] = []
        self._calling: dict[str, _OpenCall] = {}
        self._run: Run | None = None
        self._record(
            RunStarted(
                t=self.elapsed,
                run_id=uuid.uuid4().hex[:16],
                question=question,
                program=program,
                engine=engine.name,
                seed=seed,
                limits=self.limits.model_dump(),
                jail=jail,
            )
        )

    @property
    def elapsed(self) -> float:
        """Seconds since the run started."""
        return time.monotonic() - self._start

    def _record(self, event: Event) -> None:
        self.events.append(event)
        if self._sink is not None:
            self._sink(event)

    def _spend(self, kind: LimitKind, amount: int) -> None:
        """Count against a limit; raises `LimitExceeded` once it is passed."""
        self._used[kind] += amount
        limit = getattr(self.limits, kind)
        if self._used[kind] > limit:
            raise LimitExceeded(kind, limit, self._used[kind])

    def admit(self, path: str, request: Leaf) -> None:
        """Count a request before it is served; raises `LimitExceeded`, which ends the run."""
        if isinstance(request, AgentCall):
            self._spend("agent_calls", 1)
        else:
            if isinstance(request, ToolCall):
                self._record(
                    ToolCalled(
                        t=self.elapsed, path=path, agent=request.agent, name=request.name, arguments=request.arguments
                    )
                )
            self._spend("tool_calls", 1)

    async def serve(self, key: str, path: str, request: Leaf) -> Any:
        """Answer one admitted request. Raises `LimitExceeded` or `EngineFailed`, which end the run."""
        if isinstance(request, AgentCall):
            return await self._agent_call(key, path, request)
        if isinstance(request, ToolCall):
            return ToolReply()
        if isinstance(request, CodeRun):
            return await self._code_run(path, request)
        raise TypeError(f"{type(request).__name__} is a report, not a request")

    async def _agent_call(self, key: str, path: str, call: AgentCall) -> AgentReply:
        sampling = self.sampling
        if sampling.seed is None:
            sampling = sampling.model_copy(update={"seed": call_seed(self.seed, key)})
        call.messages, call.tools = _as_text(call.messages), _as_text(call.tools)
        request = CompletionRequest(
            messages=call.messages, tools=call.tools, sampling=sampling, agent=call.agent, key=key
        )
        self._calling[key] = _OpenCall(path, call, sampling, time.monotonic())
        try:
            completion = await self.engine.complete(request)
        except MetaAgentError as failed:
            self._close_call(key, None, str(failed))
            raise
        except Exception as failed:
            # An engine's own defect is infrastructure too: it must not pass for the program's failure.
            unforeseen = EngineFailed(self.engine.name, f"{type(failed).__name__}: {failed}")
            self._close_call(key, None, str(unforeseen))
            raise unforeseen from failed
        except BaseException as failed:
            self._close_call(key, None, type(failed).__name__)
            raise
        self._close_call(key, completion, None)
        self._usage.append(completion.usage)
        self._replies.append((call.agent, completion.text))
        self._spend("tokens", completion.usage.total_tokens)
        return AgentReply(completion.text, completion.finish_reason)

    def _close_call(self, key: str, completion: Completion | None, error: str | None) -> None:
        """Record a call that is over. A call cancelled after the run has finished is on record already."""
        opened = self._calling.pop(key, None)
        if opened is None:
            return
        self._record(
            AgentTurn(
                t=self.elapsed,
                key=key,
                path=opened.path,
                agent=opened.call.agent,
                turn=opened.call.turn,
                messages=opened.call.messages,
                tools=opened.call.tools,
                sampling=opened.sampling,
                completion=completion,
                error=error,
                duration_s=round(time.monotonic() - opened.started, 6),
            )
        )

    async def _code_run(self, path: str, request: CodeRun) -> CodeReply:
        if self._code_runner is None:
            raise ProgramFailed("PermissionError", "this run has no code runner")
        started = time.monotonic()
        reply = await self._code_runner(request)
        self._record(
            CodeRan(
                t=self.elapsed,
                path=path,
                code=request.code,
                stdin=request.stdin,
                exit_status=reply.exit_status,
                stdout=reply.stdout,
                stderr=reply.stderr,
                limit=reply.limit,
                duration_s=round(time.monotonic() - started, 6),
            )
        )
        return reply

    def report(self, path: str, report: Report) -> None:
        """Record what the program says it did; it changes no count."""
        if isinstance(report, Delivery):
            self._record(
                Delivered(t=self.elapsed, path=path, agent=report.agent, text=report.text, source=report.source)
            )
        elif isinstance(report, ToolResult):
            self._record(
                ToolReturned(
                    t=self.elapsed,
                    path=path,
                    agent=report.agent,
                    name=report.name,
                    content=report.content,
                    is_error=report.is_error,
                )
            )

    def printed(self, text: str) -> None:
        self._record(Printed(t=self.elapsed, text=text))
        self._output.append(text)
        self._spend("output_bytes", len(text.encode(errors="replace")))

    def finish(self, answer: str | None = None, failure: Failure | None = None) -> Run:
        """Close the run: record answer or failure, and calls that were still under way. Idempotent."""
        if self._run is not None:
            return self._run
        for key in list(self._calling):
            self._close_call(key, None, "the run ended first")
        source = None
        if failure is not None and failure.kind == "limit_exceeded":
            fields = failure.fields
            self._record(
                LimitHit(t=self.elapsed, limit_kind=fields["limit_kind"], limit=fields["limit"], used=fields["used"])
            )
        if answer is not None:
            source = self._origin(answer)
            self._record(Answered(t=self.elapsed, text=answer, from_agent=source))
        usage = Usage.total(self._usage)
        self._record(RunEnded(t=self.elapsed, failure=failure, usage=usage))
        self._run = Run(
            answer=answer,
            answer_from=source,
            failure=failure,
            output="".join(self._output),
            trace=Trace.model_construct(events=self.events),
            usage=usage,
            duration_s=self.elapsed,
            jail=self.jail,
        )
        return self._run

    def _origin(self, answer: str) -> str | None:
        """The agent in whose reply this answer stands: its whole text, all its lines (nodes drop lines that echo a
        prompt), its box, its solution or its delivery."""
        text = _whole(answer.strip())
        box, block = last_boxed(answer), solution_block(answer)
        handed_on, source = delivery(answer)
        lines = _lines(answer)
        for agent, reply in reversed(self._replies):
            if text and (text.search(reply) or lines <= _lines(reply)):
                return agent
            said = last_boxed(reply)
            if box is not None and said is not None and vote_key(said) == vote_key(box):
                return agent
            if block is not None and block == solution_block(reply):
                return agent
            if source == "delivery" and (handed_on, source) == delivery(reply):
                return agent
        return None
