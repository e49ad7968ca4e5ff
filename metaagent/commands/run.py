"""Runs one program on one problem in the jail and reports how it ended, for people and as JSON.

The one way in which `run`, `design --run` and `demo` run programs. It checks a program before it runs, grades the
answer where a gold one is given, and never runs anything outside a jail.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TextIO, TypeVar

import typer
from pydantic import BaseModel, ConfigDict

from designer.check import check_program
from engine import Engine, Run
from engine.replay import ReplayEngine
from metaagent.commands.inputs import read_problem, read_text
from metaagent.commands.options import (
    LIMITS,
    SAMPLING,
    AsJson,
    CacheFolder,
    EngineSpec,
    MaxTokens,
    PageOut,
    ProblemFile,
    ProblemText,
    ProgramFile,
    ReplySeconds,
    SandboxName,
    Seed,
    Temperature,
    TopP,
    View,
    validated,
)
from metaagent.commands.outputs import PAGE, TRACE, check_apart, check_output, open_output
from metaagent.opening import open_engine, open_sandbox
from metaagent.serving_pages import viewing
from metaagent.terminal import (
    ExitCode,
    LiveProgress,
    RunReport,
    one_line,
    print_json,
    print_run,
    print_transcript,
    stdout,
    usage_error,
)
from sandbox.host import JailSandbox
from tasks import Problem, gold_is_readable, grade
from workflow.answers import math_answer
from workflow.completion import Completion, Sampling
from workflow.failures import Failure, Finding, ProgramRejected
from workflow.limits import Limits
from workflow.text import solution_block
from workflow.trace import AgentTurn, CodeRan, Event, ToolCalled, Trace, event_to_json
from workflow.usage import usage_report

if TYPE_CHECKING:
    from viewer import WorkSite

Sink = Callable[[Event], None]
Asking = Callable[[AgentTurn], None]
T = TypeVar("T")


class Shown(Protocol):
    """What shows a run while it goes on."""

    def __call__(self, event: Event) -> None: ...

    def asking(self, turn: AgentTurn) -> None:
        """An agent is asked, and has not replied yet."""
        ...


class RunSettings(BaseModel):
    model_config = ConfigDict(frozen=True)

    limits: Limits = Limits()
    sampling: Sampling = Sampling()
    seed: int = 0
    gold: str | None = None
    """Known answer of a math problem, to grade with."""
    sandbox: str | None = None
    """Name of the sandbox; see `open_sandbox`."""
    cache: Path | None = None
    """Folder that keeps the replies of an endpoint."""


class TraceFile:
    """A sink that writes each event to a file at once. After a write error it stops and keeps the reason."""

    def __init__(self, path: Path | None) -> None:
        self.problem: str | None = None
        self._file: TextIO | None = None if path is None else open_output(path, TRACE)

    def __call__(self, event: Event) -> None:
        if self._file is None or self.problem is not None:
            return
        try:
            self._file.write(event_to_json(event) + "\n")
            self._file.flush()
        except OSError as error:
            self._keep(error)

    def _keep(self, error: OSError) -> None:
        self.problem = self.problem or f"the trace is incomplete: {error.strerror}"

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            try:
                self._file.close()  # tries to write once more what could not be written
            except OSError as error:
                self._keep(error)


async def check_gold(gold: str, sandbox: JailSandbox) -> None:
    """Refuse a gold answer that the grader cannot read, before anything is spent on a run."""
    if not await gold_is_readable(sandbox, gold):
        usage_error(f"the gold answer {gold!r} cannot be read as mathematics, so nothing could be graded with it")


async def run_checked(
    source: str,
    problem: str,
    *,
    program: str,
    engine: Engine,
    sandbox: JailSandbox,
    settings: RunSettings,
    sink: Sink | None = None,
    asking: Asking | None = None,
) -> tuple[RunReport, Run]:
    """Run a program that has passed its check. What it does wrong is in the report."""
    run = await sandbox.run_program(
        source,
        problem,
        engine=engine,
        limits=settings.limits,
        sampling=settings.sampling,
        seed=settings.seed,
        sink=sink,
        asking=asking,
        own_sampling=True,
    )
    verdict = None
    if settings.gold is not None and run.failure is None:
        asked = Problem(id="problem", question=problem, domain="math", gold=settings.gold)
        verdict = (await grade(asked, run.answer or "", sandbox)).verdict
    events = run.trace.events
    report = RunReport(
        program=program,
        engine=engine.name,
        answer=final_answer(run.answer),
        message=run.answer,
        answer_from=run.answer_from,
        gold=settings.gold,
        verdict=verdict,
        failure=run.failure,
        fix=_fix(run.failure, program),
        notes=_notes(run, problem, engine),
        output=run.output,
        agent_calls=len(run.trace.agent_turns),
        tool_calls=sum(isinstance(event, ToolCalled) for event in events),
        code_runs=sum(isinstance(event, CodeRan) for event in events),
        usage=run.usage,
        usage_report=usage_report([run.trace]),
        duration_s=round(run.duration_s, 4),
        jail=run.jail,
    )
    return report, run


async def run_file(
    source: str,
    problem: str,
    program: str,
    spec: str,
    settings: RunSettings,
    trace: Path | None,
    site: WorkSite | None = None,
    sink: Callable[[Event], None] = lambda _: None,
) -> tuple[RunReport, Trace | None]:
    """Check a program and run it on the engine that `spec` names, with live progress on stderr, and on a page.

    `sink` gets every event as it happens. There is no trace where the check refused the program.
    """
    async with (
        open_engine(spec, settings.cache) as engine,
        open_sandbox(settings.sandbox, grading=settings.gold is not None) as sandbox,
    ):
        with LiveProgress("Checking") as progress:
            if settings.gold is not None:
                await check_gold(settings.gold, sandbox)
            checked = await check_program(source, sandbox, problem)
            if not checked.ok:
                if site is not None:
                    site.refused(program, source, checked.findings)
                return _refused(program, engine.name, checked.findings), None
            progress.start("Running")
            if site is not None:
                site.runs(checked.graph)
            shown: list[Shown] = [progress] if site is None else [progress, site]
            with TraceFile(trace) as written, progress.watching(engine):
                report, run = await run_checked(
                    source,
                    problem,
                    program=program,
                    engine=engine,
                    sandbox=sandbox,
                    settings=settings,
                    sink=all_of(sink, written, *shown),
                    asking=all_of(*(each.asking for each in shown)),
                )
    report.findings = checked.findings
    report.trace = None if trace is None else str(trace)
    report.notes += [written.problem] if written.problem else []
    return report, run.trace


def all_of(*sinks: Callable[[T], None]) -> Callable[[T], None]:
    def sink(event: T) -> None:
        for each in sinks:
            each(event)

    return sink


def _refused(program: str, engine: str, findings: list[Finding]) -> RunReport:
    return RunReport(program=program, engine=engine, findings=findings, failure=ProgramRejected(findings).record())


def final_answer(text: str | None) -> str | None:
    """What a final message answers: its box, else its solution, else all of it."""
    if text is None:
        return None
    return math_answer(text) or solution_block(text) or text


def _fix(failure: Failure | None, program: str) -> str:
    if failure is None:
        return ""
    if failure.kind == "limit_exceeded":
        kind = str(failure.fields["limit_kind"])
        if kind == "context_tokens":
            return "make the agents say less, or use a model with a longer context"
        return f"raise it with --{kind.replace('_', '-')}, or make the program do less"
    if failure.kind == "program_failed":
        line = failure.fields.get("line")
        return f"mend {program}" + (f", line {line}" if line else "")
    if failure.kind == "engine_failed":
        return "" if "Fix: " in failure.message else "see that the engine is up; `metaagent doctor` shows what is set"
    return "" if "Fix: " in failure.message else "run `metaagent doctor`"


def _notes(run: Run, problem: str, engine: Engine) -> list[str]:
    turns = run.trace.agent_turns
    empty, cut = empty_replies(turns), cut_replies(turns)
    notes = [*empty, *cut]
    if run.failure is None and run.answer is not None and not run.answer.strip():
        notes.append("the answer is empty" + ("" if empty else ": the program reported nothing. Fix: mend the program"))
    elif run.answer is not None and run.answer_from is None:
        notes.append("no agent produced this answer: the program made it itself")
    said = (message["content"] for turn in turns for message in turn.messages)
    if turns and problem.strip() and not any(problem.strip() in text for text in said):
        notes.append("no agent was shown the problem as given: the program asked something of its own")
    if isinstance(engine, ReplayEngine) and run.failure is None and engine.unused():
        notes.append(f"{len(engine.unused())} recorded replies were not asked for")
    return notes


MORE_TOKENS = "raise it with --max-tokens; where the agent's node sets max_tokens itself, raise that, too"


def empty_replies(turns: Iterable[AgentTurn]) -> list[str]:
    """One line for each agent and reason for which a reply of it was empty, with what to do."""
    return _by_agent((turn.agent, why_empty(turn.completion)) for turn in turns if turn.completion is not None)


def why_empty(reply: Completion) -> str:
    """Why a reply says nothing and what to do about it, or an empty string for one that says something."""
    if reply.text.strip():
        return ""
    thought = " but reasoning" if reply.reasoning else ""
    if reply.finish_reason == "length":
        return f"said nothing{thought} before it was cut off by max_tokens. Fix: {MORE_TOKENS}"
    if reply.finish_reason == "abort":
        return (
            f"said nothing{thought}, as the server filtered it or broke it off. Fix: ask in other words, use another "
            "model, or see the server's content filter and log"
        )
    if thought:
        return (
            "said nothing but reasoning. Fix: turn the model's thinking off, or see that the server's reasoning parser "
            "fits the model"
        )
    return "said nothing at all. Fix: make the agent's prompts ask for an answer, or use another model"


def cut_replies(turns: Iterable[AgentTurn]) -> list[str]:
    """One line for each agent of which a reply that says something was cut off."""
    return _by_agent(
        (turn.agent, f"was cut off by max_tokens. Fix: {MORE_TOKENS}")
        for turn in turns
        if turn.completion and turn.completion.finish_reason == "length" and turn.completion.text.strip()
    )


def _by_agent(found: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of what befell replies of agents, the same thing told once with its count."""
    counts = Counter(each for each in found if each[1])
    return [
        f"{one_line(agent)}: {'a reply' if count == 1 else f'each of {count} replies'} {what}"
        for (agent, what), count in counts.items()
    ]


def main(
    program: ProgramFile,
    problem: ProblemText = None,
    file: ProblemFile = None,
    engine: EngineSpec = None,
    gold: Annotated[str | None, typer.Option(help="Known answer (mathematics) to grade with.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace here, line by line while it runs.", dir_okay=False)
    ] = None,
    transcript: Annotated[bool, typer.Option("--transcript", "-t", help="Print the transcript, too.")] = False,
    view: View = False,
    out: PageOut = None,
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    temperature: Temperature = SAMPLING.temperature,
    top_p: TopP = SAMPLING.top_p,
    max_tokens: MaxTokens = SAMPLING.max_tokens,
    wall_s: Annotated[float, typer.Option(help="Limit: seconds, without waiting for replies.")] = LIMITS.wall_s,
    reply_s: ReplySeconds = LIMITS.reply_s,
    cpu_s: Annotated[int, typer.Option(help="Limit: CPU seconds of the program.")] = LIMITS.cpu_s,
    memory_mb: Annotated[int, typer.Option(help="Limit: memory of the program, MiB.")] = LIMITS.memory_mb,
    output_bytes: Annotated[int, typer.Option(help="Limit: bytes that it prints.")] = LIMITS.output_bytes,
    agent_calls: Annotated[int, typer.Option(help="Limit: agent calls.")] = LIMITS.agent_calls,
    tokens: Annotated[int, typer.Option(help="Limit: tokens of all agent calls.")] = LIMITS.tokens,
    tool_calls: Annotated[int, typer.Option(help="Limit: tool calls and code runs.")] = LIMITS.tool_calls,
    as_json: AsJson = False,
) -> ExitCode:
    """Check a program, run it in the jail, show its answer.

    Says which agent the answer came from, what it cost, and what went wrong if something did.
    """
    text = read_problem(problem, file)
    if not engine:
        usage_error("running needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    limits = validated(
        Limits,
        wall_s=wall_s,
        reply_s=reply_s,
        cpu_s=cpu_s,
        memory_mb=memory_mb,
        output_bytes=output_bytes,
        agent_calls=agent_calls,
        tokens=tokens,
        tool_calls=tool_calls,
    )
    sampling = validated(Sampling, temperature=temperature, top_p=top_p, max_tokens=max_tokens)
    settings = RunSettings(limits=limits, sampling=sampling, seed=seed, gold=gold, sandbox=sandbox, cache=cache)
    source = read_text(program)
    check_apart(trace=trace, out=out)
    if out is not None:
        check_output(out, PAGE)
    with viewing(view, out, text, designs=False, as_json=as_json) as site:
        seen: list[Event] = []
        try:
            report, record = asyncio.run(
                run_file(source, text, str(program), engine, settings, trace, site, seen.append)
            )
        except BaseException:  # Ctrl-C, or the engine is gone: what there is by then is shown
            if transcript and seen and not as_json:
                print_transcript(stdout(), Trace(events=seen))
            raise
        if as_json:
            print_json(report)
        else:
            if transcript and record is not None:
                print_transcript(stdout(), record)
            print_run(stdout(), report, transcribed=transcript)
    return report.exit_code
