"""The nodes that are made of other nodes: ensembles, reflection, debates, routers. Names the agent, too.

Not here: the base of all nodes and the agent itself (`workflow.agent`); workflows, which put nodes in order
(`workflow.flows`).
"""

from workflow.agent import AgentNode, WorkflowNode
from workflow.nodes.debate_node import DebateNode
from workflow.nodes.ensemble_node import EnsembleNode
from workflow.nodes.reflection_node import ReflectionNode
from workflow.nodes.router_node import RouterNode

__all__ = [
    "AgentNode",
    "DebateNode",
    "EnsembleNode",
    "ReflectionNode",
    "RouterNode",
    "WorkflowNode",
]
