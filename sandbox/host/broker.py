"""Serves one jailed program: reads its requests off the channel, answers them, believes nothing.

Every frame is validated, traffic is capped, and the limits are kept by the `Session` on this side. The broker ends
with an outcome (an answer, a failure, a description); how the jailed process itself ended is the backend's business.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, model_validator

from engine.protocol import SteppingEngine
from engine.session import Session
from sandbox.frames import FrameError, encode, read_frame
from sandbox.host.spawner import REAP_TIMEOUT_S
from workflow.environment import Observation
from workflow.failures import Failure, Finding, LimitExceeded, ProgramFailed, ProgramRejected
from workflow.graph import GraphNode
from workflow.labels import HIDDEN, label_problem
from workflow.place import MAX_PLACE
from workflow.requests import (
    Act,
    AgentCall,
    AgentReply,
    CodeReply,
    CodeRun,
    Delivery,
    Observe,
    ToolCall,
    ToolReply,
    ToolResult,
)

MAX_TRAFFIC_MB = 64
"""What a program's frames may weigh in all, in MiB (see `frames.weigh`); prints have the tighter `output_bytes`."""
MORE_S = 2.0
"""Seconds that a description may still grow after its first part."""
MAX_ERRORS = 100
"""A frame with more errors is refused without saying where."""


def _one_line(name: str) -> str:
    if not name.isprintable() and HIDDEN.search(name):
        raise ValueError("a name holds characters that cannot be seen")
    return name


_Path = Annotated[str, Field(max_length=4096), AfterValidator(_one_line)]
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]


class _Requested(BaseModel):
    key: _Path = ""
    path: _Path = ""
    place: Annotated[tuple[_Count, ...], Field(max_length=MAX_PLACE)] = ()

    @model_validator(mode="after")
    def _has_a_name(self) -> _Requested:
        agent = getattr(getattr(self, "request", None), "agent", "")
        if problem := label_problem(agent):
            raise ValueError(f"an agent's name {problem}")
        return self


class _AgentCall(_Requested):
    op: Literal["AgentCall"]
    request: AgentCall


class _ToolCall(_Requested):
    op: Literal["ToolCall"]
    request: ToolCall


class _CodeRun(_Requested):
    op: Literal["CodeRun"]
    request: CodeRun


class _Observe(_Requested):
    op: Literal["Observe"]
    request: Observe


class _Act(_Requested):
    op: Literal["Act"]
    request: Act


class _Delivery(_Requested):
    op: Literal["Delivery"]
    request: Delivery


class _ToolResult(_Requested):
    op: Literal["ToolResult"]
    request: ToolResult


class _Print(BaseModel):
    op: Literal["print"]
    text: str


class _Answer(BaseModel):
    op: Literal["answer"]
    text: str


class _Failed(BaseModel):
    op: Literal["failed"]
    error_type: Annotated[str, Field(max_length=200)]
    message: Annotated[str, Field(max_length=8192)]
    line: int | None = None


class _Rejected(BaseModel):
    op: Literal["rejected"]
    findings: list[Finding]


class _Settled(BaseModel):
    op: Literal["settled"]
    number: int


class _OutOfMemory(BaseModel):
    op: Literal["out_of_memory"]


class _Stopped(BaseModel):
    error_type: Annotated[str, Field(max_length=200)]
    message: Annotated[str, Field(max_length=8192)]
    line: int | None = None


class Described(BaseModel):
    op: Literal["described"]
    graph: GraphNode | None
    unreachable: list[str]
    more: bool = False
    """The program goes on, and a later description may say more."""
    stopped: _Stopped | None = None
    """What ended the description after a stand-in for a reply, before the program had built its workflow."""


_Request = _AgentCall | _ToolCall | _CodeRun | _Observe | _Act
_Report = _Delivery | _ToolResult
_FRAME: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        _Request | _Report | _Print | _Answer | _Failed | _Rejected | _OutOfMemory | _Settled | Described,
        Field(discriminator="op"),
    ]
)


_KINDS: dict[type, str] = {AgentReply: "agent", ToolReply: "tool", CodeReply: "code", Observation: "seen"}
"""How a jail is told what a reply is."""


class Outcome(BaseModel):
    """What the program's channel ended with; all None when it just closed."""

    answer: str | None = None
    failure: Failure | None = None
    described: Described | None = None
    broke_protocol: bool = False
    """No program of ours does: whoever spoke had got around the policy."""

    @property
    def is_silent(self) -> bool:
        return self.answer is None and self.failure is None and self.described is None


class Broker:
    def __init__(self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._session = session
        self._reader, self._writer = reader, writer
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keys: set[str] = set()
        self._traffic = 0
        self._described: Described | None = None
        self._replies = 0
        self._settling: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count()
        self._stopped: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def serve(self, job: dict[str, Any]) -> Outcome:
        """Hand the job over and serve the program to its end.

        Raises `LimitExceeded`, `EngineFailed` or `SandboxUnavailable`, whichever ends the run.
        """
        self._session.driven(self._settled)
        self._writer.write(encode(job))
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({reading, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
            outcome = self._stopped.result() if self._stopped.done() else reading.result()
            if self._described is None or outcome.described is not None or outcome.broke_protocol:
                return outcome
            return Outcome(described=self._described)
        finally:
            tasks = [reading, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            self._stopped.cancel()
            # An engine that does not mind being cancelled is not waited for without end.
            done, _ = await asyncio.wait(tasks, timeout=REAP_TIMEOUT_S)
            for task in done:
                if not task.cancelled():
                    task.exception()  # seen: the first one ended the run

    async def _read(self) -> Outcome:
        while True:
            try:
                read = await read_frame(self._reader)
                if read is None:
                    return Outcome()
                frame, weight = read
                self._traffic += weight
                if self._traffic > MAX_TRAFFIC_MB << 20:
                    raise LimitExceeded("output_bytes", MAX_TRAFFIC_MB << 20, self._traffic)
                message = _FRAME.validate_python(frame)
            except FrameError as error:
                return _protocol_failure(str(error))
            except ValidationError as error:
                return _protocol_failure(_first_of(error))
            outcome = self._handle(message)
            if outcome is not None:
                return outcome

    def _handle(self, message: Any) -> Outcome | None:
        """Act on one frame; an outcome ends the run."""
        if isinstance(message, _Request):
            if message.key in self._keys:
                return _protocol_failure(f"request key {message.key!r} is in use")
            self._keys.add(message.key)
            self._session.admit(message.path, message.request)
            self._tasks[message.key] = asyncio.create_task(self._answer(message))
        elif isinstance(message, _Report):
            self._session.report(message.path, message.request)
        elif isinstance(message, _Print):
            self._session.printed(message.text)
        elif isinstance(message, _Answer):
            return Outcome(answer=message.text)
        elif isinstance(message, _Failed):
            error = ProgramFailed(message.error_type, message.message, message.line)
            return Outcome(failure=error.record())
        elif isinstance(message, _Rejected):
            return Outcome(failure=ProgramRejected(message.findings).record())
        elif isinstance(message, _Settled):
            settling = self._settling.pop(message.number, None)
            if settling is None:
                return _protocol_failure(f"nobody asked whether it had settled ({message.number})")
            if not settling.done():
                settling.set_result(None)
        elif isinstance(message, _OutOfMemory):
            limit = self._session.limits.memory_mb
            return Outcome(failure=LimitExceeded("memory_mb", limit, limit).record())
        elif isinstance(message, Described):
            if not message.more:
                return Outcome(described=message)
            if self._described is None:
                asyncio.get_running_loop().call_later(MORE_S, self._end_description)
            self._described = message
        return None

    def _end_description(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(Outcome(described=self._described))

    async def _settled(self, engine: SteppingEngine) -> None:
        """Ask the jail until no reply has gone out meanwhile, as those to tool calls do by themselves: it reads what it
        is asked only while it waits, and whatever the program has said by then has come before."""
        replies = -1
        while replies != self._replies:
            replies, number = self._replies, next(self._numbers)
            settling = self._settling[number] = asyncio.get_running_loop().create_future()
            self._writer.write(encode({"type": "settle", "number": number}))
            await settling

    async def _answer(self, message: _Request) -> None:
        try:
            reply = await self._session.serve(message.key, message.path, message.request, message.place)
            kind = _KINDS[type(reply)]
            fields = {name: getattr(reply, name) for name in reply.__dataclass_fields__}
            self._tasks.pop(message.key, None)
            self._replies += 1
            self._writer.write(encode({"key": message.key, "type": kind, "reply": fields}))
            await self._writer.drain()
        except ConnectionError:
            return  # the program has gone; the reader sees the end of the channel
        except Exception as error:
            if not self._stopped.done():
                self._stopped.set_exception(error)


def _first_of(error: ValidationError) -> str:
    """What is wrong with a frame. A hundred thousand errors written out would take hundreds of times its memory."""
    if error.error_count() > MAX_ERRORS:
        return f"{error.error_count()} values are wrong"
    first = error.errors()[0]
    return f"{first['msg']} at {'.'.join(map(str, first['loc']))}"


def _protocol_failure(reason: str) -> Outcome:
    message = f"the program broke the channel's protocol: {reason[:500]}"
    return Outcome(failure=ProgramFailed("ProtocolError", message).record(), broke_protocol=True)
