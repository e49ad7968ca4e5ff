"""The pages of MASPRM's values and of what they take: V against fresh runs, at the steps that went wrong, and in
seconds. Runs nothing."""

from __future__ import annotations

import itertools
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
        f"| mean absolute error | all | {' | '.join(f'depth {depth}' for depth in depths)} | Pearson, seeds |",
        f"|---|---|{'---|' * len(depths)}---|",
    ]
    for name, runs in of.items():
        by_depth = [f"{fmean(fmean(errors(run, depth).values()) for run in runs):.3f}" for depth in depths]
        cells = [str(interval([errors(run) for run in runs])), *by_depth, ", ".join(map(_pearson, runs))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
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
        "(by chance a quarter; the first step falls from the mean of all first steps):",
        "",
        "| | falls most there | seeds |",
        "|---|---|---|",
    ]
    for name, runs in of.items():
        own = ", ".join(f"{fmean(falls(run).values()):.3f}" for run in runs)
        lines.append(f"| {name} | {interval([falls(run) for run in runs])} | {own} |")
    return [*lines, "", *models_table(found), "", *_labels_table(found)]


def errors(run: KeptRun, depth: int | None = None) -> Rates:
    """|V - fresh estimate| of each state, of one depth or of all."""
    rows = zip(run.series["value"], run.series["estimate"], run.series["depth"], strict=True)
    return {str(n): abs(v - y) for n, (v, y, at) in enumerate(rows) if depth in (None, int(at))}


def _pearson(run: KeptRun) -> str:
    values, depths = run.series["value"], [int(depth) for depth in run.series["depth"]]
    found = value_metrics(values, run.series["estimate"], [""] * len(values), depths).pearson
    return "" if found is None else f"{found:.3f}"


def falls(run: KeptRun) -> Rates:
    """Of each pass that went wrong, whether V fell most at that step."""
    wrong, along = run.series["wrong"], run.series["along"]
    steps = len(along) // len(wrong)
    before = fmean(along[::steps])
    found = {}
    for number, at in enumerate(wrong):
        if at >= 0:
            values = [before, *along[number * steps : (number + 1) * steps]]
            changes = [after - value for value, after in itertools.pairwise(values)]
            found[str(number)] = float(changes.index(min(changes)) == int(at))
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
    names = [name for name in runs[0].figures if name != "seconds"]
    lines = [
        "Seconds per agent call and per value (B.9)",
        "On one core, in float32, whatever else ran beside it: one after another, and all of them together; a state of "
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
