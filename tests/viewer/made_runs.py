"""Runs for tests of the viewer: workflows in this process with an engine that says what it is told, and events made
by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from engine import run_workflow
from viewer.reading.traces import ReadRun, read_trace
from workflow import AgentNode, WorkflowNode
from workflow.completion import ChatMessage, Completion, CompletionRequest, Usage
from workflow.trace import AgentTurn, Event, RunEnded, RunStarted, Trace

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    '" onmouseover="alert(4)',
    "</pre></details></article><svg onload=alert(5)>",
    "</template><iframe src=javascript:alert(6)>",
    "\u202eevil\u2066",
    "\x1b[31m\x00\x07",
    "\ud800 half of a pair",
    "javascript:alert(7)",
    "{{ 7 * 7 }}{% raw %}",
    "<!--",
    "\u2028\u2029",
)
"""Texts that would do something on a page that does not escape them."""


class Says:
    """An engine. `reply` is a text, or a function of the request that returns one or raises."""

    name = "says"

    def __init__(self, reply: str | Callable[[CompletionRequest], str] = "ok") -> None:
        self._reply = reply

    async def complete(self, request: CompletionRequest) -> Completion:
        text = self._reply if isinstance(self._reply, str) else self._reply(request)
        return Completion(text=text, usage=Usage(prompt_tokens=3, completion_tokens=2))

    async def close(self) -> None: ...


def agent(name: str) -> AgentNode:
    return AgentNode(name, f"You are {name}.", max_turns=1)


def ran(node: WorkflowNode, reply: str | Callable[[CompletionRequest], str] = "ok", **options: Any) -> ReadRun:
    """A run of a workflow in this process."""
    return read_trace("run.jsonl", asyncio.run(run_workflow(node, "Q?", Says(reply), **options)).trace)


def made(*events: Event, program: str = "", question: str = "Q?", ended: bool = True) -> ReadRun:
    """A run of these events, with a beginning and an end."""
    start = RunStarted(run_id="r", question=question, program=program, engine="made")
    end = [RunEnded(t=max((event.t for event in events), default=0.0))] if ended else []
    return read_trace("made.jsonl", Trace.model_construct(events=[start, *events, *end]))


def turn(
    path: str, start: float = 0.0, end: float = 1.0, *, text: str | None = "ok", number: int = 0, **more: Any
) -> AgentTurn:
    """One turn of the agent at a path; without a text it has no reply."""
    name = path.rpartition("/")[2].partition("[")[0]
    given = {"messages": [ChatMessage(role="user", content="Q?")], "agent": name, "key": f"{path}#{number}"} | more
    reply = None if text is None else Completion(text=text)
    return AgentTurn(path=path, t=end, duration_s=end - start, completion=reply, **given)
