"""Charts over the steps of a training run: lines, and shares that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from viewer.charts.encodings import (
    DESIGNER,
    EXECUTOR,
    SERIES,
    Spec,
    coloured,
    finite,
    labels,
    spec_of,
    texts,
    told,
    value_axis,
)

HEIGHT = 190
FEW = 60
"""Values of a line that are marked with a point each."""
SEAM = 0.0015
"""Of the width of a chart: half a pixel."""
SHADES = {"designer": DESIGNER, "executor": EXECUTOR}
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2])
"""Of the first lines, of as many as there are colours; of the next ones; and of those behind them."""
SHADE = 0.13


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the x axis shows."""

    spans: Sequence[tuple[int, int]]
    """The first and the last step that each value stands for; they rise."""
    routes: Sequence[str | None] = ()
    """Where a click on each leads."""
    title: str = "training step"

    @classmethod
    def single(cls, count: int) -> Steps:
        """So many from 0 on, a value for each."""
        return cls(spans=[(step, step) for step in range(count)])

    @property
    def centres(self) -> list[float]:
        return [(first + last) / 2 for first, last in self.spans]

    @property
    def edges(self) -> list[Spec]:
        """What each takes of the x axis."""
        return [{"x": first - 0.5, "x2": last + 0.5} for first, last in self.spans]

    @property
    def said(self) -> list[str]:
        return [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in self.spans]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    values: Sequence[float | None]
    """One for each step."""
    colour: str = ""
    """By its place among the others where it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Steps, both ends included, at which the same roles learn."""

    first: float
    last: float
    roles: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A value that holds from one step to another, both included."""

    first: float
    last: float
    value: float


def stages_of(active: Sequence[Sequence[str]]) -> list[Stage]:
    """Of the roles that learn at each step, from 0 on."""
    found: list[Stage] = []
    for roles, steps in groupby(range(len(active)), key=lambda step: list(active[step])):
        of = list(steps)
        found.append(Stage(first=of[0], last=of[-1], roles=roles))
    return found


def lines(
    steps: Steps,
    series: Sequence[Series],
    *,
    title: str = "",
    value_title: str = "",
    bounds: tuple[float, float] | None = None,
    log: bool = False,
    joined: bool = False,
    stages: Sequence[Stage] = (),
    name_stages: bool = False,
    levels: Sequence[Level] = (),
    height: int = HEIGHT,
) -> Spec:
    """A line for each series. On a logarithmic axis 0 and less are gaps; if `joined`, lines go on over gaps.

    `stages` shade the background where one role learns, with a legend if `name_stages`; `levels` are thick bars behind
    the lines. A tooltip has all values of the step under the pointer.
    """
    names, centres = labels([each.name for each in series]), steps.centres
    rows: list[Spec] = []
    for name, each in zip(names, series, strict=True):
        values = [None if log and (value or 0) <= 0 else value for value in finite(each.values)]
        placed = [{"x": x, "y": y, "name": name} for x, y in zip(centres, values, strict=True)]
        rows += [row for row in placed if row["y"] is not None or not joined]
    encoding = {
        "x": _step_axis(steps),
        "y": value_axis("y", value_title or _only(names), bounds, log=log, values=[row["y"] for row in rows]),
        "color": coloured(names, _colours(series)),
    }
    if len(names) > len(SERIES):
        encoding |= _dashed(names, encoding["color"])
    few = len(rows) <= FEW * len(names)
    mark: Spec = {"type": "line", "strokeWidth": 1.7, "invalid": "break-paths-filter-domains", "aria": False}
    mark |= {"point": {"size": 20, "filled": True}} if few else {}
    layers = [*_shades(stages, name_stages), *_levels(levels, log)]
    layers.append({"mark": mark, "data": {"values": rows}, "encoding": encoding})
    if not few and (alone := _alone(rows)):
        point = {"type": "point", "filled": True, "opacity": 1, "size": 20, "aria": False}
        layers.append({"mark": point, "data": {"values": alone}, "encoding": encoding})
    layers.append(_on_top(steps, names, series))
    return spec_of(layers, title, height)


def stacked(
    steps: Steps,
    series: Sequence[Series],
    *,
    title: str = "",
    value_title: str = "",
    bounds: tuple[float, float] | None = None,
    height: int = HEIGHT,
) -> Spec:
    """What the series add up to at each step, the first at the bottom. A gap counts as nothing; values below 0 do,
    too."""
    names, found = labels([each.name for each in series]), [finite(each.values) for each in series]
    rows = []
    over = SEAM * (steps.spans[-1][1] - steps.spans[0][0] + 1) if steps.spans else 0.0
    for place, edges in enumerate(steps.edges):
        if place + 1 < len(steps.spans):
            edges["x2"] += over  # under the next one, so that no seam shows between them
        low = 0.0
        for name, values in zip(names, found, strict=True):
            value = values[place] or 0.0
            if value > 0:
                rows.append({**edges, "y": low, "y2": low + value, "name": name})
                low += value
    encoding = {
        "x": _step_axis(steps),
        "x2": {"field": "x2"},
        "y": value_axis("y", value_title or _only(names), bounds, zero=True),
        "y2": {"field": "y2"},
        "color": coloured(names, _colours(series)),
    }
    mark = {"type": "rect", "opacity": 1, "aria": False}
    drawn = {"mark": mark, "data": {"values": rows}, "encoding": encoding}
    return spec_of([drawn, _on_top(steps, names, series)], title, height)


def _only(names: Sequence[str]) -> str:
    """The name that no legend says."""
    return names[0] if len(names) == 1 else ""


def _dashed(names: Sequence[str], colour: Spec) -> Spec:
    """Lines of which more are to be told apart than there are colours."""
    legend = colour["legend"] | {"symbolType": "stroke", "symbolSize": 300}
    scale = {
        "domain": list(names),
        "range": [DASHES[place // len(SERIES) % len(DASHES)] for place in range(len(names))],
    }
    dash = {"field": "name", "type": "nominal", "scale": scale, "legend": legend}
    return {"color": colour | {"legend": legend}, "strokeDash": dash}


def _colours(series: Sequence[Series]) -> list[str]:
    return [each.colour or SERIES[place % len(SERIES)] for place, each in enumerate(series)]


def _step_axis(steps: Steps) -> Spec:
    first, last = (steps.spans[0][0], steps.spans[-1][1]) if steps.spans else (0, 0)
    axis = {"title": steps.title or None, "tickMinStep": 1, "format": ",d", "grid": False, "labelFlush": False}
    scale = {"domain": [first - 0.5, last + 0.5], "nice": False, "zero": False}
    return {"field": "x", "type": "quantitative", "axis": axis, "scale": scale}


def _shades(stages: Sequence[Stage], named: bool) -> list[Spec]:
    rows = [
        {"x": stage.first - 0.5, "x2": stage.last + 0.5, "role": f"{stage.roles[0]} learns"}
        for stage in stages
        if len(stage.roles) == 1 and stage.roles[0] in SHADES
    ]
    if not rows:
        return []
    scale = {"domain": [f"{role} learns" for role in SHADES], "range": list(SHADES.values())}
    legend = {
        "orient": "bottom",
        "title": None,
        "symbolOpacity": 3 * SHADE,
        "symbolStrokeWidth": 0,
        "direction": "horizontal",
    }
    encoding = {
        "x": {"field": "x", "type": "quantitative"},
        "x2": {"field": "x2"},
        "fill": {"field": "role", "type": "nominal", "scale": scale, "legend": legend if named else None},
    }
    return [{"mark": {"type": "rect", "opacity": SHADE, "aria": False}, "data": {"values": rows}, "encoding": encoding}]


def _levels(levels: Sequence[Level], log: bool) -> list[Spec]:
    rows = [
        {"x": level.first - 0.5, "x2": level.last + 0.5, "y": value}
        for level, value in zip(levels, finite(level.value for level in levels), strict=True)
        if value is not None and (value > 0 or not log)
    ]
    encoding = {name: {"field": name, "type": "quantitative"} for name in ("x", "y")} | {"x2": {"field": "x2"}}
    mark = {"type": "rule", "strokeWidth": 5, "opacity": 0.35, "aria": False}
    return [{"mark": mark, "data": {"values": rows}, "encoding": encoding}] if rows else []


def _alone(rows: Sequence[Spec]) -> list[Spec]:
    """Values between two gaps, of which a line shows nothing."""
    found = []
    for place, row in enumerate(rows):
        beside = [rows[at] for at in (place - 1, place + 1) if 0 <= at < len(rows)]
        if row["y"] is not None and not any(each["y"] is not None and each["name"] == row["name"] for each in beside):
            found.append(row)
    return found


def _on_top(steps: Steps, names: Sequence[str], series: Sequence[Series]) -> Spec:
    """What hears the pointer: a strip for each step, with all that is to be told of it."""
    found = [texts(each.values) for each in series]
    rows = []
    for place, (edges, said) in enumerate(zip(steps.edges, steps.said, strict=True)):
        row: Spec = {**edges, "at": said}
        row |= {f"v{number}": values[place] for number, values in enumerate(found)}
        if steps.routes and (route := steps.routes[place]):
            row["route"] = route
        rows.append(row)
    tooltip = [told("at", "step"), *(told(f"v{number}", name) for number, name in enumerate(names))]
    pointed = {"name": "pointed", "select": {"type": "point", "on": "pointerover", "clear": "pointerout"}}
    mark: Spec = {"type": "rect", "color": "#808b97", "aria": False}
    return {
        "mark": mark | ({"cursor": "pointer"} if any(steps.routes) else {}),
        "data": {"values": rows},
        "params": [pointed],
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "x2": {"field": "x2"},
            "opacity": {"condition": {"param": "pointed", "empty": False, "value": 0.18}, "value": 0},
            "tooltip": tooltip,
        },
    }
