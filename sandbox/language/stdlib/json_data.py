"""`json` for programs: what is written is first rebuilt out of plain builtin values, what is read is plain already.

So the library never holds an object of a program: `default` and the hooks are called from here or get plain values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.language.access import read_attribute

_OTHER = object()


class JSONEncoder:
    """`json.JSONEncoder`: derive from it and define `default(o)`."""

    def __init__(
        self,
        *,
        skipkeys: bool = False,
        ensure_ascii: bool = True,
        check_circular: bool = True,
        allow_nan: bool = True,
        sort_keys: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        default: Callable[[Any], Any] | None = None,
    ) -> None:
        self.skipkeys, self.ensure_ascii, self.check_circular = skipkeys, ensure_ascii, check_circular
        self.allow_nan, self.sort_keys, self.indent, self.separators = allow_nan, sort_keys, indent, separators
        if default is not None:
            vars(self)["default"] = default

    def default(self, o: Any) -> Any:
        raise TypeError(f"Object of type {type(o).__name__} is not JSON serializable")

    def encode(self, o: Any) -> str:
        indent = None if self.indent is None else plain(self.indent)
        separators: Any = None if self.separators is None else tuple(map(plain, self.separators))
        text = rebuilt(o, self.default, bool(self.skipkeys))
        return json.dumps(
            text,
            ensure_ascii=bool(self.ensure_ascii),
            allow_nan=bool(self.allow_nan),
            sort_keys=bool(self.sort_keys),
            indent=indent,
            separators=separators,
        )

    def iterencode(self, o: Any) -> Iterator[str]:
        return iter([self.encode(o)])


def dumps(obj: Any, *, cls: Any = None, default: Callable[[Any], Any] | None = None, **options: Any) -> str:
    """`json.dumps` with its own arguments."""
    encoder: Any = JSONEncoder if cls is None else cls
    return encoder(**options, **({} if default is None else {"default": default})).encode(obj)


def dump(obj: Any, fp: Any, **options: Any) -> None:
    """`json.dump` to whatever of the program's has `write`."""
    read_attribute(fp, "write")(dumps(obj, **options))


def load(fp: Any, **options: Any) -> Any:
    """`json.load` of whatever of the program's has `read`."""
    return loads(read_attribute(fp, "read")(), **options)


def rebuilt(value: Any, default: Callable[[Any], Any], skipkeys: bool = False) -> Any:
    """The same value out of `dict`, `list`, `str`, `int`, `float`, `bool` and None alone; `default` mends the rest.

    Raises ValueError for a value that holds itself, TypeError for a key that JSON does not have.
    """
    open_above: set[int] = set()

    def each(x: Any) -> Any:
        scalar = plain(x)
        if scalar is not _OTHER:
            return scalar
        if id(x) in open_above:
            raise ValueError("Circular reference detected")
        open_above.add(id(x))
        made: Any
        if isinstance(x, dict):
            keys = {key: plain(key) for key in list(x)}
            wrong = [key for key, name in keys.items() if name is _OTHER]
            if wrong and not skipkeys:
                kind = type(wrong[0]).__name__
                raise TypeError(f"keys must be str, int, float, bool or None, not {kind}")
            made = {name: each(x[key]) for key, name in keys.items() if name is not _OTHER}
        elif isinstance(x, list | tuple):
            made = [each(item) for item in list(x)]
        else:
            made = each(default(x))
        open_above.discard(id(x))
        return made

    return each(value)


def plain(x: Any) -> Any:
    """A scalar as an object of exactly its builtin class; `_OTHER` for anything else."""
    if x is None or x is True or x is False or type(x) in (str, int, float):
        return x
    if isinstance(x, str):
        return str.__getitem__(x, slice(None))
    if isinstance(x, int):
        return int.__pos__(x)
    if isinstance(x, float):
        return float.__pos__(x)
    return _OTHER


def _loader(options: dict[str, Any]) -> json.JSONDecoder:
    strict = bool(options.pop("strict", True))
    known = ("object_hook", "parse_float", "parse_int", "parse_constant", "object_pairs_hook")
    for name in options:
        if name not in known:
            raise TypeError(f"json: unexpected argument {name!r}; it takes {', '.join(known)} and strict")
    return json.JSONDecoder(strict=strict, **options)


def _text(s: Any) -> str:
    if isinstance(s, str):
        return str.__getitem__(s, slice(None))
    if isinstance(s, bytes | bytearray):
        return bytes(s).decode(json.detect_encoding(bytes(s)), "surrogatepass")
    raise TypeError(f"the JSON object must be str, bytes or bytearray, not {type(s).__name__}")


class JSONDecoder:
    """`json.JSONDecoder` with its own arguments."""

    def __init__(self, **options: Any) -> None:
        self._decoder = _loader(dict(options))

    def decode(self, s: str) -> Any:
        return self._decoder.decode(_text(s))

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        return self._decoder.raw_decode(_text(s), idx)


def loads(s: Any, *, cls: Any = None, **options: Any) -> Any:
    """`json.loads` with its own arguments."""
    return (JSONDecoder if cls is None else cls)(**options).decode(_text(s))
