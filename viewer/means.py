"""The mean of numbers that somebody may have made up."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean


def mean(values: Sequence[float]) -> float:
    """As `fmean`, also where the sum is beyond all floats. Raises ValueError for none."""
    try:
        return fmean(values)
    except OverflowError:
        return sum(value / len(values) for value in values)
