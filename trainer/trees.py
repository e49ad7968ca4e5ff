"""What the rollout of one step brings: for each question a tree of M designs with N executions each, as plain data.

Grown by `trainer.rollout`, read by credit rules and reports. Nothing here runs, rewards or credits anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import ConfigDict

from tasks.problems import Problem
from trainer.samples import Trajectory
from workflow.completion import Usage
from workflow.failures import FailureKind
from workflow.graph import GraphNode
from workflow.trace import Rewarded

_AS_WRITTEN = ConfigDict(extra="forbid")
"""What an earlier version wrote of rollouts that wait is not read as something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One of the replies that were drawn for an agent's call, or the only one, scored by itself
    (`trainer.rollout.turn_sampling`)."""

    __pydantic_config__ = _AS_WRITTEN

    trajectory: Trajectory
    """Of this turn alone; its `Coordinates.point` names the call."""
    reward: Rewarded
    chosen: bool
    """Whether the run went on with it."""

    @property
    def timed_out(self) -> bool:
        """As of an `Execution`: a clock ended what it is rewarded for."""
        return self.reward.timed_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a design, or what stands for it where the design could not run."""

    __pydantic_config__ = _AS_WRITTEN

    index: int
    reward: Rewarded
    failure: FailureKind | None = None
    trajectories: list[Trajectory] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    duration_s: float = 0.0
    candidates: list[Candidate] = field(default_factory=list)
    """Where turns are scored one by one: what agents learn from, in place of trajectories. Where the run parted, usage
    is of all runs then, the rest of the chosen one."""

    @property
    def timed_out(self) -> bool:
        """A clock ended it, or code that it ran or was graded by: that says as much of the machine as of the program,
        so it teaches nobody."""
        return self.reward.timed_out

    @property
    def correct(self) -> bool:
        return any(term.name == "correct" and term.value == 1 for term in self.reward.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignResult:
    """One design of a question with its executions."""

    index: int
    program: str | None
    graph: GraphNode | None
    failure: FailureKind | None
    """Why it could not run; its executions then have reward 0."""
    trajectories: list[Trajectory]
    """The Designer's; none where the program was given."""
    executions: list[Execution]
    usage: Usage = field(default_factory=Usage)
    """Of the Designer's replies."""

    @property
    def outgrew(self) -> bool:
        """Whether the question was too long for the Designer's model."""
        return self.failure == "limit_exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionTree:
    """M designs of one question, ordered by index, with N executions each."""

    problem: Problem
    designs: list[DesignResult]

    @property
    def executions(self) -> list[Execution]:
        return [execution for design in self.designs for execution in design.executions]
