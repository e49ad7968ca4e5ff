"""Runs one program on one problem in the jail and reports how it ended, for people and as JSON.

The one way in which `run`, `design --run` and `demo` run programs. It checks a program before it runs, grades the
answer where there is something to grade it with, and never runs anything outside a jail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TextIO, TypeVar

import typer

from designer.check import check_program
from engine import Engine, Run
from metaagent.commands.inputs import read_one_problem, read_problem, read_text
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
from metaagent.commands.run_notes import actions_of, fix_of, no_answer, notes_of, void_tokens
from metaagent.commands.run_settings import RunSettings, given_to
from metaagent.opening import open_engine, open_sandbox
from metaagent.serving_pages import viewing
from metaagent.terminal import (
    ExitCode,
    LiveProgress,
    RunReport,
    note,
    print_json,
    print_run,
    print_transcript,
    stdout,
    usage_error,
)
from sandbox.host import JailSandbox
from tasks import Problem, gold_is_readable
from tasks.environments import begins
from trainer.credit import correctness
from workflow import answers
from workflow.answers import Domain, math_answer
from workflow.completion import Sampling, Usage
from workflow.failures import Finding, ProgramRejected, stopped
from workflow.limits import Limits
from workflow.text import solution_block
from workflow.trace import AgentTurn, CodeRan, Event, Printed, RunStarted, ToolCalled, Trace, event_to_json
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
    wrote: Mapping[str, str] | None = None,
    sink: Sink = lambda _: None,
    asking: Asking | None = None,
) -> tuple[RunReport, Run]:
    """Run a program that has passed its check. What it does wrong is in the report; Ctrl-C ends it with what there is,
    with what `wrote` says, by their keys, of replies that had not come."""
    seen: list[Event] = []

    def noted(event: Event) -> None:
        if isinstance(event, AgentTurn) and event.completion is None:
            event.written = (wrote or {}).get(event.key, "")
        seen.append(event)
        sink(event)

    try:
        run = await sandbox.run_program(
            source,
            problem,
            engine=engine,
            limits=settings.limits,
            sampling=settings.sampling,
            seed=settings.seed,
            sink=noted,
            asking=asking,
            own_sampling=settings.own_sampling,
            game=None if settings.graded is None else begins(settings.graded),
        )
    except asyncio.CancelledError:
        if not seen or not was_interrupted():
            raise
        run = _broken_off(seen)
        report = _report(run, problem, program, engine, settings.graded)
        report.interrupted, report.failure, report.fix = True, None, ""
        return report, run
    report = _report(run, problem, program, engine, settings.graded)
    if settings.graded is not None and run.failure is None:
        try:
            value, reason, _ = await correctness(settings.graded, run, sandbox)
            report.verdict = "correct" if value == 1 else reason
            report.notes += no_answer(reason, settings.graded.domain)
        except asyncio.CancelledError:
            if not was_interrupted():
                raise
            report.interrupted = True
    return report, run


def _report(run: Run, problem: str, program: str, engine: Engine, graded: Problem | None) -> RunReport:
    events, actions = run.trace.events, actions_of(run)
    return RunReport(
        program=program,
        engine=engine.name,
        answer=run.answer if actions else final_answer(run.answer, None if graded is None else graded.domain),
        message=run.answer,
        answer_from=run.answer_from,
        gold=None if graded is None else graded.gold,
        failure=run.failure,
        fix=fix_of(run.failure, program, plays=graded is not None and graded.environment is not None),
        notes=notes_of(run, problem, engine),
        output=run.output,
        agent_calls=len(run.trace.agent_turns),
        tool_calls=sum(isinstance(event, ToolCalled) for event in events),
        code_runs=sum(isinstance(event, CodeRan) for event in events),
        actions=actions,
        usage=run.usage,
        usage_report=usage_report([run.trace]),
        duration_s=round(run.duration_s, 4),
        jail=run.jail,
    )


def _broken_off(events: list[Event]) -> Run:
    """What there is of a run that was stopped."""
    turns = [event.completion for event in events if isinstance(event, AgentTurn) and event.completion is not None]
    return Run(
        failure=stopped().record(),
        output="".join(event.text for event in events if isinstance(event, Printed)),
        trace=Trace.model_construct(events=events),
        usage=Usage.total(turn.usage for turn in turns),
        duration_s=events[-1].t if events else 0.0,
        jail=next((event.jail for event in events if isinstance(event, RunStarted)), ""),
    )


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

    `sink` gets every event as it happens. There is no trace where the check refused the program. Ctrl-C ends it with
    what there is of the run.
    """
    async with (
        open_engine(spec, settings.cache) as engine,
        open_sandbox(settings.sandbox, grading=settings.graded is not None) as sandbox,
    ):
        settings = settings.as_replayed(engine)
        with LiveProgress("Checking") as progress:
            if settings.graded is not None and settings.graded.gold is not None:
                await check_gold(settings.graded.gold, sandbox)
            checked = await check_program(source, sandbox, problem)
            if not checked.ok:
                if site is not None:
                    site.refused(program, source, checked.findings)
                return _refused(program, engine.name, checked.findings), None
            progress.start("Running")
            if site is not None:
                site.runs(checked.graph)
            shown: list[Shown] = [progress] if site is None else [progress, site]

            with TraceFile(trace) as written, progress.watching(engine, keep=trace is not None):
                report, run = await run_checked(
                    source,
                    problem,
                    program=program,
                    engine=engine,
                    sandbox=sandbox,
                    settings=settings,
                    wrote=progress.wrote,
                    sink=all_of(sink, written, *shown),
                    asking=all_of(*(each.asking for each in shown)),
                )
    report.findings = checked.findings
    report.trace = None if trace is None else str(trace)
    report.notes += [written.problem] if written.problem else []
    tokens = settings.limits.tokens if "tokens" in settings.given else None
    report.notes += void_tokens(tokens, report.agent_calls, report.usage.total_tokens)
    return report, run.trace


def was_interrupted() -> bool:
    """Where this task is being cancelled: whether Ctrl-C did it, so that it may go on to say what there is."""
    this = asyncio.current_task()
    return this is not None and this.uncancel() == 0


def all_of(*sinks: Callable[[T], None]) -> Callable[[T], None]:
    def sink(event: T) -> None:
        for each in sinks:
            each(event)

    return sink


def _refused(program: str, engine: str, findings: list[Finding]) -> RunReport:
    return RunReport(program=program, engine=engine, findings=findings, failure=ProgramRejected(findings).record())


def final_answer(text: str | None, domain: Domain | None = None) -> str | None:
    """What a final message answers, as it is graded; without a domain its box, else its solution. Else all of it."""
    if text is None:
        return None
    read = answers.final_answer(text, domain) if domain else math_answer(text) or solution_block(text)
    return read or text


def main(
    ctx: typer.Context,
    program: ProgramFile,
    problem: ProblemText = None,
    file: ProblemFile = None,
    engine: EngineSpec = None,
    gold: Annotated[str | None, typer.Option(help="Known answer (mathematics) to grade with.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT:FILE", help="Take the problem from this file, and what grades it: an answer, tests, a game."
        ),
    ] = None,
    wanted: Annotated[str | None, typer.Option("--id", help="With --task: which problem, by its id.")] = None,
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
    if task is not None and (problem, file, gold) == (None, None, None):
        graded = read_one_problem(task, wanted)
        text = graded.question
    elif task is not None:
        usage_error("the file of --task has the problem, and what grades it. Fix: leave out problem, --file and --gold")
    elif wanted is not None:
        usage_error("--id is for a file of problems. Fix: add --task FORMAT:FILE")
    else:
        text = read_problem(problem, file)
        graded = None if gold is None else Problem(id="problem", question=text, domain="math", gold=gold)
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
    settings = RunSettings(
        limits=limits, sampling=sampling, seed=seed, given=given_to(ctx), graded=graded, sandbox=sandbox, cache=cache
    )
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
            if report.interrupted:
                note("interrupted: what there was by then is shown")
        if report.interrupted:
            raise typer.Exit(report.exit_code)  # a page that is served ends with it
    return report.exit_code
