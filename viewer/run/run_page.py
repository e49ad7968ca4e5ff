"""The page of one run: how it ended, what it used, its program, its graph, its time line, and all that was said.

Says what the Trace says, and of the program's static graph what the caller gives. Reading files is the business of
`viewer.reading`; pages of several runs are others'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from viewer.graphs import run_graph, times
from viewer.html import Markup, one_line, render
from viewer.reading import ReadRun
from viewer.run.bounded_text import BoundedTexts
from viewer.run.known_run import KnownRun, known_run
from viewer.run.program_lines import program_lines
from viewer.run.run_agents import Agent
from viewer.run.run_facts import facts_of
from viewer.run.run_rows import Rows
from viewer.run.time_line import time_line
from viewer.run.token_heat import Words, legend
from viewer.run.turn_rows import MOST_TERMS
from viewer.sites import Page, link
from workflow.graph import GraphNode
from workflow.trace import AgentTurn, Trace
from workflow.usage import Tally

MOST_ROWS = 500
"""Of one page; a longer run goes on at `ROUTE?from=N`, where there are its further rows and nothing else."""
MOST_AGENTS = 60
"""Rows of the agents' table, and agents that can be chosen."""
_EXCERPT = 80
_GAP = "Here a part of the file is left out, as is said above. Turns are numbered without it."


def run_page(
    run: ReadRun | KnownRun,
    *,
    graph: GraphNode | None = None,
    graph_of: str | None = None,
    words: Words | None = None,
    base: str = "",
    first: int = 0,
    asked: Sequence[str] = (),
    correct: bool | None = None,
) -> Page:
    """`graph` is the program's, as `Sandbox.describe` gives it, and left out where it is of another program than the
    run's: `graph_of` is that program's text, where it is known. `words` are the texts of tokens. `base` is the route of
    this page: a run of more than `MOST_ROWS` rows goes on at `base?from=N`, whose `first` is N. Without a base what is
    left out is only counted. `asked` are the agents that have been asked and have not replied yet; `correct` is what an
    evaluation says of the run, for a Trace that does not say it. Several pages of a run are better
    made of one `KnownRun`. Never raises for what is in a trace."""
    known = run if isinstance(run, KnownRun) else known_run(run)
    read, cast, groups = known.read, known.cast, known.groups
    outcome = known.outcome.graded_as(correct)
    trace = read.trace
    if graph_of is not None and trace.started is not None and graph_of != trace.started.program:
        graph = None
    first = max(0, min(first, max(0, len(groups) - 1))) // MOST_ROWS * MOST_ROWS
    here = groups[first : first + MOST_ROWS]
    shown = {index for group in here for index in group[:1]}

    def goto(index: int) -> str | None:
        return f"e{index}" if index in shown else None

    texts = BoundedTexts()
    rows = Rows(trace, cast, known.turns, texts, words, goto)
    made = [rows.row(group) for group in here]
    for row in made:
        row.before = _GAP if row.index == known.behind_gap else ""
    who = {row.who for row in made}
    values = {
        "read": read,
        "outcome": outcome,
        "answer": BoundedTexts().block(outcome.answer, 1_200) if outcome.answer is not None else None,
        "message": BoundedTexts().block(outcome.failure.message, 1_200) if outcome.failure is not None else None,
        "source": _source(known, goto),
        "whole": _whole(known, graph, goto) if not first else None,
        "home": link(base) if base else "",
        "rows": made,
        "speakers": [agent for agent in cast.agents if agent.number in who][:MOST_AGENTS],
        "heat": legend() if any(_has_heat(trace, group[0]) for group in here) else None,
        "pages": _pages(base, len(groups), first),
        "asked": [one_line(agent, _EXCERPT) for agent in asked[:MOST_AGENTS]],
        "all_asked": len(asked),
        "first": first,
        "all_rows": len(groups),
        "cut": texts.cut,
        "program_rows": 0 in who,
    }
    return Page(title=f"{one_line(read.name, _EXCERPT)}: {outcome.headline}", body=render("run.html", **values))


def _has_heat(trace: Trace, index: int) -> bool:
    event = trace.events[index]
    return isinstance(event, AgentTurn) and event.completion is not None and bool(event.completion.logprobs)


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of the agents' table."""

    agent: Agent
    tally: Tally
    lines: list[int]
    """Of the program, where the agent is built or named."""


def _whole(known: KnownRun, graph: GraphNode | None, goto: Callable[[int], str | None]) -> Markup:
    """What is to be said of a run as a whole, before its rows."""
    trace, cast, outcome = known.read.trace, known.cast, known.outcome
    question, program = (trace.started.question, trace.started.program) if trace.started is not None else ("", "")
    lines = program_lines(program)
    agents = [
        Listed(agent, agent.tally(trace), lines.of(agent.name) if program else [])
        for agent in cast.agents[:MOST_AGENTS]
    ]
    values = {
        "reward": trace.reward,
        "most_terms": MOST_TERMS,
        "facts": facts_of(trace),
        "agents": agents,
        "more_agents": len(cast.agents) - len(agents),
        "goto": goto,
        "question": BoundedTexts().block(question, 1_200) if question else None,
        "program": program,
        "lines": lines,
        "notes": _notes(agents, goto, outcome.line),
        "graph": run_graph(trace, graph, outcome, goto, known.read.gap is None),
        "time": time_line(trace, cast.label_of, goto),
        "jumps": _jumps(bool(agents), bool(program)),
    }
    return render("run_whole.html", **values)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the answer comes from, in words, and the row to go to."""

    told: str
    goto: str | None = None


def _source(known: KnownRun, goto: Callable[[int], str | None]) -> Source | None:
    outcome = known.outcome
    if outcome.answer is None:
        return None
    if outcome.from_agent is None:
        return Source("from no agent: it stands in no agent's own words, the program made it")
    if outcome.turn is None:
        which = "replies" if known.read.gap is None else "replies that are shown"
        return Source(f"from {outcome.from_agent}, in none of whose {which} it stands as it is")
    number = known.turns.numbers[outcome.turn]
    return Source(f"from {outcome.from_agent}, in reply {number}", goto(outcome.turn))


def _jumps(agents: bool, program: bool) -> list[tuple[str, str]]:
    """Elements of the page and what to call them."""
    return [
        ("graph", "graph"),
        *([("agents", "agents")] if agents else []),
        *([("program", "program")] if program else []),
        ("said", "conversation"),
    ]


def _notes(agents: Sequence[Listed], goto: Callable[[int], str | None], failed: int | None) -> Mapping[int, Markup]:
    """Behind lines of the program: the agents that are built there, and where it failed."""
    found: dict[int, list[Markup]] = defaultdict(list)
    if failed is not None:
        found[failed].append(Markup(' <span class="bad">failed here</span>'))
    for listed in agents:
        agent = listed.agent
        target = next((id_ for index in agent.turns if (id_ := goto(index))), f"agent-{agent.number}")
        for line in listed.lines[:4]:
            told = f"{one_line(agent.label, _EXCERPT)} {times(len(agent.turns))}"
            button = Markup(' <button type="button" class="to" data-goto="{}">{}</button>')
            found[line].append(button.format(target, told))
    return {line: Markup("").join(buttons[:6]) for line, buttons in found.items()}


def _pages(base: str, rows: int, first: int) -> list[tuple[str, str, bool]]:
    """Address, name and whether it is this one, of the parts of a long run."""
    if not base or rows <= MOST_ROWS:
        return []
    starts = range(0, rows, MOST_ROWS)
    near = [start for start in starts if abs(start - first) <= 4 * MOST_ROWS or start in (0, starts[-1])]
    return [
        (
            link(f"{base}?from={start}" if start else base),
            f"{start + 1:,}–{min(rows, start + MOST_ROWS):,}",
            start == first,
        )
        for start in near
    ]
