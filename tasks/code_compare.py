"""Is an output the expected one? Pure comparisons, done on the host, of text and of wire values.

A candidate's value is compared in the wire form that `tasks.code_harness.encode` gives it, as plain JSON: nothing
of it is decoded or executed on the host.
"""

from __future__ import annotations

import math
import re

from pydantic import JsonValue

FLOAT_TOLERANCE = 1e-6
"""Numbers with a fraction may differ by this much, absolutely or relative to the expected value."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def same_output(actual: str, expected: str) -> bool:
    """Do two printed outputs agree?

    Lines are compared in order, word by word: spacing within a line and blank lines at the end do not count,
    case does. Where the expected word is a number written with a point or an exponent, the actual one must be a
    number within `FLOAT_TOLERANCE`; any other word must be the same.
    """
    got, want = _lines(actual), _lines(expected)
    return len(got) == len(want) and all(_same_line(a, b) for a, b in zip(got, want, strict=True))


def same_value(wire: JsonValue, expected: JsonValue) -> bool:
    """Does a value in wire form equal an expected JSON value?

    A tuple equals a list with the same elements, as JSON has no tuples; a set equals nothing. Where either side
    is a float, numbers agree within `FLOAT_TOLERANCE`. Keys of dictionaries must be strings. Otherwise Python's
    `==` decides (so `True` equals 1).
    """
    if isinstance(wire, dict) and len(wire) == 1:
        ((tag, content),) = wire.items()
        if tag == "tuple":
            return isinstance(content, list) and same_value(content, expected)
        if tag == "dict":
            return isinstance(content, list) and isinstance(expected, dict) and _same_dict(content, expected)
        if tag == "float":
            return isinstance(content, str) and isinstance(expected, float) and _same_number(float(content), expected)
        if tag == "int":
            return isinstance(content, str) and isinstance(expected, int) and int(content, 16) == expected
        return False
    if isinstance(wire, list):
        return (
            isinstance(expected, list)
            and len(wire) == len(expected)
            and all(same_value(a, b) for a, b in zip(wire, expected, strict=True))
        )
    if isinstance(wire, float) or isinstance(expected, float):
        return isinstance(wire, int | float) and isinstance(expected, int | float) and _same_number(wire, expected)
    return not isinstance(wire, dict) and wire == expected


def _same_dict(pairs: list[JsonValue], expected: dict[str, JsonValue]) -> bool:
    found: dict[str, JsonValue] = {}
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            return False
        found[pair[0]] = pair[1]
    return found.keys() == expected.keys() and all(same_value(found[key], expected[key]) for key in expected)


def _same_number(actual: float, expected: float) -> bool:
    try:
        actual, expected = float(actual), float(expected)
    except OverflowError:  # an int beyond the range of floats
        return actual == expected
    if math.isnan(expected) or math.isnan(actual):
        return math.isnan(expected) and math.isnan(actual)
    if math.isinf(expected) or math.isinf(actual):
        return actual == expected
    return abs(actual - expected) <= FLOAT_TOLERANCE * max(1.0, abs(expected))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _same_line(actual: str, expected: str) -> bool:
    got, want = actual.split(), expected.split()
    return len(got) == len(want) and all(_same_word(a, b) for a, b in zip(got, want, strict=True))


def _same_word(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    if not (_NUMBER.fullmatch(actual) and _NUMBER.fullmatch(expected)):
        return False
    return not expected.lstrip("+-").isdigit() and _same_number(float(actual), float(expected))
