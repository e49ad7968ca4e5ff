"""`concurrent.futures`, `threading` and `queue` for programs, without threads.

What they start runs side by side as `sandbox.language.branches` says. Nothing here waits for another branch: locks are
taken at once, and a queue that is empty says so. `asyncio` is in `sandbox.language.stdlib.asyncio_names`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from sandbox.language.branches import CancelledError, Numbers, Task, run_started, started
from sandbox.language.vocabulary import shown


class Lock:
    """`Lock`, for `with` and `async with`. Nobody else runs between two requests."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """False where the lock is held and nobody waits for it: time is virtual, so that a time-out is over at once."""
        if self._held and (not blocking or timeout >= 0):
            return False
        if self._held:
            raise RuntimeError(
                "this lock is held already, and nobody can release it while this waits; "
                "release it first, and hold it only while shared data changes, not while an agent is asked"
            )
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        self.acquire()
        return True

    def __exit__(self, *of: object) -> None:
        self.release()

    async def __aenter__(self) -> None:
        self.acquire()

    async def __aexit__(self, *of: object) -> None:
        self.release()


class RLock(Lock):
    """A lock that its holder may take again; so is everybody here."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return True

    def release(self) -> None: ...


class Semaphore(Lock):
    """Bounds nobody who waits: how many agents are asked at once is for the engine. Who does not wait is told."""

    def __init__(self, value: int = 1) -> None:
        super().__init__()
        if value < 0:
            raise ValueError("Semaphore initial value must be >= 0")
        self._free = value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if self._free <= 0 and (not blocking or timeout is not None):
            return False
        self._free -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._free += n

    def locked(self) -> bool:
        return self._free <= 0


class Event:
    """`Event`: set or not. Waiting for one that nobody has set is an error, since nobody will."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            run_started()
        if not self._set and timeout is None:
            raise RuntimeError("nobody has set this event; set it before you wait for it")
        return self._set


class ThreadPoolExecutor:
    """`concurrent.futures.ThreadPoolExecutor`; `max_workers` bounds nothing, as the engine has its own limit."""

    def __init__(self, max_workers: int | None = None, *given: object, **options: object) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        return Task(lambda: fn(*args, **kwargs))

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        tasks = [self.submit(fn, *args) for args in zip(*iterables, strict=False)]
        return (task.result() for task in tasks)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            run_started()

    def __enter__(self) -> ThreadPoolExecutor:
        return self

    def __exit__(self, *of: object) -> None:
        self.shutdown()


def as_completed(fs: Iterable[Any], timeout: float | None = None) -> Iterator[Task]:
    """The tasks, in the given order: by the time one is there, all are."""
    tasks = [started(each) for each in fs]
    run_started()
    return iter(tasks)


def wait(fs: Iterable[Any], timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
    """(done, not done): the second set is empty."""
    tasks = {started(each) for each in fs}
    run_started()
    return _Both(tasks)


class _Both(tuple[Any, ...]):
    """`(done, not_done)` that may be unpacked, or awaited first."""

    __slots__ = ()

    def __new__(cls, tasks: set[Task]) -> _Both:
        return super().__new__(cls, (tasks, set()))

    @property
    def done(self) -> set[Task]:
        return self[0]

    @property
    def not_done(self) -> set[Task]:
        return self[1]

    def __await__(self) -> Generator[Any, Any, Any]:
        return tuple(self)
        yield


class Thread:
    """`threading.Thread`: runs when it is joined, beside all others that were started."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name or _thread_name(target), daemon
        self._work, self._task = (target, tuple(args), dict(kwargs or {})), None

    def run(self) -> None:
        target, args, kwargs = self._work
        if target is not None:
            target(*args, **kwargs)

    def start(self) -> None:
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        self._task = Task(self._begin, self.name)

    def _begin(self) -> None:
        _current.set(self)
        self.run()

    def join(self, timeout: float | None = None) -> None:
        if self._task is None:
            raise RuntimeError("cannot join thread before it is started")
        self._task.result()  # what it raised is raised here, where plain Python would print it

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()


_MAIN = Thread(name="MainThread", daemon=False)
_current: ContextVar[Thread] = ContextVar("_current")
"""The thread of a branch, which has a context of its own."""
_threads = Numbers()


def _thread_name(target: Any) -> str:
    """As Python names them: by number and, for a function, its name."""
    named = f" ({target.__name__})" if type(target) is FunctionType else ""
    return f"Thread-{next(_threads)}{shown(named)}"


def current_thread() -> Thread:
    return _current.get(_MAIN)


class Queue:
    """`asyncio.Queue` and `queue.Queue`: first in, first out. Taking from an empty one is an error, not a wait."""

    def __init__(self, maxsize: int = 0) -> None:
        self.maxsize = maxsize
        self._items: deque[Any] = deque()

    def _take(self) -> Any:
        return self._items.popleft()

    def put_nowait(self, item: Any) -> None:
        if self.full():
            raise Full("the queue is full and nobody else runs now; get items first, or leave maxsize out")
        self._items.append(item)

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty(
                "nothing is in the queue and nobody else runs now; put items before you get them, or ask empty()"
            )
        return self._take()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> Any:
        self.put_nowait(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._items and block:
            run_started()  # somebody who puts
        return self.get_nowait()

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items

    def full(self) -> bool:
        return 0 < self.maxsize <= len(self._items)

    def task_done(self) -> None: ...

    def join(self) -> Any:
        run_started()


class LifoQueue(Queue):
    """Last in, first out."""

    def _take(self) -> Any:
        return self._items.pop()


class PriorityQueue(Queue):
    """The smallest item first."""

    def _take(self) -> Any:
        least = min(range(len(self._items)), key=self._items.__getitem__)
        item = self._items[least]
        del self._items[least]
        return item


class Empty(Exception): ...


class Full(Exception): ...


def futures_values() -> dict[str, object]:
    """`concurrent.futures`. Processes are threads here, as neither are there."""
    return {
        "ThreadPoolExecutor": ThreadPoolExecutor,
        "ProcessPoolExecutor": ThreadPoolExecutor,
        "Executor": ThreadPoolExecutor,
        "Future": Task,
        "TimeoutError": TimeoutError,
        "CancelledError": CancelledError,
        "as_completed": as_completed,
        "wait": wait,
        "ALL_COMPLETED": "ALL_COMPLETED",
        "FIRST_COMPLETED": "FIRST_COMPLETED",
    }


def threading_values() -> dict[str, object]:
    return {
        "Thread": Thread,
        "Lock": Lock,
        "RLock": RLock,
        "Semaphore": Semaphore,
        "BoundedSemaphore": Semaphore,
        "Event": Event,
        "current_thread": current_thread,
    }


def queue_values() -> dict[str, object]:
    values = (Queue, LifoQueue, PriorityQueue, Empty, Full)
    return {**{each.__name__: each for each in values}, "SimpleQueue": Queue}
