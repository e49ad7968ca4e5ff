"""The lines of a program as Python counts them: they end with LF, CR LF or CR, and with nothing else.

`str.splitlines` ends lines at form feeds, U+2028 and their like, too, and is not for programs. What lines say is not
looked at here.
"""

from __future__ import annotations

import re

_END = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_NAMES = {"": "no end", "\n": "LF", "\r": "CR", "\r\n": "CR LF"}


def source_lines(source: str) -> list[str]:
    """Without their ends. What stands behind the last end is no line where it is empty."""
    return [_END.sub("", line) for line in _LINE.findall(source)]


def source_ends(source: str) -> list[str]:
    """How each line ends, in words."""
    return [_NAMES[line[len(_END.sub("", line)) :]] for line in _LINE.findall(source)]


def with_newlines(source: str) -> str:
    """The same lines, all of which end with LF."""
    return _END.sub("\n", source)
