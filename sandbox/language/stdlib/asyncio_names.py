"""`asyncio` for programs: no event loop, but coroutines that run to their end, side by side where they are gathered.

Tasks are `sandbox.language.branches`'s, locks and queues `sandbox.language.stdlib.concurrency`'s.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine
from typing import Any

from sandbox.language.branches import CancelledError, Gathered, Ready, Task, finished, run_started, started, waiting
from sandbox.language.stdlib.clock import Clock
from sandbox.language.stdlib.concurrency import Event, Lock, Queue, Semaphore, as_completed, wait


class _Queue(Queue):
    """`asyncio.Queue`, which is awaited."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> Any:
        return Ready(super().put(item))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return Ready(super().get())

    def join(self) -> Any:
        return Ready(super().join())


class _Lock(Lock):
    """`asyncio.Lock`, whose `acquire` is awaited."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> Any:
        return Ready(super().acquire())


class _Semaphore(Semaphore):
    """`asyncio.Semaphore`, whose `acquire` is awaited."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Any:
        return Ready(super().acquire())


class _Event(Event):
    """`asyncio.Event`, whose `wait` is awaited."""

    def wait(self, timeout: float | None = None) -> Any:
        return Ready(super().wait())


class TaskGroup:
    """`asyncio.TaskGroup`: all tasks have ended when its block ends; the first failure is raised there."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: object = None, context: object = None) -> Task:
        self._tasks.append(started(coro, name))
        return self._tasks[-1]

    async def __aenter__(self) -> TaskGroup:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        failures = [failed for task in self._tasks if (failed := task.exception()) is not None]
        if failures and error is None:
            raise BaseExceptionGroup("unhandled errors in a TaskGroup", failures)


class _Timeout:
    """`asyncio.timeout(...)`: time in programs is virtual, so nothing is late."""

    async def __aenter__(self) -> _Timeout:
        return self

    async def __aexit__(self, *of: object) -> None: ...


class Loop:
    """An event loop as far as programs use one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def run_until_complete(self, future: Any) -> Any:
        return finished(future)

    def create_task(self, coro: Any, *, name: object = None) -> Task:
        return started(coro, name)

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Task:
        return Task(lambda: func(*args))

    def time(self) -> float:
        return self._clock.elapsed_ns() / 1e9

    def is_running(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def close(self) -> None: ...


def asyncio_values(clock: Clock) -> dict[str, object]:
    """`asyncio` for one program, whose sleeps move its clock."""
    loop = Loop(clock)
    clock.on_sleep = run_started

    def run(main: Any, *, debug: bool | None = None) -> Any:
        before = len(waiting())
        value = finished(main)
        for task in waiting()[before:]:
            task.cancel()
        return value

    def gather(*coros_or_futures: Any, return_exceptions: bool = False) -> Task:
        return Gathered([started(each) for each in coros_or_futures], return_exceptions)

    async def sleep(delay: float, result: Any = None) -> Any:
        clock.sleep(max(0.0, float(delay)))
        return result

    async def wait_for(fut: Any, timeout: float | None = None) -> Any:
        return finished(fut)

    def to_thread(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        return Task(lambda: func(*args, **kwargs))

    def shield(arg: Any) -> Task:
        return started(arg)

    def timeout(delay: float | None) -> _Timeout:
        return _Timeout()

    def this_loop(loop: object = None) -> Loop:
        return found

    def set_event_loop(loop: object) -> None: ...

    def iscoroutine(obj: object) -> bool:
        return type(obj) is types.CoroutineType

    def iscoroutinefunction(func: object) -> bool:
        return type(func) is types.FunctionType and bool(func.__code__.co_flags & 0x80)

    found = loop
    named = [run, gather, sleep, wait_for, to_thread, shield, timeout, set_event_loop, iscoroutine, iscoroutinefunction]
    values: dict[str, object] = {function.__name__: function for function in named}
    values |= dict.fromkeys(("get_event_loop", "get_running_loop", "new_event_loop"), this_loop)
    values |= {"create_task": loop.create_task, "ensure_future": loop.create_task}
    values |= {"as_completed": as_completed, "wait": wait}
    values |= {"Event": _Event, "Lock": _Lock, "Queue": _Queue, "Semaphore": _Semaphore}
    values |= {each.__name__: each for each in (Task, TaskGroup, CancelledError)}
    return values | {
        "BoundedSemaphore": _Semaphore,
        "Future": Task,
        "TimeoutError": TimeoutError,
        "ALL_COMPLETED": "ALL_COMPLETED",
        "FIRST_COMPLETED": "FIRST_COMPLETED",
        "FIRST_EXCEPTION": "FIRST_EXCEPTION",
    }
