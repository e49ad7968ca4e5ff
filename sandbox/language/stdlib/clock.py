"""Time in programs: a virtual clock, and the `time`, `datetime` and `timeit` that read it.

Nothing here asks what time it is. Which module offers which name is decided in `importable`.
"""

from __future__ import annotations

import datetime as real_datetime
import time as real_time
from collections.abc import Callable
from typing import Any

from sandbox.language.texts import plain_text

EPOCH_S = 1_735_689_600
"""Where every program's clock starts: 2025-01-01 00:00:00 UTC."""
TICK_NS = 1_000_000
"""How far the clock moves each time it is read, so that a loop that waits for a deadline comes to its end."""


class Clock:
    """Time of one program: starts at `EPOCH_S`, moves by `TICK_NS` per reading and by every sleep."""

    def __init__(self) -> None:
        self._elapsed_ns = 0
        self.on_sleep: Callable[[], None] = lambda: None
        """Runs what waits for its turn."""

    def elapsed_ns(self) -> int:
        self._elapsed_ns += TICK_NS
        return self._elapsed_ns

    def now(self) -> float:
        return EPOCH_S + self.elapsed_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._elapsed_ns += int(seconds * 1e9)
        self.on_sleep()


def time_values(clock: Clock) -> dict[str, object]:
    def gmtime(seconds: float | None = None) -> real_time.struct_time:
        return real_time.gmtime(clock.now() if seconds is None else seconds)

    def strftime(layout: str, moment: real_time.struct_time | None = None) -> str:
        return real_time.strftime(layout, gmtime() if moment is None else moment)

    def ctime(seconds: float | None = None) -> str:
        return real_time.asctime(gmtime(seconds))

    def elapsed() -> float:
        return clock.elapsed_ns() / 1e9

    def elapsed_ns() -> int:
        return clock.elapsed_ns()

    def now() -> float:
        return clock.now()

    def now_ns() -> int:
        return EPOCH_S * 10**9 + clock.elapsed_ns()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)

    values: dict[str, object] = dict.fromkeys(("monotonic", "perf_counter", "process_time"), elapsed)
    values |= {f"{name}_ns": elapsed_ns for name in values}
    return values | {
        "time": now,
        "time_ns": now_ns,
        "sleep": sleep,
        "gmtime": gmtime,
        "localtime": gmtime,
        "strftime": strftime,
        "ctime": ctime,
    }


def timeit_values(clock: Clock) -> dict[str, object]:
    """`timeit` of functions, in the program's time."""
    now = time_values(clock)["perf_counter"]

    def timeit(stmt: Any, setup: Any = None, timer: object = None, number: int = 1_000_000, **options: object) -> float:
        for function in (stmt, setup):
            if not callable(function) and function is not None:
                raise TypeError(f"timeit() in programs times a function (got {type(function).__name__})")
        if setup is not None:
            setup()
        start = clock.now()
        for _ in range(number):
            stmt()
        return clock.now() - start

    return {"default_timer": now, "timeit": timeit}


def datetime_values(clock: Clock) -> dict[str, object]:
    """The classes of `datetime`; `now` and `today` read the program's clock, and the local zone is UTC."""

    class date(real_datetime.date):
        __slots__ = ()

        @classmethod
        def today(cls) -> date:
            return cls.fromtimestamp(clock.now())

        @classmethod
        def fromtimestamp(cls, timestamp: float, /) -> date:
            moment = real_datetime.datetime.fromtimestamp(timestamp, real_datetime.UTC)
            return cls(moment.year, moment.month, moment.day)

        def __repr__(self) -> str:
            return f"datetime.{super().__repr__()}"

    class datetime(real_datetime.datetime, date):  # type: ignore[misc]  # min and max are narrower, as in the original
        __slots__ = ()

        @classmethod
        def now(cls, tz: real_datetime.tzinfo | None = None) -> datetime:
            return cls.fromtimestamp(clock.now(), tz)

        @classmethod
        def utcnow(cls) -> datetime:
            return cls.now()

        @classmethod
        def today(cls) -> datetime:
            return cls.now()

        @classmethod
        def strptime(cls, date_string: str, format: str, /) -> datetime:
            return super().strptime(plain_text(date_string), plain_text(format))  # they become keys of its cache

        @classmethod
        def fromtimestamp(cls, timestamp: float, tz: real_datetime.tzinfo | None = None) -> datetime:
            moment = super().fromtimestamp(timestamp, tz or real_datetime.UTC)
            return moment if tz else moment.replace(tzinfo=None)

        def timestamp(self) -> float:
            moment = self if self.tzinfo else self.replace(tzinfo=real_datetime.UTC)
            return real_datetime.datetime.timestamp(moment)

        def __repr__(self) -> str:
            return f"datetime.{super().__repr__()}"

    for cls in (date, datetime):
        cls.__module__, cls.__qualname__ = "datetime", cls.__name__
    return {
        "date": date,
        "datetime": datetime,
        "time": real_datetime.time,
        "timedelta": real_datetime.timedelta,
        "timezone": real_datetime.timezone,
        "UTC": real_datetime.UTC,
    }
