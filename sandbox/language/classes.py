"""The classes that programs define: how they are made, and how they are told from everybody else's.

Every class statement of a program goes through `make_class`, so that each such class has a metaclass derived from
`ProgramMeta`. Attribute rules live in `sandbox.language.guards`; nothing here decides what a program may read or write.
"""

from __future__ import annotations

import collections
import enum
import keyword
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import PurePath
from types import FrameType, FunctionType
from typing import Any

from sandbox.language.identity import steady_identity
from sandbox.language.vocabulary import hide, shown


class ProgramMeta(type):
    """Marks a class as made by a program."""


class OwnDict(dict[str, Any]):
    """A dict of ours on which programs may write."""


class Writable:
    """Marks a class of ours on whose objects programs may write."""


class NamedTuple:
    """Stands for `typing.NamedTuple` as a base class; `make_class` builds the tuple."""


class TypedDict(dict[str, Any]):
    """Stands for `typing.TypedDict` as a base class: a dict, as at run time in plain Python."""


class Generic:
    """Stands for `typing.Generic` as a base class; parameters are accepted and mean nothing."""

    def __class_getitem__(cls, parameters: object) -> type:
        return cls


_UNNAMED = (
    "__annotations__ __class_getitem__ __dict__ __doc__ __firstlineno__ __init__ __match_args__ __module__ __new__ "
    "__qualname__ __slots__ __static_attributes__ __weakref__"
)
_NO_MEMBERS = frozenset(_UNNAMED.split())
"""What a class body holds beside what it names."""


class _ProtocolType(ABCMeta):
    """Asks an object for what a protocol names: where it is looked up nothing is called, and the answer is yes or no.

    What a protocol names is kept when its class is made, under names that no program can write.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if _is_protocol(cls):
            raise TypeError("Protocols cannot be instantiated")
        return super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        kind = type(instance)
        if not _is_protocol(cls) or _by_library(sys._getframe(1)):
            return type.__instancecheck__(cls, instance)
        _check_runtime(cls)
        return type.__subclasscheck__(cls, kind) or all(_has(kind, name, _held(instance)) for name in _members_of(cls))

    def __subclasscheck__(cls, subclass: type) -> bool:
        if not _is_protocol(cls) or _by_library(sys._getframe(1)):
            return type.__subclasscheck__(cls, subclass)
        _check_runtime(cls)
        members = _members_of(cls)
        data = sorted(shown(name) for name, is_method in members.items() if not is_method)
        if data:
            named = ", ".join(map(repr, data))
            raise TypeError(
                f"Protocols with non-method members don't support issubclass(). Non-method members: {named}."
            )
        if not is_class(subclass):
            raise TypeError("issubclass() arg 1 must be a class")
        return type.__subclasscheck__(cls, subclass) or all(_has(subclass, name, {}) for name in members)


class Protocol(Generic, metaclass=_ProtocolType):
    """Stands for `typing.Protocol` as a base class."""


def runtime_checkable(cls: Any) -> Any:
    """`typing.runtime_checkable`, for protocols of the program's own."""
    if not is_program_class(cls) or not _is_protocol(cls):
        raise TypeError(f"@runtime_checkable can be only applied to protocol classes, got {cls!r}")
    type.__setattr__(cls, "_is_runtime_protocol", True)
    return cls


def _is_protocol(cls: type) -> bool:
    return "_protocol_members" in vars(cls)


def _check_runtime(cls: type) -> None:
    if "_is_runtime_protocol" not in vars(cls):
        raise TypeError("Instance and class checks can only be used with @runtime_checkable protocols")


def _by_library(caller: FrameType) -> bool:
    """ABCMeta asks each class below an abstract one, which is no question of the program's."""
    return caller.f_globals.get("__name__") == "abc"


def _members(namespace: Mapping[str, Any]) -> dict[str, bool]:
    """What the body of a protocol names, and whether it is a method."""
    named = {name: callable(value) for name, value in namespace.items() if name not in _NO_MEMBERS}
    return {**dict.fromkeys(namespace.get("__annotations__", ()), False), **named}


def _members_of(cls: type) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for each in reversed(type.__dict__["__mro__"].__get__(cls)):
        found |= vars(each).get("_protocol_members", {})
    return found


def _held(instance: object) -> Mapping[str, Any]:
    """The attributes of the object itself; for a class those of its bases, too."""
    if is_class(instance):
        return {name: True for each in type.__dict__["__mro__"].__get__(instance) for name in vars(each)}
    try:
        return object.__getattribute__(instance, "__dict__")
    except AttributeError:
        return {}


def _has(kind: type, name: str, held: Mapping[str, Any]) -> bool:
    """A method that is None is none, as `__hash__ = None` says."""
    if name in held:
        return True
    for each in type.__dict__["__mro__"].__get__(kind):
        if name in vars(each):
            return vars(each)[name] is not None
    return False


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
    return ProgramMeta if metaclass is type else type(f"Program{metaclass.__name__}", (ProgramMeta, metaclass), {})


def _native_metaclass(cls: type) -> type:
    """The metaclass that a class would have if no program had made it."""
    return next(each for each in type.mro(type(cls)) if not issubclass(each, ProgramMeta))


_NO_BASES = (type, super, BaseExceptionGroup, PurePath)
"""No program may derive from these: they look things up in their own way, or write on what a method of theirs returns
(`PurePath.with_segments`)."""
_MAKES_ITSELF = (object, int, float, complex, str, bytes, tuple, frozenset, list, dict, set)
"""A class that derives from these, abstract classes and the contract's alone may have a `__new__` of its own: no
library takes what it returns for an object of that class and writes on it, as `datetime`, `ExitStack` and `Enum` do."""
_ABSTRACT = frozenset(
    {"abc", "collections.abc", "numbers", "workflow.agent", "workflow.flows", "workflow.messages", __name__}
)


def make_class(name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **arguments: Any) -> type:
    """What a program's class statement calls. Copes with bases that have a metaclass (ABC, Enum).

    Raises TypeError for a base that is not a class, or is one that looks things up in its own way.
    """
    bases = tuple.__getitem__(bases, slice(None))  # those that there are, whatever a tuple of the program's says
    metaclass: type = type
    for base in bases:
        if not is_class(base) or issubclass(base, _NO_BASES):
            raise TypeError(f"class {name}: {base!r} cannot be a base class in a program; derive from another class")
        native = _native_metaclass(base)
        if issubclass(native, metaclass):
            metaclass = native
    namespace = _with_names_shown(name, namespace)
    if TypedDict in bases:
        arguments.pop("total", None)
    if NamedTuple in bases:
        return _named_tuple_class(name, bases, namespace)
    is_enum = issubclass(metaclass, enum.EnumType)
    _check_new(name, bases, namespace, is_enum)
    metaclass = _program_metaclass(metaclass)
    contents: Any = namespace
    if is_enum:
        contents = metaclass.__prepare__(name, bases)
        for key, value in namespace.items():
            contents[key] = value
    made = metaclass(name, bases, contents, **arguments)
    if Protocol in bases:
        type.__setattr__(made, "_protocol_members", _members(namespace))
    steady_identity(made)
    return made


def _check_new(name: str, bases: tuple[type, ...], namespace: dict[str, Any], is_enum: bool) -> None:
    """Raises TypeError for a `__new__` where library code would write on what it returns."""
    above = [each for base in bases for each in base.__mro__]
    if is_enum:
        if "__new__" in namespace:
            namespace["__new__"] = _member_maker(namespace["__new__"])
        if any("__new__" in vars(each) for each in above if is_program_class(each) and not _is_enum(each)):
            raise TypeError(f"class {name}: a class with a __new__ of its own cannot be mixed into an enumeration")
        return
    if "__new__" not in namespace and not any("__new__" in vars(each) for each in above if is_program_class(each)):
        return
    for each in above:
        if not is_program_class(each) and each not in _MAKES_ITSELF and each.__module__ not in _ABSTRACT:
            raise TypeError(f"class {name}: a class that derives from {each.__name__} cannot have a __new__ of its own")


def _is_enum(cls: type) -> bool:
    return issubclass(type(cls), enum.EnumType)


def _member_maker(method: Any) -> Callable[..., Any]:
    """The `__new__` of an enumeration: what it returns is written on by the library, so it must be a member."""
    if type(method) is not FunctionType:
        raise TypeError("the __new__ of an enumeration must be a plain function")

    def __new__(cls: type, *args: Any) -> Any:
        member = method(cls, *args)
        if type(member) is not cls:
            raise TypeError(f"{cls.__name__}.__new__ must return a new member (got {type(member).__name__})")
        given = vars(member).get(hide("_value_"), member)
        if given is not member:
            object.__setattr__(member, "_value_", given)
        return member

    return __new__


def _with_names_shown(name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """`__getattr__` and its like get names as the program wrote them, and no special ones, which libraries ask for."""
    namespace = dict(namespace)
    for key in ("__getattr__", "__setattr__", "__delattr__"):
        if key in namespace:
            if type(namespace[key]) is not FunctionType:
                raise TypeError(f"class {name}: {key} must be a plain function, written with def")
            namespace[key] = _told_names(key, namespace[key])
    if type(namespace.get("__set_name__")) is FunctionType:
        namespace["__set_name__"] = _told_its_name(namespace["__set_name__"])
    return namespace


def _told_its_name(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, owner, name: method(self, owner, shown(name))


def _told_names(key: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def told(self: Any, name: str, *value: Any) -> Any:
        if name.startswith("_") and name != "_":  # a name of a library's, which the program has no business with
            if key == "__getattr__":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(object, key)(self, name, *value)
        return method(self, shown(name), *value)

    return told


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
    texts = [field_names] if isinstance(field_names, str) else [str(field) for field in field_names]
    names = ["".join((text,)) for text in texts]  # plain strings, which say the same each time
    if isinstance(field_names, str):
        names = names[0].replace(",", " ").split()
    defaults = None if defaults is None else list(defaults)
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

    def __repr__(self) -> str:
        return f"<module {facade_name(self)!r}>"


def facade_name(module: Facade) -> str:
    return vars(module).get("__facade__", "?")


def facade_values(module: Facade) -> dict[str, Any]:
    """The names that a facade offers, with their values."""
    return {name: value for name, value in vars(module).items() if name != "__facade__"}
