"""The page of one question of a training step: its matrix of rewards and advantages, and the programs of its designs.

What is on disk (`viewer.runs.question_tree`), what training made of it (`viewer.runs.tree_credit`) and how that is
shown (`viewer.runs.matrix`) come together. A rule that credits single turns has no advantage per run: its calls are
listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from trainer.credit import SINGLE_TURNS, active_roles
from viewer.html import figure, one_line, render
from viewer.means import mean
from viewer.runs.matrix import Matrix
from viewer.runs.question_tree import TreeOnDisk
from viewer.runs.tree_credit import Credit, NoCredit, credit_again
from viewer.sites import Page, link


@dataclass(frozen=True, slots=True)
class Choice:
    """A run that can be compared."""

    path: str
    label: str


def tree_page(tree: TreeOnDisk, place: str, base: str = "") -> Page:
    """The page of a tree whose folder is `place` in the folder that the site shows. `base` stands before all routes."""
    try:
        credit, why_not = credit_again(tree), ""
    except NoCredit as error:
        credit, why_not = None, str(error)
    by_turn = tree.config is not None and tree.config.credit in SINGLE_TURNS
    matrix = Matrix(tree, credit, place, base, by_turn)
    rows = matrix.rows()
    title = _title(tree)
    choices, best, worst = _choices(tree, place)
    body = render(
        "tree.html",
        tree=tree,
        title=title,
        facts=_facts(tree, credit),
        notes=_notes(tree, why_not, by_turn),
        rows=rows,
        executions=[cell.execution for cell in rows[0].cells] if rows else [],
        by_turn=by_turn and credit is not None,
        has_designer=any(design.design is not None for design in tree.designs),
        has_credit=credit is not None,
        calls=matrix.calls() if credit is not None and _has_calls(tree) else [],
        choices=choices,
        best=best,
        worst=worst,
        before=_neighbour(tree, place, base, -1),
        after=_neighbour(tree, place, base, 1),
        compare_route=f"{base}compare",
        link=link,
    )
    return Page(title=title, body=body)


def _choices(tree: TreeOnDisk, place: str) -> tuple[list[Choice], str, str]:
    """Runs with traces, and the paths of the best and the worst of them."""
    runs = [(design, run) for design, run in tree.runs if run.summary is not None]
    choices = [
        Choice(
            f"{place}/{run.file}",
            f"design {design.index}, execution {run.execution}"
            + (f" · reward {figure(run.reward)}" if run.reward is not None else ""),
        )
        for design, run in runs
    ]
    rewarded = [(run.reward, f"{place}/{run.file}") for _, run in runs if run.reward is not None]
    if len({reward for reward, _ in rewarded}) > 1:
        return choices, max(rewarded, key=lambda each: each[0])[1], min(rewarded, key=lambda each: each[0])[1]
    return choices, choices[0].path if choices else "", choices[-1].path if choices else ""


def _neighbour(tree: TreeOnDisk, place: str, base: str, by: int) -> tuple[str, str] | None:
    """Label and route of the question before or after this one."""
    names = tree.neighbours
    here = names.index(tree.folder.name) if tree.folder.name in names else None
    if here is None or not 0 <= here + by < len(names):
        return None
    name = names[here + by]
    label = f"question {name.partition('-')[2].lstrip('0') or '0'}"
    return label, f"{base}tree/{PurePosixPath(place).parent / name}"


def _has_calls(tree: TreeOnDisk) -> bool:
    """Whether samples are single replies."""
    config = tree.config
    return config is not None and (config.credit in SINGLE_TURNS or config.reward.kind == "turns")


def _title(tree: TreeOnDisk) -> str:
    step = "a step" if tree.step is None else f"step {tree.step}"
    return f"Question {tree.folder.name if tree.number is None else tree.number} of {step}"


def _facts(tree: TreeOnDisk, credit: Credit | None) -> list[tuple[str, str]]:
    rewards = [0.0 if design.is_rejected else run.reward for design, run in tree.runs]
    known = [reward for reward in rewards if reward is not None]
    correct = sum(bool(run.summary and run.summary.correct) for _, run in tree.runs)
    rejected = sum(design.is_rejected for design in tree.designs)
    designs, runs = len(tree.designs), len(tree.runs) // max(1, len(tree.designs))
    facts = [("", f"{designs} design{'' if designs == 1 else 's'} × {runs} execution{'' if runs == 1 else 's'}")]
    if known:
        facts.append(("mean reward", f"{figure(mean(known))} over {len(known)} of {len(rewards)} executions"))
    facts.append(("correct", f"{correct} of {len(tree.runs)}"))
    if rejected:
        facts.append(("designs that could not run", str(rejected)))
    if tree.config is not None:
        facts.append(("credit", tree.config.credit))
    if credit is not None:
        told = [each.advantage for samples in credit.executions.values() for each in samples]
        left_out = sum(each is None for each in told)
        facts.append(("samples of agents", f"{len(told)}{f', {left_out} of them left out' if left_out else ''}"))
    return facts


def _notes(tree: TreeOnDisk, why_not: str, by_turn: bool) -> list[str]:
    notes = [f"No advantages: {one_line(why_not)}."] if why_not else []
    timed_out = sum(bool(run.summary and run.summary.timed_out) for _, run in tree.runs)
    if timed_out:
        are = "1 execution was" if timed_out == 1 else f"{timed_out} executions were"
        notes.append(
            f"{are} ended by the wall clock and left out of training, and so was the design, for the Designer."
        )
    if tree.config is not None and tree.step is not None:
        active = active_roles(tree.step, tree.config.schedule, tree.config.stage_length)
        if tree.config.rollout.program is not None:
            pass  # there is but one role
        elif active == {"designer"}:
            notes.append("At this step the Designer alone learned: advantages of agents changed nothing.")
        elif active == {"executor"}:
            notes.append("At this step agents alone learned: the Designer's advantages changed nothing.")
    if not any(each.design is not None or any(run.summary is not None for run in each.runs) for each in tree.designs):
        notes.append(
            "Nothing is here, though a later step has begun: the question was too long for the Designer, or its traces "
            "were removed."
            if tree.is_over
            else "Nothing is here yet, or the question was too long for the Designer."
        )
    if by_turn and tree.config is not None and tree.config.rollout.branching is not None:
        notes.append(
            "Replies to one call are compared with each other. One whose own run was ended by the wall clock was left "
            "out of training, which traces do not say: it is counted here."
        )
    return notes
