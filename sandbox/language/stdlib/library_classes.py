"""Classes of the standard library written anew, or made narrower, because programs may derive from them and call back.

The originals act on what a program's method returns (`UserDict.copy`), copy all that stands on a class into a function
(`contextmanager`), hand a program's strings tables that they share (`Template`), or let a call back into the program
take away memory on which C code still writes (`array`, `csv.reader`). Functions are in `libraries`, beside this one.
"""

from __future__ import annotations

import contextlib
import csv
import string
import struct
import types
from collections import UserDict, UserList
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sandbox.language.access import checked_name
from sandbox.language.classes import make_class
from sandbox.language.stdlib.copying import shallow_copy
from sandbox.language.stdlib.safe_stdlib import wraps
from sandbox.language.texts import plain_text, text_of

# contextlib


class Manager(contextlib._GeneratorContextManager[Any]):
    """What a function under `contextmanager` returns."""

    def __call__(self, func: Any) -> Any:
        def inner(*args: Any, **kwds: Any) -> Any:
            with self._recreate_cm():  # type: ignore[attr-defined]
                return func(*args, **kwds)

        return wraps(func)(inner)


class AsyncManager(contextlib._AsyncGeneratorContextManager[Any]):
    """What a function under `asynccontextmanager` returns."""

    def __call__(self, func: Any) -> Any:
        async def inner(*args: Any, **kwds: Any) -> Any:
            async with self._recreate_cm():  # type: ignore[attr-defined]
                return await func(*args, **kwds)

        return wraps(func)(inner)


def contextmanager(func: Any) -> Any:
    def helper(*args: Any, **kwds: Any) -> Manager:
        return Manager(func, args, kwds)

    return wraps(func)(helper)


def asynccontextmanager(func: Any) -> Any:
    def helper(*args: Any, **kwds: Any) -> AsyncManager:
        return AsyncManager(func, args, kwds)

    return wraps(func)(helper)


# csv


def _lines(source: Iterable[Any]) -> Iterator[Any]:
    """The lines as plain strings, by a generator: asked for a line while it looks for one, it raises ValueError."""
    for line in source:
        yield plain_text(line)


def csv_reader(csvfile: Iterable[Any], /, dialect: Any = "excel", **options: Any) -> Any:
    """`csv.reader`."""
    return csv.reader(_lines(csvfile), dialect, **options)


class DictReader(csv.DictReader):  # type: ignore[type-arg]
    """`csv.DictReader`."""

    def __init__(self, f: Iterable[Any], *given: Any, **options: Any) -> None:
        super().__init__(_lines(f), *given, **options)


# string


class Template:
    """`string.Template`; a class that derives from it may have a `delimiter` and an `idpattern` of its own."""

    delimiter: Any = "$"
    idpattern: Any = None

    def __init__(self, template: str) -> None:
        if not isinstance(template, str):
            raise TypeError(f"a template must be text (got {type(template).__name__})")
        self.template = plain_text(template)

    def _inner(self) -> string.Template:
        names = {name: plain_text(getattr(type(self), name)) for name in ("delimiter", "idpattern")}
        own = {name: value for name, value in names.items() if type(value) is str}
        kind = string.Template if own == {"delimiter": "$"} else type("Template", (string.Template,), own)
        return kind(plain_text(self.template))

    def substitute(self, mapping: Any = None, /, **kws: Any) -> str:
        return self._inner().substitute(_Values(mapping, kws))

    def safe_substitute(self, mapping: Any = None, /, **kws: Any) -> str:
        return self._inner().safe_substitute(_Values(mapping, kws))


class _Values(Mapping[str, Any]):
    """What a template is filled with: texts that tell no addresses. Keywords come first."""

    def __init__(self, mapping: Any, kws: dict[str, Any]) -> None:
        self._mapping, self._kws = mapping if mapping is not None else {}, kws

    def __getitem__(self, name: str) -> str:
        return plain_text(text_of(self._kws[name] if name in self._kws else self._mapping[name], "s"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._kws)

    def __len__(self) -> int:
        return len(self._kws)


# array and collections: classes of the program's own kind, which may be written on


def _item(code: str, value: Any) -> Any:
    if code == "u":
        if not isinstance(value, str) or len(value) != 1:
            raise TypeError("array item must be a unicode character")
        return plain_text(value)
    if code not in "fd" and not isinstance(value, int):
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except struct.error as error:
        kind = TypeError if "required argument" in str(error) else OverflowError
        raise kind(str(error)) from None


def array_class() -> type:
    """`array.array`, as a list whose items are checked."""

    def initialise(self: Any, typecode: str, initializer: Iterable[Any] = ()) -> None:
        code = plain_text(typecode)
        if type(code) is not str or len(code) != 1 or code not in "bBhHiIlLqQfdu":
            raise ValueError("bad typecode (must be b, B, u, h, H, i, I, l, L, q, Q, f or d)")
        self.typecode, self.itemsize = code, 4 if code == "u" else struct.calcsize(code)
        if isinstance(initializer, bytes | bytearray):
            self.frombytes(initializer)
        else:
            extend(self, initializer)

    def extend(self: Any, items: Iterable[Any]) -> None:
        list.extend(self, [_item(self.typecode, item) for item in items])

    def append(self: Any, item: Any) -> None:
        list.append(self, _item(self.typecode, item))

    def insert(self: Any, index: int, item: Any) -> None:
        list.insert(self, index, _item(self.typecode, item))

    def set_item(self: Any, index: Any, value: Any) -> None:
        many = isinstance(index, slice)
        list.__setitem__(self, index, [_item(self.typecode, v) for v in value] if many else _item(self.typecode, value))

    def get_item(self: Any, index: Any) -> Any:
        found = list.__getitem__(self, index)
        return array(self.typecode, found) if isinstance(index, slice) else found

    def added(self: Any, other: Any) -> Any:
        return array(self.typecode, [*self, *other])

    def repeated(self: Any, times: int) -> Any:
        return array(self.typecode, list.__mul__(self, times))

    def tolist(self: Any) -> list[Any]:
        return list(self)

    def tobytes(self: Any) -> bytes:
        if self.typecode == "u":
            raise ValueError("tobytes() is for arrays of numbers; write ''.join(array).encode()")
        return struct.pack(f"{len(self)}{self.typecode}", *self)

    def frombytes(self: Any, data: bytes) -> None:
        if len(data) % self.itemsize or self.typecode == "u":
            raise ValueError("bytes length not a multiple of item size")
        list.extend(self, [item for (item,) in struct.iter_unpack(self.typecode, bytes(data))])

    def shown(self: Any) -> str:
        inside = f", {list(self)!r}" if self and self.typecode != "u" else f", {''.join(self)!r}" if self else ""
        return f"array({self.typecode!r}{inside})"

    methods: dict[str, Callable[..., Any]] = {"__add__": added, "__getitem__": get_item, "__init__": initialise}
    methods |= {"__iadd__": lambda self, other: extend(self, other) or self, "__mul__": repeated, "__repr__": shown}
    methods |= {"__setitem__": set_item, "append": append, "extend": extend, "fromlist": extend, "insert": insert}
    methods |= {"frombytes": frombytes, "tobytes": tobytes, "tolist": tolist}
    array = make_class("array", (list,), {**methods, "__module__": "array"})
    return array


def collections_values() -> dict[str, object]:
    """`UserDict` and `UserList`; the copies of theirs are made by nobody but us."""

    def copied(self: Any) -> Any:
        twin = shallow_copy(self)
        object.__setattr__(twin, "data", shallow_copy(vars(self)["data"]))
        return twin

    def kind(base: Any) -> type:
        return make_class(base.__name__, (base,), {"__module__": "collections", "copy": copied, "__copy__": copied})

    return {"UserDict": kind(UserDict), "UserList": kind(UserList)}


def types_values() -> dict[str, object]:
    def initialise(self: Any, mapping: Any = (), /, **values: Any) -> None:
        for name, value in {**dict(mapping), **values}.items():
            setattr(self, checked_name(name), value)

    def shown(self: Any) -> str:
        return f"namespace({', '.join(f'{name}={_told(value)}' for name, value in vars(self).items())})"

    def equal(self: Any, other: Any) -> Any:
        return vars(self) == vars(other) if isinstance(other, namespace) else NotImplemented

    contents = {"__init__": initialise, "__repr__": shown, "__eq__": equal, "__module__": "types"}
    namespace = make_class("SimpleNamespace", (), contents)
    return {"SimpleNamespace": namespace, "MappingProxyType": types.MappingProxyType}


def _told(value: Any) -> str:
    return text_of(value, "r")
