"""Where two runs part: the first thing that is in one of them and not in the other, or that is otherwise there.

Events are compared by what they are (the key of an agent's call, the number of a tool's call at its path), not by when
they came, since parts that worked side by side may have come in any order. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from viewer.source_lines import source_ends, source_lines
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

Identity = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    what: str = ""
    """What is otherwise, where both runs have it."""
    where: str = ""
    """Behind that, where in it."""
    left_does: str = ""
    """What the left run alone does, as a verb with its objects."""
    right_does: str = ""
    left: int | None = None
    """Index of the event in the left run, None where there is none."""
    right: int | None = None
    left_text: str | None = None
    """What is otherwise; None where there is nothing."""
    right_text: str | None = None

    def in_words(self, names: tuple[str, str] = ("left", "right")) -> str:
        left, right = names
        if self.what:
            return f"{self.what} differs{self.where}"
        if self.left_does and self.right_does:
            return f"{left} {self.left_does}, where {right} {self.right_does}"
        return (
            f"{left} {self.left_does}, {right} does not"
            if self.left_does
            else f"{right} {self.right_does}, {left} does not"
        )

    def turned(self) -> Difference:
        """The same seen from the other side."""
        return Difference(
            what=self.what,
            where=self.where,
            left_does=self.right_does,
            right_does=self.left_does,
            left=self.right,
            right=self.left,
            left_text=self.right_text,
            right_text=self.left_text,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    question: Difference | None
    program: Difference | None
    events: Difference | None
    same: int
    """Events of the left run before the first difference that are in the right one, too."""

    @property
    def first(self) -> Difference | None:
        return self.question or self.program or self.events


def compared(left: Trace, right: Trace) -> Comparison:
    a, b = left.started, right.started
    question = _texts("the question", a.question if a else None, b.question if b else None)
    program = _programs(a.program if a else "", b.program if b else "")
    events, same = _events(left, right)
    return Comparison(question, program, events, same)


def _texts(what: str, left: str | None, right: str | None) -> Difference | None:
    if left == right:
        return None
    return Difference(what=what, left_text=left, right_text=right)


def _programs(left: str, right: str) -> Difference | None:
    if left == right:
        return None
    lines, others = source_lines(left), source_lines(right)
    if ends := lines == others:
        lines, others = source_ends(left), source_ends(right)
    pairs = zip(lines, others, strict=False)
    at = next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(lines), len(others)))
    return Difference(
        what="the program",
        where=f", first in {'the end of ' * ends}line {at + 1:,}",
        left_text=lines[at] if at < len(lines) else None,
        right_text=others[at] if at < len(others) else None,
    )


def identities(trace: Trace) -> dict[Identity, int]:
    """What each event is, whenever it came, and its index."""
    seen: Counter[Identity] = Counter()
    found: dict[Identity, int] = {}
    for index, event in enumerate(trace.events):
        if isinstance(event, RunStarted):
            continue
        match event:
            case AgentTurn() | TurnRewarded() | Valued():
                place: Identity = (event.type, event.key)
            case CandidateDrawn():
                place = (event.type, event.key, str(event.number)[:20])
            case Printed() | LimitHit() | Answered() | RunEnded() | Rewarded():
                place = (event.type,)
            case _:
                place = (event.type, event.path)
        seen[place] += 1
        found[*place, str(seen[place])] = index
    return found


def _events(left: Trace, right: Trace) -> tuple[Difference | None, int]:
    mine, theirs = identities(left), identities(right)
    here = next(_parting(left, right, mine, theirs), None)
    there = next(_parting(right, left, theirs, mine), None)
    found = _first(here, there.turned() if there is not None else None)
    shared = mine.keys() & theirs.keys()
    if found is None:
        return None, len(shared)
    before = len(left.events) if found.left is None else found.left
    other = len(right.events) if found.right is None else found.right
    return found, sum(1 for identity in shared if mine[identity] < before and theirs[identity] < other)


def _first(here: Difference | None, there: Difference | None) -> Difference | None:
    """Which of the first differences in the order of either run comes first: what comes later may be its effect."""
    if here is None or there is None or here == there:
        return here or there
    if here.right is None and there.left is None:  # each did something of its own
        return replace(here, right_does=there.right_does, right=there.right, right_text=there.right_text)
    if here.right is not None and there.left is None:
        return there if (there.right or 0) < here.right else here
    if here.right is None and there.left is not None:
        return here if (here.left or 0) < there.left else there
    return here


def _parting(left: Trace, right: Trace, mine: dict[Identity, int], theirs: dict[Identity, int]) -> Iterator[Difference]:
    for identity, index in mine.items():
        event = left.events[index]
        other = theirs.get(identity)
        if other is None:
            yield Difference(left_does=_does(event), left=index, left_text=_said(event))
        elif (told := _unlike(event, right.events[other])) is not None:
            what, a, b = told
            yield Difference(what=what, left=index, right=other, left_text=a, right_text=b)


def _does(event: Event) -> str:
    match event:
        case AgentTurn():
            return f"asks {event.agent} (call {event.key})"
        case ToolCalled():
            return f"has {event.agent} call {event.name}"
        case ToolReturned():
            return f"has a result of {event.name} for {event.agent}"
        case CodeRan():
            return "runs code"
        case EnvironmentStepped():
            return f"has {event.agent} act in the game"
        case Delivered():
            return f"has {event.agent} hand something on"
        case Printed():
            return "prints"
        case LimitHit():
            return f"hits the limit {event.limit_kind}"
        case Answered():
            return "answers"
        case RunEnded():
            return "has an end"
        case Rewarded():
            return "has a reward"
        case CandidateDrawn():
            return f"has a candidate for call {event.key}"
        case TurnRewarded():
            return f"has a reward for call {event.key}"
        case Valued():
            return f"has a value for call {event.key}"
        case RunStarted():
            return "has a beginning"


def _said(event: Event) -> str | None:
    """The text of an event that says most."""
    if isinstance(event, AgentTurn):
        return event.completion.text if event.completion is not None else event.error
    for name in ("content", "text", "code"):
        if isinstance(value := getattr(event, name, None), str):
            return value
    return None


_FIELDS: dict[type, tuple[tuple[str, str], ...]] = {
    ToolCalled: (("name", "the tool that {0.agent} calls"), ("arguments", "what {0.agent} calls {0.name} with")),
    ToolReturned: (("content", "what {0.name} returns to {0.agent}"), ("is_error", "whether {0.name} fails")),
    CodeRan: (
        ("code", "the code that is run"),
        ("stdin", "the input of the code"),
        ("stdout", "what the code prints"),
        ("stderr", "what the code prints as its errors"),
        ("exit_status", "the exit status of the code"),
        ("limit", "the limit that ends the code"),
    ),
    EnvironmentStepped: (
        ("text", "what {0.agent} does in the game"),
        ("after", "the position in the game"),
        ("legal", "whether the action of {0.agent} is legal"),
    ),
    Delivered: (("text", "what {0.agent} hands on"),),
    Printed: (("text", "what the program prints"),),
    LimitHit: (("limit_kind", "the limit that is hit"), ("limit", "the limit {0.limit_kind}")),
    Answered: (("text", "the answer"), ("from_agent", "the agent that the answer comes from")),
    RunEnded: (("failure", "how the run ends"),),
    Rewarded: (("total", "the reward"), ("terms", "the terms of the reward")),
    CandidateDrawn: (
        ("reward", "what candidate {0.number} of {0.key} earned"),
        ("chosen", "whether candidate {0.number} of {0.key} was chosen"),
    ),
    TurnRewarded: (("reward", "what call {0.key} earned"),),
    Valued: (("value", "what call {0.key} was worth"), ("q", "Q of call {0.key}")),
}


def _unlike(left: Event, right: Event) -> tuple[str, str | None, str | None] | None:
    """What is otherwise, and how it is in both; None for nothing. Times, tokens and seeds are no difference."""
    if isinstance(left, AgentTurn) and isinstance(right, AgentTurn):
        return _unlike_turns(left, right)
    for name, what in _FIELDS.get(type(left), ()):
        a, b = getattr(left, name), getattr(right, name)
        if a != b and not (a != a and b != b):
            return what.format(left), _shown(a), _shown(b)
    return None


def _unlike_turns(left: AgentTurn, right: AgentTurn) -> tuple[str, str | None, str | None] | None:
    call = f"call {left.key} of {left.agent}"
    if left.agent != right.agent:
        return f"the agent of call {left.key}", left.agent, right.agent
    for number in range(max(len(left.messages), len(right.messages))):
        a = left.messages[number] if number < len(left.messages) else None
        b = right.messages[number] if number < len(right.messages) else None
        if a != b:
            role = (a or b or {}).get("role", "")
            what = f"message {number + 1} ({role}) of the prompt in {call}"
            return what, a["content"] if a else None, b["content"] if b else None
    if left.tools != right.tools:
        return f"the tools in {call}", _shown(left.tools), _shown(right.tools)
    mine, theirs = replace(left.sampling, seed=None), replace(right.sampling, seed=None)
    if mine != theirs:
        return f"the sampling in {call}", str(mine), str(theirs)
    a, b = left.completion, right.completion
    if a is None or b is None:
        same = a is b and left.error == right.error
        return None if same else (f"the reply in {call}", _said(left), _said(right))
    pairs: list[tuple[str, Callable[[Any], Any]]] = [
        ("reasoning", lambda done: done.reasoning),
        ("reply", lambda done: done.text),
        ("end of the reply", lambda done: done.finish_reason),
    ]
    for what, read in pairs:
        if read(a) != read(b):
            return f"the {what} in {call}", read(a), read(b)
    return None


def _shown(value: object) -> str | None:
    return value if isinstance(value, str) or value is None else str(value)
