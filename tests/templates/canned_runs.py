"""Runs templates to their end under a `Scheduler` with canned replies; no model, no jail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from templates import get_template
from workflow import Context, Message, WorkflowNode
from workflow.graph import main_workflow
from workflow.requests import AgentCall, AgentReply, ToolCall, ToolReply, ToolResult
from workflow.scheduler import Scheduler

Reply = Callable[[AgentCall], str]

TOOL_CALL = '<tool_call>{"name": "execute_code", "arguments": {"code": "print(3 + 4)"}}</tool_call>'
PASSING = '<tests>[{"call": "f()", "expected": "7"}]</tests>'
FAILING = '<tests>[{"call": "f()", "expected": "8"}]</tests>'


def willing(call: AgentCall) -> str:
    """An agent that is content with everything and needs no tool."""
    answer = "<solution>\ndef f():\n    return 7\n</solution>" if call.agent != "TestWriter" else PASSING
    return f"It is 7.\n{answer}\n\\boxed{{7}}\nVerdict: CORRECT\nConfidence: HIGH\nNext: ACCEPT\nType: OTHER"


def stubborn() -> Callable[[AgentCall], str]:
    """An agent that always calls its tool, always finds fault and never gives the same answer twice."""
    numbers = itertools.count()

    def reply(call: AgentCall) -> str:
        tests = FAILING if call.agent == "TestWriter" else ""
        tool = TOOL_CALL if call.tools else ""
        answer = f"<solution>\ndef f():\n    return 7\n</solution>\n\\boxed{{{next(numbers)}}}"
        return f"{answer}\n{tests}\nVerdict: INCORRECT\nConfidence: LOW\nNext: PLANNER\nType: CODE\n{tool}"

    return reply


@dataclass
class Outcome:
    message: Message
    calls: list[AgentCall] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)

    @property
    def agents(self) -> list[str]:
        return [call.agent for call in self.calls]


def values_of(source: str) -> dict[str, object]:
    """The global variables of a script after it was executed in plain Python."""
    values: dict[str, object] = {"__name__": "program"}
    exec(compile(source, "<template>", "exec"), values)
    return values


def workflow_of(source: str) -> WorkflowNode:
    """The workflow that a script means."""
    workflow = main_workflow(values_of(source))
    assert workflow is not None, "the script defines no workflow"
    return workflow


def run(name: str, reply: Reply, *, tool_output: str | None = None, question: str = "What is 3 + 4?") -> Outcome:
    """Run a template. `reply` answers every agent call; with `tool_output` None, tools really run."""
    workflow = workflow_of(get_template(name).source)
    scheduler = Scheduler(workflow.steps(Context.for_question(question)))
    calls: list[AgentCall] = []
    results: list[ToolResult] = []
    while not scheduler.done:
        issued = scheduler.take()
        assert issued, f"{name}: the run waits but has asked for nothing"
        for item in issued:
            request = item.request
            if isinstance(request, AgentCall):
                calls.append(request)
                scheduler.reply(item.key, AgentReply(reply(request)))
            elif isinstance(request, ToolCall):
                scheduler.reply(item.key, ToolReply(tool_output))
            elif isinstance(request, ToolResult):
                results.append(request)
    results += [item.request for item in scheduler.take() if isinstance(item.request, ToolResult)]
    return Outcome(scheduler.result(), calls, results)
