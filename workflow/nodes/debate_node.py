"""The debate: several nodes argue in rounds, then a judge or a vote decides."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workflow.agent import Nodes, WorkflowNode, notes
from workflow.checks import contract
from workflow.messages import Context, Message, MessageType
from workflow.nodes.common import elect, instruction, labelled
from workflow.requests import NodeCall, Parallel, Steps


class DebateNode(WorkflowNode):
    """Debaters argue in parallel for `num_rounds` rounds, seeing the others' last words; then the judge decides.

    Without a judge the majority of the final answers wins.
    """

    @contract
    def __init__(
        self,
        name: str,
        debaters: Annotated[Nodes, Field(min_length=2)],
        judge: WorkflowNode | None = None,
        num_rounds: Annotated[int, Field(ge=1)] = 2,
        *,
        description: str = "",
        role: str = "",
    ) -> None:
        super().__init__(name, **notes(description, role))
        self.debaters = list(debaters)
        self.judge = judge
        self.num_rounds = num_rounds

    def steps(self, context: Context) -> Steps:
        outcomes: list[Message | Exception] = []
        said: list[Message] = []
        for number in range(1, self.num_rounds + 1):
            request = instruction(
                f"Round {number} of the debate. Answer the others' arguments: defend your answer or correct it."
            )
            shown = [*said, request] if said else []
            outcomes = yield Parallel(
                [NodeCall(debater, context.extended(*shown, reader="the other debaters")) for debater in self.debaters]
            )
            said = labelled(self.debaters, outcomes)
        about = {"num_rounds": self.num_rounds, "num_debaters": len(self.debaters)}
        if self.judge is None or all(isinstance(outcome, Exception) for outcome in outcomes):
            result = elect(self.name, self.debaters, outcomes, [1.0] * len(self.debaters))
        else:
            decided = yield NodeCall(self.judge, context.extended(*said))
            result = Message(decided.content, MessageType.ENSEMBLE_RESULT, {**decided.metadata}, sender=self.name)
        result.metadata.update(about)
        return result
