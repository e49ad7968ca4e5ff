"""What a node may ask for, and what it gets back (sans-I/O: docs/architecture.md, decision 1).

A node is a generator that yields these requests and is sent the replies. Nothing here performs anything:
a driver (in `engine` or in the jail) does, through `workflow.scheduler`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from workflow.completion import ChatMessage, FinishReason, OwnSampling

if TYPE_CHECKING:
    from workflow.messages import Context

Steps = Generator["Request", Any, Any]
"""The body of a node: yields requests, is sent replies, returns a result."""


@dataclass(slots=True)
class AgentCall:
    """Ask the Executor policy for one turn of `agent`. Reply: `AgentReply`."""

    agent: str
    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = field(default_factory=list)
    turn: int = 0
    """0 for the first turn of this activation of the agent, 1 after its first tool results, and so on."""
    sampling: OwnSampling = field(default_factory=OwnSampling)
    """What the node asks for itself; whether it gets it is up to who runs it."""


@dataclass(slots=True)
class AgentReply:
    text: str
    finish_reason: FinishReason = "stop"


@dataclass(slots=True)
class ToolCall:
    """Announce that `agent` calls a tool. Reply: `ToolReply`.

    The driver counts it; a reply with `content=None` means: run your own function.
    """

    agent: str
    name: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class ToolReply:
    content: str | None = None


@dataclass(slots=True)
class CodeRun:
    """Ask the code runner to execute unrestricted Python, outside this process. Reply: `CodeReply`."""

    code: str
    stdin: str = ""
    timeout_s: float | None = None
    """Of the processor; see `sandbox.host.program_code`."""


@dataclass(slots=True)
class CodeReply:
    exit_status: int
    stdout: str
    stderr: str
    limit: str | None = None
    """The limit that ended the run (`wall_s`, `cpu_s`, `memory_mb`, `output_bytes`, `disk_mb`), if one did."""


@dataclass(slots=True)
class Observe:
    """Look at the game that this run plays, as `agent`. Reply: `workflow.environment.Observation`."""

    agent: str


@dataclass(slots=True)
class Act:
    """Do in the game what `text` says, as `agent`; with `commit=False` only learn what it would do. What of the text is
    the action, and whether it is legal, is the host's to say. Reply: `workflow.environment.Observation`."""

    agent: str
    text: str
    commit: bool = True


@dataclass(slots=True)
class Delivery:
    """Tell the Trace what an agent handed on. Reply: None, at once."""

    agent: str
    text: str
    source: Literal["delivery", "final_answer", "solution", "excerpt"]


@dataclass(slots=True)
class ToolResult:
    """Tell the Trace what a tool returned. Reply: None, at once."""

    agent: str
    name: str
    content: str
    is_error: bool = False


class Node(Protocol):
    """What can be run as a child: `workflow.agent.WorkflowNode` and whatever has these two."""

    name: str

    def steps(self, context: Context) -> Steps: ...


@dataclass(slots=True)
class NodeCall:
    """Run another node as a child of this one. Reply: its `Message`; what it raises is raised here."""

    node: Node
    context: Context


@dataclass(slots=True)
class Parallel:
    """Run several nodes side by side. Reply: one `Message` or `Exception` for each, in the given order.

    Give each its own copy of the context (`extended()`). Its `state` is shared: what two nodes set under one key
    stands as the later reply left it.
    """

    calls: Sequence[NodeCall]


Report = Delivery | ToolResult
Leaf = AgentCall | ToolCall | CodeRun | Observe | Act | Report
"""Requests that leave the scheduler and reach the driver."""
LEAVES = (AgentCall, ToolCall, CodeRun, Observe, Act, Delivery, ToolResult)
Request = Leaf | NodeCall | Parallel
