"""The classes that programs define: how they are made, and how they are told from everybody else's.

Every class statement of a program goes through `make_class`, so that each such class has a metaclass derived from
`ProgramMeta`. Attribute rules live in `sandbox.guards`; nothing here decides what a program may read or write.
"""

from __future__ import annotations

import collections
import enum
import keyword
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any


class ProgramMeta(type):
    """Marks a class as made by a program."""


class NamedTuple:
    """Stands for `typing.NamedTuple` as a base class; `make_class` builds the tuple."""


class TypedDict(dict[str, Any]):
    """Stands for `typing.TypedDict` as a base class: a dict, as at run time in plain Python."""


class Generic:
    """Stands for `typing.Generic` and `typing.Protocol` as a base class; parameters are accepted and mean nothing."""

    def __class_getitem__(cls, parameters: object) -> type:
        return cls


class _EnumType(enum.EnumType):
    """Enum classes come from class statements only: `Enum("X", names)` would take special method names as text."""

    def __call__(cls, value: Any, *names: Any, **options: Any) -> Any:
        if names or options:
            raise TypeError(f"{cls.__name__}({value!r}, ...): write a class statement to define an enumeration")
        return super().__call__(value)


class Enum(enum.Enum, metaclass=_EnumType): ...


class IntEnum(enum.IntEnum, metaclass=_EnumType): ...


class StrEnum(enum.StrEnum, metaclass=_EnumType): ...


class Flag(enum.Flag, metaclass=_EnumType): ...


class IntFlag(enum.IntFlag, metaclass=_EnumType): ...


def is_class(value: object) -> bool:
    """True for a real class; asks the object's type, which a program cannot forge."""
    return issubclass(type(value), type)


def is_program_class(value: object) -> bool:
    return issubclass(type(value), ProgramMeta)


def is_program_object(value: object) -> bool:
    """True for an instance of a class that a program defined."""
    return issubclass(type(type(value)), ProgramMeta)


@cache
def _program_metaclass(metaclass: type) -> type:
    if metaclass is type:
        return ProgramMeta
    if issubclass(metaclass, ProgramMeta):
        return metaclass
    return type(f"Program{metaclass.__name__}", (ProgramMeta, metaclass), {})


def make_class(name: str, bases: tuple[type, ...], namespace: dict[str, Any], /) -> type:
    """What a program's class statement calls. Copes with bases that have a metaclass (ABC, Enum).

    Raises TypeError for a base that is not a class, or is one that looks things up in its own way.
    """
    metaclass: type = type
    for base in bases:
        if not is_class(base) or issubclass(base, (type, super)):
            raise TypeError(f"class {name}: {base!r} cannot be a base class in a program; derive from a class")
        if issubclass(type(base), metaclass):
            metaclass = type(base)
    if metaclass.__module__.partition(".")[0] == "pydantic":
        # Such a class would evaluate annotations, which are text that the program chooses.
        raise TypeError(f"class {name}: {bases[0].__name__} cannot be a base class in a program; write a dataclass")
    if NamedTuple in bases:
        return _named_tuple_class(name, bases, namespace)
    metaclass = _program_metaclass(metaclass)
    contents: Any = namespace
    if issubclass(metaclass, enum.EnumType):
        contents = metaclass.__prepare__(name, bases)
        for key, value in namespace.items():
            contents[key] = value
    return metaclass(name, bases, contents)


def _named_tuple_class(name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
    if bases != (NamedTuple,):
        raise TypeError(f"class {name}: NamedTuple must be the only base class")
    fields = list(namespace.pop("__annotations__", {}))
    defaulted = [field for field in fields if field in namespace]
    if defaulted != fields[len(fields) - len(defaulted) :]:
        raise TypeError(f"class {name}: a field without a default follows a field with one")
    defaults = [namespace.pop(field) for field in defaulted]
    base = named_tuple(name, fields, defaults=defaults)
    return ProgramMeta(name, (base,), {"__slots__": (), **namespace})


def named_tuple(
    typename: str, field_names: str | Iterable[str], *, defaults: Iterable[Any] | None = None
) -> type[tuple[Any, ...]]:
    """`collections.namedtuple` for plain ASCII names only, since the original builds source text from them."""
    names = field_names.replace(",", " ").split() if isinstance(field_names, str) else [str(f) for f in field_names]
    for name in [typename, *names]:
        plain = type(name) is str and name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
        if not plain or name.startswith("_"):
            raise ValueError(f"namedtuple: {name!r} is not a valid name; use letters, digits and inner underscores")
    base = collections.namedtuple(typename, names, defaults=defaults, module=__name__)
    return ProgramMeta(typename, (base,), {"__slots__": (), "__module__": "__main__", "__doc__": base.__doc__})


class Facade:
    """A read-only stand-in for a module: exactly the given names, and no real module behind them."""

    # Without __slots__ on purpose: the names are plain attributes, so that `from x import y` finds them.

    def __init__(self, name: str, values: Mapping[str, object]) -> None:
        vars(self).update(values)
        vars(self)["__facade__"] = name

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError(f"module {facade_name(self)!r} cannot be changed by a program")

    def __delattr__(self, name: str) -> None:
        raise TypeError(f"module {facade_name(self)!r} cannot be changed by a program")

    def __getattr__(self, name: str) -> Any:
        offers = ", ".join(facade_values(self))
        raise AttributeError(f"module {facade_name(self)!r} has no {name!r} in programs; it offers: {offers}")

    def __deepcopy__(self, memo: object) -> Facade:
        return self

    def __repr__(self) -> str:
        return f"<module {facade_name(self)!r}>"


def facade_name(module: Facade) -> str:
    return vars(module).get("__facade__", "?")


def facade_values(module: Facade) -> dict[str, Any]:
    """The names that a facade offers, with their values."""
    return {name: value for name, value in vars(module).items() if name != "__facade__"}
