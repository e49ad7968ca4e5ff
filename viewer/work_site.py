"""What a command does while it does it: the reply that is being written, the programs that came of it, the run of one.

In memory alone; a run's record is its trace. Nothing here asks, checks or runs anything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from viewer.html import render
from viewer.reading import read_trace
from viewer.run import first_row, run_page
from viewer.sites import Page, link
from workflow.failures import Finding
from workflow.graph import GraphNode
from workflow.trace import AgentTurn, Event, Trace

DESIGN, RUN = "design", "run"
LAST_WRITTEN = 20_000
"""Characters kept of what is being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Designed:
    """One program written for the problem, or why there is none."""

    by: str
    """Bank or engine."""
    program: str | None
    reason: str = ""
    failure: str = ""
    findings: Sequence[Finding] = ()
    graph: GraphNode | None = None
    chosen: bool = False


class WorkSite:
    """Is told what happens, from any thread, and shows it: a sink of a run's events among others."""

    def __init__(self, problem: str, *, designs: bool = True) -> None:
        """`designs`: whether the program is written first."""
        self.home = DESIGN if designs else RUN
        self._problem = problem
        self._graph: GraphNode | None = None
        self._written = ""
        self._designs: Sequence[Designed] = ()
        self._runs = False
        self._failure = ""
        self._events: list[Event] = []
        self._asked: dict[str, str] = {}
        """The agent of each call that has no reply yet, by the call's key."""
        self._changes = 0
        self._lock = threading.Lock()

    def written(self, piece: str) -> None:
        with self._lock:
            self._written = (self._written + piece)[-LAST_WRITTEN:]
            self._changes += 1

    def designed(self, designs: Sequence[Designed]) -> None:
        with self._lock:
            self._designs, self._written = designs, ""
            self._changes += 1

    def refused(self, name: str, program: str, findings: Sequence[Finding]) -> None:
        """A program that was given may not run."""
        failure = "it has not passed its check, and was not run"
        self.designed([Designed(by=name, program=program, findings=findings, failure=failure)])

    def failed(self, why: str) -> None:
        """What was begun has no end: the engine failed, there is no jail, and the like."""
        with self._lock:
            self._failure = why
            self._changes += 1

    def runs(self, graph: GraphNode | None) -> None:
        """A program is begun; `graph` is its graph, as its check has it."""
        with self._lock:
            self._graph, self._runs = graph, True
            self._changes += 1

    def asking(self, turn: AgentTurn) -> None:
        """An agent is asked, and has not replied yet."""
        with self._lock:
            self._asked[turn.key] = turn.agent
            self._changes += 1

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            if isinstance(event, AgentTurn):
                self._asked.pop(event.key, None)
            self._changes += 1

    # As a site

    def page(self, route: str) -> Page:
        with self._lock:
            events, graph, written, failure = list(self._events), self._graph, self._written, self._failure
            asked = list(self._asked.values())
        if route != DESIGN:
            first = first_row(route)
            if self._runs:
                read = read_trace("run", Trace.model_construct(events=events))
                return run_page(read, graph=graph, base=RUN, first=first, asked=asked)
        return Page(
            title="Design" if self.home == DESIGN else "Program",
            body=render(
                "design.html",
                problem=self._problem,
                designs=self._designs,
                designing=self.home == DESIGN,
                written=written,
                failure=failure,
                run=link(RUN) if self._runs else "",
            ),
        )

    def version(self, route: str) -> str:
        return str(self._changes)

    def routes(self) -> Iterator[str]:
        yield self.home
        if self._runs and self.home != RUN:
            yield RUN

    def close(self) -> None:
        pass
