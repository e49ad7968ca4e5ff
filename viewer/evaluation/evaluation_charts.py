"""The two charts of evaluations as Vega-Lite specs: bars with intervals, and cost against accuracy.

Plain dicts with their data inside; names are data and never part of an expression. Drawing is the document's
(`assets/app.js`), and what is worth a chart the pages'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from viewer.html import one_line

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Says which language this is; nothing is loaded from it."""
COLOURS = ["#4a8fdb", "#e08a3c", "#3fa57a", "#b36ad1"]
SHAPES = ["circle", "square", "triangle-up", "diamond"]
LONGEST_NAME = 40
BAR_STEP = 22
"""Pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value with its 95 % interval, shares in [0, 1] or differences of them."""

    name: str
    value: float
    low: float
    high: float
    told: str
    """What is said of it when it is pointed at."""
    group: str = ""
    route: str = ""
    """Where a click on it leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What something costs, and how often it is right."""

    name: str
    cost: float
    value: float
    low: float
    high: float
    told: str
    group: str = ""
    route: str = ""


def interval_bars(bars: Sequence[Bar], axis: str, *, differences: bool = False) -> dict[str, Any]:
    """A bar for each value, in this order from above; bars of one name and several groups stand below each other.
    Differences are drawn in percentage points."""
    groups = _names(bars)
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 170}}
    offset = {"yOffset": {"field": "group", "type": "nominal", "sort": groups}} if len(groups) > 1 else {}
    x = {
        "field": "value",
        "type": "quantitative",
        "title": axis,
        "stack": None,
        "axis": {"format": "+.1~f" if differences else "%", "tickCount": 6},
        "scale": {} if differences else {"domain": [0, 1]},
    }
    return {
        **_frame([_datum(bar, 100 if differences else 1) for bar in bars]),
        "height": BAR_STEP * max(len(bars), 1),
        "encoding": {"y": y, **offset, "tooltip": _TOOLTIP},
        "layer": [
            {
                "mark": {"type": "bar", "opacity": 0.6, "height": {"band": 0.75}},
                "encoding": {"x": x, "color": _coloured(groups)},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 1.6},
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "color": _GREY},
            },
        ],
    }


def cost_scatter(points: Sequence[Point], cost: str, value: str) -> dict[str, Any]:
    """A point with its interval for each of them, and its name beside it. `cost` and `value` are the axes' titles."""
    groups, ordered = _names(points), sorted(points, key=lambda point: point.cost)
    y = {"type": "quantitative", "title": value, "axis": {"format": "%", "tickCount": 6}}
    colour = _coloured(groups)
    return {
        **_frame([_datum(point) for point in ordered]),
        "height": 240,
        "encoding": {
            "x": {"field": "cost", "type": "quantitative", "title": cost, "scale": _cost_scale(ordered)},
            "tooltip": _TOOLTIP,
        },
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.6},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {"y": {**y, "field": "value"}, "color": colour, **_shaped(groups)},
            },
            *(_labels(some, y, left, above) for (left, above), some in _by_place(ordered).items()),
        ],
    }


def _cost_scale(ordered: Sequence[Point]) -> dict[str, Any]:
    """From 0 where the cheapest is near it, since nothing costs less."""
    least, most = (ordered[0].cost, ordered[-1].cost) if ordered else (0.0, 0.0)
    if least == most:
        return {"domain": [0, 2 * most or 1]}
    return {"domain": [0, 1.08 * most]} if least < most / 4 else {"zero": False, "padding": 24}


def _by_place(ordered: Sequence[Point]) -> dict[tuple[bool, bool], list[Point]]:
    """Where the names of points go, ordered by cost: to the left of those that cost much, so that none leaves the
    chart; above and below by turns, so that neighbours do not meet."""
    middle = (ordered[0].cost + ordered[-1].cost) / 2 if ordered else 0.0
    found: dict[tuple[bool, bool], list[Point]] = {}
    for place, point in enumerate(ordered):
        found.setdefault((point.cost > middle, place % 2 == 0), []).append(point)
    return found


def _labels(points: Sequence[Point], y: dict[str, Any], left: bool, above: bool) -> dict[str, Any]:
    align, dx, dy = "right" if left else "left", -8 if left else 8, -7 if above else 11
    return {
        "data": {"values": [_datum(point) for point in points]},
        "mark": {"type": "text", "align": align, "dx": dx, "dy": dy, "fontSize": 11},
        "encoding": {"y": {**y, "field": "value"}, "text": {"field": "name", "type": "nominal"}},
    }


_TOOLTIP = {"field": "told", "type": "nominal"}
_GREY = {"value": "#7a8591"}
_LEGEND = {"title": None, "orient": "top"}


def _frame(values: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "$schema": SCHEMA,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": values},
    }


def _datum(of: Bar | Point, times: int = 1) -> dict[str, Any]:
    return {
        **asdict(of),
        "value": times * of.value,
        "low": times * of.low,
        "high": times * of.high,
        "name": one_line(of.name, LONGEST_NAME),
        "group": one_line(of.group, LONGEST_NAME),
        "told": one_line(of.told),
    }


def _names(of: Sequence[Bar] | Sequence[Point]) -> list[str]:
    """Of the groups, in their order."""
    return list(dict.fromkeys(one_line(each.group, LONGEST_NAME) for each in of))


def _coloured(groups: Sequence[str]) -> dict[str, Any]:
    if len(groups) < 2:
        return {"value": COLOURS[0]}
    scale = {"domain": list(groups), "range": [COLOURS[place % len(COLOURS)] for place in range(len(groups))]}
    return {"field": "group", "type": "nominal", "scale": scale, "legend": _LEGEND}


def _shaped(groups: Sequence[str]) -> dict[str, Any]:
    """For those who do not tell colours apart."""
    if len(groups) < 2:
        return {}
    scale = {"domain": list(groups), "range": [SHAPES[place % len(SHAPES)] for place in range(len(groups))]}
    return {"shape": {"field": "group", "type": "nominal", "scale": scale, "legend": _LEGEND}}
