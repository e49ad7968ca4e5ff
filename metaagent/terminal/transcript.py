"""A readable transcript of one run, from its Trace: who was asked what, what came back, how it ended.

Prompts and long replies are abbreviated unless asked for in full. It reads a Trace file and prints; it derives
nothing that the Trace does not say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from metaagent.terminal.console import block, fields, heading, usage_error
from workflow.completion import Usage
from workflow.text import last_boxed
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
    RewardTerm,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    Trace,
    TurnRewarded,
    Valued,
    event_to_dict,
)
from workflow.usage import Tally, usage_report

EXCERPT = 160
"""Characters of a prompt that are shown when it is abbreviated."""
TRACE_FIX = "name a file that `metaagent run --trace FILE` wrote"
LONGEST_LINE = 1 << 27
"""Characters of one event."""
LONGEST = 2400
"""Characters of a reply or an output that are shown before its middle is left out."""


@dataclass(frozen=True)
class ReadTrace:
    trace: Trace
    torn: bool
    """The last line was cut short, as by a killed writer, and is left out."""


def read_trace(path: Path) -> ReadTrace:
    """Read a trace file; a torn last line is dropped and said. Raises `Stop` for anything else that is no trace."""
    lines: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            lines = [line for line in _lines(file) if line.strip()]
        trace = Trace.from_lines(lines)
    except OSError as error:
        usage_error(f"cannot read {path}: {error.strerror}")
    except ValueError as error:
        usage_error(f"{path} is no trace{what_else(lines, path)}: {error}. Fix: {TRACE_FIX}")
    if not trace.events:
        usage_error(f"{path} is no trace{what_else(lines, path)}: it holds no events. Fix: {TRACE_FIX}")
    return ReadTrace(trace, torn=len(trace.events) < len(lines))


def what_else(lines: Sequence[str], path: Path) -> str:
    """What a file that is no trace seems to be, as a part of a sentence, or an empty string."""
    if not lines:
        return ", it is empty"
    try:
        first = json.loads(lines[0])
    except (ValueError, RecursionError):
        begins = lines[0].strip()[:40]
        return "" if begins.startswith(("{", "[")) else f", it seems to be text that begins with {begins!r}"
    if isinstance(first, list) and first:
        first = first[0]
    known = set(first) if isinstance(first, dict) else set()
    if "agent" in known and known & {"reply", "completion"}:
        return f", it seems to hold replies for an engine (`metaagent run -e replay:{path}`)"
    if known & {"question", "problem", "prompt"}:
        return ", it seems to hold problems (`metaagent eval`)"
    if "events" in known:
        return ", it seems to be what `metaagent trace --json` prints"
    return ""


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a line has more than {LONGEST_LINE:,} characters")
        yield line


def print_transcript(console: Console, trace: Trace, *, full: bool = False, candidates: bool = False) -> None:
    """Print all events of a run in order, then what each agent used. Long texts are cut unless `full`. Of replies that
    were drawn beside one another only the rewards, unless `candidates`."""
    _Transcript(console, full, candidates).write(trace)
    print_shares(console, "By agent", usage_report([trace]).by_agent)


def totals(usage: Usage) -> str:
    if usage.total_tokens == 0:
        return "no tokens counted"
    cost = f", ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    prefix = f" ({usage.prefix_tokens:,} of a known prefix)" if usage.prefix_tokens else ""
    return f"{usage.prompt_tokens:,} prompt{prefix} and {usage.completion_tokens:,} completion tokens{cost}"


def cache_line(tally: Tally) -> str:
    """Hits and misses; empty where no cache was asked."""
    asked = tally.cache_hits + tally.cache_misses
    return f"{tally.cache_hits} of {asked} replies, {tally.hit_tokens:,} tokens not paid again" if asked else ""


def share_line(tally: Tally) -> str:
    """What one of several used, on one line."""
    calls = f"{tally.calls} call{'' if tally.calls == 1 else 's'}"
    failed = f", {tally.failed} failed" if tally.failed else ""
    cached = cache_line(tally)
    return f"{calls}{failed}, {totals(tally.usage)}" + (f"; from the cache: {cached}" if cached else "")


def print_shares(console: Console, title: str, shares: Mapping[Any, Tally]) -> None:
    """Who used what, in the given order. Nothing for one alone, who used all that there is."""
    if len(shares) > 1:
        heading(console, title)
        fields(console, [(f"  {who}", share_line(tally)) for who, tally in shares.items()])


class _Transcript:
    def __init__(self, console: Console, full: bool, candidates: bool) -> None:
        self._console, self._full, self._unfolded = console, full, candidates
        self._drawn: dict[str, list[CandidateDrawn]] = {}
        """Candidates of each call; in the trace they stand behind the run."""
        self._earned: dict[str, TurnRewarded] = {}
        """By key of the call, as the candidates."""
        self._valued: dict[str, Valued] = {}
        self._turns = 0
        self._asked: dict[str, int] = {}
        self._replies: dict[str, str] = {}
        self._cached = ""

    def write(self, trace: Trace) -> None:
        self._cached = cache_line(usage_report([trace]).total)
        for event in trace.events:
            if isinstance(event, CandidateDrawn):
                self._drawn.setdefault(event.key, []).append(event)
            elif isinstance(event, TurnRewarded):
                self._earned[event.key] = event
            elif isinstance(event, Valued):
                self._valued[event.key] = event
        writers: dict[type, Callable[[Any], None]] = {
            RunStarted: self._started,
            AgentTurn: self._turn,
            ToolCalled: self._tool_called,
            ToolReturned: self._tool_returned,
            CodeRan: self._code_ran,
            EnvironmentStepped: self._acted,
            Delivered: self._delivered,
            Printed: self._printed,
            LimitHit: self._limit_hit,
            Answered: self._answered,
            RunEnded: self._ended,
            CandidateDrawn: lambda event: None,
            TurnRewarded: lambda event: None,
            Valued: lambda event: None,
            Rewarded: self._rewarded,
        }
        for event in trace.events:
            writers[type(event)](event)

    def _started(self, event: RunStarted) -> None:
        heading(self._console, "Question")
        self._text(event.question or "(none)")
        if self._full and event.program:
            heading(self._console, "Program")
            self._text(event.program)

    def _turn(self, event: AgentTurn) -> None:
        self._turns += 1
        done = event.completion
        facts = [f"{event.duration_s:.2f} s"]
        if done is not None:
            if done.usage.total_tokens:
                facts.append(f"{done.usage.prompt_tokens:,} + {done.usage.completion_tokens:,} tokens")
            facts += ["from the cache"] if done.cached else []
            facts += [f"finished by {done.finish_reason}"] if done.finish_reason != "stop" else []
        heading(
            self._console, f"{self._turns}. {event.agent}", f"{event.path} · turn {event.turn} · {', '.join(facts)}"
        )
        seen = self._asked.get(event.path, 0) if event.turn else 0
        self._asked[event.path] = len(event.messages)
        for message in event.messages[seen:]:
            # What the agent itself said before, and what its tools returned, stands above already.
            if self._full or message["role"] in ("system", "user"):
                self._labelled(message["role"], message["content"], "dim", prompt=True)
        if done is not None:
            self._labelled("reply", done.text, "green")
            self._replies[done.text] = f"[reply {self._turns}, of {event.agent}]"
        else:
            self._labelled("failed", event.error or "no reply", "red")
            if event.written:
                self._labelled("written by then", event.written, "dim")
        if drawn := self._drawn.get(event.key):
            self._candidates(drawn)
        if valued := self._valued.get(event.key):
            self._labelled("valued", valued.said, "dim")
        if earned := self._earned.get(event.key):
            self._labelled("earned", f"{earned.reward:g}", "dim")
            self._terms(earned.terms)

    def _candidates(self, drawn: Sequence[CandidateDrawn]) -> None:
        rewards = ", ".join(f"{each.reward:g}" + " (chosen)" * each.chosen for each in drawn)
        self._labelled("candidates", f"{len(drawn)}, rewards {rewards}", "dim")
        for each in drawn if self._unfolded else ():
            self._labelled(f"  no. {each.number}", each.completion.text, "dim green")
            self._terms(each.terms)

    def _terms(self, terms: Sequence[RewardTerm]) -> None:
        for term in terms:
            self._labelled("", f"{term.name} {term.value:g} x {term.weight:g}: {term.reason}", "dim")

    def _tool_called(self, event: ToolCalled) -> None:
        arguments = event.arguments
        if set(arguments) == {"code"} and isinstance(arguments["code"], str):
            shown = "\n" + arguments["code"].strip("\n")
        else:
            shown = json.dumps(arguments, ensure_ascii=False)
        self._labelled("tool", f"{event.agent} calls {event.name} {shown}", "magenta")

    def _tool_returned(self, event: ToolReturned) -> None:
        self._labelled("tool error" if event.is_error else "tool result", event.content or "(nothing)", "magenta")

    def _code_ran(self, event: CodeRan) -> None:
        how = f"limit {event.limit}" if event.limit else f"exit status {event.exit_status}"
        self._labelled("code run", f"{how} after {event.duration_s:.2f} s", "blue")
        if self._full:
            for name, text in (("code", event.code), ("stdin", event.stdin)):
                if text:
                    self._labelled(name, text, "blue")
        for name, text in (("stdout", event.stdout), ("stderr", event.stderr)):
            if text:
                self._labelled(name, text, "blue")

    def _acted(self, event: EnvironmentStepped) -> None:
        known = [] if event.from_agent == event.agent else [f"said by {event.from_agent or 'no agent'}"]
        came = [event.wrong] if event.wrong else []
        came += ["solved" if event.solved else "not solved"] if event.done else []
        read = "no action" if event.action is None else json.dumps(event.action)
        what = f"{event.agent} {'acts' if event.commit else 'proposes'} {read}"
        self._labelled("game", "; ".join([what, *known, *came]), "blue")

    def _delivered(self, event: Delivered) -> None:
        self._labelled("hands on", f"({event.source.replace('_', ' ')}) {event.text}", "cyan", prompt=True)

    def _printed(self, event: Printed) -> None:
        self._labelled("printed", self._referring(event.text).rstrip("\n") or "(blank)", "yellow")

    def _limit_hit(self, event: LimitHit) -> None:
        heading(self._console, "Limit")
        self._text(f"{event.limit_kind}: used {event.used:g} of {event.limit:g}")

    def _answered(self, event: Answered) -> None:
        heading(self._console, "Answer", f"from {event.from_agent}" if event.from_agent else "from no agent")
        shown, box = self._referring(event.text), last_boxed(event.text)
        if shown != event.text and box is not None:
            shown += f": {box}"
        self._text(self._cut(shown, LONGEST))

    def _ended(self, event: RunEnded) -> None:
        stopped = event.failure is not None and event.failure.is_stop
        heading(self._console, "Stopped" if stopped else "Failed" if event.failure else "Done")
        if stopped:
            self._text("from outside, as by Ctrl-C, which is not the program's doing")
        elif event.failure:
            self._text(f"{event.failure.kind}: {event.failure.message}")
        count = f"{self._turns} agent call{'' if self._turns == 1 else 's'}"
        self._text(f"{count}, {totals(event.usage)}, {event.t:.2f} s")
        if self._cached:
            self._text(f"from the cache: {self._cached}")

    def _rewarded(self, event: Rewarded) -> None:
        heading(self._console, "Reward", f"{event.total:g}")
        fields(
            self._console,
            [(f"  {term.name}", f"{term.value:g} x {term.weight:g}: {term.reason}") for term in event.terms],
        )

    def _labelled(self, label: str, text: str, style: str, *, prompt: bool = False) -> None:
        """A labelled text, indented. A prompt is abbreviated to one line."""
        if prompt and not self._full:
            line = " ".join(text.split())
            text = line if len(line) <= EXCERPT else f"{line[:EXCERPT]}… ({len(text):,} characters)"
        fields(self._console, [(f"  {label:<11}", Text(self._cut(text.strip("\n"), LONGEST), style=style))])

    def _text(self, text: str) -> None:
        block(self._console, text)

    def _referring(self, text: str) -> str:
        """`text` with long replies that stand above already replaced by a reference."""
        for reply, reference in self._replies.items():
            if not self._full and len(reply) > EXCERPT:
                text = text.replace(reply, reference)
        return text

    def _cut(self, text: str, longest: int) -> str:
        if self._full or len(text) <= longest:
            return text
        left_out = len(text) - longest
        return f"{text[: longest * 2 // 3]}\n… {left_out:,} characters left out …\n{text[-longest // 3 :]}"


def trace_document(read: ReadTrace) -> dict[str, Any]:
    """What `trace --json` prints: a summary and all events."""
    trace = read.trace
    started, ended, answer = trace.started, trace.ended, trace.answer
    events: list[Event] = trace.events
    return {
        "question": started.question if started else None,
        "engine": started.engine if started else None,
        "jail": started.jail if started else None,
        "answer": answer.text if answer else None,
        "answer_from": answer.from_agent if answer else None,
        "failure": ended.failure.model_dump(mode="json") if ended and ended.failure else None,
        "reward": trace.reward.total if trace.reward else None,
        "agent_calls": len(trace.agent_turns),
        "usage": asdict(trace.usage),
        "usage_report": usage_report([trace]).model_dump(mode="json"),
        "complete": ended is not None,
        "torn": read.torn,
        "events": [event_to_dict(event) for event in events],
    }
