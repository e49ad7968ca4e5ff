"""Calls that a program has started and that run side by side: tasks, and the branches that they become.

What a program has started waits until somebody asks for a result; then all of it runs as branches of one `Parallel`
request (decision 1 of the architecture), so that the order in which things happen is a function of the replies.
Branches change places only where an agent, a tool or code is asked. The names under which programs know this are in
`sandbox.language.stdlib.concurrency` and `sandbox.language.stdlib.asyncio_names`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any

from workflow import Context, Message
from workflow.bridge import as_steps, perform
from workflow.requests import NodeCall, Parallel, Steps

_NOT_RUN, _RUNNING, _DONE, _CANCELLED = "pending", "running", "done", "cancelled"


class CancelledError(BaseException):
    """`asyncio.CancelledError`: the task was cancelled before it ran."""


class Job:
    """One branch: a plain call as a node, which the scheduler can run beside others."""

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        self.name, self._call = name, call
        self.results: list[Message] = []
        """Of the nodes that the branch itself has run, in order; noted by `watch`."""
        self.watch: Callable[[Steps, Job], Steps] = lambda steps, job: steps
        """Sees the requests of the branch; set by whoever runs the program."""

    def steps(self, context: Context) -> Steps:
        return self.watch(as_steps(self._outcome), self)

    def _outcome(self) -> tuple[Any, BaseException | None]:
        _started.set([])
        try:
            return self._call(), None
        except (Exception, CancelledError) as error:
            return None, error


_started: ContextVar[list[Task]] = ContextVar("started")
"""What the branch at hand has started and not yet run. Every branch, being a greenlet, has a context of its own."""


def waiting() -> list[Task]:
    found = _started.get(None)
    if found is None:
        found = []
        _started.set(found)
    return found


def run_started() -> None:
    """Run all that this branch has started, side by side."""
    begun = _started.get(None)
    if not begun:
        return
    tasks = [task for task in begun if task._state == _NOT_RUN]
    begun.clear()
    if not tasks:
        return
    for task in tasks:
        task._state = _RUNNING
    context = Context()
    calls = [NodeCall(Job("task", task._call), context) for task in tasks]
    for task, outcome in zip(tasks, perform(Parallel(calls)), strict=True):
        task._finish(*(outcome if type(outcome) is tuple else (None, outcome)))


class Task:
    """A call that has been started: `asyncio.Task` and `concurrent.futures.Future` in one."""

    def __init__(self, call: Callable[[], Any], name: str = "") -> None:
        self._call, self._name = call, name
        self._state, self._value, self._error = _NOT_RUN, None, None
        self._callbacks: list[Callable[[Any], Any]] = []
        self._polled = False
        self._number = next(_numbers)
        waiting().append(self)

    def __hash__(self) -> int:
        return self._number  # so that sets of tasks have the same order in every run

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.result()
        yield

    def result(self, timeout: float | None = None) -> Any:
        if self._state == _NOT_RUN:
            run_started()
        if self._state == _CANCELLED:
            raise CancelledError
        if self._state != _DONE:
            raise RuntimeError("this task runs in another branch; ask for its result where it was started")
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def _finish(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error, self._state = value, error, _DONE
        for callback in self._callbacks:
            callback(self)

    def done(self) -> bool:
        if self._state == _NOT_RUN and self._polled:  # asked again: somebody waits for it
            run_started()
        self._polled = True
        return self._state in (_DONE, _CANCELLED)

    def running(self) -> bool:
        return self._state == _RUNNING

    def cancelled(self) -> bool:
        return self._state == _CANCELLED

    def cancel(self, msg: object = None) -> bool:
        if self._state == _NOT_RUN:
            self._state = _CANCELLED
            return True
        return False

    def add_done_callback(self, fn: Callable[[Any], Any], *, context: object = None) -> None:
        if self._state in (_DONE, _CANCELLED):
            fn(self)
        else:
            self._callbacks.append(fn)

    def get_name(self) -> str:
        return self._name or f"Task-{self._number}"

    def set_name(self, value: object) -> None:
        self._name = str(value)

    def __repr__(self) -> str:
        return f"<Task {self.get_name()} {self._state}>"


class Numbers:
    """1, 2, 3, ... from the start of each program: a program is made anew for each run."""

    def __init__(self) -> None:
        self._last = 0

    def __next__(self) -> int:
        self._last += 1
        return self._last


_numbers = Numbers()


def finished(awaitable: Any) -> Any:
    """The value of a coroutine or another awaitable of the program, run to its end."""
    if type(awaitable) is types.CoroutineType:
        try:
            awaitable.send(None)
        except StopIteration as end:
            return end.value
        awaitable.close()
        raise RuntimeError("a coroutine waits for something that is not of asyncio; await coroutines and tasks")
    if isinstance(awaitable, Task):
        return awaitable.result()
    if hasattr(type(awaitable), "__await__"):

        async def awaited() -> Any:
            return await awaitable

        return finished(awaited())
    raise TypeError(f"a coroutine or a task was expected (got {type(awaitable).__name__})")


def started(awaitable: Any, name: object = None) -> Task:
    if isinstance(awaitable, Task):
        return awaitable
    if type(awaitable) is not types.CoroutineType and not hasattr(type(awaitable), "__await__"):
        raise TypeError(f"a coroutine was expected (got {type(awaitable).__name__}); call the async function")
    return Task(lambda: finished(awaitable), "" if name is None else str(name))


class Gathered(Task):
    """What `gather` returns: waits for several tasks, and counts as none itself."""

    def __init__(self, tasks: list[Task], return_exceptions: bool) -> None:
        self._tasks, self._quiet = tasks, return_exceptions
        super().__init__(self._collect)
        waiting().remove(self)

    def result(self, timeout: float | None = None) -> Any:
        if self._state == _NOT_RUN:
            self._state = _RUNNING
            try:
                self._finish(self._collect(), None)
            except (Exception, CancelledError) as error:
                self._finish(None, error)
        return super().result()

    def _collect(self) -> list[Any]:
        if not self._quiet:
            return [task.result() for task in self._tasks]
        outcomes: list[Any] = []
        for task in self._tasks:
            try:
                outcomes.append(task.result())
            except (Exception, CancelledError) as error:
                outcomes.append(error)
        return outcomes


class Ready:
    """A value that may be awaited, and is as true as the value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._value
        yield
