"""How a run ended, in words: its answer and where that comes from, its failure, the limits it hit, its reward.

Says nothing that the Trace does not say. Pure; how it looks is the business of `viewer.run.run_page`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from viewer.html import figure
from viewer.reading.traces import ReadRun
from workflow.answers import code_answer, game_answer, math_answer, math_answers
from workflow.failures import Failure, FailureKind, LimitKind
from workflow.text import delivery, stands_in
from workflow.trace import AgentTurn, Answered, LimitHit, Rewarded, Trace

FAILURES: dict[FailureKind, str] = {
    "program_rejected": "The program was refused before it ran",
    "program_failed": "The program failed",
    "limit_exceeded": "The run hit a limit",
    "engine_failed": "The engine failed, which is not the program's doing",
    "sandbox_unavailable": "No jail could be had, which is not the program's doing",
}
STOPPED = "stopped"
"""Beside the kinds of failures: a run that was stopped from outside."""
_STOPPED = "The run was stopped, as by Ctrl-C, which is not the program's doing"
_ANSWERED = {True: "The run answered correctly", False: "The run answered wrongly", None: "The run answered"}
LIMITS: dict[LimitKind, str] = {
    "wall_s": "seconds without those that agents took",
    "cpu_s": "CPU seconds of the program",
    "memory_mb": "MiB of memory",
    "output_bytes": "bytes printed",
    "agent_calls": "agent calls",
    "tokens": "tokens of all agent calls",
    "tool_calls": "tool calls and code runs",
    "context_tokens": "tokens of a conversation that has outgrown its model",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    state: str
    """`answered`, `failed`, `stopped` (from outside), `silent` (ended without an answer) or `open` (without an end)."""
    headline: str
    correct: bool | None = None
    """None where neither the Trace nor an evaluation says it."""
    answer: str | None = None
    graded: str | None = None
    """The part of the answer that is read as the answer: what stands in its box. None where it has none."""
    from_agent: str | None = None
    turn: int | None = None
    """Index of the event in whose reply the answer stands; None where it stands in none as it is."""
    failure: Failure | None = None
    line: int | None = None
    """Of the program, where it failed."""
    findings: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()

    @property
    def tone(self) -> str:
        """`good`, `bad`, `warn` or empty."""
        if self.state == "answered":
            return "" if self.correct is None else "good" if self.correct else "bad"
        return "bad" if self.state == "failed" else "warn"

    def graded_as(self, correct: bool | None) -> Outcome:
        """With what an evaluation says, where the Trace does not say it."""
        if correct is None or self.correct is not None:
            return self
        return replace(
            self, correct=correct, headline=_ANSWERED[correct] if self.state == "answered" else self.headline
        )


def outcome_of(read: ReadRun) -> Outcome:
    trace = read.trace
    ended, answered = trace.ended, trace.answer
    correct = is_correct(trace.reward) if trace.reward is not None else None
    failure = ended.failure if ended is not None else None
    if failure is not None:
        state, headline = "stopped" if failure.is_stop else "failed", failure_in_words(failure)
    elif answered is not None:
        state, headline = "answered", _ANSWERED[correct]
    elif ended is not None:
        state, headline = "silent", "The run ended without an answer"
    else:
        state, headline = "open", "The run has no end on record: it goes on, or was killed"
    fields = failure.fields if failure is not None else {}
    line, findings = fields.get("line"), fields.get("findings")
    return Outcome(
        state=state,
        headline=headline,
        correct=correct,
        answer=answered.text if answered is not None else None,
        graded=math_answer(answered.text) if answered is not None else None,
        from_agent=answered.from_agent if answered is not None else None,
        turn=answered_in(trace, answered) if answered is not None else None,
        failure=failure,
        line=line if isinstance(line, int) and not isinstance(line, bool) and line > 0 else None,
        findings=tuple(map(_finding, findings)) if isinstance(findings, list) else (),
        limits=tuple(limit_in_words(event) for event in trace.events if isinstance(event, LimitHit)),
    )


def is_correct(reward: Rewarded) -> bool | None:
    """By the reward's term `correct`; None where it has none."""
    graded = [term.value == 1 for term in reward.terms if term.name == "correct"]
    return any(graded) if graded else None


def kind_of_failure(failure: Failure) -> str:
    """Its kind, or `STOPPED`."""
    return STOPPED if failure.is_stop else failure.kind


def failure_in_words(failure: Failure) -> str:
    return _STOPPED if failure.is_stop else FAILURES[failure.kind]


def limit_in_words(event: LimitHit) -> str:
    return f"{LIMITS[event.limit_kind]}: {figure(event.used, 6)} used, {figure(event.limit, 6)} allowed"


def _finding(finding: object) -> str:
    """One of the static check, out of a record that may hold anything."""
    if not isinstance(finding, dict):
        return str(finding)
    line, fix = finding.get("line"), finding.get("fix")
    place = f"line {line}: " if line else ""
    return f"{place}{finding.get('message', '')}" + (f" Fix: {fix}" if fix else "")


def answered_in(trace: Trace, answered: Answered) -> int | None:
    """Index of the turn of the answer's agent in whose reply it stands, read as agents are credited
    (`engine.authorship`): the latest that says just this, else whose own answer it is, else that holds it, word for
    word or as what is handed on."""
    if answered.from_agent is None:
        return None
    replies = [
        (index, event.completion.text)
        for index, event in enumerate(trace.events)
        if isinstance(event, AgentTurn) and event.agent == answered.from_agent and event.completion is not None
    ]
    for says in _ways_to_say(answered.text):
        found = next((index for index, reply in reversed(replies) if says(reply)), None)
        if found is not None:
            return found
    return None


def _ways_to_say(answer: str) -> Iterator[Callable[[str], bool]]:
    """Tests of a reply, the closest one first."""
    text = answer.strip()
    yield lambda reply: reply.strip() == text
    readings = [(read, found.strip()) for read in (math_answer, code_answer) if (found := read(text)) is not None]
    for read, found in readings:
        yield lambda reply, read=read, found=found: (read(reply) or "").strip() == found
    if text:
        lines = _lines(text)
        yield lambda reply: stands_in(text, reply) or (len(lines) > 1 and lines <= _lines(reply))
    handed_on = delivery(text)
    if handed_on[1] == "delivery":
        yield lambda reply: delivery(reply) == handed_on
    boxed = math_answer(text)
    if boxed is not None:
        yield lambda reply: any(box == boxed for box, _, _ in math_answers(reply))
    elif text and not readings:
        yield lambda reply: game_answer(reply) == text


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}
