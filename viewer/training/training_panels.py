"""How figures of a run's steps become charts: a line or a layer for every name that a step's figures have.

Not here: which figures (`viewer.training.training_charts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainer.run import StepReport
from viewer import charts
from viewer.charts import DESIGNER, EXECUTOR, SERIES, Series, Spec, Steps
from viewer.training.training_data import TrainingRun, windows

ROLE_COLOURS = {"designer": DESIGNER, "executor": EXECUTOR}
OTHERS = tuple(colour for colour in SERIES if colour not in ROLE_COLOURS.values())
MOST_SERIES = 10
MOST_STAGES = 80
"""That are told apart in a chart."""
SHARE = (0.0, 1.0)

Figures = Callable[[StepReport], Mapping[str, float | None]]
"""Of a step, by the names under which they are drawn."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    about: str
    """What is drawn, in words."""
    spec: Spec


class Panels:
    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.windows = windows(run.steps)
        traced = frozenset(run.traced)
        routes = [f"step/{first:06}" if first in traced else None for first, _ in self.windows.spans]
        self.steps = Steps(spans=self.windows.spans, routes=routes, title="")
        found = [charts.Stage(first=each.first, last=each.last, roles=each.roles) for each in run.stages]
        self.stages = found if len(found) <= MOST_STAGES else []
        """To be shaded."""

    def lines(
        self,
        title: str,
        about: str,
        of: Figures,
        *,
        bounds: tuple[float, float] | None = None,
        log: bool = False,
        largest: bool = False,
        joined: bool = False,
        levels: Sequence[charts.Level] = (),
    ) -> list[Panel]:
        """One chart; none where no step has a figure. Several steps in one are drawn by their mean, or the largest."""
        known, note = self._series(of, None, largest=largest)
        if not known:
            return []
        if largest and self.windows.size > 1:
            note += " Of steps that are drawn together the largest."
        spec = charts.lines(self.steps, known, bounds=bounds, log=log, joined=joined, stages=self.stages, levels=levels)
        return [Panel(title, about + note, spec)]

    def stack(self, title: str, about: str, of: Figures, *, bounds: tuple[float, float] | None = None) -> list[Panel]:
        """Figures that add up; what a step does not have is 0. None where all of them are."""
        found, note = self._series(of, 0.0)
        known = [each for each in found if any(each.values)]
        return [Panel(title, about + note, charts.stacked(self.steps, known, bounds=bounds))] if known else []

    def _series(self, of: Figures, absent: float | None, *, largest: bool = False) -> tuple[list[Series], str]:
        """Those with a value, and a word on those that are left out."""
        figures = {report.step: of(report) for report in self.run.steps}
        over = self.windows.largest if largest else self.windows.mean
        names = Counter[str]()
        for of_step in figures.values():
            names.update(name for name, value in of_step.items() if value is not None)
        kept = {name for name, _ in names.most_common(MOST_SERIES)}
        found = [
            Series(name=name, values=over(lambda report, name=name: figures[report.step].get(name, absent)))
            for name in names
            if name in kept
        ]
        known = _coloured([each for each in found if any(value is not None for value in each.values)])
        left = len(names) - len(kept)
        return known, f" {left} more are left out." if left else ""


def _coloured(series: Sequence[Series]) -> list[Series]:
    """The roles in their own colours, and nothing else in those."""
    left = [each.name for each in series if each.name not in ROLE_COLOURS]
    colours = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(left)} | ROLE_COLOURS
    return [replace(each, colour=colours[each.name]) for each in series]
