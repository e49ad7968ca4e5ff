"""Serves the requests of one run: asks the engine, counts against the limits, writes the Trace.

One `Session` per run, whatever drives the run. It believes nothing that a program says about itself: counts and
provenance come from what passed through here. It does not advance nodes (`workflow.scheduler`). Its clock stands still
while the engine is asked; ending the run when it strikes is the driver's business, but past the limit nothing more is
admitted here.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from pydantic import BaseModel

from engine.authorship import MAX_READ, Authorship
from engine.guarded import completed
from engine.limit_counter import LimitCounter
from engine.played_game import PlayedGame
from engine.protocol import CodeRunner, Engine, SteppingEngine
from engine.run_clock import RunClock
from workflow.completion import (
    ChatMessage,
    Completion,
    CompletionRequest,
    OwnSampling,
    PreviousTurn,
    Sampling,
    Usage,
)
from workflow.failures import Failure, MetaAgentError, ProgramFailed
from workflow.game import Game
from workflow.limits import Limits
from workflow.place import Place
from workflow.requests import (
    Act,
    AgentCall,
    AgentReply,
    CodeReply,
    CodeRun,
    Delivery,
    Leaf,
    Observe,
    Report,
    ToolCall,
    ToolReply,
    ToolResult,
)
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

_LIMITS, _SAMPLING = Limits(), Sampling()
_ROLES = ("system", "user", "assistant", "tool")
MAX_PROMPT = 1 << 20
"""Characters of all turns of one agent call together, and of its tools."""

Sink = Callable[[Event], None]
Asking = Callable[[AgentTurn], None]
"""Gets the turn of an agent as it begins, without its reply; the sink gets the same turn once it is over."""


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

    @property
    def timed_out(self) -> bool:
        """Whether a clock ended it, or code that it ran: that says as much of the machine as of the program."""
        own = self.failure is not None and self.failure.fields.get("limit_kind") == "wall_s"
        return own or any(isinstance(event, CodeRan) and event.limit == "wall_s" for event in self.trace.events)


def call_seed(seed: int, key: str) -> int:
    """Seed of one agent call: depends on the run's seed and the call's key, not on the order of arrival."""
    return zlib.crc32(f"{seed}/{key}".encode()) & 0x7FFFFFFF


def _as_text(value: Any) -> Any:
    """A JSON value that can be sent: halves of surrogate pairs become `?`. Raises `ProgramFailed` for other values.

    What a program asks must not make an engine fail.
    """
    if not value or (isinstance(value, list) and all(type(item) is dict and _is_plain(item) for item in value)):
        return value  # what nearly every call is
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProgramFailed(type(error).__name__, f"a call must be plain JSON: {error}") from None
    return value if text.isascii() else json.loads(text.encode(errors="replace"))


def _is_plain(turn: dict[str, Any]) -> bool:
    content = turn.get("content")
    return len(turn) == 2 and type(content) is str and content.isascii() and turn.get("role") in _ROLES


def _as_previous(turn: AgentTurn | None) -> PreviousTurn | None:
    """For the engine; None unless it gave the token ids of that turn itself."""
    done = turn.completion if turn is not None else None
    if turn is None or done is None or done.prompt_token_ids is None or done.token_ids is None:
        return None
    return PreviousTurn(messages=len(turn.messages), prompt_token_ids=done.prompt_token_ids, token_ids=done.token_ids)


def _why(failed: BaseException) -> str:
    """In a Trace, why no reply came."""
    if isinstance(failed, asyncio.CancelledError):
        return "it was stopped before its reply was there"
    return str(failed) if isinstance(failed, MetaAgentError) else type(failed).__name__


def _overruled(own: OwnSampling, sampling: Sampling) -> OwnSampling | None:
    """What an agent asked for and does not get."""
    refused = {name: value for name, value in own.items() if getattr(sampling, name) != value}
    return cast(OwnSampling, refused) if refused else None


def _extends(earlier: AgentTurn, completion: Completion) -> bool:
    """Whether the prompt begins with exactly what the earlier turn was asked and generated."""
    previous = _as_previous(earlier)
    if previous is None or completion.prompt_token_ids is None:
        return False
    ids = [*previous.prompt_token_ids, *previous.token_ids]
    return completion.prompt_token_ids[: len(ids)] == ids


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
        asking: Asking | None = None,
        code_runner: CodeRunner | None = None,
        game: Game | None = None,
        jail: str = "",
        own_sampling: bool = False,
    ) -> None:
        """`own_sampling`: agents are sampled as their nodes ask, not as the run says."""
        self.engine = engine
        self._stepping = engine if isinstance(engine, SteppingEngine) else None
        self.limits = limits or _LIMITS
        self.sampling = sampling or _SAMPLING
        self._own_sampling = own_sampling
        self.seed = seed
        self.jail = jail
        self.events: list[Event] = []
        self._sink, self._asking = sink, asking
        self._code_runner = code_runner
        self.clock = RunClock(self.limits, engine.name)
        self._counter = LimitCounter(self.limits)
        self._output: list[str] = []
        self._calling: dict[str, AgentTurn] = {}
        self._run: Run | None = None
        self._authorship = Authorship(question, plays=game is not None)
        self._playing = PlayedGame(game, self._authorship, self._stepping, self._record)
        self._record(
            RunStarted(
                run_id=secrets.token_hex(8),
                question=question,
                program=program,
                engine=engine.name,
                seed=seed,
                limits=self.limits,
                sampling=self.sampling,
                own_sampling=own_sampling,
                jail=jail,
            )
        )

    @property
    def elapsed(self) -> float:
        """Seconds since the run started."""
        return self.clock.elapsed

    def _record(self, event: Event) -> None:
        event.t = self.elapsed
        self.events.append(event)
        if self._sink is not None:
            self._sink(event)

    def driven(self, settled: Callable[[SteppingEngine], Awaitable[None]]) -> None:
        """Told before the first request by who drives the run how to wait until it has settled: see
        `SteppingEngine.attach`."""
        if (engine := self._stepping) is not None:
            engine.attach(lambda: settled(engine), self._code_runner, self.clock)

    def admit(self, path: str, request: Leaf) -> None:
        """Count a request before it is served; raises `LimitExceeded`, which ends the run."""
        self.clock.check()
        if isinstance(request, AgentCall):
            self._counter.spend("agent_calls", 1)
            size = sum(len(str(turn.get("content", ""))) for turn in request.messages)
            size += len(str(request.tools)) if request.tools else 0
            if size > MAX_PROMPT:
                reason = f"the prompt of {request.agent!r} has {size:,} characters; the limit is {MAX_PROMPT:,}"
                raise ProgramFailed("PromptTooLong", f"{reason}; hand on deliveries, not whole transcripts")
        else:
            if isinstance(request, ToolCall):
                arguments = _as_text(request.arguments)
                self._record(ToolCalled(path=path, agent=request.agent, name=request.name, arguments=arguments))
            self._counter.spend("tool_calls", 1)

    def serve(self, key: str, path: str, request: Leaf, place: Place = ()) -> Coroutine[Any, Any, Any]:
        """Answer one admitted request. Raises `LimitExceeded` or `EngineFailed`, which end the run."""
        if isinstance(request, AgentCall):
            return self._agent_call(key, path, request, place)
        if isinstance(request, ToolCall):
            return self._tool_call()
        if isinstance(request, CodeRun):
            return self._code_run(key, path, request, place)
        if isinstance(request, (Observe, Act)):
            return self._playing.serve(key, path, request)
        raise TypeError(f"{type(request).__name__} is a report, not a request")

    async def _tool_call(self) -> ToolReply:
        return ToolReply()

    async def _agent_call(self, key: str, path: str, call: AgentCall, place: Place) -> AgentReply:
        sampling = self._sampling_of(call)
        if sampling.seed is None:
            sampling = sampling.with_seed(call_seed(self.seed, key))
        call.messages, call.tools = _as_text(call.messages), _as_text(call.tools)
        earlier = self._earlier_turn(path, call) if call.turn else None
        request = CompletionRequest(
            messages=call.messages,
            tools=call.tools,
            previous=_as_previous(earlier),
            sampling=sampling,
            agent=call.agent,
            key=key,
        )
        self._calling[key] = AgentTurn(
            t=self.elapsed,  # of its start, until it is closed
            key=key,
            path=path,
            agent=call.agent,
            turn=call.turn,
            # The request's own copies: a node may go on to change the lists that it asked with.
            messages=request.messages or [],
            tools=request.tools,
            sampling=sampling,
            overruled=_overruled(call.sampling, sampling) if call.sampling else None,
            place=place,
        )
        if self._asking is not None:
            self._asking(self._calling[key])
        try:
            completion = await self._asked(request)
        except BaseException as failed:
            self._close_call(key, None, _why(failed))
            raise
        if earlier is not None and _extends(earlier, completion):
            self._calling[key].continues = earlier.key
        self._close_call(key, completion, None)
        self._counter.spend("tokens", completion.usage.total_tokens)
        return AgentReply(completion.text, completion.finish_reason)

    async def _asked(self, request: CompletionRequest) -> Completion:
        if self._stepping is not None:  # it says itself when the clock stands still
            return await completed(self._stepping, request)
        with self.clock.waiting():
            return await completed(self.engine, request)

    def _sampling_of(self, call: AgentCall) -> Sampling:
        return self.sampling.with_own(call.sampling) if self._own_sampling and call.sampling else self.sampling

    def _earlier_turn(self, path: str, call: AgentCall) -> AgentTurn | None:
        """The turn that this one continues by its messages; programs are not believed when they only say so."""
        turns = (event for event in reversed(self.events) if isinstance(event, AgentTurn) and event.path == path)
        turn = next(turns, None)
        if turn is None or turn.completion is None or turn.agent != call.agent or turn.tools != call.tools:
            return None
        said = ChatMessage(role="assistant", content=turn.completion.text)
        return turn if call.messages[: len(turn.messages) + 1] == [*turn.messages, said] else None

    def _close_call(self, key: str, completion: Completion | None, error: str | None) -> None:
        """Record a call that is over. A call cancelled after the run has finished is on record already."""
        turn = self._calling.pop(key, None)
        if turn is None:
            return
        turn.duration_s = round(self.elapsed - turn.t, 6)
        turn.completion, turn.error = completion, error
        if completion is not None:
            self._authorship.heard(turn.agent, turn.messages, completion.text, turn.tools, turn.place)
        self._record(turn)

    async def _code_run(self, key: str, path: str, request: CodeRun, place: Place) -> CodeReply:
        started = time.monotonic()
        if self._code_runner is None:
            raise ProgramFailed("PermissionError", "this run has no code runner")
        if self._stepping is None:
            with self.clock.working():
                reply = await self._code_runner(request)
        else:
            reply = await self._stepping.run_code(key, request)
        self._authorship.ran(request.code, reply.stdout, request.stdin, place)
        self._record(
            CodeRan(
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
            self._record(Delivered(path=path, agent=report.agent, text=report.text, source=report.source))
        elif isinstance(report, ToolResult):
            self._record(
                ToolReturned(
                    path=path,
                    agent=report.agent,
                    name=report.name,
                    content=report.content,
                    is_error=report.is_error,
                )
            )

    def printed(self, text: str) -> None:
        self._record(Printed(text=text))
        self._output.append(text)
        self._counter.spend("output_bytes", len(text.encode(errors="replace")))

    def finish(self, answer: str | None = None, failure: Failure | None = None) -> Run:
        """Close the run: record answer or failure, and calls that were still under way. Idempotent."""
        if self._run is not None:
            return self._run
        for key in list(self._calling):
            self._close_call(key, None, "the run ended first")
        if answer is not None and len(answer) > MAX_READ:
            reason = (
                f"the answer has {len(answer):,} characters; the limit is {MAX_READ:,}; give the final answer alone"
            )
            answer, failure = None, failure or ProgramFailed("AnswerTooLong", reason).record()
        turns = [event for event in self.events if isinstance(event, AgentTurn)]
        source = None
        if failure is not None and failure.kind == "limit_exceeded":
            fields = failure.fields
            self._record(LimitHit(limit_kind=fields["limit_kind"], limit=fields["limit"], used=fields["used"]))
        if answer is not None:
            source = self._authorship.of(answer)
            self._record(Answered(text=answer, from_agent=source))
        usage = Usage.total(turn.completion.usage for turn in turns if turn.completion is not None)
        self._record(RunEnded(failure=failure, usage=usage))
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
