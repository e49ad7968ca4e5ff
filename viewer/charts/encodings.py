"""What charts have in common: numbers and names that can be drawn, colours, axes, legends, the frame of a spec.

Draws nothing by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from viewer.html import figure, one_line

Spec = dict[str, Any]
DESIGNER, EXECUTOR = "#c4722a", "#3f83cc"
SERIES = (EXECUTOR, DESIGNER, "#3f9560", "#9a6cc4", "#d0584f", "#2a9297", "#8c8730", "#c65f93", "#808b97", "#9c7752")
"""Told apart on white and on the page's dark paper: each has a contrast of 3 and more with both."""
LONGEST_NAME = 48
"""Characters of a name in a legend or on an axis."""
TOO_LARGE = 1e200
"""Not to be drawn: sums with it would be infinite."""
NARROW = 46
"""Characters that fit beside each other on a phone, in a legend."""


def finite(values: Iterable[float | None]) -> list[float | None]:
    """With six digits; None for what cannot be drawn."""
    return [float(f"{value:.6g}") if value is not None and abs(value) < TOO_LARGE else None for value in values]


def texts(values: Iterable[float | None]) -> list[str]:
    """The same for people."""
    return [figure(value, 4) for value in finite(values)]


def labels(names: Sequence[str]) -> list[str]:
    """Each name as one visible line, no two of them alike."""
    found: dict[str, None] = {}
    for name in names:
        label, number = one_line(name, LONGEST_NAME) or "–", 1
        while label in found:
            number += 1
            label = f"{one_line(name, LONGEST_NAME - 6)} ({number})"
        found[label] = None
    return list(found)


def labels_by_name(names: Iterable[str]) -> dict[str, str]:
    """The label of each name that occurs."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, labels(distinct), strict=True))


def legend(names: Sequence[str]) -> Spec | None:
    """Below the chart, in as many columns as a phone has room for; none for a single name."""
    if len(names) < 2:
        return None
    longest = max(map(len, names)) + 4
    columns = max(1, min(len(names), NARROW // longest))
    return {"orient": "bottom", "direction": "horizontal", "columns": columns, "title": None, "labelLimit": 280}


def coloured(names: Sequence[str], colours: Sequence[str], field: str = "name") -> Spec:
    """The colour of each name; from the first on again where there are more names than colours."""
    range_ = [colours[place % len(colours)] for place in range(len(names))]
    scale = {"domain": list(names), "range": range_}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend(names)}


def value_axis(
    field: str,
    title: str = "",
    bounds: tuple[float, float] | None = None,
    *,
    zero: bool = False,
    log: bool = False,
    values: Iterable[float | None] = (),
) -> Spec:
    """A number's axis; `zero`: it begins there. A logarithmic one has lines at the powers of ten among `values`. Where
    all of those are alike, they are in the middle."""
    scale: Spec = {"type": "log"} if log else {"zero": zero}
    axis: Spec = {"title": title or None, "tickCount": 5}
    shown = [value for value in values if value is not None and (value > 0 or not log)]
    if bounds is not None:
        scale["domain"] = list(bounds)
    elif shown and not log and not zero and min(shown) == max(shown):
        around = abs(shown[0]) / 2 or 1.0
        scale["domain"] = [shown[0] - around, shown[0] + around]
    if log and shown:
        low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)))
        powers = [float(f"1e{power}") for power in range(low, high + 1)]
        axis |= {"values": powers, "format": ".0e" if low < -3 else ",~g"}
    return {"field": field, "type": "quantitative", "axis": axis, "scale": scale}


def told(field: str, title: str) -> Spec:
    """A line of a tooltip. Its values are text: a gap formatted as a number would be told as 0."""
    return {"field": field, "type": "nominal", "title": title}


def spec_of(layers: Sequence[Spec], title: str, height: int | Spec) -> Spec:
    """As wide as the place it is put in."""
    made: Spec = {
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
    }
    return made | ({"title": one_line(title)} if title else {})
