"""What a configuration's TOML text says, and which values no configuration has: recipes may come from anywhere.

Time and memory are bounded by the text's size. What the keys mean is not known here (`trainer.config.schema`).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from datetime import date, time
from typing import Any

LONGEST_SHOWN = 80
"""Characters of a wrong value that a message shows."""
LARGEST_FILE = 1 << 18
"""Bytes of a configuration."""
MOST_DOTS = 200
"""In one line: tables within tables take the parser the square of their number."""
MAX_DEPTH = 20
"""Of tables and lists within each other, and of files that extend each other."""


Place = tuple[str, ...]
"""Keys from the top of the configuration to a value; list items by their number."""


def parsed(data: bytes) -> dict[str, Any]:
    """What a TOML text says. ValueError where it is none, is too large or goes too deep."""
    if len(data) > LARGEST_FILE:
        raise ValueError(f"it has more than {LARGEST_FILE:,} bytes")
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
        raise ValueError(f"a line has more than {MOST_DOTS} dots")
    deep = f"tables and lists go deeper than {MAX_DEPTH} levels"
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    level: list[Any] = [values]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    if level:
        raise ValueError(deep)
    return values


def unwritable(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Where a value is one that a configuration never has, or that could not be written down for a resumed run."""
    name = ".".join(place)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from unwritable(item, (*place, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from unwritable(item, (*place, str(number)))
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        yield place, f"{name} is a number of more than 63 bits"
    elif isinstance(value, float) and not math.isfinite(value):
        yield place, f"{name} = {value} should be a finite number"
    elif isinstance(value, date | time):
        yield place, f"{name} = {value} is a date or a time, which nothing here takes. Fix: put text in quotes"
    elif isinstance(value, str) and ("\0" in value or value != value.encode(errors="replace").decode()):
        yield place, f"{name} = {ascii(value)[:LONGEST_SHOWN]} is not UTF-8 text without NUL. Fix: choose another name"
