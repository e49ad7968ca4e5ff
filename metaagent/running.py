"""Runs one program on one problem in the jail and reports how it ended, for people and as JSON.

The one way in which `run`, `design --run` and `demo` run programs. It checks a program before it runs, grades the
answer where a gold one is given, and never runs anything outside a jail.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.text import Text

from designer.check import CheckReport, check_program
from engine import Engine, Run, parse_engine
from engine.replay import ReplayEngine
from metaagent import embedded
from metaagent.console import FAILURE_CODES, ExitCode, block, fields, heading, note, stderr, usage_error
from metaagent.progress import LiveProgress
from metaagent.transcript import cache_line, print_shares, totals
from sandbox import Description, ProcessSandbox
from sandbox.base import JailSandbox
from sandbox.containers import DockerSandbox
from sandbox.containers.daemon import Tier
from tasks import MATH_WORKER, Problem, gold_is_readable, grade, math_answer
from workflow.completion import Sampling, Usage
from workflow.failures import Failure, Finding, ProgramRejected
from workflow.limits import Limits
from workflow.text import solution_block
from workflow.trace import CodeRan, Event, ToolCalled, Trace, event_to_json
from workflow.usage import UsageReport, usage_report

Sink = Callable[[Event], None]
CHECKER = "designer.check"
DOCKER_TIERS: dict[str, Tier] = {
    "docker": "warm",
    "docker/warm": "warm",
    "docker/strict": "strict",
    "docker/gvisor": "gvisor",
}


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


class RunReport(BaseModel):
    """How one run ended: what `run --json` prints."""

    program: str
    engine: str
    findings: list[Finding] = []
    """What the check found; errors among them mean that nothing was run."""
    answer: str | None = None
    """Content of the final message's box or solution; without one, the whole message."""
    message: str | None = None
    """The whole final message."""
    answer_from: str | None = None
    """Agent in whose reply the answer was found."""
    gold: str | None = None
    verdict: str | None = None
    """`correct`, `wrong`, ... where there is a gold answer."""
    failure: Failure | None = None
    fix: str = ""
    notes: list[str] = []
    output: str = ""
    """What the program printed."""
    agent_calls: int = 0
    tool_calls: int = 0
    code_runs: int = 0
    usage: Usage = Usage()
    usage_report: UsageReport = UsageReport()
    duration_s: float = 0.0
    jail: str = ""
    trace: str | None = None
    """File that the trace was written to."""

    @property
    def exit_code(self) -> ExitCode:
        if self.failure is not None:
            return FAILURE_CODES[self.failure.kind]
        return ExitCode.OK if self.verdict in (None, "correct") else ExitCode.BAD


@asynccontextmanager
async def open_engine(spec: str, cache: Path | None = None) -> AsyncIterator[Engine]:
    """The engine that `spec` names, with a folder that keeps its replies if given; closed in the end."""
    try:
        if spec == embedded.SPEC:
            if cache is not None:
                raise ValueError("the embedded policy's replies are not kept. Fix: leave --cache out")
            engine: Engine = embedded.open_embedded()
        else:
            engine = parse_engine(spec, cache)
    except ValueError as error:
        usage_error(str(error))
    try:
        yield engine
    finally:
        await engine.close()
        if cache is not None:
            from engine.cache import CachedEngine

            if isinstance(engine, CachedEngine) and engine.problem:
                note(engine.problem)


def open_sandbox(name: str | None = None, *, grading: bool = False) -> JailSandbox:
    """A sandbox in which programs can be checked, and answers graded if asked for.

    `name` is process, process/weak (which lets code run where the kernel cannot keep it in), docker, docker/warm,
    docker/strict or docker/gvisor; without one METAAGENT_SANDBOX decides.
    """
    name = name or os.environ.get("METAAGENT_SANDBOX") or "process"
    preload = (CHECKER, MATH_WORKER) if grading else (CHECKER,)
    if name in ("process", "process/weak"):
        return ProcessSandbox(preload=preload, allow_weak=name == "process/weak")
    if name not in DOCKER_TIERS:
        usage_error(f"there is no sandbox {name!r}. Fix: use process, process/weak, {', '.join(DOCKER_TIERS)}")
    return DockerSandbox(preload=preload, tier=DOCKER_TIERS[name])


class TraceFile:
    """A sink that writes each event to a file at once. After a write error it stops and keeps the reason."""

    def __init__(self, path: Path | None) -> None:
        self.problem: str | None = None
        self._file: TextIO | None = None
        if path is not None:
            try:
                self._file = path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
            except OSError as error:
                usage_error(f"cannot write the trace to {path}: {error.strerror}")

    def __call__(self, event: Event) -> None:
        if self._file is None or self.problem is not None:
            return
        try:
            self._file.write(event_to_json(event) + "\n")
            self._file.flush()
        except OSError as error:
            self.problem = f"the trace is incomplete: {error.strerror}"

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()


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
    source: str, problem: str, program: str, spec: str, settings: RunSettings, trace: Path | None
) -> tuple[RunReport, Trace | None]:
    """Check a program and run it on the engine that `spec` names, with live progress on stderr.

    There is no trace where the check refused the program.
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
                return _refused(program, engine.name, checked.findings), None
            progress.start("Running")
            with TraceFile(trace) as written:
                sink = _both(written, progress)
                report, run = await run_checked(
                    source, problem, program=program, engine=engine, sandbox=sandbox, settings=settings, sink=sink
                )
    report.findings = checked.findings
    report.trace = None if trace is None else str(trace)
    report.notes += [written.problem] if written.problem else []
    return report, run.trace


def _both(first: Sink, second: Sink) -> Sink:
    def sink(event: Event) -> None:
        first(event)
        second(event)

    return sink


def _refused(program: str, engine: str, findings: list[Finding]) -> RunReport:
    return RunReport(program=program, engine=engine, findings=findings, failure=ProgramRejected(findings).record())


async def check_all(sources: dict[str, str]) -> dict[str, CheckReport]:
    """Check programs, given by name, one after the other."""
    async with open_sandbox() as sandbox:
        return {name: await check_program(source, sandbox) for name, source in sources.items()}


async def describe(source: str) -> Description:
    """What a program builds, found in a jail; where it builds nothing, all that the check says about it."""
    async with open_sandbox() as sandbox:
        described = await sandbox.describe(source)
        if described.graph is not None:
            return described
        report = await check_program(source, sandbox)
        return Description(findings=report.findings or described.findings)


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
    notes = []
    turns = run.trace.agent_turns
    if run.answer is not None and run.answer_from is None:
        notes.append("no agent produced this answer: the program made it itself")
    said = (message["content"] for turn in turns for message in turn.messages)
    if turns and problem.strip() and not any(problem.strip() in text for text in said):
        notes.append("no agent was shown the problem as given: the program asked something of its own")
    if isinstance(engine, ReplayEngine) and run.failure is None and engine.unused():
        notes.append(f"{len(engine.unused())} recorded replies were not asked for")
    return notes


def print_run(console: Console, report: RunReport, *, transcribed: bool = False) -> None:
    """The report for people, with output and agents unless a transcript showed them before; notes go to stderr."""
    if report.failure is not None and report.failure.kind == "program_rejected":
        print_findings(console, report.program, report.findings)
        return
    print_findings(stderr(), report.program, report.findings)
    if not transcribed and report.output.strip():
        heading(console, "Program output")
        block(console, report.output)
    heading(console, "Result")
    source = report.answer_from or Text("no agent (see the note)", style="yellow")
    graded = f"{report.verdict} (gold {report.gold})" if report.verdict else ""
    calls = [_counted(report.agent_calls, "agent call"), _counted(report.tool_calls, "tool call")]
    calls += [_counted(report.code_runs, "code run")]
    fields(
        console,
        [
            ("Failed", Text(failure_line(report.failure), style="red")),
            ("Fix", report.fix),
            ("Answer", Text(report.answer, style="bold green") if report.answer is not None else ""),
            ("From", source if report.answer is not None else ""),
            ("Graded", Text(graded, style="green" if report.verdict == "correct" else "red")),
            ("Usage", ", ".join([*filter(None, calls), totals(report.usage)])),
            ("Cache", cache_line(report.usage_report.total)),
            ("Time", f"{report.duration_s:.2f} s"),
            ("Jail", report.jail),
            ("Engine", report.engine),
            ("Trace", report.trace or ""),
        ],
    )
    if not transcribed:
        print_shares(console, "By agent", report.usage_report.by_agent)
    for text in report.notes:
        note(text)


def failure_line(failure: Failure | None) -> str:
    """What failed, in one line; empty where nothing did."""
    if failure is None:
        return ""
    if failure.kind == "limit_exceeded":
        return "limit {limit_kind} exceeded: {used:g} of {limit:g} used".format(**failure.fields)
    return f"{failure.kind.replace('_', ' ')}: {failure.message}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""


def finding_line(program: str, finding: Finding) -> str:
    """`file:line: severity code: message. Fix: ...`, on one line."""
    message = " ".join(finding.message.split()).rstrip(".")
    fix = f" Fix: {' '.join(finding.fix.split())}" if finding.fix else ""
    return f"{program}:{finding.line}: {finding.severity} {finding.code}: {message}.{fix}"


def print_findings(console: Console, program: str, findings: list[Finding]) -> None:
    for finding in findings:
        colour = "red" if finding.severity == "error" else "yellow"
        console.print(Text(finding_line(program, finding), style=colour))
