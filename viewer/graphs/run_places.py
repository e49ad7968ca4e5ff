"""What a run did at each of its places, and how a box of its graph says so in a few short lines.

A place is a path of nodes and a kind of work (`viewer.graphs.run_order`). Where boxes stand and what leads to them is
`viewer.graphs.run_graph`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from viewer.graphs.run_order import Act, Paths, Place, bare
from viewer.html import one_line
from viewer.reading import Outcome
from workflow.trace import AgentTurn, CodeRan, EnvironmentStepped, ToolCalled, Trace

LONGEST_NAME, LONGEST_LABEL = 60, 48
_SPANS = 6
_TOOLS = 3


@dataclass(slots=True)
class Done:
    """What the run did at one place."""

    acts: list[Act] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    """Numbers of agent turns, counted over the run in the order in which they ended."""
    failed: int = 0
    """Turns without a reply, code runs that failed, actions that were not legal."""
    tools: Counter[str] = field(default_factory=Counter)
    solved: bool = False

    @property
    def times(self) -> int:
        """Activations: an agent that goes on after its tools is not asked anew."""
        return sum(act.begins for act in self.acts) or 1


def turn_numbers(trace: Trace) -> dict[int, int]:
    """By index of the event: agent turns counted from 1, as `metaagent trace` numbers them."""
    turns = [index for index, event in enumerate(trace.events) if isinstance(event, AgentTurn)]
    return {index: number for number, index in enumerate(turns, 1)}


def what_was_done(trace: Trace, acts: Iterable[Act], paths: Paths) -> dict[Place, Done]:
    """In the order in which places were first at work."""
    done: dict[Place, Done] = {}
    numbers = turn_numbers(trace)
    for act in acts:
        at = done.setdefault(act.place, Done())
        at.acts.append(act)
        event = trace.events[act.index]
        if isinstance(event, AgentTurn):
            at.turns.append(numbers[act.index])
            at.failed += event.completion is None
        elif isinstance(event, CodeRan):
            at.failed += bool(event.limit) or event.exit_status != 0
        elif isinstance(event, EnvironmentStepped):
            at.failed += not event.legal
            at.solved = at.solved or event.solved
    for event in trace.events:
        if isinstance(event, ToolCalled) and (at := done.get((paths.split(event.path), "agent"))):
            at.tools[event.name] += 1
    return done


def lines_of(place: Place, at: Done) -> list[str]:
    """Of a box; the first is its name."""
    path, kind = place
    if kind == "code":
        failed = f", {at.failed:,} failed" if at.failed else ""
        return ["code that the program runs", f"{times(len(at.acts))}{failed}"]
    if kind == "game":
        illegal = f", {at.failed:,} not legal" if at.failed else ""
        solved = ", solved" if at.solved else ""
        return ["the game", f"{len(at.acts):,} action{'s' * (len(at.acts) != 1)}{illegal}{solved}"]
    turns = f", {len(at.turns):,} turns" if len(at.turns) != at.times else ""
    lines = [name_of(bare(path[-1]) if path else "agent"), f"{times(at.times)}{turns}: no. {ranges(at.turns)}"]
    lines += [one_line(f"{tool} {times(count)}", LONGEST_LABEL) for tool, count in at.tools.most_common(_TOOLS)]
    return [*lines, f"{at.failed:,} without a reply"] if at.failed else lines


def state_of(place: Place, at: Done, outcome: Outcome | None) -> str:
    """Class of a box."""
    failed = at.failed == len(at.acts) if place[1] == "game" else at.failed > 0
    answered = outcome is not None and any(act.index == outcome.turn for act in at.acts)
    return (
        "failed"
        if failed
        else "ran answered" + " wrong" * (outcome.tone == "bad")
        if answered and outcome is not None
        else "ran"
    )


def ending(outcome: Outcome | None) -> tuple[list[str], str]:
    """Lines and class of the box at which a run ends."""
    if outcome is None:
        return ["end"], "end"
    if outcome.failure is not None and outcome.state == "failed":
        return ["failed", outcome.failure.kind.replace("_", " ")], "failed"
    if outcome.state == "answered":
        said = one_line(outcome.graded or outcome.answer or "", 36)
        name = {"good": "right answer", "bad": "wrong answer"}.get(outcome.tone, "answer")
        return [name, said, *(["by no agent"] if outcome.turn is None else [])], f"end {outcome.tone}".strip()
    return [{"silent": "no answer", "open": "no end yet"}.get(outcome.state, outcome.state)], "end"


def name_of(name: str) -> str:
    return one_line(name, LONGEST_NAME)


def times(count: int) -> str:
    return f"{count:,}×"


def ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 as `1–3, 7`."""
    spans: list[tuple[int, int]] = []
    for each in sorted(numbers):
        if spans and each == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], each)
        else:
            spans.append((each, each))
    told = [f"{first}" if first == last else f"{first}–{last}" for first, last in spans[:_SPANS]]
    return ", ".join(told) + (", …" if len(spans) > _SPANS else "")
