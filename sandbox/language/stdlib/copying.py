"""`copy` for programs: a recursion of our own over builtin containers, objects of programs and contract objects.

`copy.copy` and `copy.deepcopy` do what an object says of itself (`__deepcopy__`, `__reduce_ex__`), and hand out
half-made states on the way. Here nothing is asked of an object: its class decides, its contents are moved by the
methods of the builtin it derives from, and no function of a program is called but `__hash__` and `__eq__` of keys.
"""

from __future__ import annotations

import copy
import enum
import random
import types
from collections import ChainMap, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, time, timedelta, tzinfo
from decimal import Context as DecimalContext
from typing import Any

from sandbox.language.classes import is_class, is_program_class
from workflow import Context, Message, ToolRegistry, WorkflowNode

Each = Callable[[Any], Any]
"""What becomes of the parts: themselves in a shallow copy, copies of them in a deep one."""

_args_of = vars(BaseException)["args"].__get__
_CONTRACT = (Message, Context, WorkflowNode, ToolRegistry)
_KEPT = (type(None), bool, int, float, complex, str, bytes, range, slice, date, time, timedelta, tzinfo)
"""What cannot change stands for its own copy; so do functions, classes and modules, as in `copy`."""
_CHANGEABLE = (
    dict,
    list,
    set,
    bytearray,
    deque,
    random.Random,
    DecimalContext,
    tuple,
    frozenset,
    ChainMap,
    BaseException,
)


def shallow_copy(x: Any) -> Any:
    """`copy.copy`: a new object with the same parts. Raises `copy.Error` for what has no copy, such as an iterator."""
    if type(x) in (tuple, frozenset, types.MethodType) or _is_kept(x):
        return x
    return _filled(x, _new(x), lambda part: part)


def deep_copy(x: Any) -> Any:
    """`copy.deepcopy`: copies of all parts, each made once. Raises `copy.Error` for what has no copy."""
    made: dict[int, Any] = {}
    kept: list[Any] = []
    """What was copied lives until the end, so that no other object gets its place in memory."""

    def each(part: Any) -> Any:
        if type(part) is types.MethodType:
            return types.MethodType(part.__func__, each(part.__self__))
        if _is_kept(part):
            return part
        if id(part) in made:
            return made[id(part)]
        kept.append(part)
        if isinstance(part, tuple | frozenset):
            twin = _immutable(part, each)
            made.setdefault(id(part), twin)  # one that holds itself has been made further down
            return _with_attributes(part, made[id(part)], each)
        made[id(part)] = twin = _new(part)
        return _filled(part, twin, each)

    return each(x)


def _is_ours(x: Any) -> bool:
    """An object of the program's, or of the contract."""
    return is_program_class(type(x)) or isinstance(x, _CONTRACT)


def _is_kept(x: Any) -> bool:
    if is_class(x) or isinstance(x, enum.Enum):
        return True
    if _is_ours(x) or isinstance(x, _CHANGEABLE) or type(x) is object:
        return False
    has_no_copy = type(x) is types.MethodType or hasattr(type(x), "__iter__")  # iterators, views
    return isinstance(x, _KEPT) or not has_no_copy


def _immutable(part: Any, each: Each) -> Any:
    base: Any = tuple if isinstance(part, tuple) else frozenset
    items = [each(item) for item in base.__iter__(part)]
    if type(part) is tuple and all(one is other for one, other in zip(items, part, strict=True)):
        return part
    return base.__new__(type(part), items)


def _new(x: Any) -> Any:
    """An empty object of the class of `x`, made by the builtin that it derives from."""
    cls = type(x)
    native: Any = next(base for base in cls.__mro__ if not is_program_class(base))
    try:
        if isinstance(x, BaseException):
            return native.__new__(cls, *_args_of(x))
        if isinstance(x, str | bytes):
            return native.__new__(cls, native.__getitem__(x, slice(None)))
        if isinstance(x, int | float | complex):
            return native.__new__(cls, native.__pos__(x))
        if isinstance(x, tuple | frozenset):
            return native.__new__(cls, native.__iter__(x))
        if _is_ours(x) or isinstance(x, _CHANGEABLE) or cls is object:
            return native.__new__(cls)
    except TypeError:
        pass
    fix = "; make a list of it first" if hasattr(cls, "__iter__") else ""
    raise copy.Error(f"a {cls.__name__} cannot be copied{fix}")


def _filled(x: Any, twin: Any, each: Each) -> Any:
    """`twin` with the contents and the attributes of `x`."""
    if isinstance(x, dict):
        native: Any = OrderedDict if isinstance(x, OrderedDict) else dict
        for key in list(native.__iter__(x)):
            native.__setitem__(twin, each(key), each(dict.__getitem__(x, key)))
    elif isinstance(x, list):
        list.extend(twin, [each(item) for item in list.__iter__(x)])
    elif isinstance(x, set):
        set.update(twin, [each(item) for item in set.__iter__(x)])
    elif isinstance(x, bytearray):
        bytearray.extend(twin, bytearray.__iter__(x))
    elif isinstance(x, deque):
        deque.__init__(twin, [each(item) for item in deque.__iter__(x)], x.maxlen)
    elif isinstance(x, random.Random):
        random.Random.setstate(twin, random.Random.getstate(x))
    elif isinstance(x, DecimalContext):
        return DecimalContext.copy(x)
    elif isinstance(x, ChainMap):
        object.__setattr__(twin, "maps", [each(part) for part in vars(x)["maps"]])
    return _with_attributes(x, twin, each)


def _with_attributes(x: Any, twin: Any, each: Each) -> Any:
    """Copies what stands on the object itself. Names of programs have no leading underscores (`vocabulary.hide`); those
    of contract objects are their own."""
    whole = isinstance(x, _CONTRACT)
    held = getattr(x, "__dict__", {})
    for name in list(held) if _is_ours(x) or isinstance(x, BaseException) else ():
        if whole or not name.startswith("_") or name == "_":
            object.__setattr__(twin, name, each(held[name]))
    for base in type(x).__mro__ if _is_ours(x) or isinstance(x, defaultdict) else ():
        for slot in [value for value in vars(base).values() if type(value) is types.MemberDescriptorType]:
            try:
                slot.__set__(twin, each(slot.__get__(x)))
            except (AttributeError, TypeError):  # never assigned, or the builtin's own
                continue
    return twin
