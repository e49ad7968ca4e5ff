"""Charts of rates with their intervals: bars below each other, and cost against rate with the names at the points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewer.charts.encodings import SERIES, Spec, coloured, finite, labels, labels_by_name, spec_of
from viewer.html import one_line

SHAPES = ("circle", "square", "triangle-up", "diamond")
BAR_STEP = 22
"""Pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share in [0, 1] or a difference of two, with its 95 % interval."""

    name: str
    value: float
    low: float
    high: float
    told: str
    """What is said of it when it is pointed at."""
    kind: str = ""
    """What the name is one of, where a chart has rates of several kinds, of which two may have one name."""
    group: str = ""
    route: str = ""
    """Where a click on it leads."""
    cost: float = 0.0
    """What it was had for."""


def rate_bars(rates: Sequence[Rate], axis: str, *, differences: bool = False) -> Spec:
    """A bar for each rate, in this order from above; bars of one name and several groups stand below each other.
    Differences are drawn in percentage points."""
    rows, groups = _rows(rates, 100 if differences else 1), list(labels_by_name(rate.group for rate in rates).values())
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 170}}
    offset = {"yOffset": {"field": "group", "type": "nominal", "sort": groups}} if len(groups) > 1 else {}
    x = {
        "type": "quantitative",
        "title": axis,
        "stack": None,
        "axis": {"format": "+.1~f" if differences else "%", "tickCount": 6},
        "scale": {} if differences else {"domain": [0, 1]},
    }
    place = {"y": y, **offset, "tooltip": _TOOLTIP}
    layers = [
        {
            "mark": {"type": "bar", "opacity": 0.6, "height": {"band": 0.75}},
            "data": {"values": rows},
            "encoding": place | {"x": {**x, "field": "value"}, "color": coloured(groups, SERIES, "group")},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 1.6},
            "data": {"values": rows},
            "encoding": place | {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": _GREY},
        },
    ]
    return spec_of(layers, "", BAR_STEP * max(len(rates), 1))


def cost_scatter(rates: Sequence[Rate], cost: str, rate: str) -> Spec:
    """A point with its interval for each rate, and its name beside it. `cost` and `rate` are the axes' titles."""
    rows = sorted(_rows(rates), key=lambda row: row["cost"])
    groups = list(labels_by_name(each.group for each in rates).values())
    x = {"field": "cost", "type": "quantitative", "title": cost, "scale": _cost_scale([row["cost"] for row in rows])}
    y = {"type": "quantitative", "title": rate, "axis": {"format": "%", "tickCount": 6}}
    place = {"x": x, "tooltip": _TOOLTIP}
    colour = {"color": coloured(groups, SERIES, "group")}
    value = place | {"y": {**y, "field": "value"}}
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.6},
            "data": {"values": rows},
            "encoding": place | colour | {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "data": {"values": rows},
            "encoding": value | colour | _shaped(groups, colour["color"]["legend"]),
        },
        *(_names(some, value, left, above) for (left, above), some in _by_place(rows).items()),
    ]
    return spec_of(layers, "", 240)


_TOOLTIP = {"field": "told", "type": "nominal"}
_GREY = {"value": "#7a8591"}


def _rows(rates: Sequence[Rate], times: int = 1) -> list[Spec]:
    groups = labels_by_name(rate.group for rate in rates)
    keys = list(dict.fromkeys((rate.kind, rate.name) for rate in rates))
    names = dict(zip(keys, labels([f"{kind} {name}" if kind else name for kind, name in keys]), strict=True))
    return [
        {"name": names[rate.kind, rate.name], "group": groups[rate.group], "told": one_line(rate.told)}
        | {"route": rate.route, "value": value, "low": low, "high": high, "cost": cost}
        for rate in rates
        for value, low, high, cost in [finite([times * rate.value, times * rate.low, times * rate.high, rate.cost])]
        if value is not None and cost is not None
    ]


def _cost_scale(costs: Sequence[float]) -> Spec:
    """From 0 where the cheapest is near it, since nothing costs less."""
    least, most = (costs[0], costs[-1]) if costs else (0.0, 0.0)
    if least == most:
        return {"domain": [0, 2 * most or 1]}
    return {"domain": [0, 1.08 * most]} if least < most / 4 else {"zero": False, "padding": 24}


def _by_place(rows: Sequence[Spec]) -> dict[tuple[bool, bool], list[Spec]]:
    """Where names go, of points by their cost: to the left of those that cost much, so that none leaves the chart;
    above and below by turns, so that neighbours do not meet."""
    middle = (rows[0]["cost"] + rows[-1]["cost"]) / 2 if rows else 0.0
    found: dict[tuple[bool, bool], list[Spec]] = {}
    for place, row in enumerate(rows):
        found.setdefault((row["cost"] > middle, place % 2 == 0), []).append(row)
    return found


def _names(rows: Sequence[Spec], value: Spec, left: bool, above: bool) -> Spec:
    align, dx, dy = "right" if left else "left", -8 if left else 8, -7 if above else 11
    return {
        "data": {"values": list(rows)},
        "mark": {"type": "text", "align": align, "dx": dx, "dy": dy, "fontSize": 11},
        "encoding": value | {"text": {"field": "name", "type": "nominal"}},
    }


def _shaped(groups: Sequence[str], legend: Spec | None) -> Spec:
    """For those who do not tell colours apart."""
    scale = {"domain": list(groups), "range": [SHAPES[place % len(SHAPES)] for place in range(len(groups))]}
    return {"shape": {"field": "group", "type": "nominal", "scale": scale, "legend": legend}}
