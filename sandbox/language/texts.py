"""Texts on their way between programs and libraries: plain strings for a library, no addresses for a program.

A class of strings of a program may have methods, a hash and an equality of its own. A library that is handed one calls
them with what is its own, such as a table that it shares, and keeps the string as a key of its caches.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]{6,16}(?=>)")
_FORMATTED = (str, int, float, bool, type(None))


def plain_text(value: Any) -> Any:
    """The same text as a `str` or `bytes` itself; what is no text as it is."""
    if isinstance(value, str | bytes) and type(value) not in (str, bytes):
        return (str if isinstance(value, str) else bytes).__getitem__(value, slice(None))  # type: ignore[arg-type]
    return value


def over_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A library's function, handed plain strings."""

    def handed(*args: Any, **kwargs: Any) -> Any:
        return function(*map(plain_text, args), **{name: plain_text(value) for name, value in kwargs.items()})

    handed.__name__ = handed.__qualname__ = function.__name__
    return handed


def over_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, for a function whose first argument is text, and nothing that only looks like it."""
    plain = over_plain(function)

    def handed(text: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(text, str):
            raise TypeError(f"{function.__name__}() needs a str, not {type(text).__name__}")
        return plain(text, *args, **kwargs)

    handed.__name__ = handed.__qualname__ = function.__name__
    return handed


def without_addresses(text: str) -> str:
    """`<function f at 0x7f..>` as `<function f at 0x0>`."""
    return _ADDRESS.sub("0x0", text) if " at 0x" in text else text


def text_of(obj: Any, conversion: str = "") -> Any:
    """What stands for `obj` in an f-string, as its conversion (`r`, `a`, `s` or none) says; itself where it formats
    itself."""
    if conversion == "r":
        return without_addresses(repr(obj))
    if conversion == "a":
        return without_addresses(ascii(obj))
    if not conversion and (type(obj) in _FORMATTED or type(obj).__format__ is not object.__format__):
        return obj
    return str(obj) if isinstance(obj, str) else without_addresses(str(obj))
