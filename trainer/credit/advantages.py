"""From rollout trees to the samples of one update: rewards to outcomes, a credit rule, then masking by role.

The rules are in `trainer.credit.rules`, the stages in `trainer.credit.stages`; here they meet the trajectories. Knows
no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from trainer.credit.rules import RULES, TOLERANCE, Outcome, RuleName, loss_group, zero_variance
from trainer.samples import Sample, Trajectory
from trainer.trees import QuestionTree
from workflow.usage import PolicyRole

ROLES: tuple[PolicyRole, ...] = ("designer", "executor")


def outcomes(trees: Sequence[QuestionTree], role: PolicyRole) -> tuple[list[Trajectory], list[list[Outcome]]]:
    """A role's trajectories, and for each its outcomes: its run's reward for an executor's, its own for a candidate's,
    one reward per execution of its design for a designer's. Runs whose wall clock struck are left out, and with one of
    them its whole design is for the Designer: one that hangs where it would be wrong must not be credited with what is
    left. Trees, designs, executions and trajectories keep their order."""
    trajectories: list[Trajectory] = []
    rewards: list[list[Outcome]] = []
    for design in (design for tree in trees for design in tree.designs):
        in_time = [run for run in design.executions if not run.timed_out]
        if role == "designer":
            for trajectory in design.trajectories if len(in_time) == len(design.executions) else []:
                trajectories.append(trajectory)
                rewards.append(
                    [Outcome(replace(trajectory.coordinates, execution=run.index), run.reward.total) for run in in_time]
                )
            continue
        for run in design.executions:
            for trajectory in [] if run.timed_out else run.trajectories:
                trajectories.append(trajectory)
                rewards.append([Outcome(trajectory.coordinates, run.reward.total)])
            for candidate in run.candidates:
                if not candidate.timed_out:
                    trajectories.append(candidate.trajectory)
                    rewards.append([Outcome(candidate.trajectory.coordinates, candidate.reward.total)])
    return trajectories, rewards


def credited(trees: Sequence[QuestionTree], role: PolicyRole, rule: RuleName) -> list[tuple[Trajectory, float]]:
    """Each trajectory of a role with its advantage."""
    trajectories, rewards = outcomes(trees, role)
    advantages = RULES[rule][role]([outcome for each in rewards for outcome in each])
    firsts = accumulate((len(each) for each in rewards), initial=0)  # all outcomes of a trajectory get the same
    return [(trajectory, advantages[first]) for trajectory, first in zip(trajectories, firsts, strict=False)]


def samples_by_policy(
    trees: Sequence[QuestionTree],
    rule: RuleName,
    policies: Mapping[PolicyRole, str],
    active: Collection[PolicyRole],
    *,
    anchored: bool = False,
    agents: Mapping[str, str] | None = None,
) -> dict[str, list[Sample]]:
    """What each policy learns from: samples of the active roles only (Eq. 9), so that those of an inactive role change
    no gradient, whether or not the roles share a policy. With `anchored` a policy that learns gets its inactive role's
    samples, too, with an advantage of 0: nothing but a KL term says anything of them.

    `agents` has the policies of single agents by their names, in place of the Executor's: each learns from what its own
    agents said.

    Where both roles learn at once with one policy (`coupled`), they are one batch, in which each role's trajectories
    of a question are a group: the objective's `aggregation` says what counts as one.
    """
    samples: dict[str, list[Sample]] = {}
    learning = {policies[role] for role in active}
    for role in ROLES:
        if role not in active and not (anchored and policies[role] in learning):
            continue
        for trajectory, advantage in credited(trees, role, rule):
            own = (agents or {}).get(trajectory.coordinates.agent) if role == "executor" else None
            policy = own or policies[role]
            samples.setdefault(policy, []).append(
                Sample(
                    policy=policy,
                    token_ids=trajectory.token_ids,
                    loss_mask=trajectory.loss_mask,
                    behaviour_logprobs=trajectory.behaviour_logprobs,
                    advantage=advantage if role in active else 0.0,
                    held=role not in active,
                    temperature=trajectory.temperature,
                    group=f"{role}/{loss_group(rule, trajectory.coordinates)}",
                )
            )
    return samples


def silent_by_agent(trees: Sequence[QuestionTree], rule: RuleName) -> dict[str, float]:
    """Of each agent the share of the loss's groups in which none of its replies has an advantage: they teach it
    nothing."""
    largest: dict[tuple[str, str], float] = {}
    for trajectory, advantage in credited(trees, "executor", rule):
        place = trajectory.coordinates.agent, loss_group(rule, trajectory.coordinates)
        largest[place] = max(largest.get(place, 0.0), abs(advantage))
    agents = sorted({agent for agent, _ in largest})
    silent = {agent: [size <= TOLERANCE for (name, _), size in largest.items() if name == agent] for agent in agents}
    return {agent: sum(each) / len(each) for agent, each in silent.items()}


def silent_groups(trees: Sequence[QuestionTree], role: PolicyRole, rule: RuleName = "tree") -> tuple[int, int]:
    """Questions that teach a role nothing, since their rewards are all equal where the rule compares them, and
    questions with trajectories of that role at all."""
    _, rewards = outcomes(trees, role)
    return zero_variance([outcome for each in rewards for outcome in each], role, rule)
