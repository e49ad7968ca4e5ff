"""The module in which the published contract has the agent; it is defined in `workflow.agent`. Nothing else is here."""

from workflow.agent import AgentNode

__all__ = ["AgentNode"]
