"""The world of one program: its builtins, its imports and the guards that its compiled code calls.

Compiled code comes from `sandbox.language.compiler`; the rules for attributes and items are in
`sandbox.language.access`. These are the first line of defence only; the jail is the boundary.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
from abc import ABC
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from sandbox.language.access import (
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
from sandbox.language.classes import Facade, facade_values, is_class, is_program_class, make_class
from sandbox.language.compiler import compile_expression
from sandbox.language.identity import Identity
from sandbox.language.match_statements import match_class, match_mapping, match_sequence
from sandbox.language.own_attributes import annotated, annotations_of, dir_of, vars_of
from sandbox.language.stdlib import HINTS, Output, exit_program, reseed, standard_facades
from sandbox.language.texts import plain_text, text_of
from sandbox.language.vocabulary import MAGIC_METHODS, READABLE, UNAVAILABLE, hide
from workflow.environment import Environment
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


_apply.__module__, _apply.__qualname__ = "builtins", "function"  # for errors of the call, which name it


# Builtins


def _getattr(obj: Any, name: str, *default: Any) -> Any:
    """`getattr`: a name that programs may not use counts as missing."""
    try:
        if type(name) is str and name in READABLE:
            if name == "__dict__":
                return vars_of(obj)
            return annotations_of(obj) if name == "__annotations__" else read_special(obj, name)
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


def _class_of_parts(name: str, bases: tuple[Any, ...], contents: Mapping[str, Any], **options: Any) -> type:
    """`type(name, bases, contents)`, as a class statement would make it."""
    if not isinstance(name, str) or not isinstance(bases, tuple):
        raise TypeError("type() needs a name, a tuple of bases and a dict")
    named = {"__module__": "__main__"}
    for key, value in dict(contents).items():
        known = type(key) is str and (key in MAGIC_METHODS or key == "__doc__")
        named[key if known else checked_name(key)] = value
    return make_class(plain_text(name), bases, named, **{hide(key): value for key, value in options.items()})


def _evaluator(own: Mapping[str, Any]) -> Callable[..., Any]:
    """`eval` of one expression, under the policy, with the program's global names or those that it is given."""

    def evaluate(source: str, globals: Any = None, locals: Any = None, /) -> Any:
        if not isinstance(source, str):
            raise TypeError(f"eval() in programs evaluates text (got {type(source).__name__})")
        code = compile_expression(plain_text(source))
        names = {name: value for name, value in own.items() if globals is None or name.startswith("_")}
        for given in (globals, locals):
            for name, value in dict(given or {}).items():
                if type(name) is str and not hide(name).startswith("_"):
                    names[hide(name)] = value
        return eval(code, names)

    return evaluate


class _TypeOf:
    """`type` with one argument. Gives only classes that the program could name anyway, else a `TypeTag`."""

    __slots__ = ("_allowed", "_tags")
    __iter__ = None  # else Python would ask for item 0, 1, 2, ... without end

    def __init__(self, allowed: frozenset[type]) -> None:
        self._allowed = allowed
        self._tags: dict[type, TypeTag] = {}

    def __call__(self, obj: Any, /, *rest: Any, **options: Any) -> Any:
        if len(rest) == 2:
            return _class_of_parts(obj, *rest, **options)
        if rest or options:
            raise TypeError("type() takes one argument or three")
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


_BUILTINS = (
    "__build_class__ Ellipsis NotImplemented abs all any bin bool bytearray bytes callable chr classmethod complex "
    "dict divmod enumerate filter float frozenset hex int isinstance issubclass iter len list map max min next object "
    "oct ord pow property range reversed round set slice sorted staticmethod str sum super tuple zip"
)
_NO_EXCEPTIONS = {"EncodingWarning", "BytesWarning"}
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
            if wanted not in offered and wanted != "*":
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
        out = write if file is None else read_attribute(file, "write")
        # Methods of `str` itself: a program's class of strings may have others.
        said = str.join(" " if sep is None else sep, [text_of(obj, "s") for obj in objects])
        out(str.join("", (said, "\n" if end is None else end)))

    return print


def _repr(obj: Any, /) -> str:
    return text_of(obj, "r")


def _ascii(obj: Any, /) -> str:
    return text_of(obj, "a")


def _format(value: Any, format_spec: str = "", /) -> str:
    return format(text_of(value), format_spec)


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
    output = Output(write)
    known = {**standard_facades(seed=seed, run_code=run_code, write=output), **modules}
    for name, module in known.items():
        parent, _, child = name.rpartition(".")
        if parent in known:
            vars(known[parent])[child] = module  # so that `import a.b` finds it
    names: dict[str, Any] = {name: getattr(builtins, name) for name in [*_BUILTINS.split(), *_EXCEPTIONS]}
    names |= {name: _unavailable(name) for name in UNAVAILABLE if name != "__import__"}
    identity = Identity()
    names |= {
        "__import__": _importer(known),
        "ascii": _ascii,
        "delattr": _delattr,
        "dir": dir_of,
        "exit": exit_program,
        "format": _format,
        "getattr": _getattr,
        "hasattr": _hasattr,
        "hash": identity.hash,
        "id": identity.number,
        "print": _printer(output),
        "quit": exit_program,
        "repr": _repr,
        "setattr": _setattr,
        "vars": vars_of,
    }
    type_of = _TypeOf(_reachable_classes(known, names))
    names["type"] = type_of

    def special(obj: Any, name: str) -> Any:
        if name == "__class__":
            return type_of(obj)
        if name == "__dict__":
            return vars_of(obj)
        return annotations_of(obj) if name == "__annotations__" else read_special(obj, name)

    own: dict[str, Any] = {
        "__builtins__": names,
        "__doc__": None,
        "__file__": "program.py",
        "__name__": "__main__",
        "__metaclass__": make_class,
        "question": question,
        "environment": None,
        "_abc_": ABC,
        "_annotated_": annotated,
        "_apply_": _apply,
        "_attribute_": attribute_place,
        "_augment_": augment,
        "_getattr_": read_attribute,
        "_getitem_": read_item,
        "_item_": item_place,
        "_match_class_": match_class,
        "_match_mapping_": match_mapping,
        "_match_sequence_": match_sequence,
        "_special_": special,
        "_text_": text_of,
        "_write_": writable,
    }
    names["eval"] = _evaluator(own)
    return own


def begin(names: dict[str, Any], question: str, seed: int, environment: Environment | None) -> None:
    """Give a namespace of `program_globals`, in which nothing has run yet, its question, its seed and its game."""
    names["question"], names["environment"] = question, environment
    reseed(facade_values(names["__builtins__"]["__import__"]("random")), seed)
