"""The contract: typed nodes, tools, messages and the Trace's types, out of which multi-agent programs are made.

Pure. Not here: I/O, threads, async, models. A driver runs what is built here: `engine.connect` for a plain Python
file, the sandbox for programs that are not trusted. The names are loaded on first use, so that `import workflow`
alone costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workflow.agent import AgentNode, WorkflowNode
    from workflow.flows import AgentGraph, ConditionalWorkflow, LoopWorkflow, Workflow, create_simple_chain
    from workflow.messages import Context, Message, MessageType
    from workflow.nodes import DebateNode, EnsembleNode, ReflectionNode, RouterNode
    from workflow.tools import ToolRegistry

_HOMES = {
    "messages": ("Message", "MessageType", "Context"),
    "agent": ("WorkflowNode", "AgentNode"),
    "nodes": ("EnsembleNode", "DebateNode", "ReflectionNode", "RouterNode"),
    "tools": ("ToolRegistry",),
    "flows": ("Workflow", "ConditionalWorkflow", "LoopWorkflow", "AgentGraph", "create_simple_chain"),
}

__all__ = [
    "AgentGraph",
    "AgentNode",
    "ConditionalWorkflow",
    "Context",
    "DebateNode",
    "EnsembleNode",
    "LoopWorkflow",
    "Message",
    "MessageType",
    "ReflectionNode",
    "RouterNode",
    "ToolRegistry",
    "Workflow",
    "WorkflowNode",
    "create_simple_chain",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"workflow.{home}"), name)
    raise AttributeError(f"module 'workflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
