"""Advances the nodes of one run without doing any I/O: requests come out, replies go in.

Every driver (sync, async, jail, replay, search) is a small loop around a `Scheduler`. It keeps one stack of
generators per branch, so nodes nest and run side by side to any depth. Each issued request has a `key` that
depends only on the program and its replies, not on the order of arrival: the path of nodes, branch indices
included, then `#` and how often that path has asked before. No threads, no async, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from workflow.requests import Delivery, Leaf, NodeCall, Parallel, Request, Steps, ToolResult


@dataclass(slots=True)
class Issued:
    """A request for the driver: answer it with `Scheduler.reply` or `.throw` under its `key`.

    A report (`Delivery`, `ToolResult`) has an empty key and wants no reply.
    """

    key: str
    path: str
    request: Leaf


@dataclass(slots=True)
class _Frame:
    steps: Steps
    path: str


@dataclass(slots=True)
class _Branch:
    """One line of execution: a stack of running nodes."""

    on_done: Callable[[Any, Exception | None], None]
    frames: list[_Frame] = field(default_factory=list)


class Scheduler:
    """Runs one request tree. Call `take()` for new requests, `reply`/`throw` for each, until `done`.

    `result()` then returns the outcome or raises what the program raised.
    """

    def __init__(self, root: Steps, path: str = "") -> None:
        self.done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._issued: list[Issued] = []
        self._waiting: dict[str, _Branch] = {}
        self._asked: dict[str, int] = {}
        self._ready: deque[tuple[_Branch, Any, Exception | None]] = deque()
        branch = _Branch(self._finish)
        branch.frames.append(_Frame(root, path))
        self._ready.append((branch, None, None))
        self._run()

    def take(self) -> list[Issued]:
        """Requests issued since the last call, in a deterministic order. Reports need no reply."""
        issued, self._issued = self._issued, []
        return issued

    def reply(self, key: str, value: Any) -> None:
        self._ready.append((self._waiting.pop(key), value, None))
        self._run()

    def throw(self, key: str, error: Exception) -> None:
        """Answer a request with an exception, raised inside the node that made it."""
        self._ready.append((self._waiting.pop(key), None, error))
        self._run()

    def result(self) -> Any:
        if not self.done:
            raise RuntimeError("the run is not over: requests wait for replies")
        if self._error is not None:
            raise self._error
        return self._value

    def close(self) -> None:
        """Abandon the run: unwind every suspended node."""
        branches, self._waiting = list(self._waiting.values()), {}
        for branch in branches:
            while branch.frames:
                branch.frames.pop().steps.close()

    def _finish(self, value: Any, error: Exception | None) -> None:
        self._value, self._error, self.done = value, error, True

    def _run(self) -> None:
        while self._ready:
            self._advance(*self._ready.popleft())

    def _advance(self, branch: _Branch, value: Any, error: Exception | None) -> None:
        """Resume the innermost node of a branch until it waits for something or the branch ends."""
        while branch.frames:
            frame = branch.frames[-1]
            try:
                request: Request = frame.steps.throw(error) if error else frame.steps.send(value)
            except StopIteration as stop:
                branch.frames.pop()
                value, error = stop.value, None
                continue
            except Exception as raised:
                branch.frames.pop()
                value, error = None, raised
                continue
            value = error = None
            if isinstance(request, NodeCall):
                path = f"{frame.path}/{request.node.name}" if frame.path else request.node.name
                branch.frames.append(_Frame(request.node.steps(request.context), path))
            elif isinstance(request, Parallel):
                if self._fork(branch, frame.path, request):
                    return
                value = []
            elif isinstance(request, Leaf):
                key = self._issue(frame.path, request)
                if key:
                    self._waiting[key] = branch
                    return
            else:
                error = TypeError(f"{frame.path or 'the program'} yielded {type(request).__name__}, not a request")
        branch.on_done(value, error)

    def _issue(self, path: str, request: Leaf) -> str:
        if isinstance(request, (Delivery, ToolResult)):
            self._issued.append(Issued("", path, request))
            return ""
        count = self._asked.get(path, 0)
        self._asked[path] = count + 1
        key = f"{path}#{count}"
        self._issued.append(Issued(key, path, request))
        return key

    def _fork(self, parent: _Branch, path: str, request: Parallel) -> bool:
        """Start one branch per call; the parent resumes with all outcomes. False if there are no calls."""
        outcomes: list[Any] = [None] * len(request.calls)
        left = len(request.calls)

        def done(index: int) -> Callable[[Any, Exception | None], None]:
            def store(value: Any, error: Exception | None) -> None:
                nonlocal left
                outcomes[index] = value if error is None else error
                left -= 1
                if left == 0:
                    self._ready.append((parent, outcomes, None))

            return store

        for index, call in enumerate(request.calls):
            branch = _Branch(done(index))
            branch.frames.append(_Frame(call.node.steps(call.context), f"{path}/{call.node.name}[{index}]"))
            self._ready.append((branch, None, None))
        return left > 0
