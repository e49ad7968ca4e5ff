"""`LogRecord`, `Formatter` and `Filter` of `logging` for programs.

Formats are by `%` and braces. Not here: loggers and handlers (`logging_names`), and the caller's file, line and
function, which a record does not know.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sandbox.language.access import read_attribute
from sandbox.language.classes import Writable
from sandbox.language.texts import plain_text, text_of, without_addresses

_UNKNOWN: dict[str, object] = {
    "filename": "program.py", "funcName": "<module>", "lineno": 0, "module": "program", "pathname": "program.py",
    "process": 1, "processName": "MainProcess", "thread": 1, "threadName": "MainThread", "stack_info": None,
}  # fmt: skip
"""What every record says of where it comes from."""


class LogRecord(Writable):
    """`logging.LogRecord`. Loggers make them, and `logging.makeLogRecord`."""

    name: Any
    msg: Any
    args: Any
    levelname: Any
    levelno: Any
    created: float
    """Seconds, of the program's clock."""
    msecs: float
    relativeCreated: float
    exc_info: Any
    """The class and the exception, and None where its traceback would be; or None."""
    exc_text: str | None

    def __init__(self, *given: object, **options: object) -> None:
        raise TypeError("log records come from loggers, or from logging.makeLogRecord(values)")

    @classmethod
    def _of(cls, added: Mapping[str, object], **said: object) -> LogRecord:
        record = object.__new__(cls)
        vars(record).update({**_UNKNOWN, **added, **said})
        return record

    def getMessage(self) -> str:
        text, args = text_of(self.msg, "s"), self.args
        if args:
            text %= args[0] if len(args) == 1 and isinstance(args[0], dict) else args
        return without_addresses(text)


_SAID = {*_UNKNOWN, *LogRecord.__annotations__, "asctime", "message"}
_BLANK: dict[str, object] = {
    "name": None, "msg": "", "args": (), "levelname": "", "levelno": 0, "created": 0.0, "msecs": 0.0,
    "relativeCreated": 0.0, "exc_info": None, "exc_text": None,
}  # fmt: skip


def make_record(dict: Mapping[str, object]) -> LogRecord:
    """`logging.makeLogRecord`."""
    said = {name: value for name, value in _named(dict).items() if name in _BLANK}
    added = {name: value for name, value in _named(dict).items() if name not in said}
    return LogRecord._of(checked(added), **{**_BLANK, **said})


def _named(values: Mapping[str, object] | None) -> dict[str, object]:
    return {plain_text(name): value for name, value in dict(values or {}).items()}


def checked(values: Mapping[str, object] | None) -> dict[str, object]:
    """What a program adds to a record. Raises KeyError for what would replace a method, or what a record says."""
    added = _named(values)
    for name in added:
        if type(name) is not str or name.startswith("_") or name in _SAID or hasattr(LogRecord, name):
            raise KeyError(f"{name!r} cannot be set on a log record")
    return added


class Formatter:
    """`logging.Formatter`."""

    def __init__(
        self, fmt: str | None = None, datefmt: str | None = None, style: str = "%", *, defaults: Any = None, **_: object
    ) -> None:
        messages = {"%": "%(message)s", "{": "{message}"}
        if style not in messages:
            raise ValueError(f"Formatter: style {style!r} is not available in programs; write %(message)s and the like")
        self._format = messages[style] if fmt is None else plain_text(fmt)
        self._date_format, self._style = plain_text(datefmt), style
        self._defaults = checked(defaults)

    def format(self, record: LogRecord) -> str:
        if not isinstance(record, LogRecord):
            raise TypeError(f"a formatter formats log records (got {type(record).__name__})")
        values = {**self._defaults, **vars(record), "message": record.getMessage()}
        if "asctime" in self._format:
            values["asctime"] = self.formatTime(record, self._date_format)
        shown = {key: value if type(value) in (int, float) else text_of(value, "s") for key, value in values.items()}
        text = self._format % shown if self._style == "%" else read_attribute(self._format, "format")(**shown)
        return f"{text}\n{shown['exc_text']}" if values.get("exc_text") else text

    def formatTime(self, record: LogRecord, datefmt: str | None = None) -> str:
        moment = time.gmtime(record.created)
        if datefmt:
            return time.strftime(plain_text(datefmt), moment)
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', moment)},{int(record.msecs):03d}"


class Filter:
    """`logging.Filter`: lets through what the logger of this name logs, or one below it."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def filter(self, record: LogRecord) -> bool:
        return not self.name or record.name == self.name or str(record.name).startswith(f"{self.name}.")
