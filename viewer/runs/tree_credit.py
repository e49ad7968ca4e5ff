"""The advantages of one question's tree, worked out again from its traces by what training itself uses.

A tree is made of what the traces say (`trainer.trees`), with trajectories cut as training cuts them
(`trainer.samples`) but without their tokens, which no rule of credit knows. Then `trainer.credit.credited` does what it
did. Where rewards are missing there are no advantages: they would be others.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from tasks.problems import Problem
from trainer.config import TrainConfig
from trainer.credit import SINGLE_TURNS, credited
from trainer.disk import plain_files
from trainer.rollout import not_run
from trainer.samples import Coordinates, NoTokens, Trajectory, designer_trajectories, executor_trajectories
from trainer.trees import Candidate, DesignResult, Execution, QuestionTree
from viewer.reading import kind_of, why_no_event
from viewer.runs.question_tree import DesignOnDisk, RunOfDesign, TreeOnDisk
from workflow.completion import Completion
from workflow.failures import Failure
from workflow.trace import AgentTurn, Rewarded, RewardTerm

MOST_BYTES = 1 << 30
"""Of all traces of a tree that are read for its advantages."""
LONGEST_LINE = 1 << 27
QUESTION = "question"
"""Stands for the problem's id, which is not in traces. All designs of a tree have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """One sample of an execution: a trajectory, or a reply to one call."""

    agent: str
    path: str
    turn: int
    call: str
    """Key of the call; empty for a trajectory of several."""
    number: int = 0
    """Of a candidate among those of its call."""
    chosen: bool = True
    reward: float
    advantage: float | None
    """None where training left it out."""


@dataclass(frozen=True, slots=True)
class Credit:
    designs: dict[int, float | None]
    """Advantage of each design; None for one that the Designer learns nothing from: it was given, or left out."""
    executions: dict[tuple[int, int], list[Credited]]
    """Samples by design and execution."""
    trajectories: dict[int, int]
    """How many the Designer has of each design."""


class NoCredit(Exception):
    """Advantages cannot be worked out, and why, in words."""


def credit_again(tree: TreeOnDisk) -> Credit:
    """The advantages that training gave. Raises `NoCredit`."""
    if tree.config is None:
        raise NoCredit(f"the rule of credit is not known: {tree.wrong}")
    _check_whole(tree)
    rule = tree.config.credit
    try:
        grown, calls = _grown(tree, tree.config)
        by_role = {role: credited([grown], role, rule) for role in ("designer", "executor")}
    except (NoTokens, ValueError) as error:
        raise NoCredit(str(error)) from None
    except OSError as error:
        raise NoCredit(f"{error.filename} cannot be read: {error.strerror}") from None
    advantages = {id(trajectory): advantage for each in by_role.values() for trajectory, advantage in each}
    designs: dict[int, float | None] = {}
    executions: dict[tuple[int, int], list[Credited]] = {}
    for design in grown.designs:
        first = design.trajectories[0] if design.trajectories else None
        designs[design.index] = advantages.get(id(first)) if first is not None else None
        for run in design.executions:
            samples = [(each, run.reward.total, True) for each in run.trajectories]
            samples += [(each.trajectory, each.reward.total, each.chosen) for each in run.candidates]
            executions[design.index, run.index] = [
                _credited(each, reward, chosen, calls, advantages.get(id(each))) for each, reward, chosen in samples
            ]
    return Credit(designs, executions, {design.index: len(design.trajectories) for design in grown.designs})


def _credited(
    trajectory: Trajectory, reward: float, chosen: bool, calls: dict[int, tuple[str, int]], advantage: float | None
) -> Credited:
    at = trajectory.coordinates
    call, number = calls.get(id(trajectory), ("", 0))
    return Credited(
        agent=at.agent,
        path=at.path,
        turn=at.turn,
        call=call,
        number=number,
        chosen=chosen,
        reward=reward,
        advantage=advantage,
    )


def _check_whole(tree: TreeOnDisk) -> None:
    waiting = [design for design in tree.designs if design.wrong or (design.design is None and design.program is None)]
    if waiting:
        told = waiting[0].wrong or f"there is no design {waiting[0].index}"
        raise NoCredit(f"{told}; rewards of all designs are compared")
    for _, run in tree.runs:
        if run.summary is not None and run.summary.state == "broken" and run.summary.reward is not None:
            raise NoCredit(f"{run.file}, {run.summary.wrong}")
    missing = [(design, run) for design, run in tree.runs if not design.is_rejected and run.reward is None]
    if missing:
        design, run = missing[0]
        raise NoCredit(
            f"{len(missing)} of {len(tree.runs)} executions have no reward, such as design {design.index}, execution "
            f"{run.execution}; rewards of all are compared"
        )
    size = sum(run.summary.size for _, run in tree.runs if run.summary is not None)
    if size > MOST_BYTES:
        raise NoCredit(f"the traces of this question have {size / 1e9:.1f} GB, more than are read for a page")


def _grown(tree: TreeOnDisk, config: TrainConfig) -> tuple[QuestionTree, dict[int, tuple[str, int]]]:
    """The tree as training had it, and of each candidate's trajectory, by its `id`, the key of its call and its
    number."""
    calls: dict[int, tuple[str, int]] = {}
    designs = []
    for each in tree.designs:
        design = each.design
        turns = ((turn.completion, turn.request.sampling) for turn in design.turns) if design is not None else ()
        designs.append(
            DesignResult(
                index=each.index,
                program=each.program,
                graph=design.graph if design is not None else None,
                failure=design.error.kind if design is not None and design.error is not None else None,
                trajectories=designer_trajectories(turns, question=QUESTION, design=each.index),
                executions=[_execution(tree.folder, each, run, config, calls) for run in each.runs],
            )
        )
    problem = Problem(id=QUESTION, question=tree.question or "?", domain="math", gold="?")
    return QuestionTree(problem=problem, designs=designs), calls


def _execution(
    folder: Path, design: DesignOnDisk, run: RunOfDesign, config: TrainConfig, calls: dict[int, tuple[str, int]]
) -> Execution:
    if design.is_rejected:
        failure = design.design.error if design.design is not None else None
        return not_run(run.execution, failure or Failure(kind="program_rejected", message=""))
    summary = run.summary
    assert summary is not None
    assert summary.reward is not None
    turns, candidates = _read(folder / run.file)
    execution = Execution(
        index=run.execution,
        reward=Rewarded(total=summary.reward, terms=[], timed_out=summary.timed_out),
    )
    if config.rollout.branching is None and config.reward.kind == "run":
        execution.trajectories.extend(
            executor_trajectories(
                turns,
                question=QUESTION,
                design=design.index,
                execution=run.execution,
                single_turns=config.credit in SINGLE_TURNS,
            )
        )
        return execution
    seen: dict[str, int] = {}
    at_path: Counter[str] = Counter()
    for each in candidates:
        path = each.key.rpartition("#")[0]
        if each.key not in seen:
            seen[each.key] = at_path[path]
            at_path[path] += 1
        drawn = config.rollout.branching is not None
        trajectory = _without_tokens(
            Coordinates(
                question=QUESTION,
                design=design.index,
                execution=each.number if drawn else run.execution,
                agent=each.agent,
                path=path,
                turn=seen[each.key],
                point=f"{run.execution}/{each.key}",
            )
        )
        calls[id(trajectory)] = each.key, each.number
        late = each.timed_out or (summary.timed_out and not drawn)
        execution.candidates.append(
            Candidate(
                trajectory=trajectory,
                reward=Rewarded(total=each.reward, terms=each.terms, timed_out=late),
                chosen=each.chosen,
            )
        )
    return execution


def _without_tokens(coordinates: Coordinates) -> Trajectory:
    return Trajectory(
        role="executor",
        coordinates=coordinates,
        token_ids=array("i"),
        loss_mask=array("b"),
        behaviour_logprobs=array("f"),
    )


# What of a trace credit depends on


class _Reply(BaseModel):
    """That a call had a reply."""


class _Turn(BaseModel):
    key: str
    path: str
    agent: str
    completion: _Reply | None = None
    continues: str | None = None


class _Scored(BaseModel):
    """A candidate, or the reward of the only reply to a call."""

    key: str
    agent: str
    number: int = 0
    chosen: bool = True
    reward: float
    terms: list[RewardTerm]
    timed_out: bool = False


_READ: dict[str, TypeAdapter[Any]] = {
    "agent_call": TypeAdapter(_Turn),
    "candidate": TypeAdapter(_Scored),
    "turn_rewarded": TypeAdapter(_Scored),
}


def _read(path: Path) -> tuple[list[AgentTurn], list[_Scored]]:
    """Turns without messages and tokens, and rewards of single replies. Raises OSError, and `NoCredit` for a line that
    is no event."""
    turns: list[AgentTurn] = []
    scored: list[_Scored] = []
    for number, line in enumerate(_lines(path), 1):
        kind = kind_of(line)
        if kind is None and (wrong := why_no_event(line)):
            raise NoCredit(f"{path.name}, line {number}: {wrong}")
        if kind not in _READ:
            continue
        try:
            event = _READ[kind].validate_json(line.decode(errors="replace"))
        except ValidationError:
            raise NoCredit(f"{path.name}, line {number}: {why_no_event(line) or 'it is another event'}") from None
        if isinstance(event, _Scored):
            scored.append(event)
            continue
        done = Completion(text="", prompt_token_ids=[], token_ids=[], logprobs=[]) if event.completion else None
        turns.append(
            AgentTurn(
                key=event.key,
                path=event.path,
                agent=event.agent,
                messages=[],
                completion=done,
                continues=event.continues,
            )
        )
    return turns, scored


def _lines(path: Path) -> Iterator[bytes]:
    with open(plain_files.opened(path), "rb") as file:
        while line := file.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise NoCredit(f"{path.name} has a line of more than {LONGEST_LINE:,} bytes")
            yield line
