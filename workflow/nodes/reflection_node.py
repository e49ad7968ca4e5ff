"""Reflection: solve, have it reviewed, refine.

What counts as a verdict is `workflow.text`'s.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workflow.agent import WorkflowNode, notes
from workflow.checks import contract
from workflow.messages import Context, Message, MessageType
from workflow.nodes.common import instruction
from workflow.requests import NodeCall, Steps
from workflow.text import verdict

CRITIQUE_REQUEST = (
    "Review the result above against the original task. Check each step and name every error you find. "
    "End with a line that says either Verdict: CORRECT or Verdict: INCORRECT."
)
REFINE_REQUEST = (
    "Here is a review of your earlier result. Mend what it rightly finds wrong and give the complete, "
    "improved result in the same answer format."
)


class ReflectionNode(WorkflowNode):
    """Solve, critique, refine, at most `num_iterations` times; stops at an explicit verdict CORRECT.

    Without `critic_agent` the agent reviews itself. The prompts may use `{question}`, `{solution}` and
    `{critique}`, or the published names `{response}` and `{reflection}` for the latter; every other brace is left as it
    is. With `include_history` both sides see all earlier attempts
    and reviews instead of the latest ones.
    """

    @contract
    def __init__(
        self,
        name: str,
        agent: WorkflowNode,
        num_iterations: Annotated[int, Field(ge=0)] = 2,
        reflection_prompt: str | None = None,
        critic_agent: WorkflowNode | None = None,
        refinement_prompt: str | None = None,
        include_history: bool = False,
        *,
        description: str = "",
        role: str = "",
    ) -> None:
        super().__init__(name, **notes(description, role))
        self.agent = agent
        self.num_iterations = num_iterations
        self.reflection_prompt = reflection_prompt or CRITIQUE_REQUEST
        self.critic_agent = critic_agent
        self.refinement_prompt = refinement_prompt or REFINE_REQUEST
        self.include_history = include_history

    def steps(self, context: Context) -> Steps:
        critic = self.critic_agent or self.agent
        history: list[Message] = []
        solution: Message = yield NodeCall(self.agent, context.extended(reader=critic.name))
        accepted = False
        rounds = 0
        while rounds < self.num_iterations:
            rounds += 1
            request = instruction(self.reflection_prompt, context.question, solution.delivery)
            shown = [*history, solution] if self.include_history else [solution]
            review = yield NodeCall(critic, context.extended(*shown, request, reader=self.agent.name))
            critique = Message(review.content, MessageType.CRITIQUE, review.metadata, sender=critic.name)
            accepted = verdict(review.content) is True
            if accepted:
                break
            request = instruction(self.refinement_prompt, context.question, solution.delivery, critique.delivery)
            shown = [*history, solution, critique] if self.include_history else [solution, critique]
            history += [solution, critique]
            solution = yield NodeCall(self.agent, context.extended(*shown, request, reader=critic.name))
        metadata = {**solution.metadata, "accepted": accepted, "rounds": rounds, "num_iterations": self.num_iterations}
        metadata |= {"generator_agent": self.agent.name, "critic_agent": critic.name}
        return Message(solution.content, solution.message_type, metadata, sender=self.name)
