"""What happens in a run, shown on stderr while it happens. Silent where stderr is no terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from engine.protocol import WatchedEngine
from metaagent.terminal.console import stderr
from workflow.labels import visible
from workflow.trace import AgentTurn, CodeRan, Event, LimitHit, ToolCalled

MOST_ASKED = 3
"""Agents that are named of those being asked."""


def counting_bar(console: Console) -> Progress:
    """A bar for tasks of a known size, with what is done of it."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class LiveProgress:
    """A sink of events: `with LiveProgress("Running") as progress`, then call it with each event."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._console = stderr()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._calls = self._tokens = self._tools = 0
        self._counts = ""
        self._asked: dict[str, str] = {}
        """The agent of each call that has no reply yet, by the call's key."""
        self._held: dict[str, str] = {}
        """What was written for calls that are not shown yet: one is shown at a time, the one that was made first."""
        self.wrote: dict[str, str] = {}
        """What was written for each request that is watched and has no reply yet, by its key."""
        self._line_so_far = ""
        self._pieces: deque[float] = deque(maxlen=64)
        """When the last ones were written."""

    def __enter__(self) -> LiveProgress:
        self._progress.start()
        self._task = self._progress.add_task(self._what)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def asking(self, turn: AgentTurn) -> None:
        """An agent is asked, and has not replied yet."""
        self._asked[turn.key] = turn.agent
        self._say(f"{self._what}: {self._doing()}")

    def _doing(self) -> str:
        agents = list(dict.fromkeys(self._asked.values()))
        more = f" and {len(agents) - MOST_ASKED} more" if len(agents) > MOST_ASKED else ""
        asked = f"asking {', '.join(agents[:MOST_ASKED])}{more}" if agents else ""
        return "; ".join(filter(None, (asked, self._counts)))

    def __call__(self, event: Event) -> None:
        if isinstance(event, AgentTurn):
            self._end(event.key)
            self.wrote.pop(event.key, None)
        line = self._line(event)
        if line is not None and self._console.is_terminal:
            self._console.print(line)
        counts = [f"{self._calls} agent calls", f"{self._tokens:,} tokens"]
        counts += [f"{self._tools} tool calls"] if self._tools else []
        self._counts = ", ".join(counts)
        self._pieces.clear()
        self._say(f"{self._what}: {self._doing()}")

    @property
    def visible(self) -> bool:
        return self._console.is_terminal

    def written(self, piece: str) -> None:
        """Show what a model writes, a line as soon as it is whole; an empty piece ends the last one."""
        *lines, self._line_so_far = (self._line_so_far + piece).split("\n")
        if not piece and self._line_so_far:
            lines, self._line_so_far = [self._line_so_far], ""
        for line in lines:
            self._console.print(Text(visible(line), style="dim"))

    def written_by_turns(self, key: str, piece: str) -> None:
        """Show what is written for the call that was made first, and the others' once that has its reply."""
        if key not in self._asked:
            return
        self._held[key] = self._held.get(key, "") + piece
        if key == next(iter(self._asked), None):
            self.written(self._held.pop(key))

    def _end(self, key: str) -> None:
        first = key == next(iter(self._asked), None)
        self._asked.pop(key, None)
        self._held.pop(key, None)
        if not first:
            return
        self.written("")
        if (following := next(iter(self._asked), None)) in self._held:
            self.written(self._held.pop(following))

    @contextmanager
    def watching(
        self,
        engine: object,
        only: str | None = None,
        also: Callable[[str], None] | None = None,
        keep: bool = False,
    ) -> Iterator[None]:
        """On a terminal, how fast an engine writes that can be watched, and what it writes: for requests whose key
        begins with `only`, or else call by call. `also` is told of the former, too. With `keep` what it writes is
        in `wrote` without a terminal, too."""
        if not isinstance(engine, WatchedEngine) or not (self.visible or also or keep):
            yield
            return

        def watch(key: str, piece: str) -> None:
            wanted = only is not None and key.startswith(only)
            self.wrote[key] = self.wrote.get(key, "") + piece
            if also is not None and wanted:
                also(piece)
            if not self.visible:
                return
            self._pieces.append(time.monotonic())
            if len(self._pieces) > 1:
                speed = (len(self._pieces) - 1) / max(self._pieces[-1] - self._pieces[0], 1e-3)
                self._say(f"{self._what}: {', '.join(filter(None, (self._doing(), f'{speed:.3g} tokens/s')))}")
            if wanted:
                self.written(piece)
            elif only is None:
                self.written_by_turns(key, piece)

        engine.watch = watch
        try:
            yield
        finally:
            engine.watch = None
            for piece in ("", *self._held.values()):  # where it is stopped, what others have by then
                self.written(piece)
                self.written("")

    def start(self, what: str) -> None:
        """Say what is going on now."""
        self._what = what
        self._say(what)

    def _say(self, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=visible(text))

    def _line(self, event: Event) -> Text | None:
        if isinstance(event, AgentTurn):
            self._calls += 1
            tokens = event.completion.usage.total_tokens if event.completion else 0
            self._tokens += tokens
            said = f"failed: {event.error}" if event.completion is None else f"{tokens:,} tokens" if tokens else ""
            said += " from the cache" if event.completion and event.completion.cached else ""
            facts = ", ".join(filter(None, (f"{event.duration_s:.1f} s", said)))
            return Text.assemble(("  agent ", "dim"), (event.agent, "bold"), f"  {facts}")
        if isinstance(event, ToolCalled):
            self._tools += 1
            return Text.assemble(("  tool  ", "dim"), (event.agent, "bold"), f"  {event.name}")
        if isinstance(event, CodeRan):
            how = f"limit {event.limit}" if event.limit else f"exit status {event.exit_status}"
            return Text.assemble(("  code  ", "dim"), f"{how}, {event.duration_s:.2f} s")
        if isinstance(event, LimitHit):
            return Text.assemble(("  limit ", "dim"), (f"{event.limit_kind}={event.limit:g}", "red"))
        return None
