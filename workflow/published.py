"""Which modules of the contract programs may import, and what each offers: where the published contract has it.

The names are those that the modules have in plain Python, too. Jails and the check read this table; other modules of
this room, and other names of these, are not for programs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import workflow

MODULES: dict[str, tuple[str, ...]] = {
    "workflow": tuple(workflow.__all__),
    "workflow.core": ("Context", "Message", "MessageType", "ToolRegistry", "WorkflowNode"),
    "workflow.graph": ("AgentGraph", "create_simple_chain"),
    "workflow.nodes": ("AgentNode", "DebateNode", "EnsembleNode", "ReflectionNode", "RouterNode", "WorkflowNode"),
    "workflow.nodes.agent_node": ("AgentNode",),
    "workflow.nodes.debate_node": ("DebateNode",),
    "workflow.nodes.ensemble_node": ("EnsembleNode",),
    "workflow.nodes.reflection_node": ("ReflectionNode",),
    "workflow.nodes.router_node": ("RouterNode", "create_keyword_router"),
    "workflow.workflow": ("ConditionalWorkflow", "LoopWorkflow", "Workflow"),
}


def contents(module: str) -> dict[str, Any]:
    """The names that a module of the table offers, with their values. Raises KeyError for any other module."""
    return {name: getattr(import_module(module), name) for name in MODULES[module]}
