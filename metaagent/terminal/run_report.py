"""How one run ended, as a document and for people; and the findings of a check.

Runs nothing: `metaagent.commands.run` does.
"""

from __future__ import annotations

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from metaagent.terminal.console import FAILURE_CODES, ExitCode, block, fields, heading, note, stderr
from metaagent.terminal.transcript import cache_line, print_shares, totals
from workflow.completion import Usage
from workflow.failures import Failure, Finding
from workflow.usage import UsageReport


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
    """`correct`, `wrong`, ... where there is something to grade with."""
    failure: Failure | None = None
    fix: str = ""
    notes: list[str] = []
    output: str = ""
    """What the program printed."""
    agent_calls: int = 0
    tool_calls: int = 0
    code_runs: int = 0
    actions: int = 0
    """Done in a game, where the answer is no agent's but the last position, as a rule."""
    usage: Usage = Usage()
    usage_report: UsageReport = UsageReport()
    duration_s: float = 0.0
    jail: str = ""
    trace: str | None = None
    """File that the trace was written to."""
    interrupted: bool = False
    """Whether it was stopped, which is no failure; the rest says what there was by then."""

    @property
    def exit_code(self) -> ExitCode:
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.failure is not None:
            return FAILURE_CODES[self.failure.kind]
        empty = self.answer is not None and not self.answer.strip()
        bad = empty if self.verdict is None else self.verdict != "correct"
        return ExitCode.BAD if bad else ExitCode.OK


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
    graded = (report.verdict or "") + (f" (gold {report.gold})" if report.verdict and report.gold is not None else "")
    calls = [_counted(report.agent_calls, "agent call"), _counted(report.tool_calls, "tool call")]
    calls += [_counted(report.code_runs, "code run"), _counted(report.actions, "action")]
    fields(
        console,
        [
            ("Stopped", Text("interrupted" if report.interrupted else "", style="yellow")),
            ("Failed", Text(failure_line(report.failure), style="red")),
            ("Fix", report.fix),
            ("Answer", _answer(report.answer)),
            ("From", source if report.answer and (report.answer_from or not report.actions) else ""),
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


def _answer(answer: str | None) -> Text | str:
    if answer is None:
        return ""
    return Text(answer, style="bold green") if answer.strip() else Text("(empty: see the note)", style="yellow")


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
