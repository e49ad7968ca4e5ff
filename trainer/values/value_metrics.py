"""How good predicted values are: plain figures, by agent and by depth, and a table of calibration.

Pure arithmetic on numbers: no model, no state.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from pydantic import BaseModel

BINS = 10
"""Of equal width, over [-1, 1]."""

Key = TypeVar("Key", str, int)


class Accuracy(BaseModel):
    """Of values V against targets y."""

    count: int
    rmse: float
    mae: float
    bias: float
    """The mean of V - y."""
    r2: float | None
    """1 - sum (V - y)^2 / sum (y - mean y)^2; None where all y are the same."""
    pearson: float | None
    """None where all y, or all V, are the same."""
    sign: float | None
    """Share of the states with y other than 0 where V has its sign; None where there are none."""


class CalibrationBin(BaseModel):
    """States whose V lies in [low, high); the last bin has 1, too."""

    low: float
    high: float
    count: int
    mean_value: float | None
    mean_target: float | None


class ValueMetrics(Accuracy):
    by_agent: dict[str, Accuracy]
    by_depth: dict[int, Accuracy]
    calibration: list[CalibrationBin]


def accuracy(values: Sequence[float], targets: Sequence[float]) -> Accuracy:
    """Raises ValueError where there are none."""
    count = len(targets)
    if not count:
        raise ValueError("there are no values to measure")
    gaps = [value - target for value, target in zip(values, targets, strict=True)]
    squares = math.fsum(gap * gap for gap in gaps)
    around_v, around_y = _centred(values), _centred(targets)
    spread_v, spread_y = (math.fsum(each * each for each in around) for around in (around_v, around_y))
    signed = [(value, target) for value, target in zip(values, targets, strict=True) if target]
    both = math.sqrt(spread_v) * math.sqrt(spread_y)
    return Accuracy(
        count=count,
        rmse=math.sqrt(squares / count),
        mae=math.fsum(map(abs, gaps)) / count,
        bias=math.fsum(gaps) / count,
        r2=1 - squares / spread_y if spread_y else None,
        pearson=math.fsum(v * y for v, y in zip(around_v, around_y, strict=True)) / both if both else None,
        sign=sum(value * target > 0 for value, target in signed) / len(signed) if signed else None,
    )


def _centred(numbers: Sequence[float]) -> list[float]:
    """Each less their mean; 0 where all are the same, whatever the rounding of their mean."""
    if min(numbers) == max(numbers):
        return [0.0] * len(numbers)
    mean = math.fsum(numbers) / len(numbers)
    return [number - mean for number in numbers]


def value_metrics(
    values: Sequence[float], targets: Sequence[float], agents: Sequence[str], depths: Sequence[int]
) -> ValueMetrics:
    """Raises ValueError where there are none."""

    def by(keys: Sequence[Key]) -> dict[Key, Accuracy]:
        groups: dict[Key, list[int]] = defaultdict(list)
        for index, key in enumerate(keys):
            groups[key].append(index)
        return {
            key: accuracy([values[index] for index in groups[key]], [targets[index] for index in groups[key]])
            for key in sorted(groups)
        }

    return ValueMetrics(
        **accuracy(values, targets).model_dump(),
        by_agent=by(agents),
        by_depth=by(depths),
        calibration=calibration(values, targets),
    )


def calibration(values: Sequence[float], targets: Sequence[float]) -> list[CalibrationBin]:
    """Of values in [-1, 1]."""
    edges = [2 * number / BINS - 1 for number in range(BINS + 1)]
    inside: list[list[int]] = [[] for _ in range(BINS)]
    for index, value in enumerate(values):
        inside[min(bisect_right(edges, value), BINS) - 1].append(index)

    def mean(numbers: Sequence[float], indices: list[int]) -> float | None:
        return math.fsum(numbers[index] for index in indices) / len(indices) if indices else None

    return [
        CalibrationBin(
            low=low, high=high, count=len(each), mean_value=mean(values, each), mean_target=mean(targets, each)
        )
        for (low, high), each in zip(pairwise(edges), inside, strict=True)
    ]
