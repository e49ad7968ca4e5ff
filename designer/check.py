"""The check of a program before it runs: what is wrong with it, on which line, and what to write instead.

`check_source` only reads the program. `check_program` does that in a jail, where hostile source can hurt nobody, and
then has the sandbox build the program's workflow to see its graph; `check_reply` looks for the program in that jail,
too. None of them asks an agent or judges a design.
"""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, ConfigDict, JsonValue

from designer.contract import contract_findings, shortened
from designer.extract import NOTHING, Extraction, extract_program
from designer.imports import import_findings
from designer.names import name_findings
from designer.program import Program
from designer.structure import node_lines, structure_findings
from designer.syntax import parse, refused_unread, too_complex
from sandbox.language import compile_program
from sandbox.protocol import Sandbox, over_limit
from workflow.failures import Finding, LimitExceeded, ProgramFailed, SandboxUnavailable
from workflow.graph import GraphNode

CHECK = "designer.check:check_payload"
"""What a jail is asked for, a function of its payload alone."""
CHECK_CPU_S = 10
"""How long the static check of one program may take in its jail; an ordinary program takes milliseconds."""

MAX_REPLY = 1 << 20
"""Characters of a reply in which a program is looked for, from its end, where answers stand."""

MAX_FINDINGS = 100
"""Findings of one program that are kept."""

SIMPLER = "write a shorter program with smaller expressions"


class CheckReport(BaseModel):
    """What a check found. `graph` is there when the program was seen to build a workflow."""

    model_config = ConfigDict(frozen=True)

    findings: list[Finding] = []
    """Ordered by line."""
    graph: GraphNode | None = None

    @property
    def ok(self) -> bool:
        """True when the program may run: there may be warnings, but no errors."""
        return not has_errors(self.findings)


def has_errors(findings: list[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def check_source(source: str) -> list[Finding]:
    """Findings about a program's text, ordered by line; none for a good program. Runs nothing of it, never raises.

    A program that does not parse gets that one finding; all other stages report together, so that one repair can
    mend everything. Untrusted source is better given to `check_program`.
    """
    return _check(source)[0]


def check_payload(payload: JsonValue) -> JsonValue:
    """What runs in the jail: `{"source": ...}` or `{"reply": ...}` in; out come the program, what is doubtful about
    finding it, its findings and the lines of named nodes."""
    given = cast("dict[str, str]", payload)
    found = extract_program(given["reply"]) if "reply" in given else Extraction(given["source"])
    findings, lines = ([], {}) if found.source is None else _check(found.source)
    return {
        "source": found.source,
        "problem": found.problem,
        "findings": [finding.model_dump() for finding in findings],
        "lines": {**lines},
    }


def warm() -> None:
    """Build what every check needs, before jails are forked."""
    check_source("from workflow import AgentNode, Workflow\nWorkflow('w').add_node(AgentNode('a', 'b', max_turns=1))\n")


def _check(source: str) -> tuple[list[Finding], dict[str, int]]:
    findings = refused_unread(source)
    if findings:
        return findings, {}
    tree, findings = parse(source)
    if tree is None:
        return findings, {}
    try:
        program = Program(tree)
        findings = [
            *compile_program(source).findings,
            *import_findings(program),
            *contract_findings(program),
            *name_findings(program),
            *structure_findings(program),
        ]
        return _ordered(findings), node_lines(program)
    except (RecursionError, MemoryError) as error:
        return [too_complex(error)], {}


def _ordered(findings: list[Finding]) -> list[Finding]:
    """By line, errors before warnings, each once; where there are too many, errors are kept first."""
    kept = sorted(dict.fromkeys(findings), key=lambda finding: finding.severity != "error")[:MAX_FINDINGS]
    short = [
        finding.model_copy(update={"message": shortened(finding.message, 600), "fix": shortened(finding.fix, 1000)})
        for finding in kept
    ]
    return sorted(short, key=lambda finding: (finding.line, finding.severity != "error"))


async def check_program(source: str, sandbox: Sandbox, question: str = "") -> CheckReport:
    """Check a program and, if its text is sound, build its workflow in a jail.

    `question` is what the program sees as `question` while it builds. What the program does wrong is in the report;
    `SandboxUnavailable` is raised. The sandbox should have `preload=("designer.check",)`.
    """
    findings = refused_unread(source)
    if findings:
        return CheckReport(findings=findings)
    checked = await _checked(sandbox, {"source": source})
    return await _report(source, sandbox, question, checked)


async def check_reply(
    reply: str, sandbox: Sandbox, question: str = "", cut_off: str = ""
) -> tuple[str | None, CheckReport]:
    """The program in a Designer's reply, and the report of `check_program` on it.

    `cut_off` says, where the engine ended the reply, why there may be no program in it.
    """
    checked = await _checked(sandbox, {"reply": reply[-MAX_REPLY:]})
    source, doubt = checked.source, checked.problem
    if source is None and not checked.findings:
        fix = "write the complete program, once, between <code> and </code>"
        if doubt in (None, NOTHING) and not cut_off:
            message, code = doubt or "the reply holds no program", "no-program"
        else:
            message, code = cut_off if doubt in (None, NOTHING) else doubt, "reply-cut-off"
            fix = f"think and explain less, then {fix}"
        return None, CheckReport(findings=[Finding(line=0, code=code, message=message or "", fix=fix)])
    report = await _report(source or "", sandbox, question, checked)
    if doubt:
        note = Finding(line=0, code="reply-cut-off", message=doubt, severity="warning")
        report = report.model_copy(update={"findings": [note, *report.findings]})
    return source, report


class _Checked(BaseModel):
    """What `check_payload` returns."""

    source: str | None = None
    problem: str | None = None
    findings: list[Finding]
    lines: dict[str, int] = {}


async def _checked(sandbox: Sandbox, payload: dict[str, JsonValue]) -> _Checked:
    try:
        reply = await sandbox.call(CHECK, payload, cpu_s=CHECK_CPU_S)
        return _Checked.model_validate(reply)
    except LimitExceeded as error:
        if error.limit_kind == "wall_s":  # it only computes, and has not been let to
            fix = "run less on this machine at once"
            raise SandboxUnavailable(f"the check got too little of the processor: {error}", fix) from None
        message = f"the program is too complex to be checked ({error.limit_kind} limit of {error.limit:g})"
    except ProgramFailed as error:
        if error.error_type != "Died":
            raise  # a defect of the check itself must not pass for one of the program
        message = f"the program is too complex to be checked ({error})"
    return _Checked(findings=[Finding(line=0, code="too-complex", message=message, fix=SIMPLER)])


async def _report(source: str, sandbox: Sandbox, question: str, checked: _Checked) -> CheckReport:
    if has_errors(checked.findings):
        return CheckReport(findings=checked.findings)
    return await _built(source, sandbox, question, checked)


async def _built(source: str, sandbox: Sandbox, question: str, checked: _Checked) -> CheckReport:
    try:
        description = await sandbox.describe(source, question)
    except (LimitExceeded, ProgramFailed) as error:
        message = f"building the workflow failed: {error}"
        fix = "build the workflow without errors; what only a run can tell belongs into a node's process or a tool"
        if isinstance(error, LimitExceeded):
            return CheckReport(findings=_ordered([*checked.findings, over_limit(error.limit_kind, error.limit)]))
        failed = Finding(line=getattr(error, "line", None) or 0, code="build-failed", message=message, fix=fix)
        return CheckReport(findings=_ordered([*checked.findings, failed]))
    findings = [*checked.findings, *description.findings]
    known = [finding.message for finding in findings if finding.code == "unreachable-node"]
    for name in description.unreachable:
        if not any(repr(name) in message for message in known):
            message = f"node {name!r} is built but is not part of the workflow that runs"
            fix = "add it with workflow.add_node(...), pass it to another node, or delete it"
            line = checked.lines.get(name, 0)
            findings.append(Finding(line=line, code="unreachable-node", message=message, fix=fix, severity="warning"))
    unclear = any(finding.code == "build-unclear" for finding in findings)
    if description.graph is None and not unclear and not has_errors(findings):
        message = "the program builds no workflow"
        fix = "add: workflow = Workflow(name=...); workflow.add_node(...)"
        findings.append(Finding(line=0, code="no-workflow", message=message, fix=fix))
    return CheckReport(findings=_ordered(findings), graph=description.graph)
