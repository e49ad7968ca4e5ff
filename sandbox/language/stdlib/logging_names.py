"""`logging` for programs: records reach the program's own handlers and its output, and nothing else.

Loggers, levels, handlers and filters work as in the originals. Not here: records and their formats (`log_records`),
files, configuration by dict.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from sandbox.language.access import read_attribute
from sandbox.language.classes import Writable
from sandbox.language.stdlib.clock import EPOCH_S, Clock
from sandbox.language.stdlib.log_records import Filter, Formatter, LogRecord, checked, make_record
from sandbox.language.stdlib.safe_stdlib import Stream
from sandbox.language.texts import plain_text

LEVELS = {"NOTSET": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
BASIC_FORMAT = "%(levelname)s:%(name)s:%(message)s"


class _Filtering:
    def __init__(self) -> None:
        self.level = 0
        self.filters: list[Any] = []

    def setLevel(self, level: int | str) -> None:
        self.level = _level(level)

    def addFilter(self, filter: Any) -> None:
        self.filters.append(filter)

    def removeFilter(self, filter: Any) -> None:
        if filter in self.filters:
            self.filters.remove(filter)

    def filter(self, record: LogRecord) -> bool:
        return all(
            each(record) if callable(each) else read_attribute(each, "filter")(record) for each in list(self.filters)
        )


class Handler(_Filtering, Writable):
    """`logging.Handler`: derive from it and define `emit(record)`."""

    def __init__(self, level: int | str = 0) -> None:
        super().__init__()
        self.level = _level(level)
        self.formatter: Any = None

    def setFormatter(self, fmt: Any) -> None:
        self.formatter = fmt

    def format(self, record: LogRecord) -> str:
        formatter = Formatter() if self.formatter is None else self.formatter
        text: str = read_attribute(formatter, "format")(record)
        return text

    def handle(self, record: LogRecord) -> bool:
        passes = self.filter(record)
        if passes:
            self.emit(record)
        return passes

    def emit(self, record: LogRecord) -> None:
        raise NotImplementedError(f"{type(self).__name__} is a log handler without emit(self, record); define it")

    def flush(self) -> None: ...

    def close(self) -> None: ...


class NullHandler(Handler):
    def emit(self, record: LogRecord) -> None: ...


class Logger(_Filtering, Writable):
    """`logging.Logger`."""

    name: str
    handlers: list[Any]
    propagate: bool
    disabled: bool
    _logs: _Logs

    def __init__(self, *given: object, **options: object) -> None:
        raise TypeError("loggers come from logging.getLogger(name)")

    @classmethod
    def _of(cls, name: str, logs: _Logs) -> Logger:
        logger = object.__new__(cls)
        _Filtering.__init__(logger)
        logger.name, logger.handlers, logger.propagate, logger.disabled, logger._logs = name, [], True, False, logs
        return logger

    def getEffectiveLevel(self) -> int:
        return next((logger.level for logger in self._logs.upwards(self) if logger.level), 0)

    def isEnabledFor(self, level: int) -> bool:
        return not self.disabled and level > self._logs.disabled and level >= self.getEffectiveLevel()

    def log(self, level: int, msg: object, *args: Any, exc_info: Any = None, extra: Any = None, **_: object) -> None:
        if not self.isEnabledFor(level):
            return
        created = self._logs.clock.now()
        record = LogRecord._of(
            checked(extra),
            name=self.name,
            msg=msg,
            args=args,
            levelname=self._logs.level_name(level),
            levelno=level,
            created=created,
            msecs=created % 1 * 1000,
            relativeCreated=(created - EPOCH_S) * 1000,
            **self._logs.about(exc_info),
        )
        if self.filter(record):
            self._logs.handle(self, record)

    def debug(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(10, msg, *args, **options)

    def info(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(20, msg, *args, **options)

    def warning(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(30, msg, *args, **options)

    warn = warning

    def error(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(40, msg, *args, **options)

    def exception(self, msg: object, *args: Any, exc_info: Any = True, **options: Any) -> None:
        self.log(40, msg, *args, exc_info=exc_info, **options)

    def critical(self, msg: object, *args: Any, **options: Any) -> None:
        self.log(50, msg, *args, **options)

    fatal = critical

    def addHandler(self, hdlr: Any) -> None:
        if hdlr not in self.handlers:
            self.handlers.append(hdlr)

    def removeHandler(self, hdlr: Any) -> None:
        if hdlr in self.handlers:
            self.handlers.remove(hdlr)

    def hasHandlers(self) -> bool:
        return any(logger.handlers for logger in self._logs.reached(self))

    def getChild(self, suffix: str) -> Logger:
        return self._logs.get(suffix if self.name == "root" else f"{self.name}.{suffix}")


class _Logs:
    """The loggers of one program."""

    def __init__(self, clock: Clock, traceback: Callable[[Any], list[str]]) -> None:
        self.clock, self.traceback = clock, traceback
        self.last: Handler = NullHandler()
        """Takes what no handler does, from warnings on."""
        self.disabled = 0
        self.names = {value: name for name, value in LEVELS.items()}
        self.root = Logger._of("root", self)
        self.root.setLevel(30)
        self._made = {"root": self.root}

    def get(self, name: str | None = None) -> Logger:
        key = plain_text(name) or "root"
        if type(key) is not str:
            raise TypeError("A logger name must be a string")
        return self._made.setdefault(key, Logger._of(key, self))

    def about(self, exc_info: Any) -> dict[str, object]:
        """What a record says of an exception: the one given, or the one that is being handled."""
        error = exc_info[1] if type(exc_info) is tuple and len(exc_info) == 3 else exc_info
        error = error if isinstance(error, BaseException) else sys.exception() if error else None
        if not isinstance(error, Exception):
            return {"exc_info": None, "exc_text": None}
        return {"exc_info": (type(error), error, None), "exc_text": "".join(self.traceback(error)).rstrip("\n")}

    def upwards(self, logger: Logger) -> list[Logger]:
        """The logger, and those above it."""
        found, name = [logger], logger.name
        while "." in name:
            name = name.rpartition(".")[0]
            found += [self._made[name]] if name in self._made else []
        return found if logger is self.root else [*found, self.root]

    def reached(self, logger: Logger) -> list[Logger]:
        """Those whose handlers get what it logs."""
        found = []
        for each in self.upwards(logger):
            found.append(each)
            if not each.propagate:
                break
        return found

    def handle(self, logger: Logger, record: LogRecord) -> None:
        handlers = [handler for each in self.reached(logger) for handler in list(each.handlers)]
        for handler in handlers:
            if record.levelno >= read_attribute(handler, "level"):
                read_attribute(handler, "handle")(record)
        if not handlers and record.levelno >= 30:
            self.last.handle(record)

    def level_name(self, level: int) -> str:
        return self.names.get(level, f"Level {level}")


def _level(level: int | str) -> int:
    if isinstance(level, str):
        if level not in LEVELS:
            raise ValueError(f"Unknown level: {level!r}")
        return LEVELS[level]
    return int(level)


def logging_values(
    write: Callable[[str], None], clock: Clock, traceback: Callable[[Any], list[str]]
) -> dict[str, object]:
    """`logging` for one program, which prints what no handler takes and is at least a warning."""
    logs = _Logs(clock, traceback)
    root = logs.root

    class StreamHandler(Handler):
        """`logging.StreamHandler`: writes to a stream of the program's, or to its output."""

        def __init__(self, stream: Any = None) -> None:
            super().__init__()
            self.stream = Stream(write) if stream is None else stream
            self.terminator = "\n"

        def emit(self, record: LogRecord) -> None:
            try:
                text = f"{self.format(record)}{self.terminator}"
            except Exception as error:  # a message that does not fit its arguments ends no program
                write(f"--- Logging error ---\n{''.join(traceback(error))}")
            else:
                read_attribute(self.stream, "write")(text)

        def setStream(self, stream: Any) -> Any:
            before, self.stream = self.stream, stream
            return before

    logs.last = StreamHandler()

    def getLogger(name: str | None = None) -> Logger:
        return logs.get(name)

    def basicConfig(
        *, level: int | str | None = None, format: str | None = None, datefmt: str | None = None, style: str = "%",
        stream: Any = None, handlers: Any = None, filename: object = None, force: bool = False, **options: object,
    ) -> None:  # fmt: skip
        if filename is not None:
            _no_file(filename)
        if force:
            root.handlers.clear()
        if not root.handlers:
            basic = BASIC_FORMAT if style == "%" else "{levelname}:{name}:{message}"
            formatter = Formatter(basic if format is None else format, datefmt, style)
            for handler in [StreamHandler(stream)] if handlers is None else list(handlers):
                if read_attribute(handler, "formatter") is None:
                    read_attribute(handler, "setFormatter")(formatter)
                root.addHandler(handler)
            if level is not None:
                root.setLevel(level)

    def on_root(name: str) -> Callable[..., None]:
        def log(*args: Any, **options: Any) -> None:
            basicConfig()
            getattr(root, name)(*args, **options)

        log.__name__ = log.__qualname__ = name
        return log

    def disable(level: int = 50) -> None:
        logs.disabled = _level(level)

    def getLevelName(level: int | str) -> int | str:
        return LEVELS.get(level, f"Level {level}") if isinstance(level, str) else logs.level_name(level)

    def addLevelName(level: int, levelName: str) -> None:
        logs.names[int(level)] = plain_text(levelName)

    def FileHandler(filename: object = None, *args: object, **options: object) -> NoReturn:
        """There are no files."""
        _no_file(filename)

    def nothing(*given: object) -> None: ...

    methods = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log")
    functions = (getLogger, basicConfig, disable, getLevelName, addLevelName, FileHandler)
    return {
        **LEVELS,
        **{name: on_root(name) for name in methods},
        **{function.__name__: function for function in functions},
        **{cls.__name__: cls for cls in (Filter, Formatter, Handler, LogRecord, Logger, NullHandler)},
        **dict.fromkeys(("captureWarnings", "shutdown"), nothing),
        "BASIC_FORMAT": BASIC_FORMAT,
        "makeLogRecord": make_record,
        "FATAL": 50,
        "StreamHandler": StreamHandler,
        "WARN": 30,
        "root": root,
    }


def _no_file(filename: object) -> NoReturn:
    fix = "programs have no files; pass data through messages or context.state"
    raise PermissionError(f"logging to {filename!r}: {fix}; leave the file out")
