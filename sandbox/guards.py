"""The world of one program: its builtins, its imports and the guards that its compiled code calls.

Compiled code comes from `sandbox.policy`; the rules for attributes and items are in `sandbox.access`. These are the
first line of defence only; the jail is the boundary.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from sandbox.access import (
    TypeTag,
    attribute_place,
    augment,
    checked_name,
    item_place,
    read_attribute,
    read_item,
    read_special,
    writable,
)
from sandbox.classes import Facade, facade_values, is_class, is_program_class, make_class
from sandbox.facades import HINTS, standard_facades
from sandbox.language import MAGIC_METHODS, READABLE, UNAVAILABLE, hide
from sandbox.stand_ins import exit_program, reseed
from workflow.requests import CodeReply, CodeRun

_MISSING = object()

for _needed_by_c_code in ("_strptime", "_pylong"):  # the second is new in Python 3.12
    with contextlib.suppress(ImportError):
        importlib.import_module(_needed_by_c_code)


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
        return read_attribute(obj, checked_name(name))
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(obj: Any, name: str) -> bool:
    if type(name) is str and name in MAGIC_METHODS:
        return hasattr(type(obj), name)  # a plain yes or no, as in hasattr(x, "__len__")
    return _getattr(obj, name, _MISSING) is not _MISSING


def _setattr(obj: Any, name: str, value: Any) -> None:
    setattr(writable(obj), checked_name(name), value)


def _delattr(obj: Any, name: str) -> None:
    delattr(writable(obj), checked_name(name))


class _TypeOf:
    """`type` with one argument. Gives only classes that the program could name anyway, else a `TypeTag`."""

    __slots__ = ("_allowed", "_tags")

    def __init__(self, allowed: frozenset[type]) -> None:
        self._allowed = allowed
        self._tags: dict[type, TypeTag] = {}

    def __call__(self, obj: Any, /, *rest: Any, **options: Any) -> Any:
        if rest or options:
            raise TypeError("type() takes one argument in programs; define classes with a class statement")
        cls = type(obj)
        if is_program_class(cls) or cls in self._allowed:
            return cls
        name = "type" if issubclass(cls, (type, _TypeOf)) else cls.__name__
        return self._tags.setdefault(cls, TypeTag(name))

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
    "__build_class__ Ellipsis NotImplemented abs all any ascii bin bool bytearray bytes callable chr classmethod "
    "complex dict divmod enumerate filter float format frozenset hash hex int isinstance issubclass iter len list map "
    "max min next object oct ord pow property range repr reversed round set slice sorted staticmethod str sum super "
    "tuple zip"
)
_NO_EXCEPTIONS = {"BaseExceptionGroup", "ExceptionGroup", "EncodingWarning", "BytesWarning", "ResourceWarning"}
_EXCEPTIONS = [
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException) and name not in _NO_EXCEPTIONS
]


def _importer(modules: Mapping[str, Facade]) -> Callable[..., Facade | None]:
    def importer(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if type(fromlist) is list and name in sys.modules:
            # Not an import statement: C code of the library (strptime, division of long integers) makes sure of a
            # module that it needs. It drops this result and takes the module from sys.modules itself.
            return None
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
    names: dict[str, Any] = {name: getattr(builtins, name) for name in [*_BUILTINS.split(), *_EXCEPTIONS]}
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
        "_attribute_": attribute_place,
        "_augment_": augment,
        "_getattr_": read_attribute,
        "_getitem_": read_item,
        "_item_": item_place,
        "_special_": special,
        "_write_": writable,
    }


def begin(names: dict[str, Any], question: str, seed: int) -> None:
    """Give a namespace of `program_globals`, in which nothing has run yet, its question and seed."""
    names["question"] = question
    reseed(facade_values(names["__builtins__"]["__import__"]("random")), seed)
