"""What compiled programs call instead of Python's own machinery: reading, writing, importing, and safe builtins.

Compiled code comes from `sandbox.policy`. An attribute may be read if its name is public and it is defined by a
class that programs are meant to have; an object may be written on if the program made it, or if it is an instance of
one of the contract's classes. These are the first line of defence only; the jail is the boundary.
"""

from __future__ import annotations

import builtins
import operator
import string
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from decimal import Context as DecimalContext
from enum import Enum, EnumType
from functools import cache
from typing import Any, NoReturn

from RestrictedPython.transformer import INSPECT_ATTRIBUTES

from sandbox.classes import (
    Facade,
    facade_values,
    is_class,
    is_program_class,
    is_program_object,
    make_class,
)
from sandbox.facades import HINTS, standard_facades
from sandbox.policy import MAGIC_METHODS, MARK, READABLE, UNAVAILABLE, hide, shown
from sandbox.stand_ins import exit_program
from workflow.requests import CodeReply, CodeRun

_OPAQUE = (
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.CellType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
"""No program holds an object of these types."""

_HOME_MODULES = frozenset(
    "_random abc builtins collections collections.abc dataclasses datetime decimal enum fractions functools itertools "
    "json.decoder json.encoder numbers operator random re sandbox.classes sandbox.stand_ins statistics subprocess sys "
    "time".split()
)
"""Where a class must come from for its attributes to be readable, besides `workflow` and the program itself."""

_PYDANTIC_METHODS = frozenset({"model_copy", "model_dump", "model_dump_json"})
_NAMED_TUPLE = {f"{MARK}{name}": f"_{name}" for name in ("asdict", "fields", "make", "replace")}
_WRITABLE = (dict, list, set, bytearray, deque, defaultdict, OrderedDict, Counter, ChainMap, DecimalContext)

_MISSING = object()
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


_is_readable_cached = cache(_is_readable)


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
        return getattr(obj, _NAMED_TUPLE[name])
    if name in ("format", "format_map") and issubclass(cls, str):
        return _read_format(obj, cls, on_class or by_super, name)
    mro = _mro(cls)
    if by_super:
        readable = _is_readable(cls, mro[mro.index(_super_class(obj)) + 1 :], True, name)
    elif is_program_class(cls):  # such a class may change
        readable = _is_readable(cls, mro, on_class, name)
    else:
        readable = _is_readable_cached(cls, mro, on_class, name)
    if not readable:
        _refuse_attribute(obj, name)
    value = getattr(obj, name)
    if _is_opaque(value):
        _refuse_attribute(obj, name)
    return value


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
            raise ValueError(f"format field {{{field_name}}}: only {{}}, {{0}} and {{name}} can be used; use an f-string")
        if field_name.isascii() and field_name.isdigit():
            return self.get_value(int(field_name), args, kwargs), field_name
        return self.get_value(field_name if field_name in kwargs else hide(field_name), args, kwargs), field_name


def read_special(obj: Any, name: str) -> Any:
    """`obj.__name__`, `.__qualname__`, `.__doc__`, `.__class__`, and the special methods of `super()`."""
    if name in ("__name__", "__qualname__", "__doc__"):
        if type(obj) is _TypeTag:
            value = obj._name
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


def _checked_name(name: object) -> str:
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


def _attribute(obj: Any, name: str) -> _Place:
    return _Place(obj, name, True)


def _item(obj: Any, key: Any) -> _Place:
    return _Place(obj, key, False)


def _augment(place: _Place, symbol: str, operand: Any) -> None:
    result = _IN_PLACE[symbol](place.value, operand)
    if place.by_name:
        setattr(place.obj, place.key, result)
    else:
        place.obj[place.key] = result


def _apply(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A call with `_names` among its keywords. A program's own function knows them under their hidden form."""
    if is_class(function) and not is_program_class(function):  # dict(**data): the names are data
        return function(*args, **kwargs)
    return function(*args, **{hide(name): value for name, value in kwargs.items()})


# Builtins


def _getattr(obj: Any, name: str, *default: Any) -> Any:
    """`getattr`: a name that programs may not use counts as missing."""
    try:
        if type(name) is str and name in READABLE:
            return read_special(obj, name)
        return read_attribute(obj, _checked_name(name))
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(obj: Any, name: str) -> bool:
    if type(name) is str and name in MAGIC_METHODS:
        return hasattr(type(obj), name)  # a plain yes or no, as in hasattr(x, "__len__")
    return _getattr(obj, name, _MISSING) is not _MISSING


def _setattr(obj: Any, name: str, value: Any) -> None:
    setattr(writable(obj), _checked_name(name), value)


def _delattr(obj: Any, name: str) -> None:
    delattr(writable(obj), _checked_name(name))


class _TypeTag:
    """What `type(x)` gives for a class that programs have no business with: a name to print and compare."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<class {self._name!r}>"


class _TypeOf:
    """`type` with one argument. Gives only classes that the program could name anyway, else a `_TypeTag`."""

    __slots__ = ("_allowed", "_tags")

    def __init__(self, allowed: frozenset[type]) -> None:
        self._allowed = allowed
        self._tags: dict[type, _TypeTag] = {}

    def __call__(self, obj: Any, /, *rest: Any, **options: Any) -> Any:
        if rest or options:
            raise TypeError("type() takes one argument in programs; define classes with a class statement")
        cls = type(obj)
        if is_program_class(cls) or cls in self._allowed:
            return cls
        name = "type" if issubclass(cls, (type, _TypeOf)) else cls.__name__
        return self._tags.setdefault(cls, _TypeTag(name))

    def __instancecheck__(self, instance: object) -> bool:
        return is_class(instance)

    def __getitem__(self, parameters: object) -> _TypeOf:
        return self

    def __repr__(self) -> str:
        return "<class 'type'>"


class _Identity:
    """`id` that does not depend on where objects lie in memory: 1, 2, 3, ... in the order of asking."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, object]] = {}

    def number(self, obj: object) -> int:
        # Keeping the object keeps its address from being given to another one.
        return self._seen.setdefault(builtins.id(obj), (len(self._seen) + 1, obj))[0]


_BUILTINS = (
    "__build_class__ Ellipsis NotImplemented abs all any ascii bin bool bytearray bytes callable chr classmethod complex "
    "dict divmod enumerate filter float format frozenset hash hex int isinstance issubclass iter len list map max min "
    "next object oct ord pow property range repr reversed round set slice sorted staticmethod str sum super tuple zip"
).split()
_NO_EXCEPTIONS = {"BaseExceptionGroup", "ExceptionGroup", "EncodingWarning", "BytesWarning", "ResourceWarning"}
_EXCEPTIONS = [
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException) and name not in _NO_EXCEPTIONS
]


def _importer(modules: Mapping[str, Facade]) -> Callable[..., Facade]:
    def importer(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Facade:
        module = modules.get(name) if type(name) is str and not level else None
        if module is None:
            hint = HINTS.get(name) or HINTS.get(str(name).partition(".")[0])
            raise ImportError(
                f"programs cannot import {'.' * level}{name}{f' ({hint})' if hint else ''}; "
                f"available modules: {', '.join(sorted(modules))}"
            )
        offered = facade_values(module)
        for wanted in fromlist or ():
            if wanted not in offered:
                raise ImportError(f"cannot import {wanted!r} from {name!r}; it offers: {', '.join(offered)}")
        return module if fromlist else modules[name.partition(".")[0]]

    return importer


def _printer(write: Callable[[str], None]) -> Callable[..., None]:
    def print(
        *objects: Any, sep: str | None = None, end: str | None = None, file: Any = None, flush: bool = False
    ) -> None:
        for name, value in (("sep", sep), ("end", end)):
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be None or a string, not {type(value).__name__}")
        separator = " " if sep is None else sep
        write(separator.join(str(obj) for obj in objects) + ("\n" if end is None else end))

    return print


def _unavailable(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise NameError(f"{name} is not available in programs; {UNAVAILABLE[name]}")

    return refuse


def _reachable_classes(modules: Mapping[str, Facade], names: Mapping[str, Any]) -> frozenset[type]:
    values = [*names.values(), *(value for module in modules.values() for value in facade_values(module).values())]
    return frozenset([type(None), *(value for value in values if is_class(value))])


def program_globals(
    *,
    question: str,
    write: Callable[[str], None],
    run_code: Callable[[CodeRun], CodeReply],
    seed: int,
    modules: Mapping[str, Facade],
) -> dict[str, Any]:
    """A fresh global namespace in which to execute the code of one program.

    `write` receives everything the program prints; `run_code` serves `subprocess.run([python, "-c", code])`; `seed`
    fixes its random numbers; `modules` are further facades by dotted name, besides the standard ones.
    """
    known = {**standard_facades(seed=seed, run_code=run_code, write=write), **modules}
    for name, module in known.items():
        parent, _, child = name.rpartition(".")
        if parent in known:
            vars(known[parent])[child] = module  # so that `import a.b` finds it
    names: dict[str, Any] = {name: getattr(builtins, name) for name in [*_BUILTINS, *_EXCEPTIONS]}
    names |= {name: _unavailable(name) for name in UNAVAILABLE if name != "__import__"}
    names |= {
        "__import__": _importer(known),
        "delattr": _delattr,
        "exit": exit_program,
        "getattr": _getattr,
        "hasattr": _hasattr,
        "id": _Identity().number,
        "print": _printer(write),
        "quit": exit_program,
        "setattr": _setattr,
    }
    type_of = _TypeOf(_reachable_classes(known, names))
    names["type"] = type_of

    def special(obj: Any, name: str) -> Any:
        return type_of(obj) if name == "__class__" else read_special(obj, name)

    return {
        "__builtins__": names,
        "__name__": "__main__",
        "__metaclass__": make_class,
        "question": question,
        "_apply_": _apply,
        "_attribute_": _attribute,
        "_augment_": _augment,
        "_getattr_": read_attribute,
        "_getitem_": read_item,
        "_item_": _item,
        "_special_": special,
        "_write_": writable,
    }
