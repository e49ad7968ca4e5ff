"""`dataclasses` for programs: the decorator on their own classes, and functions that look at classes, never at what
stands on an object.

`dataclasses.asdict` and `replace` believe an object's own `__dataclass_fields__` and copy by `copy.deepcopy`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from sandbox.language.access import read_attribute
from sandbox.language.classes import is_class, is_program_class
from sandbox.language.identity import plain_identity, steady_identity
from sandbox.language.stdlib.copying import deep_copy
from workflow import Context, Message

_CONTRACT: dict[type, tuple[str, ...]] = {
    Message: ("content", "message_type", "metadata", "sender", "recipient"),
    Context: ("messages", "state", "metadata"),
}
_KINDS = vars(dataclasses)["_FIELD"], vars(dataclasses)["_FIELD_INITVAR"]


def own_class(cls: object, decorator: str) -> None:
    """Raises TypeError for a class that the program did not define."""
    if not is_program_class(cls):
        raise TypeError(f"{decorator} goes on a class that the program itself defines (got {cls!r})")


def dataclass(cls: Any = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass`, for the program's own classes only, since it writes on the class."""

    def decorate(own: Any) -> Any:
        own_class(own, "dataclass")
        undescribed = type(own.__doc__) is not str or not own.__doc__
        if undescribed:
            # Else the library asks `inspect.signature`, which evaluates what a docstring of a base class says.
            own.__doc__ = own.__name__
        plain_identity(own)
        made = dataclasses.dataclass(own, **options)
        steady_identity(made)
        if undescribed:
            shown = ", ".join(name for name, each in made.__dataclass_fields__.items() if each.init)
            made.__doc__ = f"{made.__name__}({shown})"
        return made

    return decorate if cls is None else decorate(cls)


def _declared(x: Any) -> dict[str, Any] | None:
    """The fields that the class of `x`, or the class `x`, was given by the decorator; None for all others."""
    cls = x if is_class(x) else type(x)
    for base in cls.__mro__:
        if is_program_class(base) and "__dataclass_fields__" in vars(base):
            return vars(base)["__dataclass_fields__"]
    return None


def _names(x: Any, function: str) -> list[str]:
    declared = _declared(x)
    if not is_class(x):
        if declared is not None:
            return [name for name, each in declared.items() if each._field_type is _KINDS[0]]
        for kind, names in _CONTRACT.items():
            if isinstance(x, kind):
                return list(names)
    raise TypeError(f"{function}() should be called on dataclass instances (got {type(x).__name__})")


def is_dataclass(obj: Any) -> bool:
    return _declared(obj) is not None or (not is_class(obj) and isinstance(obj, tuple(_CONTRACT)))


def fields(class_or_instance: Any) -> tuple[Any, ...]:
    declared = _declared(class_or_instance)
    if declared is None:
        raise TypeError("must be called with a dataclass type or instance")
    return tuple(each for each in declared.values() if each._field_type is _KINDS[0])


def asdict(obj: Any, *, dict_factory: Callable[[list[tuple[str, Any]]], Any] = dict) -> Any:
    _names(obj, "asdict")
    return _plain(obj, lambda x: dict_factory([(name, inner) for name, inner in x]))


def astuple(obj: Any, *, tuple_factory: Callable[[list[Any]], Any] = tuple) -> Any:
    _names(obj, "astuple")
    return _plain(obj, lambda x: tuple_factory([inner for _, inner in x]))


def _plain(x: Any, make: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    if is_dataclass(x) and not is_class(x):
        return make([(name, _plain(read_attribute(x, name), make)) for name in _names(x, "asdict")])
    if isinstance(x, tuple) and is_program_class(type(x)):  # a named tuple
        return tuple.__new__(type(x), [_plain(item, make) for item in tuple.__iter__(x)])
    if type(x) in (list, tuple, set, frozenset):
        return type(x)(_plain(item, make) for item in x)
    if type(x) is dict:
        return {_plain(key, make): _plain(value, make) for key, value in x.items()}
    return deep_copy(x)


def replace(obj: Any, /, **changes: Any) -> Any:
    """A new object of the same class, made by its constructor."""
    names = _names(obj, "replace")
    for name, each in (_declared(obj) or {}).items():
        if not each.init and name in changes:
            raise ValueError(f"field {name} is declared with init=False, it cannot be specified with replace()")
        if each._field_type is _KINDS[1] and name not in changes and each.default is dataclasses.MISSING:
            raise ValueError(f"InitVar {name!r} must be specified with replace()")
        if not each.init and name in names:
            names.remove(name)
    kept = {name: read_attribute(obj, name) for name in names if name not in changes}
    return type(obj)(**kept, **changes)
