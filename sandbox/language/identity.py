"""What tells objects apart in a program's sight, without saying where in memory they lie: hashes and numbers.

Addresses differ from one process to the next, so that a program that saw them would not do the same with the same
seed. What C code hashes by itself (a set of functions or classes) still goes by address. Texts are in
`sandbox.language.texts`.
"""

from __future__ import annotations

import builtins
import itertools
from types import BuiltinFunctionType, MethodType
from typing import Any

_counted = itertools.count(1)
_NUMBER = "_number"
"""No program can write or read this name, on its own objects either."""


def _numbered(self: Any) -> int:
    """`object.__hash__`, in the order of asking: sets of a program's objects have the same order in each run."""
    held = getattr(self, "__dict__", None)
    if held is None:
        return object.__hash__(self)
    number = held.get(_NUMBER)
    if number is None:
        number = held[_NUMBER] = next(_counted)
    return number


def _named(self: Any) -> str:
    """`object.__repr__` without the address."""
    return f"<{type(self).__module__}.{type(self).__qualname__} object>"


STEADY = {"__hash__": _numbered, "__repr__": _named}
"""What takes the place of these methods of `object`."""


def steady_identity(cls: type) -> None:
    """Give a program's class what tells no addresses, where it would inherit from `object` what does."""
    for name, ours in STEADY.items():
        if name in vars(cls):
            continue
        inherited = next(found for base in cls.__mro__ if (found := vars(base).get(name, ours)) is not ours)
        wanted = ours if inherited is vars(object)[name] else inherited
        if getattr(cls, name) is not wanted:
            setattr(cls, name, wanted)


def plain_identity(cls: type) -> None:
    """Take it back, for a decorator that looks at what a class itself defines."""
    for name, ours in STEADY.items():
        if vars(cls).get(name) is ours:
            delattr(cls, name)


class Identity:
    """Numbers that do not depend on where objects lie in memory: 1, 2, 3, ... in the order of asking."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, object]] = {}

    def number(self, obj: object) -> int:
        """`id`."""
        # Keeping the object keeps its address from being given to another one.
        return self._seen.setdefault(builtins.id(obj), (len(self._seen) + 1, obj))[0]

    def hash(self, obj: Any) -> int:
        """`hash`, which for functions, classes and plain objects is the address."""
        cls = type(obj)
        by_address = cls.__hash__ is object.__hash__ or (cls.__hash__ is _numbered and not hasattr(obj, "__dict__"))
        if by_address or obj is None or cls in (BuiltinFunctionType, MethodType):
            return self.number(obj)
        if cls.__hash__ is tuple.__hash__:
            return builtins.hash(tuple(map(self.hash, tuple.__iter__(obj))))
        return builtins.hash(obj)
