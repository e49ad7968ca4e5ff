"""What programs see of a machine around them: `os`, `pathlib`, `platform`, `sys`, `traceback`, `errno`, `gc`.

There is none: no files, no environment, no processes. Offered is what needs none of that, such as paths as text; every
other name is missing, and the facade says so. Nothing here asks the operating system anything.
"""

from __future__ import annotations

import errno
import pathlib
import posixpath
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from sandbox.language.classes import Facade
from sandbox.language.stdlib.safe_stdlib import picked
from sandbox.language.texts import plain_text, text_of

_PATHS = (
    "altsep basename commonpath commonprefix curdir dirname extsep isabs join normcase normpath pardir pathsep sep "
    "split splitdrive splitext"
)
_FILES = "programs have no files; pass data through messages or context.state"


def os_values() -> dict[str, object]:
    """`os` as far as it touches nothing. No file exists; the environment is empty and a program's own."""
    path: dict[str, object] = {
        name: _on_text(value) if callable(value) else value for name, value in picked(posixpath, _PATHS).items()
    }

    def missing(path: object) -> bool:
        """No file is there."""
        return False

    path |= dict.fromkeys(("exists", "isdir", "isfile", "islink", "lexists"), missing)
    environ: dict[str, str] = {}

    def getenv(key: str, default: Any = None) -> Any:
        return environ.get(key, default)

    def cpu_count() -> int:
        return 1

    def getpid() -> int:
        return 1

    def getcwd() -> str:
        return "/"

    def fspath(path: Any) -> str:
        return _text_of(path)

    functions = (getenv, cpu_count, getpid, getcwd, fspath)
    return {
        **{name: path[name] for name in ("altsep", "curdir", "extsep", "pardir", "pathsep", "sep")},
        **{function.__name__: function for function in functions},
        "devnull": "/dev/null",
        "environ": environ,
        "linesep": "\n",
        "name": "posix",
        "path": Facade("os.path", path),
    }


def _text_of(path: Any) -> str:
    if isinstance(path, pathlib.PurePath):
        return str(path)
    if not isinstance(path, str):
        raise TypeError(f"a path must be text (got {type(path).__name__})")
    return plain_text(path)


def _on_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, handed nothing but plain text."""

    def called(*parts: Any) -> Any:
        return function(
            *([_text_of(each) for each in part] if type(part) is list else _text_of(part) for part in parts)
        )

    called.__name__ = called.__qualname__ = function.__name__
    return called


def pathlib_values() -> dict[str, object]:
    """Paths as text: `Path` is `PurePosixPath`, which has nothing that asks for a file."""
    return dict.fromkeys(("Path", "PurePath", "PurePosixPath"), pathlib.PurePosixPath)


def platform_values() -> dict[str, object]:
    said = {"python_version": ".".join(map(str, sys.version_info[:3])), "python_implementation": "CPython"}
    said |= {"system": "Linux", "machine": "x86_64", "node": "", "release": "", "platform": "Linux"}
    return {name: partial(str, text) for name, text in said.items()}


def sys_values() -> dict[str, object]:
    """What `sys` has beside streams and `exit`. Changing its lists and limits changes nothing."""

    def setrecursionlimit(limit: int, /) -> None: ...

    def getrecursionlimit() -> int:
        return sys.getrecursionlimit()

    def exc_info() -> tuple[Any, Any, None]:
        error = sys.exception()
        return (type(error), error, None) if isinstance(error, Exception) else (None, None, None)

    return {
        **picked(sys, "byteorder float_info maxsize maxunicode version version_info"),
        "exc_info": exc_info,
        "getrecursionlimit": getrecursionlimit,
        "setrecursionlimit": setrecursionlimit,
        "path": [""],
        "platform": "linux",
    }


def traceback_values(write: Callable[[str], None]) -> dict[str, Callable[..., Any]]:
    """`traceback` without frames: what was raised, and from what."""

    def format_exception(exc: Any, /, value: Any = None, tb: object = None, **options: object) -> list[str]:
        return [f"{line}\n" for line in _told(value if isinstance(value, BaseException) else exc)]

    def format_exc(limit: object = None, chain: bool = True) -> str:
        return "".join(format_exception(sys.exception()))

    def print_exc(limit: object = None, file: object = None, chain: bool = True) -> None:
        write(format_exc())

    def format_exception_only(exc: Any, /, value: Any = None) -> list[str]:
        return [f"{_told(value if isinstance(value, BaseException) else exc)[-1]}\n"]

    def print_exception(exc: Any, /, value: Any = None, tb: object = None, **options: object) -> None:
        write("".join(format_exception(exc, value)))

    functions = (format_exception, format_exc, print_exc, format_exception_only, print_exception)
    return {function.__name__: function for function in functions}


def _told(error: BaseException | None) -> list[str]:
    if not isinstance(error, BaseException):
        return ["NoneType: None"]
    lines: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(seen) < 20:
        seen.add(id(error))
        text = text_of(error, "s")
        name = type(error).__name__
        lines = ["Traceback (most recent call last):", f"{name}: {text}" if text else name, *lines]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return lines


def errno_values() -> dict[str, object]:
    names = {name: value for name, value in vars(errno).items() if name.startswith("E")}
    return {**names, "errorcode": {value: name for name, value in names.items()}}


def gc_values() -> dict[str, object]:
    def collect(generation: int = 2) -> int:
        return 0

    def nothing() -> None: ...

    return {"collect": collect, "enable": nothing, "disable": nothing}
