"""The static graphs of programs, each asked for once: to describe a program costs a jail.

Who describes programs is the caller's business; what a graph looks like is `viewer.graphs`'s.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from workflow.graph import GraphNode

Describe = Callable[[str], GraphNode | None]
"""A program's graph by its text; None where it has none."""
KEPT = 8
"""Programs whose graphs are held."""


class Graphs:
    """For several threads: those that ask for a program that is being described wait for it, and nobody else does."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._found: OrderedDict[str, Future[GraphNode | None]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, program: str) -> GraphNode | None:
        """None also where it could not be described: a graph is worth less than the page that it is for."""
        with self._lock:
            found = self._found.pop(program, None)
            mine = found is None
            if found is None:
                found = Future[GraphNode | None]()
            self._found[program] = found
            while len(self._found) > KEPT:
                self._found.popitem(last=False)
        if mine:
            try:
                found.set_result(self._describe(program))
            except BaseException as error:
                found.set_result(None)
                if not isinstance(error, Exception):
                    raise
        return found.result()
