"""The events of a run as rows for a page, in the order of time: what was asked, what came back, what was done with it.

Rows say what events say; what belongs to an agent's turn (candidates, what the turn earned) stands at the turn. How
rows look is the template's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from viewer.graphs import span
from viewer.html import MOST, Markup, count, figure, one_line, render, seconds
from viewer.reading import failure_in_words, limit_in_words
from viewer.run.bounded_text import BoundedTexts
from viewer.run.run_agents import Cast
from viewer.run.token_heat import Words
from viewer.run.turn_rows import MOST_TERMS, Part, Turns, TurnsOfRun
from workflow.trace import (
    AgentTurn,
    Answered,
    CandidateDrawn,
    CodeRan,
    Delivered,
    EnvironmentStepped,
    Event,
    LimitHit,
    Printed,
    Rewarded,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    Trace,
    TurnRewarded,
    Valued,
)

_SHORT = 400
"""Characters of what is seldom read whole, before the rest is folded."""


@dataclass(slots=True)
class Row:
    index: int
    """Of its event, the first one where it stands for several."""
    who: int
    """Number of the agent, 0 for the program."""
    kind: str
    title: str
    time: str = ""
    facts: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    state: str = ""
    """`bad`, `good` or nothing."""
    before: str = ""
    """What is to be said above it."""

    @property
    def id(self) -> str:
        return f"e{self.index}"


def row_groups(trace: Trace) -> list[list[int]]:
    """Indices of events, a list for each row: what is printed without anything between is one row."""
    keys = {event.key for event in trace.events if isinstance(event, AgentTurn)}
    groups: list[list[int]] = []
    for index, event in enumerate(trace.events):
        if isinstance(event, RunStarted):
            continue
        if isinstance(event, (CandidateDrawn, TurnRewarded, Valued)) and event.key in keys:
            continue  # stands at its turn
        last = trace.events[groups[-1][-1]] if groups else None
        if isinstance(event, Printed) and isinstance(last, Printed) and groups[-1][-1] == index - 1:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


class Rows:
    """Makes the rows of one page. `goto` is as for `viewer.graphs.run_graph.run_graph`."""

    def __init__(
        self,
        trace: Trace,
        cast: Cast,
        turns: TurnsOfRun,
        texts: BoundedTexts,
        words: Words | None = None,
        goto: Callable[[int], str | None] = lambda index: f"e{index}",
    ) -> None:
        self._trace, self._cast, self._texts = trace, cast, texts
        self._turns = Turns(trace, turns, texts, words, goto)
        self._makers: dict[type, Callable[[Row, Any], None]] = {
            AgentTurn: self._turn,
            ToolCalled: self._called,
            ToolReturned: self._returned,
            CodeRan: self._code,
            EnvironmentStepped: self._game,
            Delivered: self._delivered,
            LimitHit: self._limit,
            Answered: self._answered,
            RunEnded: self._ended,
            Rewarded: self._rewarded,
            CandidateDrawn: self._stray,
            TurnRewarded: self._stray,
            Valued: self._stray_value,
        }

    def row(self, indices: Sequence[int]) -> Row:
        event: Event = self._trace.events[indices[0]]
        path = getattr(event, "path", "")
        row = Row(indices[0], self._cast.number_of(path), event.type, self._cast.label_of(path))
        row.time = f"at {seconds(span(event)[0])}"
        if isinstance(event, Printed):
            self._printed(row, indices)
        else:
            self._makers[type(event)](row, event)
        return row

    def _text(self, label: str, text: str, longest: int = _SHORT) -> Part:
        return Part(label, self._texts.block(text.strip("\n"), longest) if text.strip() else Markup("<p>(nothing)</p>"))

    def _turn(self, row: Row, event: AgentTurn) -> None:
        row.title, row.facts = f"{self._turns.number(row.index)}. {row.title}", self._turns.facts(event)
        row.state = "bad" if event.completion is None else ""
        row.parts = self._turns.parts(row.index, event)

    def _called(self, row: Row, event: ToolCalled) -> None:
        row.title += f" calls {event.name}"
        arguments = event.arguments
        if set(arguments) == {"code"} and isinstance(arguments["code"], str):
            row.parts = [self._text("code", arguments["code"], 2_000)]
        else:
            row.parts = [self._text("with", json.dumps(arguments, ensure_ascii=False, default=str))]

    def _returned(self, row: Row, event: ToolReturned) -> None:
        row.title = f"{event.name} {'fails' if event.is_error else 'returns'} to {row.title}"
        row.state = "bad" if event.is_error else ""
        row.parts = [self._text("error" if event.is_error else "result", event.content, 2_000)]

    def _code(self, row: Row, event: CodeRan) -> None:
        row.title += ": code ran"
        how = f"stopped by its limit {event.limit}" if event.limit else f"exit status {count(event.exit_status)}"
        row.facts = [how, f"took {seconds(event.duration_s)}"]
        row.state = "bad" if event.limit or event.exit_status else ""
        row.parts = [self._text("code", event.code)]
        row.parts += [
            self._text(name, text, 2_000)
            for name, text in (("stdin", event.stdin), ("stdout", event.stdout), ("stderr", event.stderr))
            if text
        ]

    def _game(self, row: Row, event: EnvironmentStepped) -> None:
        read = "no action" if event.action is None else json.dumps(event.action, ensure_ascii=False, default=str)
        row.title = f"{event.agent} {'acts' if event.commit else 'proposes'}: {one_line(read, 120)}"
        row.facts = [] if event.from_agent == event.agent else [f"said by {event.from_agent or 'no agent'}"]
        row.facts += ["legal" if event.legal else "not legal"]
        row.facts += ["solved" if event.solved else "over, not solved"] if event.done else []
        row.state = "good" if event.solved and event.commit else "bad" if not event.legal else ""
        row.parts = [self._text("said", event.text)] if event.text.strip() != read else []
        row.parts += [self._text("wrong", event.wrong)] if event.wrong else []

    def _delivered(self, row: Row, event: Delivered) -> None:
        row.title += " hands on"
        row.facts = [event.source.replace("_", " ")]
        if event.text == self._turns.reply_before(row.index, event.path):
            row.facts.append("its whole reply")
        else:
            row.parts = [self._text("", event.text)]

    def _printed(self, row: Row, indices: Sequence[int]) -> None:
        texts: list[str] = []
        size = 0
        for index in indices:
            event = self._trace.events[index]
            if isinstance(event, Printed):
                size += len(event.text)
                texts.append(event.text if size <= MOST else "")
        row.title = "printed"
        row.facts = [f"{len(indices):,} times"] if len(indices) > 1 else []
        row.parts = [self._text("", "".join(texts), 2_000)]
        if (left_out := size - sum(map(len, texts))) > 0:
            row.facts.append(f"{left_out:,} characters are in the file alone")

    def _limit(self, row: Row, event: LimitHit) -> None:
        row.title, row.state = f"limit: {limit_in_words(event)}", "bad"

    def _answered(self, row: Row, event: Answered) -> None:
        row.title = "answer"
        row.facts = [f"from {event.from_agent}" if event.from_agent else "from no agent"]
        row.parts = [self._text("", event.text)]

    def _ended(self, row: Row, event: RunEnded) -> None:
        row.title = "the run ended"
        if event.failure is not None:
            row.title, row.state = failure_in_words(event.failure), "" if event.failure.is_stop else "bad"
            row.parts = [self._text("", event.failure.message, 2_000)]

    def _rewarded(self, row: Row, event: Rewarded) -> None:
        row.title = f"reward {figure(event.total)}"
        row.parts = [Part("", render("run_terms.html", terms=event.terms, most=MOST_TERMS))]

    def _stray(self, row: Row, event: CandidateDrawn | TurnRewarded) -> None:
        """Of a turn that is not on record."""
        row.title = f"{event.agent}: a reward for a turn that is not on record"
        row.facts = [f"key {event.key}", f"reward {figure(event.reward)}"]

    def _stray_value(self, row: Row, event: Valued) -> None:
        row.title = f"{event.agent}: a value of a turn that is not on record"
        row.facts = [f"key {event.key}", event.said]
