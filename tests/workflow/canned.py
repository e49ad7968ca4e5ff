"""Drives nodes to their end under a `Scheduler` with canned replies; no model, no event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workflow import Context, Message, WorkflowNode
from workflow.bridge import as_steps
from workflow.requests import AgentCall, AgentReply, CodeReply, CodeRun, Delivery, ToolCall, ToolReply, ToolResult
from workflow.scheduler import Issued, Scheduler

Reply = str | AgentReply | Exception
Replies = Callable[[AgentCall], Reply] | Mapping[str, Sequence[Reply] | Reply]


@dataclass
class Outcome:
    value: object = None
    error: Exception | None = None
    calls: list[AgentCall] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def message(self) -> Message:
        if self.error is not None:
            raise self.error
        assert isinstance(self.value, Message)
        return self.value

    @property
    def content(self) -> str:
        return self.message.content

    @property
    def agents(self) -> list[str]:
        return [call.agent for call in self.calls]

    def prompts(self, agent: str) -> list[str]:
        """The user turn of every call of an agent."""
        return [
            next(message["content"] for message in call.messages if message["role"] == "user")
            for call in self.calls
            if call.agent == agent
        ]


def run(
    node: WorkflowNode | Callable[[], object],
    replies: Replies,
    question: str = "What is 3 + 4?",
    *,
    context: Context | None = None,
    code: Callable[[CodeRun], CodeReply] | None = None,
) -> Outcome:
    """Run a node, or a plain function that runs workflows itself.

    `replies` is a function of the call, or for each agent its reply or the list of its replies in order. An exception
    is thrown into the node that asked.
    """
    steps = node.steps(context or Context.for_question(question)) if isinstance(node, WorkflowNode) else as_steps(node)
    scheduler = Scheduler(steps)
    outcome = Outcome()
    counts: dict[str, int] = {}
    while True:
        for issued in scheduler.take():
            _answer(scheduler, issued, outcome, replies, counts, code)
        if scheduler.done:
            break
    for issued in scheduler.take():
        _answer(scheduler, issued, outcome, replies, counts, code)
    try:
        outcome.value = scheduler.result()
    except Exception as error:
        outcome.error = error
    return outcome


def _answer(
    scheduler: Scheduler,
    issued: Issued,
    outcome: Outcome,
    replies: Replies,
    counts: dict[str, int],
    code: Callable[[CodeRun], CodeReply] | None,
) -> None:
    request = issued.request
    if isinstance(request, Delivery):
        outcome.deliveries.append(request)
    elif isinstance(request, ToolResult):
        outcome.results.append(request)
    elif isinstance(request, ToolCall):
        outcome.tool_calls.append(request)
        scheduler.reply(issued.key, ToolReply())
    elif isinstance(request, CodeRun):
        assert code is not None, "this test expects no code run"
        scheduler.reply(issued.key, code(request))
    else:
        outcome.calls.append(request)
        outcome.keys.append(issued.key)
        reply = _reply(replies, request, counts)
        if isinstance(reply, Exception):
            scheduler.throw(issued.key, reply)
        else:
            scheduler.reply(issued.key, reply if isinstance(reply, AgentReply) else AgentReply(reply))


def _reply(replies: Replies, call: AgentCall, counts: dict[str, int]) -> Reply:
    if not isinstance(replies, Mapping):
        return replies(call)
    listed = replies[call.agent]
    if isinstance(listed, (str, AgentReply, Exception)):
        return listed
    number = counts.get(call.agent, 0)
    counts[call.agent] = number + 1
    assert number < len(listed), f"{call.agent} was called {number + 1} times, more often than expected"
    return listed[number]
