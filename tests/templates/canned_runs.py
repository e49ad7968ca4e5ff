"""Runs templates to their end under a `Scheduler` with canned replies; no model, no jail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from templates import get_template
from workflow import Context, Message, WorkflowNode
from workflow.graph import main_workflow
from workflow.requests import AgentCall, AgentReply, ToolCall, ToolReply, ToolResult
from workflow.scheduler import Scheduler

Reply = Callable[[AgentCall], str]


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
