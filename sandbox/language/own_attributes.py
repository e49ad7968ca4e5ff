"""`vars`, `dir`, `__dict__` and `__annotations__` of what a program itself has defined.

A program sees its own names as it wrote them (`sandbox.language.vocabulary.hide`), and nothing of anybody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from sandbox.language.access import is_opaque, place_attribute
from sandbox.language.classes import OwnDict, is_class, is_program_class, is_program_object
from sandbox.language.vocabulary import shown

_annotations: WeakKeyDictionary[type, dict[str, str]] = WeakKeyDictionary()


def annotated(names: dict[str, str]) -> Callable[[type], type]:
    """A decorator, put there by the compiler, that remembers what the annotations of a class say."""

    def remember(cls: type) -> type:
        _annotations[cls] = names
        return cls

    return remember


def annotations_of(obj: Any) -> dict[str, str]:
    """`cls.__annotations__`: texts, as with `from __future__ import annotations`."""
    if not is_program_class(obj):
        raise AttributeError("__annotations__ can be read on classes that the program itself defines")
    return dict(_annotations.get(obj, {}))


class Attributes(OwnDict):
    """`obj.__dict__`: the attributes by name; what is set or deleted here is set or deleted on the object."""

    def __init__(self, obj: Any) -> None:
        super().__init__(_named(obj))
        self._object = obj

    def __setitem__(self, name: str, value: Any) -> None:
        place_attribute(self._object, name, value)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        place_attribute(self._object, name)

    def update(self, *others: Any, **values: Any) -> None:
        for name, value in dict(*others, **values).items():
            self[shown(name) if type(name) is str else name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        value = super().get(name, *default) if default else self[name]
        if name in self:
            del self[name]
        return value

    def clear(self) -> None:
        for name in list(self):
            del self[name]


def _named(obj: Any) -> dict[str, Any]:
    held = object.__getattribute__(obj, "__dict__") if not is_class(obj) else type.__dict__["__dict__"].__get__(obj)
    return {shown(name): value for name, value in held.items() if not name.startswith("_") and not is_opaque(value)}


def vars_of(obj: Any) -> dict[str, Any]:
    """`vars(obj)`. Raises TypeError for what the program did not define."""
    if is_program_class(obj):
        return _named(obj)
    if not is_program_object(obj) or not hasattr(obj, "__dict__"):
        raise TypeError(f"vars() needs an object of a class of your own, with a __dict__ (got {type(obj).__name__})")
    return Attributes(obj)


def dir_of(*given: Any) -> list[str]:
    """`dir(obj)`: public names."""
    if len(given) != 1:
        raise TypeError("dir() in programs needs one object; use the variables by name")
    return sorted({shown(name) for name in dir(given[0]) if not name.startswith("_")})
