"""The module in which the published contract has messages, context, tools and the base of all nodes.

They are defined in `workflow.messages`, `workflow.tools` and `workflow.agent`. Nothing else is here.
"""

from workflow.agent import WorkflowNode
from workflow.messages import Context, Message, MessageType
from workflow.tools import ToolRegistry

__all__ = ["Context", "Message", "MessageType", "ToolRegistry", "WorkflowNode"]
