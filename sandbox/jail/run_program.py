"""What runs inside a program's jail: compile under the policy, execute, drive its nodes over the channel.

Everything this process says is checked again by the host (`sandbox.host.broker`), since the program shares it. Also
runs jailed calls of trusted functions (`run_call`). It opens no files and starts no processes: its jail would not let
it.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import traceback
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn, cast

import workflow
from engine.sync_driver import drive_sync
from sandbox.frames import BlockingChannel, ChannelClosed
from sandbox.language import Job, begin, compile_program, contract_facades, program_globals, run_started, shown
from workflow.bridge import as_steps, perform
from workflow.environment import Environment, Observation
from workflow.flows import InContext
from workflow.graph import describe, main_workflow, nodes_in, reachable, whole
from workflow.messages import Context, Message
from workflow.nodes import WorkflowNode
from workflow.requests import (
    Act,
    AgentReply,
    CodeReply,
    CodeRun,
    Delivery,
    Leaf,
    Node,
    NodeCall,
    Observe,
    Parallel,
    Steps,
    ToolCall,
    ToolReply,
    ToolResult,
)
from workflow.scheduler import Issued, Scheduler

PROGRAM = "<program>"
_PRINT_CHUNK = 8192
_PRINT_FRAME = 1 << 20
_CANNED_POSITION = """Turn 1 of 4.

@..
...
..G

You (@) are at row 1, column 1; the goal (G) is at row 3, column 3."""
_CANNED_GAME = 50
"""Replies after which a game is over that a program plays while it is only described."""
_MAX_CANNED = 500
"""Replies that a program is given at most while it is only described."""
_REPLIES: dict[str, Callable[..., Any]] = {
    "agent": AgentReply,
    "tool": ToolReply,
    "code": CodeReply,
    "seen": Observation,
}


_ready: list[_Program] = []
"""The program of a jail, made in the zygote before the fork."""
_WARM_UP = """
import re
from workflow import AgentNode, Workflow
def vote(answers: list, n=2) -> str:
    return max(answers, key=lambda answer: answers.count(answer))
values = {"a": [1, 2.5], **{}}
values["b"] = [f"{name}" for name in values if name]
for name, value in values.items():
    if not value: continue
workflow = Workflow("w").add_node(AgentNode(name="Solver", system_prompt="Solve."))
print(values["a"][0], workflow.name)
"""


class _Described(Exception):
    """Ends a description: there is nothing more to learn."""


def _canned(request: Leaf, number: int) -> AgentReply | ToolReply | CodeReply | Observation:
    """What a program hears while it is only described, so that it goes on to what it runs next; `number` counts it."""
    if isinstance(request, (Observe, Act)):
        return Observation(_CANNED_POSITION, done=number > _CANNED_GAME)
    if isinstance(request, CodeRun):
        return CodeReply(0, "1\n", "")
    if isinstance(request, ToolCall):
        return ToolReply()
    return AgentReply("<delivery>\\boxed{1}</delivery>\nVerdict: CORRECT")


class _Program:
    """One program under execution: its globals, what it printed, the workflows it ran, the last result.

    Built in the zygote, since that is most of the work; `begin` gives it its job.
    """

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.size = 0
        self.ran: list[WorkflowNode] = []
        """What the program's own code ran, in this order, each once."""
        self.ended = False
        """Whether the program's own code has come to its end."""
        self.results: list[Message] = []
        self.asked: deque[Issued] = deque()
        """While describing: requests that wait for their canned replies."""
        self.canned = 0
        self.told = -1
        """While describing: how many workflows the host has been told of."""
        modules = contract_facades(self.run_code)
        self.globals = program_globals(question="", write=self.write, run_code=self.run_code, seed=0, modules=modules)

    def begin(self, channel: BlockingChannel, job: dict[str, Any]) -> None:
        self.channel = channel
        self.question: str = job["question"]
        self.describing: bool = job["op"] == "describe"
        environment = Environment() if job["game"] else None
        begin(self.globals, self.question, job["seed"], environment)

    def write(self, text: str) -> None:
        self.printed.append(text)
        self.size += len(text)
        if self.size >= _PRINT_CHUNK:
            self.flush()

    def flush(self) -> None:
        text = "".join(self.printed)
        self.printed, self.size = [], 0
        if not self.describing:
            for start in range(0, len(text), _PRINT_FRAME):
                self.channel.send({"op": "print", "text": text[start : start + _PRINT_FRAME]})

    def run_code(self, request: CodeRun) -> CodeReply:
        return perform(request)

    def execute(self, code: CodeType) -> None:
        """The program's own code, and its workflow if it has run none itself."""
        try:
            exec(code, self.globals)
            run_started()  # threads that nobody has joined
        except SystemExit as stop:
            if stop.code not in (None, 0):
                raise RuntimeError(f"the program called exit({stop.code!r})") from None
        self.ended = True
        if not self.ran:
            node = main_workflow(self.globals)
            if node is None:
                raise RuntimeError("the program defines no workflow: build one with Workflow(...).add_node(...)")
            perform(NodeCall(node, Context.for_question(self.question)))

    def steps(self, code: CodeType) -> Steps:
        """The program as a generator, watching the workflows that it runs itself."""
        yield from self.watched(as_steps(self.execute, code), self)

    def watched(self, inner: Steps, line: _Program | Job) -> Steps:
        """`inner`, a line of execution of the program; adds the results of workflows that it runs to `line.results`."""
        reply = None
        try:
            request = next(inner)
            while True:
                jobs: list[Job] = []
                if isinstance(request, NodeCall):
                    self.note(request.node)
                elif isinstance(request, Parallel):
                    jobs = [call.node for call in request.calls if isinstance(call.node, Job)]
                for job in jobs:
                    job.watch = self.watched
                try:
                    reply = yield request
                except Exception as error:
                    request = inner.throw(error)
                    continue
                if isinstance(reply, Message):
                    line.results.append(reply)
                for job in jobs:
                    line.results += job.results
                request = inner.send(reply)
        except StopIteration as end:
            return end.value

    @property
    def answer(self) -> str:
        """The program's global `answer` if it sets one (text or a message), else its last workflow's result."""
        said = self.globals.get("answer")
        if isinstance(said, Message):
            return said.content
        if isinstance(said, str):
            return said
        return self.results[-1].content if self.results else ""

    def note(self, node: Node) -> None:
        """Keep what the program's own code runs."""
        flow = cast(WorkflowNode, node.flow if isinstance(node, InContext) else node)
        if all(flow is not known for known in self.ran):
            self.ran.append(flow)

    def send(self, issued: Issued) -> None:
        self.flush()
        request = issued.request
        if self.describing:
            if not isinstance(request, (Delivery, ToolResult)):
                self.asked.append(issued)
            return
        fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
        head = {"op": type(request).__name__, "key": issued.key, "path": issued.path, "place": issued.place}
        self.channel.send({**head, "request": fields})

    def receive(self) -> tuple[str, Any]:
        if self.describing:
            return self.answer_oneself()
        frame = self.channel.receive()
        while frame["type"] == "settle":  # all that came before it has been dealt with
            self.channel.send({"op": "settled", "number": frame["number"]})
            frame = self.channel.receive()
        return frame["key"], _REPLIES[frame["type"]](**frame["reply"])

    def answer_oneself(self) -> tuple[str, Any]:
        if self.ended or self.canned == _MAX_CANNED:
            raise _Described
        if len(self.ran) != self.told:  # what follows may hang or fail: what is known so far is told first
            self.channel.send({**self.description(), "more": True})
            self.told = len(self.ran)
        self.canned += 1
        issued = self.asked.popleft()
        return issued.key, _canned(issued.request, self.canned)

    def description(self) -> dict[str, Any]:
        graph = whole(self.ran)
        return {
            "op": "described",
            "graph": graph.model_dump(exclude_defaults=True) if graph else None,
            "unreachable": self.unreachable() if graph and self.ended else [],
        }

    def unreachable(self) -> list[str]:
        """Nodes that were built and are part of no workflow. Before the code has ended nobody can tell."""
        built = nodes_in(self.globals.values())
        seen = reachable([*self.ran, *(node for node in built if hasattr(node, "run"))])
        return list(dict.fromkeys(node.name for node in built if id(node) not in seen))


def run(fds: list[int]) -> NoReturn:
    """Serve one job of the host on the channel, then exit."""
    _serve(BlockingChannel(fds[0]), _run_program)


def run_call(fds: list[int]) -> NoReturn:
    """Serve one jailed call: `{"target": "module:function", "payload": ...}`."""
    _serve(BlockingChannel(fds[0]), _run_call)


def _serve(channel: BlockingChannel, work: Callable[[BlockingChannel, dict[str, Any]], dict[str, Any]]) -> NoReturn:
    """Receive a job, send what became of it, exit. Whatever was raised becomes the outcome."""
    outcome: dict[str, Any]
    try:
        job = channel.receive()
        try:
            outcome = work(channel, job)
        except MemoryError:
            outcome = {"op": "out_of_memory"}
        try:
            channel.send(outcome)
        except (TypeError, ValueError, RecursionError, MemoryError) as error:  # it is not JSON, or too large
            channel.send(_failed(error))
    except ChannelClosed:
        pass
    os._exit(0)


def _run_program(channel: BlockingChannel, job: dict[str, Any]) -> dict[str, Any]:
    compiled = compile_program(job["source"], PROGRAM)
    if compiled.code is None:
        return {"op": "rejected", "findings": [finding.model_dump() for finding in compiled.findings]}
    program = _ready.pop()
    program.begin(channel, job)
    try:
        drive_sync(Scheduler(program.steps(compiled.code)), program.send, program.receive)
    except _Described:
        return program.description()
    except (ChannelClosed, MemoryError):
        raise
    except BaseException as error:  # a program may raise KeyboardInterrupt too
        program.flush()
        if program.canned and program.ran:
            return program.description()  # it failed over a reply that no agent gave
        failed = _failed(error)
        if program.canned:  # over what no code has printed: what it builds then, only a run can tell
            stopped = {name: failed[name] for name in ("error_type", "message", "line")}
            return {**program.description(), "stopped": stopped}
        return failed
    program.flush()
    if program.describing:
        return program.description()
    return {"op": "answer", "text": program.answer}


def _run_call(channel: BlockingChannel, job: dict[str, Any]) -> dict[str, Any]:
    module, _, name = job["target"].partition(":")
    try:
        return {"op": "result", "value": getattr(importlib.import_module(module), name)(job["payload"])}
    except MemoryError:
        raise
    except BaseException as error:
        return {**_failed(error), "line": None}


def _failed(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == PROGRAM), None)
    try:
        message = "".join((str(error),))  # a plain string, whatever `__str__` has made
    except Exception as broken:
        message = f"(its message could not be read: {type(broken).__name__})"
    return {"op": "failed", "error_type": type(error).__name__[:200], "message": shown(message)[:4000], "line": line}


def warm() -> None:
    """Build in the zygote what every program would otherwise build in its jail: validators and regex caches."""
    agent = workflow.AgentNode("warm", "up", tool_registry=workflow.ToolRegistry())
    nodes: list[WorkflowNode] = [
        workflow.EnsembleNode("e", [agent, agent], strategy="consensus", consensus_agent=agent),
        workflow.ReflectionNode("r", agent),
        workflow.DebateNode("d", [agent, agent]),
        workflow.RouterNode("o", {"default": agent}, lambda context: "default"),
    ]
    chain = workflow.create_simple_chain(nodes)
    scheduler = Scheduler(as_steps(chain.run, "question"))
    while not scheduler.done:
        for issued in scheduler.take():
            if issued.key:
                scheduler.reply(issued.key, AgentReply(r"<delivery>\boxed{1}</delivery> Verdict: CORRECT"))
    describe(chain)
    compiled = compile_program(_WARM_UP, PROGRAM)
    assert compiled.code is not None, compiled.findings
    _ready.append(_Program())
