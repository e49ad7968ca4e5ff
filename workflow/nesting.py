"""How deep JSON is nested that agents write, before a parser walks it: how deep parsers and writers may go depends on
who calls them.

Pure functions over text. Not here: frames of jails, which are bounded by what they hold (`sandbox.frames`).
"""

from __future__ import annotations

import re

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""A string, which may lack its end, or a bracket outside of strings."""


def depth_of(text: str) -> int:
    """Brackets within one another, as a parser meets them: those in strings are text."""
    depth = deepest = 0
    for piece in _PIECE.finditer(text):
        sign = text[piece.start()]
        if sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
    return deepest
