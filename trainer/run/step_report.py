"""What one training step was like, as one line of `metrics.jsonl`: rewards by role and term, structures, failures, the
update's own figures, and where the time went.

Pure functions over rollout trees. Nothing here decides anything or shows anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from pydantic import BaseModel

from trainer.credit import ROLES, RuleName, outcomes, silent_groups
from trainer.evaluate import Diversity, Spread, diversity, spread, structure_shares
from trainer.run.agent_report import AgentReport, agent_reports, turns_to_solve
from trainer.trees import QuestionTree
from trainer.update import UpdateReport
from workflow.completion import Usage
from workflow.failures import FailureKind
from workflow.usage import PolicyRole


class Timings(BaseModel):
    """Seconds, and what they bring. The one part of a report that another run of the same step need not repeat."""

    rollout_s: float = 0.0
    update_s: float = 0.0
    save_s: float = 0.0
    """Waited for a checkpoint: for the one before to be written, and for this one's copy. The rest is written while the
    next steps go on."""
    sync_s: float = 0.0
    """New weights into the engines."""
    tokens_per_s: float = 0.0
    """Completion tokens of the rollout per second of the whole step."""
    prefix_tokens: int | None = None
    """Prompt tokens that the engines did not read again: what runs at the same time decides that."""
    idle_s: dict[str, float] = {}
    """By pool (ranks, engines, run workers): time without work, in the mean over its processes. On a cluster."""


class SyncReport(BaseModel):
    """New weights on their way into one policy's engines."""

    version: int
    bytes: int = 0
    """Of the weights, once; each engine gets as many."""
    seconds: float = 0.0
    gap: float = 0.0
    """Largest difference, in nats, between the log-probabilities of trainer and engines over the probe's tokens."""
    engines: int = 1
    """That serve the new weights."""
    transport: str = "memory"
    device: str | None = None
    """What a run of one process had its weights on, `cpu` or `cuda`. A cluster's configuration says it."""


class StepReport(BaseModel):
    step: int
    active: list[PolicyRole]
    """Roles that learned."""
    questions: int
    designs: int
    executions: int
    reward: float
    """Mean over executions."""
    reward_by_role: dict[PolicyRole, float]
    """Mean over a role's trajectories of the reward that each was credited with."""
    terms: dict[str, float]
    """Mean of each term of the reward (R_correct, the formats), before its weight, over executions."""
    correct: float
    """Share of executions."""
    solved: float
    """Share of questions that some execution solved."""
    ready: float
    """Share of designs that could run."""
    structures: dict[str, float]
    """Share of each structure among designs with a graph (Table 6)."""
    diversity: Diversity
    failures: dict[FailureKind, int]
    """Executions by how they failed; those of designs that could not run included."""
    timed_out: int = 0
    """Executions that a clock ended, their own or that of code which they ran or were graded by: left out of the update
    and of `reward_by_role`, with their designs."""
    candidates_timed_out: int = 0
    """Replies that were scored by themselves and ended so: left out, too."""
    outgrown: int = 0
    """Questions that were too long for the Designer: none of their designs could be asked for."""
    silent: dict[PolicyRole, float]
    """Share of questions whose rewards are all equal: they teach the role nothing."""
    agents: dict[str, AgentReport] = {}
    """By agent, where the rule compares single turns."""
    turns_to_solve: float | None = None
    """See `trainer.run.agent_report`."""
    lengths: dict[PolicyRole, Spread]
    """Tokens that the policy chose, per trajectory."""
    usage: dict[PolicyRole, Usage]
    """Without `prefix_tokens`, which are among the timings."""
    updates: dict[str, UpdateReport]
    """By policy; none where nothing could be learned."""
    weights: dict[str, int]
    """Version of each policy's weights after the step."""
    age: int = 0
    """Steps between the weights that drew the rollout and those that learned from it."""
    syncs: dict[str, SyncReport] = {}
    """By policy whose weights changed. What is timed in them another run need not repeat."""
    timings: Timings = Timings()

    @property
    def warnings(self) -> list[str]:
        """What went by without teaching anything, and what to do about it."""
        told = []
        if self.outgrown:
            told.append(
                f"{self.outgrown} of {self.questions} questions were too long for the Designer, and taught nothing. "
                "Fix: raise rollout.max_prompt_tokens, or leave such problems out of the data"
            )
        if self.timed_out or self.candidates_timed_out:
            replies = f" and {self.candidates_timed_out} single replies" if self.candidates_timed_out else ""
            told.append(
                f"{self.timed_out} of {self.executions} runs{replies} were ended by rollout.limits.wall_s, or code of "
                "theirs by a clock, and left out of the update. Fix: raise it, or lower rollout.max_concurrent"
            )
        for role in self.active:
            if role not in self.silent:
                told.append(f"the {role} had no trajectory to learn from")
            elif self.silent[role] == 1:
                told.append(f"the {role} learned nothing from rewards: wherever they are compared they are equal")
        return told


def usage_by_role(trees: Sequence[QuestionTree]) -> dict[PolicyRole, Usage]:
    designs = [design for tree in trees for design in tree.designs]
    return {
        "designer": Usage.total(design.usage for design in designs),
        "executor": Usage.total(run.usage for design in designs for run in design.executions),
    }


def generated_tokens(usage: Mapping[PolicyRole, Usage], active: Iterable[PolicyRole]) -> int:
    """Completion tokens of the roles that learn."""
    return sum(usage[role].completion_tokens for role in active if role in usage)


def step_report(
    step: int,
    active: Sequence[PolicyRole],
    trees: Sequence[QuestionTree],
    rule: RuleName,
    updates: Mapping[str, UpdateReport],
    weights: Mapping[str, int],
    timings: Timings,
    *,
    syncs: Mapping[str, SyncReport] | None = None,
    age: int = 0,
) -> StepReport:
    designs = [design for tree in trees for design in tree.designs]
    executions = [execution for design in designs for execution in design.executions]
    graphs = [design.graph for design in designs if design.graph is not None]
    trajectories = {role: list(zip(*outcomes(trees, role), strict=True)) for role in ROLES}
    names = dict.fromkeys(term.name for run in executions for term in run.reward.terms)
    silent: dict[PolicyRole, float] = {}
    for role in ROLES:
        flat, questions = silent_groups(trees, role, rule)
        if questions:
            silent[role] = flat / questions
    usage = usage_by_role(trees)
    return StepReport(
        step=step,
        active=sorted(active),
        questions=len(trees),
        designs=len(designs),
        executions=len(executions),
        reward=fmean(run.reward.total for run in executions),
        reward_by_role={
            role: fmean(fmean(each.reward for each in of) for _, of in trajectories[role])
            for role in ROLES
            if trajectories[role]
        },
        terms={
            name: sum(term.value for run in executions for term in run.reward.terms if term.name == name)
            / len(executions)
            for name in names
        },
        correct=fmean(run.correct for run in executions),
        solved=fmean(any(run.correct for run in tree.executions) for tree in trees),
        ready=fmean(design.failure is None for design in designs),
        structures=structure_shares(graphs),
        diversity=diversity(graphs),
        failures=Counter(run.failure for run in executions if run.failure is not None),
        timed_out=sum(run.timed_out for run in executions),
        candidates_timed_out=sum(each.timed_out for run in executions for each in run.candidates),
        outgrown=sum(all(design.outgrew for design in tree.designs) for tree in trees),
        silent=silent,
        agents=agent_reports(trees, rule),
        turns_to_solve=turns_to_solve(trees),
        lengths={role: spread([t.chosen for t, _ in trajectories[role]]) for role in ROLES if trajectories[role]},
        usage={role: replace(total, prefix_tokens=None) for role, total in usage.items()},
        updates={name: update for name, update in updates.items() if update.computed_samples},
        weights=dict(weights),
        age=age,
        syncs=dict(syncs or {}),
        timings=timings.model_copy(update={"prefix_tokens": Usage.total(usage.values()).prefix_tokens}),
    )
