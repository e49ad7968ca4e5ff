"""Charts that set things beside each other: bars with intervals, dots with means, one measure against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewer.charts.encodings import (
    SERIES,
    Spec,
    coloured,
    finite,
    labels,
    labels_by_name,
    spec_of,
    texts,
    told,
    value_axis,
)
from viewer.means import mean

INTERVAL = "95 % interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value of one series in one group, and its interval where it has one."""

    group: str
    series: str
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """Two measures of one thing, with an interval of the second."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    route: str | None = None
    """Where a click leads."""


def bars(
    found: Sequence[Bar],
    *,
    title: str = "",
    value_title: str = "",
    bounds: tuple[float, float] | None = (0.0, 1.0),
    across: bool = False,
    colours: Sequence[str] = SERIES,
    height: int = 250,
) -> Spec:
    """Bars side by side in each group, with rules for intervals. `across`: they lie, and names have room."""
    groups, series = labels_by_name(bar.group for bar in found), labels_by_name(bar.series for bar in found)
    rows = [
        {"group": groups[bar.group], "name": series[bar.series], "y": value, "low": low, "high": high}
        | {"said": texts([value])[0], "interval": _said(low, high)}
        for bar in found
        for value, low, high in [finite([bar.value, bar.low, bar.high])]
        if value is not None
    ]
    along, offset, length = ("y", "yOffset", "x") if across else ("x", "xOffset", "y")
    names = list(series.values())
    axis: Spec = {"title": None, "labelLimit": 170, "domain": False, "ticks": False, "labelAngle": 0, "grid": False}
    place = {
        along: {"field": "group", "type": "nominal", "sort": None, "axis": axis}
        | {"scale": {"domain": list(groups.values()), "paddingInner": 0.2, "paddingOuter": 0.1}},
        offset: {"field": "name", "type": "nominal", "sort": None, "scale": {"domain": names, "paddingInner": 0.08}},
        "tooltip": [told("group", "of"), told("name", "by"), told("said", "value"), told("interval", INTERVAL)],
    }
    whole = value_axis("y", value_title, bounds, zero=True)
    drawn = place | {length: whole, "color": coloured(names, colours)}
    ruled = place | {length: whole | {"field": "low"}, f"{length}2": {"field": "high"}}
    layers = [
        {"mark": {"type": "bar", "cornerRadiusEnd": 1}, "data": {"values": rows}, "encoding": drawn},
        {
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "data": {"values": [row for row in rows if row["low"] is not None and row["high"] is not None]},
            "encoding": ruled,
        },
    ]
    step = {"step": 11 if len(names) > 1 else 22, "for": "position" if len(names) < 2 else "offset"}
    return spec_of(layers, title, step if across else height)


def dots(
    found: Mapping[str, Sequence[float | None]],
    *,
    title: str = "",
    value_title: str = "",
    bounds: tuple[float, float] | None = None,
) -> Spec:
    """A row for each name: a dot for each value, and a rule at their mean."""
    names = labels(list(found))
    values = {
        name: [each for each in finite(of) if each is not None] for name, of in zip(names, found.values(), strict=True)
    }
    rows = [{"name": name, "y": value, "said": texts([value])[0]} for name, of in values.items() for value in of]
    means = [{"name": name, "y": mean(of), "said": texts([mean(of)])[0]} for name, of in values.items() if of]
    axis = value_axis("y", value_title, bounds, values=[row["y"] for row in rows])
    if bounds is None:  # or the outermost dots would lie on the names
        axis["scale"] |= {"padding": 12}
    shared = {
        "x": axis,
        "y": {"field": "name", "type": "nominal", "sort": None, "scale": {"domain": names}}
        | {"axis": {"title": None, "labelLimit": 170, "domain": False, "ticks": False, "grid": False}},
        "color": coloured(names, SERIES) | {"legend": None},
    }
    layers = [
        {
            "mark": {"type": "tick", "thickness": 4, "size": 17},
            "data": {"values": means},
            "encoding": shared | {"tooltip": [told("name", "of"), told("said", "mean")]},
        },
        {
            "mark": {"type": "circle", "size": 55, "opacity": 1, "stroke": "white", "strokeWidth": 1},
            "data": {"values": rows},
            "encoding": shared | {"tooltip": [told("name", "of"), told("said", "value")]},
        },
    ]
    return spec_of(layers, title, {"step": 30})


def scatter(
    found: Sequence[Dot],
    *,
    title: str = "",
    x_title: str = "",
    y_title: str = "",
    bounds: tuple[float, float] | None = None,
    log: bool = False,
    height: int = 260,
) -> Spec:
    """A dot for each thing, such as what a system costs and how often it is right, with rules for intervals of y.
    `log` is about x, where 0 and less cannot be drawn."""
    names = labels([dot.name for dot in found])
    rows = []
    for name, dot in zip(names, found, strict=True):
        x, y, low, high = finite([dot.x, dot.y, dot.low, dot.high])
        if x is None or y is None or (log and x <= 0):
            continue
        row: Spec = {"x": x, "y": y, "low": low, "high": high, "name": name, "interval": _said(low, high)}
        row |= {"x_said": texts([x])[0], "y_said": texts([y])[0]}
        rows.append(row | ({"route": dot.route} if dot.route else {}))
    y = value_axis("y", y_title, bounds)
    x = value_axis("x", x_title, zero=True, log=log, values=[row["x"] for row in rows])
    shared = {
        "x": x,
        "color": coloured(names, SERIES),
        "tooltip": [
            told("name", "of"),
            told("x_said", x_title or "x"),
            told("y_said", y_title or "y"),
            told("interval", INTERVAL),
        ],
    }
    cursor = {"cursor": "pointer"} if any(dot.route for dot in found) else {}
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.7},
            "data": {"values": [row for row in rows if row["low"] is not None and row["high"] is not None]},
            "encoding": shared | {"y": y | {"field": "low"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "circle", "size": 90, "opacity": 1, **cursor},
            "data": {"values": rows},
            "encoding": shared | {"y": y},
        },
    ]
    return spec_of(layers, title, height)


def _said(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else " to ".join(texts([low, high]))
