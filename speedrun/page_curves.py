"""What a page says of RL as it goes on: what each arm spent, whether its curve still moves, and how many of its designs
are programs. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, variance

from speedrun.intervals import beyond_seeds
from speedrun.report import NO_PROGRAM
from speedrun.systems import System
from speedrun.variants import Comparison
from trainer.run import StepReport
from workflow.usage import PolicyRole

ROLES: tuple[PolicyRole, ...] = ("designer", "executor")


def budgets(systems: Sequence[System]) -> list[str]:
    """What each arm spent, per seed in the mean."""
    lines = [
        "What each spent, per seed; left out: executions that a clock ended, and questions too long for the Designer:",
        "",
        "| | Designer's updates | Executor's updates | designs | executions | tokens generated | left out |",
        "|---|---|---|---|---|---|---|",
    ]
    for system in systems:
        if not any(system.steps):
            continue
        updates = [fmean(sum(role in step.active for step in steps) for steps in system.steps) for role in ROLES]
        spent = [
            fmean(sum(step.designs for step in steps) for steps in system.steps),
            fmean(sum(step.executions for step in steps) for steps in system.steps),
            fmean(sum(u.completion_tokens for step in steps for u in step.usage.values()) for steps in system.steps),
            fmean(sum(step.timed_out + step.outgrown for step in steps) for steps in system.steps),
        ]
        lines.append(f"| {system.name} | {' | '.join(f'{value:,.0f}' for value in [*updates, *spent])} |")
    return lines


def curves(systems: Sequence[System], control: Sequence[Sequence[StepReport]] = ()) -> list[str]:
    """`control` are the steps, by seed, of an arm that was asked the same questions and learned nothing from them."""
    less = ""
    if control:
        less = (
            ", less the same of the Executor whose rewards were shuffled: some steps have harder questions, and all "
            "arms of a seed are asked the same ones"
        )
    lines = [
        "On training problems, in the first and in the last quarter of the steps. Change: the last quarter less that "
        f"before it{less}; and two standard errors of that. Beyond them a curve still moves; within them it may. Where "
        "stages alternate the two quarters can be stages of different roles.",
        "",
        "| | right, first | right, last | change | valid programs, first | last | of each seed, in its worst step |",
        "|---|---|---|---|---|---|---|",
    ]
    for system in systems:
        if not any(system.steps):
            continue
        right, ready = (_means(system.steps, name) for name in ("correct", "ready"))
        quarter = max(len(right) // 4, 1)
        level = _means(control, "correct") if control and system.steps != control else [0.0] * len(right)
        moved, bound = moving([value - other for value, other in zip(right, level, strict=False)], quarter)
        shown = [fmean(right[:quarter]), fmean(right[-quarter:])]
        valid = [fmean(ready[:quarter]), fmean(ready[-quarter:])]
        said = f"{moved:+.3f} ± {bound:.3f}{', still moves' if abs(moved) > bound else ''}"
        if control and system.steps == control:
            said = "is what the others are less"
        worst = ", ".join(f"{min(step.ready for step in steps):.0%}" for steps in system.steps)
        cells = [f"{shown[0]:.3f}", f"{shown[1]:.3f}", said, f"{valid[0]:.1%}", f"{valid[1]:.1%}", worst]
        lines.append(f"| {system.name} | {' | '.join(cells)} |")
    return lines


def _means(seeds: Sequence[Sequence[StepReport]], name: str) -> list[float]:
    """Over the seeds, step by step."""
    return [fmean(getattr(step, name) for step in steps) for steps in zip(*seeds, strict=True)]


def moving(values: Sequence[float], quarter: int) -> tuple[float, float]:
    """How far the mean of the last `quarter` values is from that of those before, and two standard errors of that."""
    before, last = values[-2 * quarter : -quarter] or values[:1], values[-quarter:]
    spread = sum(variance(each) / len(each) for each in (before, last) if len(each) > 1)
    return fmean(last) - fmean(before), 2 * spread**0.5


def validity(comparison: Comparison, systems: Sequence[System]) -> list[str]:
    """How many programs were valid in all steps together, and by how much more than in other arms, seed by seed; then
    the same of designs for held-out problems, in the end."""
    over_steps = {
        system.name: [fmean(step.ready for step in steps) for steps in system.steps]
        for system in systems
        if any(system.steps)
    }
    in_the_end = {system.name: [1 - share for share in _no_programs(system)] for system in systems}
    lines = ["The share of valid programs over all steps, of each seed:", "", "| | mean | seeds |", "|---|---|---|"]
    for name, own in over_steps.items():
        lines.append(f"| {name} | {fmean(own):.1%} | {', '.join(f'{each:.1%}' for each in own)} |")
    lines += [
        "",
        "Differences in valid programs, in points, over all steps, and in the end for held-out problems; above or "
        "below where a t test over the seeds says so:",
        "",
        "| | over the steps | seeds | | in the end | seeds | |",
        "|---|---|---|---|---|---|---|",
    ]
    for one, other in comparison.pairs:
        cells = [cell for valid in (over_steps, in_the_end) for cell in _points(valid[one], valid[other])]
        lines.append(f"| {one} less {other} | {' | '.join(cells)} |")
    return [*lines, ""]


def _points(
    mine: Sequence[float], theirs: Sequence[float], *, words: tuple[str, str] = ("above", "below")
) -> list[str]:
    """The mean difference of shares, that of each seed, and which of the two it is, if that can be told."""
    gaps = [100 * (one - other) for one, other in zip(mine, theirs, strict=True)]
    told = words[fmean(gaps) < 0] if beyond_seeds(gaps) else "cannot tell"
    return [f"{fmean(gaps):+.1f}", ", ".join(f"{gap:+.1f}" for gap in gaps), told]


def spoilt(systems: Sequence[System], began: Mapping[str, System]) -> list[str]:
    """How many designs for held-out problems are no programs at the end, and how many more than before RL. `began`: the
    row that a system began from, by its name."""
    lines = [
        "Designs for held-out problems that are no programs, in the end, and the difference to before RL, in points; "
        "more or fewer where a t test over the seeds says so:",
        "",
        "| | no programs | seeds | difference | seeds | |",
        "|---|---|---|---|---|---|",
    ]
    for system in systems:
        own = _no_programs(system)
        cells = [f"{fmean(own):.1%}", ", ".join(f"{each:.1%}" for each in own)]
        before = began.get(system.name)
        cells += ["", "", ""] if before is None else _points(own, _no_programs(before), words=("more", "fewer"))
        lines.append(f"| {system.name} | {' | '.join(cells)} |")
    return lines


def _no_programs(system: System) -> list[float]:
    return [fmean(each.pattern == NO_PROGRAM for each in seed) for seed in system.sampled]
