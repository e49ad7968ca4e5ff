"""What a model is told when it designs: the full prompt with templates, the short one for RL, the repair request.

The tables of the contract and of the policy are written from the real signatures and from the sandbox's own tables,
so they cannot drift. Nothing here talks to a model or reads its reply (see `designer.extract`).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import Any

import workflow
from designer.features import clean, domain_of
from sandbox.facades import standard_facades
from sandbox.language import SYNTAX_FIXES, UNAVAILABLE
from templates import Template
from workflow.completion import ChatMessage
from workflow.failures import Finding
from workflow.limits import Limits

MEANINGS: dict[str, tuple[tuple[str, ...], str]] = {
    # class: (methods that programs call, what it means)
    "AgentNode": ((), "One role, played by the language model. With a `tool_registry` it may call tools, at most "
                      "`max_turns` turns; without one, set `max_turns` to 1."),
    "EnsembleNode": ((), "`agents` answer in parallel. `strategy` is \"majority_vote\", \"weighted_vote\" (needs "
                         "`weights`, one for each) or \"consensus\" (needs `consensus_agent`, who reads all "
                         "deliveries and decides)."),
    "ReflectionNode": ((), "`agent` solves, `critic_agent` (or `agent` itself) reviews, `agent` refines; stops at "
                           "the verdict CORRECT or after `num_iterations` reviews. The result is the agent's."),
    "DebateNode": ((), "`debaters` argue in parallel for `num_rounds` rounds; then `judge` decides, or without one "
                       "the majority."),
    "RouterNode": ((), "Runs the one of `routes` (a dict) that `routing_func`(context) names, else `default_route`."),
    "WorkflowNode": (("process",), "Base for a node of your own: subclass it and define `process`; there, call other "
                                   "nodes' `process`. It must return a Message."),
    "Workflow": (("add_node", "add_nodes", "run"), "A chain: each node sees the question and what the nodes before "
                                                   "it delivered. The last node's message is the result."),
    "ConditionalWorkflow": (("add_node",), "A chain; a node whose `condition`(context) is false is skipped."),
    "LoopWorkflow": (("set_loop_condition",), "A chain that repeats while `condition`(context) is true, at most "
                                              "`max_iterations` times."),
    "AgentGraph": (
        ("add_node", "add_edge", "add_conditional_edge", "set_entry_point", "set_finish_point"),
        "Nodes and edges, by node name. `targets` of a conditional edge maps results of `condition`(context) to "
        "nodes; no match and no edge ends the run.",
    ),
    "create_simple_chain": ((), "A `Workflow` of the given `nodes`."),
    "ToolRegistry": (("register",), "The tools of an agent: `func` is a function of the program that returns text, "
                                    "`parameters` a JSON Schema of its arguments."),
    "Message": ((), "What nodes exchange; read its `content` and `sender`."),
    "MessageType": ((), "USER_INPUT, AGENT_RESPONSE, CRITIQUE, ENSEMBLE_RESULT, TOOL_RESULT, SYSTEM, ERROR."),
    "Context": (
        ("add_message", "get_messages_by_type", "get_latest_message", "set_state", "get_state"),
        "The `messages` and `state` that conditions and nodes of your own read.",
    ),
}
