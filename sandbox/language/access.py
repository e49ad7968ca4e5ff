"""What programs may read and write on: the rules for attributes and items, applied at run time.

An attribute may be read if its name is public and it is defined by a class that programs are meant to have; an object
may be written on if the program made it, or if it is an instance of one of the contract's classes. Which guard is
called when is decided in `sandbox.language.compiler`; the namespace that holds the guards is made in
`sandbox.language.guards`.
"""

from __future__ import annotations

import io
import operator
import re
import string
import types
from _string import formatter_field_name_split  # type: ignore[import-not-found]
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Context as DecimalContext
from enum import Enum, EnumType
from functools import cache
from typing import Any, NoReturn

from RestrictedPython.transformer import INSPECT_ATTRIBUTES

from sandbox.language.classes import OwnDict, Writable, is_class, is_program_class, is_program_object
from sandbox.language.identity import STEADY
from sandbox.language.texts import over_plain, text_of
from sandbox.language.vocabulary import MAGIC_METHODS, MARK, hide, shown

_OPAQUE = (
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.CellType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    memoryview,
)
"""Programs may look into none of these, nor get one from an attribute or an item."""

_HOMES = (
    "_csv _random abc builtins collections collections.abc contextlib csv dataclasses datetime decimal difflib enum "
    "fractions functools graphlib itertools json.decoder numbers operator pathlib pathlib._local random re statistics "
    "string subprocess sys time urllib.parse uuid "
    "workflow.agent workflow.environment workflow.failures workflow.flows workflow.messages workflow.tools "
    "workflow.nodes.debate_node workflow.nodes.ensemble_node workflow.nodes.reflection_node workflow.nodes.router_node"
)
_OUR_HOMES = (
    "branches classes environments own_attributes stdlib.asyncio_names stdlib.clock stdlib.concurrency stdlib.digests "
    "stdlib.json_data stdlib.libraries stdlib.library_classes stdlib.log_records stdlib.logging_names "
    "stdlib.safe_stdlib stdlib.surroundings stdlib.warning_names"
)
_HOME_MODULES = frozenset([*_HOMES.split(), *(f"sandbox.language.{name}" for name in _OUR_HOMES.split())])
"""Where a class must come from for its attributes to be readable, besides the program itself."""
_CONTRACT_MODULES = frozenset(
    name
    for name in _HOME_MODULES
    if name.startswith("workflow.") and name not in ("workflow.environment", "workflow.failures", "workflow.tools")
)
"""Objects of their classes may be written on."""

_NAMED_TUPLE = {f"{MARK}{name}": f"_{name}" for name in ("asdict", "fields", "make", "replace")}
_WRITABLE = (dict, list, set, bytearray, deque, defaultdict, OrderedDict, Counter, ChainMap, DecimalContext)
_HOME_CLASSES = (*io.StringIO.__mro__[:-1], *io.BytesIO.__mro__[:-1])
"""Classes whose attributes are readable though their module has others that must not be."""

_TEXT_METHODS = {
    re.Pattern: frozenset(["findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"]),
    re.Match: frozenset({"expand"}),
}
"""Methods that are handed plain strings: parsed templates are kept, by what they were parsed from."""

_class_mro = type.__dict__["__mro__"].__get__
_super_self = super.__dict__["__self__"].__get__
_super_class = super.__dict__["__thisclass__"].__get__


def _mro(cls: type) -> tuple[type, ...]:
    return _class_mro(cls)


@cache
def _is_home(cls: type) -> bool:
    """True for a class whose public attributes programs may read."""
    if is_program_class(cls):
        return True
    return (cls.__module__ in _HOME_MODULES or cls in _HOME_CLASSES) and not issubclass(cls, _OPAQUE)


def _is_readable(cls: type, mro: tuple[type, ...], on_class: bool, name: str) -> bool:
    """May `name`, looked up along `mro`, be read on instances of `cls`, or on `cls` itself?"""
    if name.startswith("_") or name in INSPECT_ATTRIBUTES:
        return name == "_"
    if issubclass(cls, BaseException) and (
        name == "with_traceback" or (name == "obj" and issubclass(cls, AttributeError))
    ):
        return False
    if name == "getbuffer" and issubclass(cls, io.BytesIO):
        return False
    owner = next((base for base in mro if name in vars(base)), None)
    if owner is None:
        # Found on the instance, or by __getattr__; a class must not show what its metaclass has (mro, register).
        if on_class and not (isinstance(cls, EnumType) and name in cls.__members__):
            return False
        owner = cls
    return _is_home(owner)


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
    if is_opaque(value):
        _refuse_attribute(obj, name)
    if cls in _TEXT_METHODS and name in _TEXT_METHODS[cls]:
        return over_plain(value)
    return _handed_out(value)


def _handed_out(value: Any) -> Any:
    """Compared with a program's object a proxy hands it the dict behind, which all fields without metadata share."""
    return types.MappingProxyType(dict(value)) if type(value) is types.MappingProxyType else value


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


def is_opaque(value: Any) -> bool:
    return issubclass(type(value), _OPAQUE) or (is_class(value) and issubclass(value, type))


def _read_format(text: str, cls: type, unbound: bool, name: str) -> Any:
    own = next(base for base in _mro(cls) if name in vars(base))
    if own is not str and not unbound:
        return getattr(text, name)
    if unbound:
        raise AttributeError(f"str.{name} cannot be used in programs; write an f-string or '...'.format(value)")
    plain = str.__str__(text)
    if name == "format_map":
        return lambda mapping: _GuardedFormatter().vformat(plain, (), mapping)
    return lambda *args, **kwargs: _GuardedFormatter().vformat(plain, args, kwargs)


class _GuardedFormatter(string.Formatter):
    """`str.format` whose fields ask the guards for attributes and items."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return text_of(value, conversion) if conversion in ("r", "a", "s") else super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        return format(text_of(value), format_spec)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, rest = formatter_field_name_split(field_name)
        if not isinstance(first, int) and type(kwargs) is dict and first not in kwargs:
            first = hide(first)
        value = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            value = read_attribute(value, checked_name(key)) if is_attribute else read_item(value, key)
        return value, first


class TypeTag:
    """What `type(x)` gives for a class that programs have no business with: a name to print and compare."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    def __repr__(self) -> str:
        return f"<class {self.label!r}>"


def read_special(obj: Any, name: str) -> Any:
    """`obj.__name__`, `.__qualname__`, `.__doc__`, `.__class__`, and the special methods of `super()`."""
    if name in ("__cause__", "__context__"):
        if isinstance(obj, BaseException):
            return getattr(BaseException, name).__get__(obj)
    elif name in ("__name__", "__qualname__", "__doc__", "__module__"):
        if type(obj) is TypeTag:
            value = obj.label
        elif is_class(obj):
            value = vars(obj).get(name) if name in ("__doc__", "__module__") else type.__dict__[name].__get__(obj)
        else:
            value = getattr(obj, name)
        if type(value) is str or (value is None and name == "__doc__"):
            return value
    elif name == "__members__":
        if isinstance(obj, EnumType):
            return dict(obj.__members__)
    elif name in ("__new__", "__setattr__", "__delattr__"):
        if type(obj) is super or is_class(obj):
            return _base_special(obj, name)
    elif name in MAGIC_METHODS and type(obj) is super:
        return _special_of_super(obj, name)
    elif name == "__init__" and is_class(obj):
        return _base_init(obj)
    _refuse_attribute(obj, name)


def _base_special(obj: Any, name: str) -> Any:
    """`super().__new__`, `object.__setattr__` and the like: of the nearest class that has one, where that is the
    program's own; else what the builtin does, for objects and classes of the program's alone."""
    by_super = type(obj) is super
    subject = _super_self(obj) if by_super else obj
    if subject is None:
        _refuse_attribute(obj, name)
    mro = _mro(subject if is_class(subject) else type(subject))
    if by_super:
        mro = mro[mro.index(_super_class(obj)) + 1 :]
    owner = next(base for base in mro if name in vars(base))
    if is_program_class(owner):
        found = vars(owner)[name]
        return found.__func__ if type(found) is staticmethod else found.__get__(subject) if by_super else found

    def make(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not is_program_class(cls) or not issubclass(cls, owner):
            raise TypeError(f"{owner.__name__}.__new__ needs a class of your own that derives from {owner.__name__}")
        return owner.__new__(cls) if owner is object else owner.__new__(cls, *args, **kwargs)

    def place(self: Any, name: str, /, *value: Any) -> None:
        if not is_program_object(self):
            raise TypeError(f"attributes can be set on objects of your own classes (got {type(self).__name__})")
        place_attribute(self, name, *value)

    if name == "__new__":
        return make
    return (lambda *args: place(subject, *args)) if by_super and not is_class(subject) else place


def place_attribute(obj: Any, name: str, *value: Any) -> None:
    """Set an attribute of a program's object, or delete it, past what the program's own classes say of that."""
    special = "__setattr__" if value else "__delattr__"
    native: Any = next(base for base in _mro(type(obj)) if not is_program_class(base) and special in vars(base))
    getattr(native, special)(obj, checked_name(name), *value)


def _special_of_super(obj: Any, name: str) -> Any:
    """`super().__len__` and the like. Of `super(A, A)` it is not bound: who calls it could name any object as `self`,
    and the `__init__` of a library's class, or one that `dataclass` has written, would set attributes on that."""
    subject = _super_self(obj)
    if subject is None:
        _refuse_attribute(obj, name)
    on_class = is_class(subject)
    mro = _mro(subject if on_class else type(subject))
    owner = next((base for base in mro[mro.index(_super_class(obj)) + 1 :] if name in vars(base)), None)
    if owner is None:
        _refuse_attribute(obj, name)
    if owner is object and name in STEADY:
        return types.MethodType(STEADY[name], subject) if not on_class else STEADY[name]
    if not on_class:
        return getattr(obj, name)
    return _base_init(owner) if name == "__init__" else _for_own_kind(owner, getattr(obj, name))


def _base_init(base: type) -> Callable[..., None]:
    """`Base.__init__(self, ...)`, for an object of the program whose class derives from Base."""

    def initialise(self: Any, /, *args: Any, **kwargs: Any) -> None:
        if not is_program_object(self) or base not in _mro(type(self)):
            raise TypeError(f"{base.__name__}.__init__ needs an object of a class of your own that derives from it")
        base.__init__(self, *args, **kwargs)

    return initialise


def read_item(obj: Any, key: Any) -> Any:
    value = obj[key]
    if is_opaque(value):
        raise TypeError(f"items of {type(obj).__name__!r} that are {type(value).__name__!r} cannot be used in programs")
    return value


def writable(obj: Any) -> Any:
    """`obj` itself if a program may write on it. Raises TypeError otherwise."""
    cls = type(obj)
    if cls in _WRITABLE or issubclass(cls, (OwnDict, Writable)) or is_program_object(obj) or is_program_class(obj):
        return obj
    if cls.__module__ in _CONTRACT_MODULES and not issubclass(cls, (type, Enum)):
        return obj
    if cls is types.FunctionType and _is_programs(obj):
        return obj
    what = f"the class {obj.__name__!r}" if is_class(obj) else f"a {cls.__name__!r} object"
    raise TypeError(f"programs cannot write on {what}; write on objects of your own classes, dicts or lists")


def _is_programs(function: types.FunctionType) -> bool:
    """True for a function that a program defined: its globals hold the guards."""
    return function.__globals__.get("_write_") is writable


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
