"""The nodes that are made of other nodes: ensembles, reflection, debates, routers. Names the agent node too.

Composition of nodes into workflows lives in `workflow.flows`; nothing here calls a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from workflow.agent import AgentNode, Nodes, WorkflowNode
from workflow.bridge import as_steps
from workflow.checks import contract
from workflow.failures import ContractError
from workflow.messages import Context, Message, MessageType
from workflow.requests import NodeCall, Parallel, Steps
from workflow.text import last_boxed, solution_block, verdict, winning_vote

__all__ = ["AgentNode", "DebateNode", "EnsembleNode", "ReflectionNode", "RouterNode", "WorkflowNode"]

CRITIQUE_REQUEST = (
    "Review the result above against the original task. Check each step and name every error you find. "
    "End with a line that says either Verdict: CORRECT or Verdict: INCORRECT."
)
REFINE_REQUEST = (
    "Here is a review of your earlier result. Mend what it rightly finds wrong and give the complete, "
    "improved result in the same answer format."
)


def _answer_of(outcome: Message | Exception) -> str | None:
    """What a member votes for: its last box, else its solution block, else its marked delivery."""
    if isinstance(outcome, Exception):
        return None
    answer = last_boxed(outcome.content)
    if answer is None:
        answer = solution_block(outcome.content)
    if answer is None and outcome.metadata.get("delivery_source") in ("delivery", "final_answer"):
        answer = outcome.delivery
    return answer


def _labelled(members: list[WorkflowNode], outcomes: list[Message | Exception]) -> list[Message]:
    """One message per member, in order; a failed member keeps its place and its label."""
    messages = []
    for index, (member, outcome) in enumerate(zip(members, outcomes, strict=True), 1):
        label = f"{index}. {member.name}"
        if isinstance(outcome, Exception):
            text = f"(failed: {type(outcome).__name__}: {outcome})"
            messages.append(Message(text, MessageType.ERROR, sender=label))
        else:
            metadata = {"delivery": outcome.delivery}
            messages.append(Message(outcome.content, outcome.message_type, metadata, sender=label))
    return messages


def _elect(
    name: str, members: list[WorkflowNode], outcomes: list[Message | Exception], weights: list[float]
) -> Message:
    """The message of the member whose answer wins the vote, or of the first that did not fail."""
    answers = [_answer_of(outcome) for outcome in outcomes]
    winner = winning_vote(answers, weights)
    if winner is None:
        winner = next((i for i, outcome in enumerate(outcomes) if isinstance(outcome, Message)), None)
    if winner is None:
        reasons = "; ".join(f"{member.name}: {outcome}" for member, outcome in zip(members, outcomes, strict=True))
        raise RuntimeError(f"{name}: every member failed ({reasons})")
    chosen = outcomes[winner]
    assert isinstance(chosen, Message), "a failed member has no vote"
    votes = [
        {"member": member.name, "answer": answer, "weight": weight}
        for member, answer, weight in zip(members, answers, weights, strict=True)
    ]
    metadata = {**chosen.metadata, "votes": votes, "winner": members[winner].name}
    return Message(chosen.content, MessageType.ENSEMBLE_RESULT, metadata, sender=name)


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EnsembleNode(WorkflowNode):
    """Members work in parallel on the same context; a vote or a consensus agent makes one result.

    `majority_vote` and `weighted_vote` compare final answers and return the first member's message with the
    winning answer. `consensus` shows every member's delivery, labelled, to `consensus_agent`.
    """

    @contract
    def __init__(
        self,
        name: str,
        agents: Annotated[Nodes, Field(min_length=1)],
        strategy: Literal["majority_vote", "weighted_vote", "consensus"] = "majority_vote",
        consensus_agent: WorkflowNode | None = None,
        weights: list[Weight] | dict[str, Weight] | None = None,
    ) -> None:
        super().__init__(name)
        self.strategy = strategy
        self.consensus_agent = consensus_agent
        if strategy == "consensus" and consensus_agent is None:
            raise ContractError(f"EnsembleNode {name!r}: strategy 'consensus' needs consensus_agent=AgentNode(...)")
        if strategy == "weighted_vote" and weights is None:
            raise ContractError(f"EnsembleNode {name!r}: strategy 'weighted_vote' needs weights=[...]")
        self.agents = list(agents)
        self.weights = self._weights(weights)

    def _weights(self, weights: list[float] | dict[str, float] | None) -> list[float]:
        names = [agent.name for agent in self.agents]
        if isinstance(weights, dict):
            unknown = [key for key in weights if key not in names]
            if unknown:
                raise ContractError(f"EnsembleNode {self.name!r}: weights name {unknown}; members are {names}")
            weights = [weights.get(name, 1.0) for name in names]
        elif weights is not None and len(weights) != len(names):
            raise ContractError(
                f"EnsembleNode {self.name!r}: {len(weights)} weights for {len(names)} members; give one for each"
            )
        return weights if weights is not None and self.strategy == "weighted_vote" else [1.0] * len(names)

    def steps(self, context: Context) -> Steps:
        judge = self.consensus_agent if self.strategy == "consensus" else None
        reader = judge.name if judge else ""
        outcomes = yield Parallel([NodeCall(agent, context.extended(reader=reader)) for agent in self.agents])
        if judge is None:
            return _elect(self.name, self.agents, outcomes, self.weights)
        if all(isinstance(outcome, Exception) for outcome in outcomes):
            return _elect(self.name, self.agents, outcomes, self.weights)  # raises, naming every failure
        verdict_message = yield NodeCall(judge, context.extended(*_labelled(self.agents, outcomes)))
        metadata = {**verdict_message.metadata, "judge": judge.name}
        return Message(verdict_message.content, MessageType.ENSEMBLE_RESULT, metadata, sender=self.name)


class ReflectionNode(WorkflowNode):
    """Solve, critique, refine, at most `num_iterations` times; stops at an explicit verdict CORRECT.

    Without `critic_agent` the agent reviews itself. The prompts may use `{question}`, `{solution}` and
    `{critique}`; every other brace is left as it is. With `include_history` both sides see all earlier attempts
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
    ) -> None:
        super().__init__(name)
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
            request = _instruction(self.reflection_prompt, context.question, solution.delivery)
            shown = [*history, solution] if self.include_history else [solution]
            review = yield NodeCall(critic, context.extended(*shown, request, reader=self.agent.name))
            critique = Message(review.content, MessageType.CRITIQUE, review.metadata, sender=critic.name)
            accepted = verdict(review.content) is True
            if accepted:
                break
            request = _instruction(self.refinement_prompt, context.question, solution.delivery, critique.delivery)
            shown = [*history, solution, critique] if self.include_history else [solution, critique]
            history += [solution, critique]
            solution = yield NodeCall(self.agent, context.extended(*shown, request, reader=critic.name))
        metadata = {**solution.metadata, "accepted": accepted, "rounds": rounds}
        return Message(solution.content, solution.message_type, metadata, sender=self.name)


def _instruction(prompt: str, question: str = "", solution: str = "", critique: str = "") -> Message:
    """A request of the workflow. Fills the three placeholders, and only them: a prompt may hold any other braces."""
    values = {"question": question, "solution": solution, "critique": critique}
    text = re.sub(r"\{(question|solution|critique)\}", lambda match: values[match[1]], prompt)
    return Message(text, MessageType.USER_INPUT, {"instructions": prompt}, sender="workflow")


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
    ) -> None:
        super().__init__(name)
        self.debaters = list(debaters)
        self.judge = judge
        self.num_rounds = num_rounds

    def steps(self, context: Context) -> Steps:
        outcomes: list[Message | Exception] = []
        said: list[Message] = []
        for number in range(1, self.num_rounds + 1):
            request = _instruction(
                f"Round {number} of the debate. Answer the others' arguments: defend your answer or correct it."
            )
            shown = [*said, request] if said else []
            outcomes = yield Parallel(
                [NodeCall(debater, context.extended(*shown, reader="the other debaters")) for debater in self.debaters]
            )
            said = _labelled(self.debaters, outcomes)
        if self.judge is None or all(isinstance(outcome, Exception) for outcome in outcomes):
            return _elect(self.name, self.debaters, outcomes, [1.0] * len(self.debaters))
        decided = yield NodeCall(self.judge, context.extended(*said))
        return Message(decided.content, MessageType.ENSEMBLE_RESULT, decided.metadata, sender=self.name)


class RouterNode(WorkflowNode):
    """Runs one of `routes`, the one that `routing_func(context)` names, else `default_route`."""

    @contract
    def __init__(
        self,
        name: str,
        routes: Annotated[dict[str, WorkflowNode], Field(min_length=1)],
        routing_func: Callable[..., Any],
        default_route: str = "default",
    ) -> None:
        super().__init__(name)
        self.routes = routes
        self.routing_func = routing_func
        self.default_route = default_route

    def steps(self, context: Context) -> Steps:
        chosen = yield from as_steps(self.routing_func, context)
        route = chosen if chosen in self.routes else self.default_route
        if route not in self.routes:
            known = ", ".join(map(repr, self.routes))
            raise ContractError(
                f"RouterNode {self.name!r}: routing_func chose {chosen!r} and default_route is "
                f"{self.default_route!r}, but the routes are {known}"
            )
        result = yield NodeCall(self.routes[route], context)
        return Message(result.content, result.message_type, {**result.metadata, "route": route}, sender=self.name)
