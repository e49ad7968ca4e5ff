"""The ensemble: several nodes answer the same thing, and a vote or a judge makes one result of it.

How a vote is counted is `workflow.voting`'s.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workflow.agent import Nodes, WorkflowNode, notes
from workflow.checks import contract
from workflow.failures import ContractError
from workflow.messages import Context, Message, MessageType
from workflow.nodes.common import answers_of, elect, is_split, labelled, said_by, votes
from workflow.requests import NodeCall, Parallel, Steps

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EnsembleNode(WorkflowNode):
    """Members work in parallel on the same context; a vote or a judge makes one result.

    `majority_vote` and `weighted_vote` compare final answers and return the first member's message with the
    winning answer. `consensus` shows every member's delivery, labelled, to `consensus_agent`. Beside `majority_vote`
    a `consensus_agent` is asked where the votes are split; members that agree need no judge. `weighted_vote` asks none.
    """

    @contract
    def __init__(
        self,
        name: str,
        agents: Annotated[Nodes, Field(min_length=1)],
        strategy: Literal["majority_vote", "weighted_vote", "consensus"] = "majority_vote",
        consensus_agent: WorkflowNode | None = None,
        weights: list[Weight] | dict[str, Weight] | None = None,
        *,
        description: str = "",
        role: str = "",
    ) -> None:
        super().__init__(name, **notes(description, role))
        self.strategy = strategy
        self.consensus_agent = consensus_agent
        if strategy == "consensus" and consensus_agent is None:
            raise ContractError(f"EnsembleNode {name!r}: strategy 'consensus' needs consensus_agent=AgentNode(...)")
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
        judge = None if self.strategy == "weighted_vote" else self.consensus_agent
        reader = judge.name if judge else ""
        outcomes = yield Parallel([NodeCall(agent, context.extended(reader=reader)) for agent in self.agents])
        answers = answers_of(outcomes)
        failed = all(isinstance(outcome, Exception) for outcome in outcomes)
        asked = self.strategy == "consensus" or is_split(answers)
        if judge is None or failed or not asked:
            result = elect(self.name, self.agents, outcomes, self.weights)  # raises, naming all failures, where all did
        else:
            decided = yield NodeCall(judge, context.extended(*labelled(self.agents, outcomes)))
            metadata = {**decided.metadata, "judge": judge.name, "votes": votes(self.agents, answers, self.weights)}
            result = Message(decided.content, MessageType.ENSEMBLE_RESULT, metadata, sender=self.name)
        about = {"strategy": self.strategy, "num_agents": len(self.agents), "all_responses": said_by(outcomes)}
        result.metadata.update(about)
        return result
