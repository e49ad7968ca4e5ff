"""What programs may read and write on: the rules for attributes and items, applied at run time.

An attribute may be read if its name is public and it is defined by a class that programs are meant to have; an object
may be written on if the program made it, or if it is an instance of one of the contract's classes. Which guard is
called when is decided in `sandbox.policy`; the namespace that holds the guards is made in `sandbox.guards`.
"""

from __future__ import annotations

import operator
import string
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Context as DecimalContext
from enum import Enum, EnumType
from functools import cache
from typing import Any, NoReturn

from RestrictedPython.transformer import INSPECT_ATTRIBUTES

from sandbox.classes import is_class, is_program_class, is_program_object
from sandbox.language import MAGIC_METHODS, MARK, hide, shown

_OPAQUE = (
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.CellType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
"""Programs may look into none of these, nor get one from an attribute or an item."""

_HOMES = (
    "_random abc builtins collections collections.abc dataclasses datetime decimal enum fractions functools itertools "
    "json.decoder json.encoder numbers operator random re sandbox.classes sandbox.stand_ins statistics subprocess sys "
    "time"
)
_HOME_MODULES = frozenset(_HOMES.split())
"""Where a class must come from for its attributes to be readable, besides `workflow` and the program itself."""

_PYDANTIC_METHODS = frozenset({"model_copy", "model_dump", "model_dump_json"})
_NAMED_TUPLE = {f"{MARK}{name}": f"_{name}" for name in ("asdict", "fields", "make", "replace")}
_WRITABLE = (dict, list, set, bytearray, deque, defaultdict, OrderedDict, Counter, ChainMap, DecimalContext)

_class_mro = type.__dict__["__mro__"].__get__
_super_self = super.__dict__["__self__"].__get__
_super_class = super.__dict__["__thisclass__"].__get__


def _mro(cls: type) -> tuple[type, ...]:
    return _class_mro(cls)


def _library(cls: type) -> str:
    return str(cls.__module__).partition(".")[0]


@cache
def _is_home(cls: type) -> bool:
    """True for a class whose public attributes programs may read."""
    if is_program_class(cls):
        return True
    return (cls.__module__ in _HOME_MODULES or _library(cls) == "workflow") and not issubclass(cls, _OPAQUE)


def _is_readable(cls: type, mro: tuple[type, ...], on_class: bool, name: str) -> bool:
    """May `name`, looked up along `mro`, be read on instances of `cls`, or on `cls` itself?"""
    if name.startswith("_") or name in INSPECT_ATTRIBUTES:
        return name == "_"
    if issubclass(cls, BaseException) and (
        name == "with_traceback" or (name == "obj" and issubclass(cls, AttributeError))
    ):
        return False
    owner = next((base for base in mro if name in vars(base)), None)
    if owner is None:
        # Found on the instance, or by __getattr__; a class must not show what its metaclass has (mro, register).
        if on_class and not (isinstance(cls, EnumType) and name in cls.__members__):
            return False
        owner = cls
    if _library(owner) == "pydantic":
        return name in _PYDANTIC_METHODS and not on_class
    return _is_home(owner) and name != "model_config"


@cache
def _is_readable_always(cls: type, on_class: bool, name: str) -> bool:
    return _is_readable(cls, _mro(cls), on_class, name)


def _refuse_attribute(obj: object, name: str) -> NoReturn:
    kind = getattr(obj if is_class(obj) else type(obj), "__name__", "")
    raise AttributeError(f"{kind!r} has no attribute {shown(name)!r} that programs may use")


def read_attribute(obj: Any, name: str) -> Any:
    """`obj.name`, for a public name of an object that programs may look at. Raises AttributeError otherwise."""
    if type(name) is not str:
        raise TypeError(f"attribute name must be a plain string, not {type(name).__name__}")
    by_super = type(obj) is super
    subject = _super_self(obj) if by_super else obj
    on_class = is_class(subject)
    cls: type = subject if on_class else type(subject)
    if name in _NAMED_TUPLE and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _for_own_kind(cls, getattr(obj, _NAMED_TUPLE[name])) if on_class else getattr(obj, _NAMED_TUPLE[name])
    if name in ("format", "format_map") and issubclass(cls, str):
        return _read_format(obj, cls, on_class or by_super, name)
    mro = _mro(cls)
    if by_super:
        mro = mro[mro.index(_super_class(obj)) + 1 :] if subject is not None else ()
        readable = _is_readable(cls, mro, True, name)
    elif is_program_class(cls):  # such a class may change
        readable = _is_readable(cls, mro, on_class, name)
    else:
        readable = _is_readable_always(cls, on_class, name)
    if not readable:
        _refuse_attribute(obj, name)
    value = getattr(obj, name)
    if on_class:
        owner = next((base for base in mro if name in vars(base)), cls)
        if not is_program_class(owner):
            value = _for_own_kind(owner, value)
    if _is_opaque(value):
        _refuse_attribute(obj, name)
    return value


def _for_own_kind(owner: type, value: Any) -> Any:
    """A library's method, read on its class: it must not be called on other objects, which it takes for its own.

    `Counter.copy(x)` evaluates `x.__class__(x)`, and so would give a program the `type` of a class.
    """
    if type(value) is property:
        raise AttributeError(f"a property of {owner.__name__!r} can only be read on an object")
    if type(value) is not types.FunctionType:
        return value

    def method(*args: Any, **kwargs: Any) -> Any:
        if not args or not issubclass(type(args[0]), owner):
            raise TypeError(f"{owner.__name__}.{value.__name__} needs a {owner.__name__} object as its first argument")
        return value(*args, **kwargs)

    method.__name__, method.__qualname__, method.__doc__ = value.__name__, value.__qualname__, value.__doc__
    return method


def _is_opaque(value: Any) -> bool:
    return issubclass(type(value), _OPAQUE) or (is_class(value) and issubclass(value, type))


def _read_format(text: str, cls: type, unbound: bool, name: str) -> Any:
    own = next(base for base in _mro(cls) if name in vars(base))
    if own is not str and not unbound:
        return getattr(text, name)
    if unbound or name == "format_map":
        raise AttributeError(f"str.{name} cannot be used in programs; write an f-string or '...'.format(value)")
    plain = str.__str__(text)
    return lambda *args, **kwargs: _PlainFormatter().vformat(plain, args, kwargs)


class _PlainFormatter(string.Formatter):
    """`str.format` whose fields are positions and names only: no attributes, no items."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        if "." in field_name or "[" in field_name:
            raise ValueError(
                f"format field {{{field_name}}}: only {{}}, {{0}} and {{name}} can be used; use an f-string"
            )
        if field_name.isascii() and field_name.isdigit():
            return self.get_value(int(field_name), args, kwargs), field_name
        return self.get_value(field_name if field_name in kwargs else hide(field_name), args, kwargs), field_name


class TypeTag:
    """What `type(x)` gives for a class that programs have no business with: a name to print and compare."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    def __repr__(self) -> str:
        return f"<class {self.label!r}>"


def read_special(obj: Any, name: str) -> Any:
    """`obj.__name__`, `.__qualname__`, `.__doc__`, `.__class__`, and the special methods of `super()`."""
    if name in ("__name__", "__qualname__", "__doc__"):
        if type(obj) is TypeTag:
            value = obj.label
        elif is_class(obj):
            value = vars(obj).get(name) if name == "__doc__" else type.__dict__[name].__get__(obj)
        else:
            value = getattr(obj, name)
        if type(value) is str or (value is None and name == "__doc__"):
            return value
    elif name in MAGIC_METHODS and type(obj) is super:
        return getattr(obj, name)
    elif name == "__init__" and is_class(obj):
        return _base_init(obj)
    _refuse_attribute(obj, name)


def _base_init(base: type) -> Callable[..., None]:
    """`Base.__init__(self, ...)`, for an object of the program whose class derives from Base."""

    def initialise(self: Any, /, *args: Any, **kwargs: Any) -> None:
        if not is_program_object(self) or base not in _mro(type(self)):
            raise TypeError(f"{base.__name__}.__init__ needs an object of a class of your own that derives from it")
        base.__init__(self, *args, **kwargs)

    return initialise


def read_item(obj: Any, key: Any) -> Any:
    value = obj[key]
    if _is_opaque(value):
        raise TypeError(f"items of {type(obj).__name__!r} that are {type(value).__name__!r} cannot be used in programs")
    return value


def writable(obj: Any) -> Any:
    """`obj` itself if a program may write on it. Raises TypeError otherwise."""
    cls = type(obj)
    if cls in _WRITABLE or is_program_object(obj) or is_program_class(obj):
        return obj
    if _library(cls) == "workflow" and not issubclass(cls, (type, Enum)):
        return obj
    what = f"the class {obj.__name__!r}" if is_class(obj) else f"a {cls.__name__!r} object"
    raise TypeError(f"programs cannot write on {what}; write on objects of your own classes, dicts or lists")


def checked_name(name: object) -> str:
    if type(name) is not str:
        raise TypeError(f"attribute name must be a plain string, not {type(name).__name__}")
    hidden = hide(name)
    if (hidden.startswith("_") and hidden != "_") or hidden in INSPECT_ATTRIBUTES:
        raise AttributeError(f"the attribute name {name!r} cannot be used in programs")
    return hidden


# Augmented assignment


class _Place:
    """An attribute or an item between the reading and the writing half of an augmented assignment."""

    __slots__ = ("by_name", "key", "obj", "value")

    def __init__(self, obj: Any, key: Any, by_name: bool) -> None:
        self.obj, self.key, self.by_name = writable(obj), key, by_name
        self.value = read_attribute(obj, key) if by_name else read_item(obj, key)


_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
}


def attribute_place(obj: Any, name: str) -> _Place:
    return _Place(obj, name, True)


def item_place(obj: Any, key: Any) -> _Place:
    return _Place(obj, key, False)


def augment(place: _Place, symbol: str, operand: Any) -> None:
    result = _IN_PLACE[symbol](place.value, operand)
    if place.by_name:
        setattr(place.obj, place.key, result)
    else:
        place.obj[place.key] = result
