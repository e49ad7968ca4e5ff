"""Is an output the expected one? Pure comparisons, done on the host, of text and of wire values.

A candidate's value is compared in the wire form that `tasks.code.harness.encode` gives it, as plain JSON: nothing
of it is decoded or executed on the host.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from pydantic import JsonValue

FLOAT_TOLERANCE = 1e-6
"""Numbers with a fraction may differ by this much, absolutely or relative to the expected value."""
WHOLE_TOLERANCE = 0.05
"""The same where the expected value is a whole number that JSON writes with a point, as in `3.0`."""
LONGEST_NUMBER = 400
"""Characters of a word beyond which it is no number: longer ones must be the same."""

_HEXADECIMAL = re.compile(r"-?0x[0-9a-f]++")
_LARGEST_EXPONENT = 10_000
"""Of ten: larger numbers are compared as text, smaller ones are 0."""
_TOLERANCE = Decimal(str(FLOAT_TOLERANCE))
_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE](?P<exponent>[+-]?[0-9]++))?")


def same_output(actual: str, expected: str) -> bool:
    """Do two printed outputs agree?

    Lines are compared in order, word by word: spacing within a line and blank lines at the end do not count,
    case does. Where the expected word is a number written with a point or an exponent, the actual one must be a
    number within `FLOAT_TOLERANCE`, and of a whole number within half of the last place written, too. Any other word
    must be the same.
    """
    if actual == expected:
        return True
    got, want = _lines(actual), _lines(expected)
    return len(got) == len(want) and all(a == b or _same_line(a, b) for a, b in zip(got, want, strict=True))


def same_value(wire: JsonValue, expected: JsonValue) -> bool:
    """Does a value in wire form equal an expected JSON value?

    A tuple equals a list with the same elements, as JSON has no tuples; a set equals nothing. Where the expected
    value is a float, numbers agree within `FLOAT_TOLERANCE`, and with a whole one within `WHOLE_TOLERANCE`, too; an
    integer is equalled by nothing else. Keys of dictionaries must be strings. Otherwise Python's `==` decides (so
    `True` equals 1). Raises ValueError for what is no wire form.
    """
    if isinstance(wire, dict) and len(wire) == 1:
        ((tag, content),) = wire.items()
        if tag == "tuple":
            return isinstance(content, list) and same_value(content, expected)
        if tag == "named":
            return isinstance(content, list) and len(content) == 3 and same_value(content[2], expected)
        if tag == "dict":
            return isinstance(content, list) and isinstance(expected, dict) and _same_dict(content, expected)
        if tag == "float":
            return isinstance(expected, float) and _same_number(_not_finite(content), expected)
        if tag == "int":
            return isinstance(expected, int) and _hexadecimal(content) == expected
        return False
    if isinstance(wire, list):
        return (
            isinstance(expected, list)
            and len(wire) == len(expected)
            and all(same_value(a, b) for a, b in zip(wire, expected, strict=True))
        )
    if isinstance(expected, float):
        return isinstance(wire, int | float) and _same_number(wire, expected)
    return not isinstance(wire, dict) and wire == expected


def _same_dict(pairs: list[JsonValue], expected: dict[str, JsonValue]) -> bool:
    found: dict[str, JsonValue] = {}
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            return False
        found[pair[0]] = pair[1]
    return found.keys() == expected.keys() and all(same_value(found[key], expected[key]) for key in expected)


def _not_finite(content: JsonValue) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise ValueError(f"{content!r:.80} is not how a float is sent")
    return float(content)


def _hexadecimal(content: JsonValue) -> int:
    if not isinstance(content, str) or not _HEXADECIMAL.fullmatch(content):
        raise ValueError(f"{content!r:.80} is not how an integer is sent")
    return int(content, 16)


def _same_number(actual: float, expected: float) -> bool:
    if not math.isfinite(expected):
        return actual == expected or (actual != actual and expected != expected)
    if actual == expected:
        return True
    try:
        actual = float(actual)
    except OverflowError:  # an int beyond the range of floats
        return False
    if not math.isfinite(actual):
        return False
    tolerance = FLOAT_TOLERANCE * max(1.0, abs(expected))
    return abs(actual - expected) <= (min(tolerance, WHOLE_TOLERANCE) if expected.is_integer() else tolerance)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _same_line(actual: str, expected: str) -> bool:
    got, want = actual.split(), expected.split()
    return len(got) == len(want) and all(_same_word(a, b) for a, b in zip(got, want, strict=True))


def _same_word(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    if max(len(actual), len(expected)) > LONGEST_NUMBER:
        return False
    if expected.lstrip("+-").isdigit():
        return False
    got, want = _number(actual), _number(expected)
    if got is None or want is None:
        return False
    apart, last_place = abs(got - want), want.as_tuple().exponent
    if not isinstance(last_place, int) or last_place >= 0:
        return apart == 0
    if want == want.to_integral_value() and apart > Decimal((0, (5,), last_place - 1)):
        return False
    return apart <= _TOLERANCE * max(1, abs(want))


def _number(word: str) -> Decimal | None:
    """The value of a number in plain notation. None for other words, and for what is too large to be reckoned with."""
    match = _NUMBER.fullmatch(word)
    if match is None:
        return None
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > _LARGEST_EXPONENT:  # far beyond, `decimal` raises
        return Decimal(0) if exponent < 0 else None
    return Decimal(word)
