"""The pages of MASPRM's values and of what they take: V against fresh runs, at the steps that went wrong, and in
seconds. Runs nothing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from speedrun.intervals import Rates, interval, paired
from speedrun.masprm.guided_arms import PERFECT, READ
from speedrun.masprm.search_runs import Job, KeptRun
from trainer.values import value_metrics
from viewer.charts import Bar, bars, png

Found = Mapping[Job, KeptRun]
SHOWN = ("rows", "rmse", "mae", "bias", "r2", "pearson", "sign")
"""Of a model's figures."""


def values_page(found: Found, folder: Path) -> list[str]:
    names = (*READ, PERFECT)
    of = {name: [run for job, run in found.items() if (job.task, job.name) == ("reading", name)] for name in names}
    depths = sorted({int(depth) for run in of["V"] for depth in run.series["depth"]})
    measured = [
        Bar(group=name, series=f"depth {depth}", value=fmean(fmean(errors(run, depth).values()) for run in of[name]))
        for name in names
        for depth in depths
    ]
    png(bars(measured, value_title="mean absolute error", bounds=None), folder / "values.png")
    count = sum(len(run.series["value"]) for run in of["V"])
    lines = [
        "Values against fresh runs, and at the steps that went wrong",
        f"{count} states of held-out problems, at every depth as many, each with the mean R of fresh runs from it; of "
        "runs that have ended, their R. `perfect` knows whether a step was right: what a perfect V would say. The "
        "paper has no such figures.",
        "",
        "In each cell the mean absolute error, the bias (V less the estimate), and Pearson's correlation where both "
        "vary. Trees of four agents with three children have 81 ends: 160 simulations visit each about twice, and more "
        "of them would say nothing new.",
        "",
        f"| | all | {' | '.join(f'depth {depth}' for depth in depths)} | Pearson, seeds |",
        f"|---|---|{'---|' * len(depths)}---|",
    ]
    for name, runs in of.items():
        cells = [f"{interval([errors(run) for run in runs])}, {_shown(runs, None)}"]
        cells += [f"{fmean(fmean(errors(run, at).values()) for run in runs):.3f}, {_shown(runs, at)}" for at in depths]
        lines.append(f"| {name} | {' | '.join([*cells, ', '.join(map(_of_all, runs))])} |")
    lines += ["", "![Errors by depth](values.png)", "", "Less that of V (N = 40, local view, rows alike):", ""]
    lines += ["| | error | | falls | |", "|---|---|---|---|---|"]
    for name in names[1:]:
        error = paired([errors(run) for run in of[name]], [errors(run) for run in of["V"]])
        fall = paired([falls(run) for run in of[name]], [falls(run) for run in of["V"]])
        cells = [error.shown, error.told, fall.shown, fall.told]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "How often V falls most at the very step that went wrong, of the four steps of a straight pass that went wrong "
        "(the first step falls from the mean of all first steps). By chance: how often it would, were the falls of "
        "each pass those of another one:",
        "",
        "| | falls most there | seeds | by chance |",
        "|---|---|---|---|",
    ]
    for name, runs in of.items():
        own = ", ".join(f"{fmean(falls(run).values()):.3f}" for run in runs)
        chance = fmean(map(by_chance, runs))
        lines.append(f"| {name} | {interval([falls(run) for run in runs])} | {own} | {chance:.3f} |")
    return [*lines, "", *models_table(found), "", *_labels_table(found)]


def errors(run: KeptRun, depth: int | None = None) -> Rates:
    """|V - fresh estimate| of each state, of one depth or of all."""
    rows = zip(run.series["value"], run.series["estimate"], run.series["depth"], strict=True)
    return {str(n): abs(v - y) for n, (v, y, at) in enumerate(rows) if depth in (None, int(at))}


def bias_and_pearson(run: KeptRun, depth: int | None = None) -> tuple[float, float | None]:
    """Of the states of one depth or of all; no correlation where V or the estimates are all the same."""
    rows = zip(run.series["value"], run.series["estimate"], run.series["depth"], strict=True)
    values, estimates, depths = zip(*(row for row in rows if depth in (None, int(row[2]))), strict=True)
    found = value_metrics(values, estimates, [""] * len(values), [int(each) for each in depths])
    return found.bias, found.pearson


def _shown(runs: Sequence[KeptRun], depth: int | None) -> str:
    biases, pearsons = zip(*(bias_and_pearson(run, depth) for run in runs), strict=True)
    known = [each for each in pearsons if each is not None]
    return f"{fmean(biases):+.3f}" + (f", {fmean(known):.2f}" if len(known) == len(runs) else "")


def _of_all(run: KeptRun) -> str:
    _, found = bias_and_pearson(run)
    return "" if found is None else f"{found:.3f}"


def falls(run: KeptRun) -> Rates:
    """Of each pass that went wrong, whether V fell most at that step."""
    return {number: float(fell == wrong) for number, (fell, wrong) in _fallen(run).items()}


def by_chance(run: KeptRun) -> float:
    """The share of pairs of passes of which the one fell most where the other went wrong."""
    fell, wrong = (Counter(steps) for steps in zip(*_fallen(run).values(), strict=True))
    return sum(fell[step] * wrong[step] for step in fell) / fell.total() ** 2


def _fallen(run: KeptRun) -> Mapping[str, tuple[int, int]]:
    """Of each pass that went wrong, the step at which V fell most, and the one that went wrong."""
    wrong, along = run.series["wrong"], run.series["along"]
    steps = len(along) // len(wrong)
    before = fmean(along[::steps])
    found = {}
    for number, at in enumerate(wrong):
        if at >= 0:
            values = [before, *along[number * steps : (number + 1) * steps]]
            changes = [after - value for value, after in itertools.pairwise(values)]
            found[str(number)] = (changes.index(min(changes)), int(at))
    return found


def models_table(found: Found) -> list[str]:
    """How good each model of values is on the problems that it did not learn from, against their labels."""
    models: dict[str, list[KeptRun]] = {}
    for job, run in found.items():
        if job.task == "model":
            models.setdefault(job.name, []).append(run)
    if not models:
        return []
    lines = [
        "Models of values against the labels of the 5 % of the training problems that they did not learn from, means "
        "over seeds:",
        "",
        f"| | {' | '.join(SHOWN)} |",
        f"|---|{'---|' * len(SHOWN)}",
    ]
    for name, runs in models.items():
        cells = [_figure(runs, shown) for shown in SHOWN]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _figure(runs: Sequence[KeptRun], name: str) -> str:
    values = [run.figures[name] for run in runs if name in run.figures]
    return (
        "" if not values else f"{fmean(values):,.0f}" if name in ("rows", "calls", "edges") else f"{fmean(values):.3f}"
    )


def _labels_table(found: Found) -> list[str]:
    labels: dict[str, list[KeptRun]] = {}
    for job, run in found.items():
        if job.task == "labels":
            labels.setdefault(job.name, []).append(run)
    lines = ["What the labels took, means over seeds:", "", "| | agent calls | rows | simulations right |"]
    lines += ["|---|---|---|---|"]
    for name, runs in labels.items():
        lines.append(f"| {name} | {' | '.join(_figure(runs, shown) for shown in ('calls', 'edges', 'right'))} |")
    return lines


def wall_page(found: Found) -> list[str]:
    runs = [run for job, run in found.items() if job.task == "wall"]
    names = list(runs[0].figures)
    lines = [
        "Seconds per agent call and per value (B.9)",
        "On one core, in float32, no other job beside it: one after another, and all of them together; a state of "
        "a label tree with a scripted policy that takes no time, in this process and with a jail for each replay. In "
        "the paper a call takes 18.94 s and a value 0.16 s: 118 times less.",
        "",
        "| | milliseconds | seeds |",
        "|---|---|---|",
    ]
    for name in names:
        own = ", ".join(f"{1000 * run.figures[name]:.2f}" for run in runs)
        lines.append(f"| {name} | {1000 * fmean(run.figures[name] for run in runs):.2f} | {own} |")
    ratios = [
        (f"a {first} takes", fmean(run.figures[first] / run.figures[other] for run in runs), f"times a {other}")
        for first, other in (
            ("call, alone", "value, alone"),
            ("call, together", "value, together"),
            ("state, jailed", "state, in this process"),
        )
    ]
    return [*lines, "", *(f"- {what} {ratio:.1f} {than}" for what, ratio, than in ratios)]
