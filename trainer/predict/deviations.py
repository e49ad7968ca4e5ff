"""Least absolute deviations: a line, and factors of a function that is only known by its values.

Plain arithmetic, in which one value that is far off moves little. It knows nothing of training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

SHOWN = 0.03
"""Change of the values, relative to that of a factor, below which they do not show it."""
TOGETHER = 0.25
"""Share of the median deviation that a factor must spare of the mean one to be e times the middle factor. Where values
do not tell factors apart, or are too uncertain to, this holds them together."""
MET = 1e-3
"""A deviation that is none: smaller ones weigh as much, and hold factors together as much, so that values that are met
exactly decide nothing."""
ROUNDS = 10
SCALES = (1.0, 0.4, 0.15, 0.05)
"""Of a step that is taken."""
ENOUGH = 1e-3
"""Gain of a step, in the mean deviation, below which the search ends."""
REACHES = (0.3, 0.1, 0.03)
"""Of moves of single factors, in the end."""
BEST = 3
"""Starts that are followed."""
AHEAD = 30.0
"""One factor over the others in a start."""

Deviations = Callable[[Mapping[str, float]], list[float]]
"""From factors to ln(value / measured), one for each measurement."""


def nonnegative_line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The (f, g), both at least 0, with the least sum of |f a + g b - y| over points (a, b, y), nearly: by least
    squares that are weighted again and again. Where b / a hardly varies, f = g."""
    ratios = [b / a for a, b, _ in points]
    if max(ratios) < 1.1 * min(ratios):
        both = median(y / (a + b) for a, b, y in points)
        return both, both
    weights = [1.0] * len(points)
    f = g = 0.0
    for _ in range(40):
        aa, ab, bb, ay, by = (
            math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
            for values in (
                [a * a for a, _, _ in points],
                [a * b for a, b, _ in points],
                [b * b for _, b, _ in points],
                [a * y for a, _, y in points],
                [b * y for _, b, y in points],
            )
        )
        determinant = aa * bb - ab * ab
        f, g = (bb * ay - ab * by) / determinant, (aa * by - ab * ay) / determinant
        if f < 0:
            f, g = 0.0, by / bb
        if g < 0:
            f, g = ay / aa, 0.0
        least = 1e-3 * fmean(y for _, _, y in points)
        weights = [1 / max(least, abs(f * a + g * b - y)) for a, b, y in points]
    return f, g


def searched(names: Sequence[str], played: Deviations) -> tuple[dict[str, float], list[float]]:
    """The factors with the least deviations, searched over their logarithms from a few starts: one factor for all, and
    each ahead of the others. Factors that hardly change the values are left out, and are 1 for `played`. Returns
    factors, and ln(value / measured) with them."""

    def at(logs: Mapping[str, float]) -> list[float]:
        return played({name: math.exp(value) for name, value in logs.items()})

    starts = [_level(at, {name: math.log(AHEAD) * (name == ahead) for name in names}) for ahead in ("", *names)]
    starts.sort(key=lambda each: _loss(each[1], each[0]))
    found = [_descended(at, *start) for start in starts[:BEST]]
    logs, left = _refined(at, *min(found, key=lambda each: _loss(each[1], each[0])))
    slopes = {name: _slope(at, logs, name, left) for name in logs}
    shown = {name: value for name, value in logs.items() if max(map(abs, slopes[name])) >= SHOWN}
    if 0 < len(shown) < len(logs):
        shown, left = _refined(at, *_descended(at, *_level(at, shown)))
    factors = {name: math.exp(value) for name, value in shown.items()}
    return factors, left if shown else played({})


def _refined(
    at: Callable[[Mapping[str, float]], list[float]], logs: dict[str, float], left: list[float]
) -> tuple[dict[str, float], list[float]]:
    for reach in REACHES:
        logs, left = _polished(at, logs, left, reach)
    return logs, left


def _descended(
    at: Callable[[Mapping[str, float]], list[float]], logs: dict[str, float], left: list[float]
) -> tuple[dict[str, float], list[float]]:
    """Gauss and Newton's steps, as long as they help."""
    for _ in range(ROUNDS):
        least = _loss(left, logs)
        slopes = [_slope(at, logs, name, left) for name in logs]
        step = _newton(left, slopes, list(logs.values()))
        for scale in SCALES:
            tried = {name: value + scale * move for (name, value), move in zip(logs.items(), step, strict=True)}
            now = at(tried)
            if _loss(now, tried) < least:
                logs, left = tried, now
                break
        if least - _loss(left, logs) < ENOUGH:
            break
    return logs, left


def _polished(
    at: Callable[[Mapping[str, float]], list[float]], logs: dict[str, float], left: list[float], reach: float
) -> tuple[dict[str, float], list[float]]:
    """One factor after another a little larger or smaller, as long as that helps."""
    for name in [*logs, *logs]:
        for move in (reach, -reach):
            tried = {**logs, name: logs[name] + move}
            now = at(tried)
            if _loss(now, tried) < _loss(left, logs):
                logs, left = tried, now
                break
    return logs, left


def _level(
    at: Callable[[Mapping[str, float]], list[float]], logs: dict[str, float]
) -> tuple[dict[str, float], list[float]]:
    """The same factors times a common one, with which half of the values are too large."""
    left = at(logs)
    for _ in range(3):  # values are nearly proportional to it
        logs = {name: value - median(left) for name, value in logs.items()}
        left = at(logs)
    return logs, left


def _loss(left: Sequence[float], logs: Mapping[str, float]) -> float:
    """The mean deviation, and how far factors are apart times the usual one: where most values fit, they may be."""
    middle = median(logs.values())
    apart = math.fsum(abs(each - middle) for each in logs.values())
    return fmean(map(abs, left)) + _pull(left) * apart


def _pull(left: Sequence[float]) -> float:
    """Of `TOGETHER`; above 0, so that one step is the best one however few values there are."""
    return TOGETHER * max(MET, median(map(abs, left)))


def _slope(
    at: Callable[[Mapping[str, float]], list[float]], logs: Mapping[str, float], name: str, left: Sequence[float]
) -> list[float]:
    moved = at({**logs, name: logs[name] + 0.1})
    return [(after - before) / 0.1 for after, before in zip(moved, left, strict=True)]


def _newton(left: Sequence[float], slopes: Sequence[Sequence[float]], logs: Sequence[float]) -> list[float]:
    """The step that brings what is left to 0, as far as the pull of `TOGETHER` lets it, by weighted least squares."""
    count, middle = len(slopes), median(logs)
    weights = [1 / max(MET, abs(each)) for each in left]
    pull = _pull(left) * len(left)
    pulls = [pull / max(0.03, abs(each - middle)) for each in logs]
    matrix = [
        [
            math.fsum(w * a * b for w, a, b in zip(weights, slopes[i], slopes[j], strict=True)) + pulls[i] * (i == j)
            for j in range(count)
        ]
        for i in range(count)
    ]
    wanted = [
        -math.fsum(w * a * r for w, a, r in zip(weights, slopes[i], left, strict=True)) - pulls[i] * (logs[i] - middle)
        for i in range(count)
    ]
    return [max(-1.0, min(1.0, each)) for each in _solved(matrix, wanted)]


def _solved(matrix: list[list[float]], wanted: list[float]) -> list[float]:
    """Gauss's elimination with pivots."""
    rows = [[*row, value] for row, value in zip(matrix, wanted, strict=True)]
    count = len(rows)
    for at in range(count):
        pivot = max(range(at, count), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for row in range(at + 1, count):
            share = rows[row][at] / rows[at][at]
            rows[row] = [value - share * above for value, above in zip(rows[row], rows[at], strict=True)]
    found = [0.0] * count
    for at in reversed(range(count)):
        known = math.fsum(rows[at][other] * found[other] for other in range(at + 1, count))
        found[at] = (rows[at][count] - known) / rows[at][at]
    return found
