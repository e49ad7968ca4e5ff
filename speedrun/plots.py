"""Pictures of a speedrun's figures, with matplotlib. Works nothing out."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.data import KINDS
from trainer.evaluate import PassRate

COLOURS = ("#9aa5b1", "#4c8dd6", "#1f4e8c", "#d98032", "#7a5195", "#5b8c5a", "#b0413e", "#444444")


def _figure(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def bars(systems: Mapping[str, Sequence[PassRate]], path: Path) -> None:
    """Accuracy of each system with 95 % intervals: over all problems, then by kind in the order of `KINDS`."""
    figure, axes = _figure(8, 3.6)
    groups = ["all", *KINDS]
    width = 0.8 / len(systems)
    for place, (name, rates) in enumerate(systems.items()):
        heights = [rate.estimate for rate in rates]
        errors = [
            [rate.estimate - rate.low for rate in rates],
            [rate.high - rate.estimate for rate in rates],
        ]
        places = [group + (place - (len(systems) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, heights, width * 0.92, label=name, color=COLOURS[place], yerr=errors, capsize=2)
    axes.set_xticks(range(len(groups)), ["all problems", *(f"{kind}" for kind in KINDS)])
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of correct answers")
    axes.set_title("Held-out problems answered correctly", loc="left")
    figure.legend(loc="outside lower center", ncols=len(systems), frameon=False)
    _save(figure, path)


def curve(correct: Sequence[float], ready: Sequence[float], active: Sequence[Sequence[str]], path: Path) -> None:
    """Shares of correct executions and of programs that can run at each training step; the background says which role
    learned."""
    figure, axes = _figure(8, 3.2)
    shades = {"designer": "#f6e3d0", "executor": "#dce9f7"}
    for step, roles in enumerate(active):
        if len(roles) == 1:
            axes.axvspan(step - 0.5, step + 0.5, color=shades[roles[0]], linewidth=0)
    axes.plot(range(len(correct)), correct, color=COLOURS[2], marker="o", markersize=3, label="correct runs")
    axes.plot(range(len(ready)), ready, color=COLOURS[0], marker=".", markersize=3, label="programs that can run")
    axes.set_xlim(-0.5, len(correct) - 0.5)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("training step")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("share")
    axes.set_title("RL on training problems (blue: the Executor learns, orange: the Designer)", loc="left")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    _save(figure, path)


def points(rates: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """One row per system: each seed's share of correct answers as a dot, their mean as a line."""
    figure, axes = _figure(8, 0.9 + 0.45 * len(rates))
    names = list(rates)
    for place, name in enumerate(reversed(names)):
        values = rates[name]
        colour = COLOURS[names.index(name) % len(COLOURS)]
        mean = sum(values) / len(values)
        axes.plot([mean, mean], [place - 0.28, place + 0.28], color=colour, linewidth=3, solid_capstyle="butt")
        axes.scatter(values, [place] * len(values), color=colour, s=26, zorder=3, edgecolors="white", linewidths=0.8)
    axes.set_yticks(range(len(names)), names[::-1])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_xlabel("share of held-out problems answered correctly (dots: seeds, line: mean)")
    axes.set_title(title, loc="left")
    _save(figure, path)


def lines(panels: Sequence[tuple[str, Mapping[str, Sequence[float]]]], title: str, path: Path) -> None:
    """Panels side by side, each with what its lines show: a value for each training step."""
    figure, first = _figure(8, 3.2)
    first.remove()
    for place, (name, series) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        for colour, (line, values) in zip(COLOURS[1:], series.items(), strict=False):
            axes.plot(range(len(values)), values, color=colour, label=line)
        axes.set_xlabel("training step")
        axes.set_ylabel(name)
        axes.legend(frameon=False)
    figure.suptitle(title, x=0.01, ha="left")
    _save(figure, path)
