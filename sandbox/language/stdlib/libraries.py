"""Modules of the standard library that compute and touch nothing: offered as they are, or as small stand-ins.

Stand-ins are there where the original would look into objects of programs by name (`operator.attrgetter`), would not
repeat with the seed (`uuid`, `secrets`), or is made for threads. Which module offers which name is decided in
`sandbox.language.stdlib.importable`.
"""

from __future__ import annotations

import ast
import base64
import binascii
import calendar
import cmath
import contextlib
import csv
import difflib
import graphlib
import hmac
import html
import io
import keyword
import numbers
import pprint
import random
import shlex
import struct
import unicodedata
import urllib.parse
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sandbox.language.access import checked_name, place_attribute, read_attribute
from sandbox.language.classes import is_class, is_program_class
from sandbox.language.stdlib.digests import digest_values
from sandbox.language.stdlib.library_classes import (
    DictReader,
    array_class,
    asynccontextmanager,
    contextmanager,
    csv_reader,
    types_values,
)
from sandbox.language.stdlib.safe_stdlib import TypingName, picked
from sandbox.language.texts import over_plain, plain_text, text_of


def _texts(module: object, names: str) -> dict[str, object]:
    return {name: over_plain(value) for name, value in picked(module, names).items()}  # type: ignore[arg-type]


class _Shown:
    """Stands for an object in `pprint`: shows what the object shows, and has no insides."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _showable(x: Any, depth: int = 0) -> Any:
    """Builtin containers rebuilt; everything else as what it shows of itself."""
    if depth > 100:
        return _Shown("...")
    if type(x) is dict:
        return {_showable(key, depth + 1): _showable(value, depth + 1) for key, value in x.items()}
    if type(x) in (list, tuple):
        return type(x)(_showable(item, depth + 1) for item in x)
    if type(x) in (set, frozenset) and all(type(item) in (str, int, float, bytes) for item in x):
        return type(x)(x)
    return x if type(x) in (str, bytes, int, float, complex, bool, type(None)) else _Shown(text_of(x, "r"))


def pprint_values(write: Callable[[str], None]) -> dict[str, object]:
    def pformat(object: Any, indent: int = 1, width: int = 80, depth: int | None = None, **options: Any) -> str:
        return pprint.pformat(_showable(object), indent, width, depth, **options)

    def show(object: Any, stream: Any = None, *args: Any, **options: Any) -> None:
        (write if stream is None else read_attribute(stream, "write"))(pformat(object, *args, **options) + "\n")

    show.__name__ = show.__qualname__ = "pprint"
    return {"pformat": pformat, "pp": show, "pprint": show}


def operator_values() -> dict[str, object]:
    def attrgetter(*attrs: str) -> Callable[[Any], Any]:
        paths = [[checked_name(name) for name in attr.split(".")] for attr in attrs]
        if not paths:
            raise TypeError("attrgetter expected at least 1 argument, got 0")

        def get(obj: Any) -> Any:
            found = []
            for path in paths:
                value = obj
                for name in path:
                    value = read_attribute(value, name)
                found.append(value)
            return found[0] if len(found) == 1 else tuple(found)

        return get

    def methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        checked = checked_name(name)
        return lambda obj: read_attribute(obj, checked)(*args, **kwargs)

    return {"attrgetter": attrgetter, "methodcaller": methodcaller}


def contextlib_values(output: Any) -> dict[str, object]:
    """`contextlib`; `output` has a stack of places to which a program prints."""

    @contextmanager
    def redirect_stdout(new_target: Any) -> Iterator[Any]:
        output.targets.append(new_target)
        try:
            yield new_target
        finally:
            output.targets.pop()

    return {
        **picked(contextlib, "AsyncExitStack ExitStack closing nullcontext suppress"),
        "asynccontextmanager": asynccontextmanager,
        "contextmanager": contextmanager,
        "redirect_stdout": redirect_stdout,
        "redirect_stderr": redirect_stdout,
    }


def functools_values() -> dict[str, object]:
    """`cached_property` and `singledispatch`, which look at classes and nothing else."""

    def singledispatch(func: Any) -> Any:
        kinds: dict[type, Any] = {object: func}

        def dispatch(cls: type) -> Any:
            mro = type.__dict__["__mro__"].__get__(cls)
            return next(kinds[base] for base in mro if base in kinds)

        def register(cls: Any, func: Any = None) -> Any:
            if not is_class(cls):
                raise TypeError("singledispatch: name the class, as in @function.register(int)")
            if func is None:
                return lambda function: register(cls, function)
            kinds[cls] = func
            return func

        def function(*args: Any, **kwargs: Any) -> Any:
            if not args:
                raise TypeError("a singledispatch function needs at least 1 positional argument")
            return dispatch(type(args[0]))(*args, **kwargs)

        vars(function).update(register=register, dispatch=dispatch)
        return function

    class cached_property:
        """`functools.cached_property` for classes of programs: computed once for each object."""

        def __init__(self, func: Any) -> None:
            self.func, self._name = func, ""

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = self.func(instance)
            if is_program_class(type(instance)):
                place_attribute(instance, self._name, value)
            return value

    def partialmethod(func: Any, /, *args: Any, **kwargs: Any) -> Any:
        return lambda self, *more, **others: func(self, *args, *more, **{**kwargs, **others})

    return {"cached_property": cached_property, "partialmethod": partialmethod, "singledispatch": singledispatch}


def seeded_values(seed: Callable[[], int]) -> dict[str, dict[str, object]]:
    """`uuid` and `secrets`: they repeat with the run's seed, which is all that a program should count on."""
    drawn: list[random.Random] = []

    def generator() -> random.Random:
        if not drawn:
            drawn.append(random.Random(f"secrets/{seed()}"))
        return drawn[0]

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=generator().getrandbits(128), version=4)

    def uuid1(node: object = None, clock_seq: object = None) -> uuid.UUID:
        return uuid.UUID(int=generator().getrandbits(128), version=1)

    def token_bytes(nbytes: int | None = None) -> bytes:
        return generator().randbytes(32 if nbytes is None else nbytes)

    def token_hex(nbytes: int | None = None) -> str:
        return token_bytes(nbytes).hex()

    def token_urlsafe(nbytes: int | None = None) -> str:
        return base64.urlsafe_b64encode(token_bytes(nbytes)).rstrip(b"=").decode()

    def choice(sequence: Any) -> Any:
        return generator().choice(sequence)

    def randbelow(exclusive_upper_bound: int) -> int:
        return generator().randrange(exclusive_upper_bound)

    def randbits(k: int) -> int:
        return generator().getrandbits(k)

    def compare_digest(a: Any, b: Any, /) -> bool:
        return hmac.compare_digest(plain_text(a), plain_text(b))

    secret = (token_bytes, token_hex, token_urlsafe, choice, randbelow, randbits, compare_digest)
    return {
        "uuid": {
            **picked(uuid, "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 UUID"),
            **_texts(uuid, "uuid3 uuid5"),
            "uuid1": uuid1,
            "uuid4": uuid4,
        },
        "secrets": {function.__name__: function for function in secret},
    }


def _literal_eval(node_or_string: str) -> Any:
    """`ast.literal_eval` of text."""
    if not isinstance(node_or_string, str):
        raise TypeError(f"literal_eval() in programs reads text (got {type(node_or_string).__name__})")
    return ast.literal_eval(plain_text(node_or_string))


def _split(s: str, comments: bool = False, posix: bool = True) -> list[str]:
    """`shlex.split` of text."""
    if not isinstance(s, str):
        raise TypeError(f"shlex.split() reads text (got {type(s).__name__})")
    return shlex.split(plain_text(s), comments, posix)


def library_values() -> dict[str, Mapping[str, object]]:
    """The modules here that are the same for every program, by name."""
    numeric = "Complex Integral Number Rational Real"
    return {
        "array": {"array": array_class()},
        "ast": {"literal_eval": _literal_eval},
        "base64": _texts(
            base64,
            "b16decode b16encode b32decode b32encode b64decode b64encode b85decode b85encode standard_b64decode "
            "standard_b64encode urlsafe_b64decode urlsafe_b64encode",
        ),
        "binascii": {**_texts(binascii, "a2b_base64 b2a_base64 crc32 hexlify unhexlify"), "Error": binascii.Error},
        "calendar": {
            **picked(calendar, "FRIDAY MONDAY SATURDAY SUNDAY THURSDAY TUESDAY WEDNESDAY"),
            **picked(calendar, "isleap leapdays monthcalendar monthrange timegm weekday"),
            **{name: list(getattr(calendar, name)) for name in ("day_abbr", "day_name", "month_abbr", "month_name")},
        },
        "cmath": {name: value for name, value in vars(cmath).items() if not name.startswith("_")},
        "csv": {
            **picked(csv, "DictWriter QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC Error writer"),
            "DictReader": DictReader,
            "reader": csv_reader,
        },
        "difflib": {
            **picked(difflib, "Differ SequenceMatcher"),
            **picked(difflib, "context_diff get_close_matches ndiff unified_diff"),
        },
        "graphlib": picked(graphlib, "CycleError TopologicalSorter"),
        "hashlib": digest_values(),
        "html": _texts(html, "escape unescape"),
        "io": picked(io, "BytesIO StringIO"),
        "keyword": {"iskeyword": over_plain(keyword.iskeyword), "kwlist": list(keyword.kwlist)},
        "numbers": {name: TypingName(name, getattr(numbers, name)) for name in numeric.split()},
        "shlex": {**_texts(shlex, "join quote"), "split": _split},
        "struct": {**_texts(struct, "calcsize iter_unpack pack unpack unpack_from"), "error": struct.error},
        "types": types_values(),
        "unicodedata": _texts(
            unicodedata,
            "bidirectional category combining decimal digit east_asian_width is_normalized lookup mirrored name "
            "normalize numeric",
        ),
        "urllib.parse": _texts(
            urllib.parse,
            "parse_qs parse_qsl quote quote_plus unquote unquote_plus urlencode urljoin urlparse urlsplit urlunparse "
            "urlunsplit",
        ),
        "zlib": {**_texts(zlib, "adler32 compress crc32 decompress"), "error": zlib.error},
    }
