"""The module in which the published contract has its chains, which are defined in `workflow.flows`. No more is here."""

from workflow.flows import ConditionalWorkflow, LoopWorkflow, Workflow

__all__ = ["ConditionalWorkflow", "LoopWorkflow", "Workflow"]
