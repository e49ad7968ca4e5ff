"""What programs see of a machine around them: `os`, `pathlib`, `platform`, `logging`, `warnings`, `traceback`, `gc`.

There is none: no files, no environment, no processes. Offered is what needs none of that, such as paths as text; every
other name is missing, and the facade says so. Nothing here asks the operating system anything.
"""

from __future__ import annotations

import pathlib
import posixpath
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from sandbox.language.classes import Facade
from sandbox.language.safe_stdlib import picked
from sandbox.language.texts import plain_text, text_of, without_addresses

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

    return {
        **picked(sys, "byteorder float_info maxsize maxunicode version version_info"),
        "getrecursionlimit": getrecursionlimit,
        "setrecursionlimit": setrecursionlimit,
        "path": [""],
        "platform": "linux",
    }


# Warnings and logs

LEVELS = {"NOTSET": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


class Logger:
    """`logging.Logger`: what is at or above its level is printed as `LEVEL:name:message`."""

    def __init__(self, name: str, levels: dict[str, int], write: Callable[[str], None]) -> None:
        self.name, self._levels, self._write = name, levels, write
        self.handlers: list[object] = []
        self.propagate = True

    @property
    def level(self) -> int:
        return self._levels.get(self.name, 0)

    def setLevel(self, level: int | str) -> None:
        self._levels[self.name] = _level(level)

    def getEffectiveLevel(self) -> int:
        return self._levels.get(self.name) or self._levels.get("root", 30)

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.getEffectiveLevel()

    def log(self, level: int, msg: object, *args: Any, exc_info: object = None, **options: object) -> None:
        if self.isEnabledFor(level):
            text = text_of(msg, "s")
            if args:
                text %= args[0] if len(args) == 1 and isinstance(args[0], dict) else args
            label = next((name for name, value in LEVELS.items() if value == level), f"Level {level}")
            self._write(f"{label}:{self.name}:{without_addresses(text)}\n")

    def debug(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(10, msg, *args, **options)

    def info(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(20, msg, *args, **options)

    def warning(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(30, msg, *args, **options)

    def error(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(40, msg, *args, **options)

    def exception(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(40, msg, *args, **options)

    def critical(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(50, msg, *args, **options)

    def addHandler(self, hdlr: object) -> None: ...

    def removeHandler(self, hdlr: object) -> None: ...

    def hasHandlers(self) -> bool:
        return True


class Handler:
    """`StreamHandler`, `NullHandler`, `Formatter`: may be made and handed on; output has one form and one place."""

    def __init__(self, *given: object, **options: object) -> None: ...

    def setLevel(self, level: object) -> None: ...

    def setFormatter(self, fmt: object) -> None: ...


def _level(level: int | str) -> int:
    if isinstance(level, str):
        if level not in LEVELS:
            raise ValueError(f"Unknown level: {level!r}")
        return LEVELS[level]
    return int(level)


def logging_values(write: Callable[[str], None]) -> dict[str, object]:
    """`logging` for one program: prints, at first what is at least a warning."""
    levels: dict[str, int] = {"root": 30}
    made: dict[str, Logger] = {}

    def getLogger(name: str | None = None) -> Logger:
        key = "root" if name is None else str(name)
        return made.setdefault(key, Logger(key, levels, write))

    def basicConfig(*, level: int | str | None = None, filename: object = None, **options: object) -> None:
        if filename is not None:
            raise PermissionError(f"logging to {filename!r}: {_FILES}; leave filename out")
        if level is not None:
            levels["root"] = _level(level)

    def disable(level: int = 50) -> None:
        levels["root"] = max(levels["root"], level + 1)

    def getLevelName(level: int) -> str:
        return next((name for name, value in LEVELS.items() if value == level), f"Level {level}")

    root = getLogger()
    methods = (root.debug, root.info, root.warning, root.error, root.exception, root.critical, root.log)
    functions = (getLogger, basicConfig, disable, getLevelName, *methods)
    return {
        **LEVELS,
        **{function.__name__: function for function in functions},
        **dict.fromkeys(("Formatter", "Handler", "NullHandler", "StreamHandler"), Handler),
        "FATAL": 50,
        "Logger": Logger,
        "WARN": 30,
    }


class _Caught:
    """`warnings.catch_warnings()`: nothing is ever shown, so nothing is caught."""

    def __init__(self, **options: object) -> None: ...

    def __enter__(self) -> list[object]:
        return []

    def __exit__(self, *of: object) -> None: ...


def warnings_values() -> dict[str, object]:
    """`warnings`: nobody sees them, so they are dropped."""

    def ignored(*given: object, **options: object) -> None: ...

    names = ("warn", "filterwarnings", "simplefilter", "resetwarnings", "showwarning")
    return {**dict.fromkeys(names, ignored), "catch_warnings": _Caught}


def traceback_values(write: Callable[[str], None]) -> dict[str, object]:
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


def gc_values() -> dict[str, object]:
    def collect(generation: int = 2) -> int:
        return 0

    def nothing() -> None: ...

    return {"collect": collect, "enable": nothing, "disable": nothing}
