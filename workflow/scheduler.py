"""Advances the nodes of one run without doing any I/O: requests come out, replies go in.

Every driver (sync, async, jail, replay, search) is a small loop around a `Scheduler`. It keeps one stack of
generators per branch, so nodes nest and run side by side to any depth. Each issued request has a `key` that
depends only on the program and its replies, not on the order of arrival: the path of nodes, branch indices
included, then `#` and how often that path has asked before. Its `place` says where it would stand if branches ran one
after another (`workflow.place`). No threads, no async, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from workflow.place import MAX_PLACE, Place, escaped
from workflow.requests import LEAVES, Delivery, Leaf, NodeCall, Parallel, Request, Steps, ToolResult

MAX_DEPTH = 5_000
"""Nodes inside one another; a node that contains itself stops here."""


@dataclass(slots=True)
class Issued:
    """A request for the driver: answer it with `Scheduler.reply` or `.throw` under its `key`.

    A report (`Delivery`, `ToolResult`) has an empty key and wants no reply.
    """

    key: str
    path: str
    request: Leaf
    place: Place = ()


@dataclass(slots=True)
class _Frame:
    steps: Steps
    path: str


@dataclass(slots=True)
class _Branch:
    """One line of execution: a stack of running nodes."""

    on_done: Callable[[Any, Exception | None], None]
    frames: list[_Frame] = field(default_factory=list)
    parent: _Branch | None = None
    """The branch that waits for this one and others, if any."""
    level: int = 0
    """How many nodes are above this branch."""
    place: Place = ()
    """Where it was forked."""
    steps: int = 0
    """How often it has asked or forked."""

    def next_place(self) -> Place:
        self.steps += 1
        return (*self.place, self.steps)[:MAX_PLACE]


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

    @property
    def waiting(self) -> int:
        """Requests that were taken, or can be, and have no reply."""
        return len(self._waiting)

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
        """Abandon the run: unwind every suspended node, members before the node that waits for them.

        What a node raises or asks for while it is unwound is dropped: the outcome of the run stands.
        """
        alive: dict[int, _Branch] = {}
        for branch in self._waiting.values():
            above: _Branch | None = branch
            while above is not None and id(above) not in alive:
                alive[id(above)] = above
                above = above.parent
        self._waiting = {}
        for branch in sorted(alive.values(), key=lambda branch: branch.level, reverse=True):
            while branch.frames:
                with suppress(Exception):
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
                request: Request = frame.steps.send(value) if error is None else frame.steps.throw(error)
            except StopIteration as stop:
                branch.frames.pop()
                value, error = stop.value, None
                continue
            except Exception as raised:
                branch.frames.pop()
                value, error = None, raised
                continue
            value = error = None
            try:
                if isinstance(request, NodeCall):
                    self._enter(branch, frame.path, request)
                elif isinstance(request, Parallel):
                    if self._fork(branch, frame.path, request):
                        return
                    value = []
                elif isinstance(request, LEAVES):
                    key = self._issue(branch, frame.path, request)
                    if key:
                        self._waiting[key] = branch
                        return
                else:
                    raise TypeError(f"{frame.path or 'the program'} yielded {type(request).__name__}, not a request")
            except Exception as refused:
                error = refused
        branch.on_done(value, error)

    def _enter(self, branch: _Branch, path: str, call: NodeCall, index: str = "") -> None:
        """Start a node on a branch. Raises for what is no node."""
        if not isinstance(call, NodeCall):
            raise TypeError(f"{path or 'the program'} ran {type(call).__name__} in parallel, not a NodeCall")
        node = call.node
        if not hasattr(node, "steps"):
            raise TypeError(f"{path or 'the program'} ran {type(node).__name__}, which is not a node")
        name = node.name
        in_path = escaped(name)
        if branch.level + len(branch.frames) >= MAX_DEPTH:
            raise RecursionError(f"{name!r} is more than {MAX_DEPTH} nodes deep; does a node contain itself?")
        steps = node.steps(call.context)
        if not isinstance(steps, Generator):
            raise TypeError(f"{type(node).__name__} {name!r}: steps returned {type(steps).__name__}, not a generator")
        branch.frames.append(_Frame(steps, f"{path}/{in_path}{index}" if path else f"{in_path}{index}"))

    def _issue(self, branch: _Branch, path: str, request: Leaf) -> str:
        if isinstance(request, (Delivery, ToolResult)):
            self._issued.append(Issued("", path, request))
            return ""
        count = self._asked.get(path, 0)
        self._asked[path] = count + 1
        key = f"{path}#{count}"
        self._issued.append(Issued(key, path, request, branch.next_place()))
        return key

    def _fork(self, parent: _Branch, path: str, request: Parallel) -> bool:
        """Start one branch per call; the parent resumes with all outcomes. False if there are no calls.

        A call that cannot even start is an outcome like any other failure.
        """
        outcomes: list[Any] = [None] * len(request.calls)
        left = len(request.calls)
        place = parent.next_place()

        def done(index: int) -> Callable[[Any, Exception | None], None]:
            def store(value: Any, error: Exception | None) -> None:
                nonlocal left
                outcomes[index] = value if error is None else error
                left -= 1
                if left == 0:
                    self._ready.append((parent, outcomes, None))

            return store

        for index, call in enumerate(request.calls):
            level = parent.level + len(parent.frames)
            branch = _Branch(done(index), parent=parent, level=level, place=(*place, index))
            error: Exception | None = None
            try:
                self._enter(branch, path, call, f"[{index}]")
            except Exception as refused:
                error = refused
            self._ready.append((branch, None, error))
        return bool(request.calls)
