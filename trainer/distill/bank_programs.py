"""Templates as designs: drawn at random for a question, each checked once, and read back out of the reply to learn.

So what is executed is exactly what the policy's reply would give. Choosing a template for a problem's own sake is
`designer.bank`'s business, showing some to a teacher `designer.prompts`'.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from designer.check import check_program
from designer.extract import extract_program
from designer.prompts import template_reply
from sandbox.protocol import Sandbox
from tasks.problems import Problem
from templates import Template
from workflow.graph import Structure, structure


@dataclass(frozen=True, slots=True)
class TemplateProgram:
    """A template that may run."""

    template: Template
    program: str
    structure: Structure


def bank_digest(templates: Iterable[Template]) -> str:
    """Tells whether designs were made with the same templates."""
    text = "\n".join(template.model_dump_json() for template in templates)
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


async def checked_programs(
    templates: Sequence[Template], problems: Sequence[Problem], sandbox: Sandbox
) -> list[TemplateProgram]:
    """Those of the templates that fit any of the problems, in their order.

    Raises ValueError, naming the culprit, for one that may not run and for a problem that none fits, and
    `SandboxUnavailable`.
    """
    fitting: dict[int, Problem] = {}
    for problem in {each.domain: each for each in reversed(problems)}.values():
        fits = [number for number, template in enumerate(templates) if _fits(template, problem)]
        if not fits:
            fix = "let a teacher design for games" if problem.domain == "game" else "give templates that do"
            raise ValueError(f"no template fits problem {problem.id!r} ({problem.domain}). Fix: {fix}")
        for number in fits:
            fitting[number] = problem
    return [await _checked(templates[number], fitting[number], sandbox) for number in sorted(fitting)]


def drawn(programs: Sequence[TemplateProgram], problem: Problem, count: int, seed: int) -> list[TemplateProgram]:
    """At most `count` of those that fit the problem, at random, none twice."""
    fitting = [each for each in programs if _fits(each.template, problem)]
    return random.Random(seed).sample(fitting, min(count, len(fitting)))


def _fits(template: Template, problem: Problem) -> bool:
    return problem.domain != "game" and template.domain in (problem.domain, "any")


async def _checked(template: Template, problem: Problem, sandbox: Sandbox) -> TemplateProgram:
    found = extract_program(template_reply(template, problem.domain))
    if found.source is None:
        raise ValueError(f"template {template.name!r} has no program: {found.problem}. Fix: mend it, or leave it out")
    report = await check_program(found.source, sandbox, problem.question)
    if not report.ok or report.graph is None:
        wrong = next(str(finding) for finding in report.findings if finding.severity == "error")
        raise ValueError(f"template {template.name!r} may not run: {wrong}")
    return TemplateProgram(template, found.source, structure(report.graph))
