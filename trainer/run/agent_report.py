"""What each agent's replies were like in a step, where single turns are rewarded or compared. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from pydantic import BaseModel

from trainer.credit import SINGLE_TURNS, RuleName, outcomes, silent_by_agent
from trainer.samples import Trajectory
from trainer.trees import QuestionTree


class AgentReport(BaseModel):
    """Of the replies of one agent that are learned from."""

    replies: int
    reward: float
    """Mean of what they were credited with."""
    terms: dict[str, float]
    """Mean of each term of the reward of a turn, before its weight, over the replies that have it."""
    entropy: float
    """Nats per token, estimated as the mean of -log p of the tokens that were drawn."""
    silent: float
    """Share of the groups in which none of them has an advantage: they teach nothing."""


def agent_reports(trees: Sequence[QuestionTree], rule: RuleName) -> dict[str, AgentReport]:
    """By agent; empty where whole runs are rewarded and compared."""
    if rule not in SINGLE_TURNS and not any(run.candidates for tree in trees for run in tree.executions):
        return {}
    replies: dict[str, list[tuple[Trajectory, float]]] = defaultdict(list)
    for trajectory, rewards in zip(*outcomes(trees, "executor"), strict=True):
        replies[trajectory.coordinates.agent].append((trajectory, fmean(each.reward for each in rewards)))
    terms: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for candidate in (each for tree in trees for run in tree.executions for each in run.candidates):
        for term in [] if candidate.timed_out else candidate.reward.terms:
            terms[candidate.trajectory.coordinates.agent][term.name].append(term.value)
    silent = silent_by_agent(trees, rule)
    return {
        agent: AgentReport(
            replies=len(said),
            reward=fmean(reward for _, reward in said),
            terms={name: fmean(values) for name, values in terms[agent].items()},
            entropy=_entropy([trajectory for trajectory, _ in said]),
            silent=silent[agent],
        )
        for agent, said in sorted(replies.items())
    }


def turns_to_solve(trees: Sequence[QuestionTree]) -> float | None:
    """How often the agent that spoke most was asked, in the mean over runs that solved their problem and whose turns
    were scored one by one. Turns from T on, at which nothing parts, do not count. None where there is no such run."""
    solved = [run for tree in trees for run in tree.executions if run.correct and run.candidates]
    return (
        fmean(1 + max(each.trajectory.coordinates.turn for each in run.candidates) for run in solved)
        if solved
        else None
    )


def _entropy(trajectories: Sequence[Trajectory]) -> float:
    tokens = sum(trajectory.chosen for trajectory in trajectories)
    return -sum(sum(trajectory.behaviour_logprobs) for trajectory in trajectories) / max(1, tokens)
