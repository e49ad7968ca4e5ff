"""What one turn of an agent is worth in math and in code: Stronger-MAS, Appendix B.1, B.2 and B.6, term by term.

| agent | it is for | sub-scores and weights |
|---|---|---|
| reasoner | a boxed answer | format 0.2, the number is the gold's 0.8 |
| tool | code that prints the answer | format 0.2, the number is the gold's 0.8 |
| coder | a solution | it compiles 0.1, the first golden test ends 0.1, golden tests passed 0.8 |
| tester | tests on stdin | the reference takes them 0.2, it passes them 0.8 |

The team's part is whether the turn's answer is right, or the share of golden tests that the newest solution passes. A
sub-score that cannot be computed masks all: a gold that is no number, a problem without a right reference. Where the
paper leaves a choice: a right answer is the gold's number in whatever form; a tool's code is run by the host; at most
`TESTS` tests of a reply count; golden tests behind `TIMEOUTS` that took too long are failed; the struck-out coverage of
a tester is left out, with its threshold. Nothing is graded here; that is done by `tasks`, in jails.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

from sandbox.protocol import CodeResult, Sandbox
from search import AgentStep, Decision
from search.branching import Position
from tasks import CodeGrade, equal_numbers, grade_code, grade_math, written_tests
from tasks.code import GRADING_LIMITS
from tasks.grading import asks_for_percent
from tasks.problems import Domain, Problem, StdinTests
from trainer.credit.turn_parts import Parts, Shaping, TurnRole
from workflow.answers import code_answer, math_answer
from workflow.completion import Completion
from workflow.trace import RewardTerm

ROLES_OF: dict[Domain, tuple[TurnRole, ...]] = {"math": ("reasoner", "tool"), "code": ("coder", "tester")}
TESTS = 10
"""Of one reply that are tried."""
TIMEOUTS = 2
"""Golden tests that a solution may take too long for before the others count as failed, unseen."""
KEPT = 256
ENDED = ("pass", "wrong_answer")
COMPILES = "import sys; compile(sys.stdin.buffer.read().decode('utf-8', 'replace'), 'solution', 'exec')"


def _role(agent: str, domain: Domain, roles: Mapping[str, TurnRole]) -> TurnRole | None:
    found = roles.get(agent, agent.casefold())
    return next((role for role in ROLES_OF.get(domain, ()) if role == found), None)


def role_of(agent: str, domain: Domain, roles: Mapping[str, TurnRole]) -> TurnRole:
    """As `roles` says, else by the agent's own name. Raises ValueError where that is no role in such problems."""
    if (role := _role(agent, domain, roles)) is not None:
        return role
    some, name = ROLES_OF.get(domain, ()), json.dumps(agent[:100], ensure_ascii=False)
    raise ValueError(
        f"agent {name} has no role in {domain} problems, whose turns are those of {' and '.join(some) or 'nobody'}. "
        f'Fix: reward.roles = {{ {name} = "{some[0] if some else ""}" }}, or another one of them'
    )


async def scored(
    problem: Problem,
    decision: Decision,
    position: Position,
    sandbox: Sandbox,
    shaping: Shaping,
    roles: Mapping[str, TurnRole],
) -> Parts:
    """Of the reply to a decision that led to a position. An agent without a role, which a program may have built while
    it ran, scores nothing. Raises `SandboxUnavailable`."""
    role = _role(decision.request.agent, problem.domain, roles)
    said = _said(position.path.steps[len(decision.path.steps)])
    if role == "reasoner":
        answer = math_answer(said)
        return await _in_math(problem, answer, "no boxed answer" if answer is None else "", sandbox, shaping)
    if role == "tool":
        answer, wrong, timed_out = await _printed(said, sandbox)
        return replace(await _in_math(problem, answer, wrong, sandbox, shaping), timed_out=timed_out)
    if role == "coder":
        return await _of_coder(problem, code_answer(said), sandbox, shaping)
    if role is None:
        return Parts(0.0, "an agent without a role", [_masked("what the agent is for is not known")])
    return await _of_tester(problem, said, _newest(problem, decision, roles), sandbox, shaping)


def _said(step: object) -> str:
    return step.reply.text if isinstance(step, AgentStep) and isinstance(step.reply, Completion) else ""


def _newest(problem: Problem, decision: Decision, roles: Mapping[str, TurnRole]) -> str | None:
    """The newest solution of a coder before the decision."""
    replies = [step for step in decision.path.steps if isinstance(step, AgentStep)]
    coded = (code_answer(_said(s)) for s in reversed(replies) if _role(s.agent, problem.domain, roles) == "coder")
    return next((code for code in coded if code is not None), None)


def _format(good: bool, reason: str, weight: float) -> RewardTerm:
    return RewardTerm(name="format", value=float(good), weight=weight, reason=reason)


async def _printed(said: str, sandbox: Sandbox) -> tuple[str | None, str, bool]:
    """What the code of a reply prints, or why it is no answer, and whether a clock ended it."""
    code = code_answer(said)
    if code is None:
        return None, "no code", False
    result = await sandbox.run_code(code, limits=GRADING_LIMITS)
    lines = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    if not result.ok:
        return None, f"its code failed: {_end_of(result)}", result.limit == "wall_s"
    return (lines[0], "", False) if len(lines) == 1 else (None, f"it printed {len(lines)} lines, and not one", False)


def _end_of(result: CodeResult) -> str:
    return f"limit {result.limit}" if result.limit else result.stderr.strip()[-200:] or f"exit {result.exit_status}"


async def _in_math(problem: Problem, answer: str | None, wrong: str, sandbox: Sandbox, shaping: Shaping) -> Parts:
    assert problem.gold is not None, "a math problem has one"
    grade = await grade_math(sandbox, problem.gold, answer, percent=asks_for_percent(problem.question))
    team, seen = float(grade.correct), "no answer" if answer is None else f"the answer is {grade.verdict}"
    if shaping == "outcome":
        return Parts(team, seen, [_format(answer is not None, wrong or "an answer", 1.0)])
    equal: bool | None = False
    if answer is None or grade.verdict in ("correct", "wrong"):  # else it took too long already
        equal = await equal_numbers(sandbox, problem.gold, answer or "")
    if equal is None:
        return Parts(team, seen, [_masked("the gold is no number")])
    equal = equal or grade.correct
    reason = "no answer" if answer is None else "the gold's number" if equal else "not the gold's number"
    return Parts(
        team,
        seen,
        [
            _format(answer is not None, wrong or "an answer", 0.2),
            RewardTerm(name="number", value=float(equal), weight=0.8, reason=reason),
        ],
    )


def _masked(reason: str) -> RewardTerm:
    return RewardTerm(name="local", value=0.0, weight=1.0, reason=f"masked: {reason}")


_grades: WeakKeyDictionary[Sandbox, OrderedDict[tuple[str, str, str], asyncio.Task[CodeGrade]]] = WeakKeyDictionary()
"""Of the newest solutions: that of a coder is graded for it, and for each tester behind it, who all get the same."""


async def _graded(problem: Problem, code: str, sandbox: Sandbox) -> CodeGrade:
    assert problem.tests is not None, "a code problem has them"
    known, place = _grades.setdefault(sandbox, OrderedDict()), (problem.id, problem.question, code)
    if place not in known or not _holds(known[place]):
        task = asyncio.create_task(grade_code(sandbox, code, problem.tests, most_timeouts=TIMEOUTS))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits any more
        known[place] = task
        while len(known) > KEPT:
            known.popitem(last=False)
    return await asyncio.shield(known[place])


def _holds(task: asyncio.Task[CodeGrade]) -> bool:
    """Not for ever where the sandbox, or a clock, ended it."""
    return not task.done() or not (task.cancelled() or task.exception() is not None or task.result().by_clock)


def _team(grade: CodeGrade | None, shaping: Shaping) -> tuple[float, str]:
    if grade is None:
        return 0.0, "no solution yet"
    share = grade.passed / grade.total
    return (float(grade.correct) if shaping == "outcome" else share), f"{grade.passed} of {grade.total} golden tests"


async def _of_coder(problem: Problem, code: str | None, sandbox: Sandbox, shaping: Shaping) -> Parts:
    grade = None if code is None else await _graded(problem, code, sandbox)
    team, seen = _team(grade, shaping)
    if shaping == "outcome" or grade is None or code is None:
        weight = 1.0 if shaping == "outcome" else 0.1
        terms = [_format(code is not None, "no code" if code is None else "code", weight)]
        return Parts(team, seen, terms, grade is not None and grade.by_clock)
    ended = [test.outcome in ENDED for test in grade.tests]
    wrong, timed_out = ("", False) if any(ended) else await _does_not_compile(code, sandbox)
    return Parts(
        team,
        seen,
        [
            RewardTerm(name="builds", value=float(not wrong), weight=0.1, reason=wrong or "it does"),
            RewardTerm(
                name="runs", value=float(ended[0]), weight=0.1, reason=f"first golden test: {grade.tests[0].outcome}"
            ),
            RewardTerm(name="passes", value=grade.passed / grade.total, weight=0.8, reason=seen),
        ],
        timed_out or grade.by_clock,
    )


async def _does_not_compile(code: str, sandbox: Sandbox) -> tuple[str, bool]:
    """Why, in a few words, empty where it does; and whether a clock ended it."""
    result = await sandbox.run_code(COMPILES, stdin=code, limits=GRADING_LIMITS)
    return "" if result.ok else _end_of(result), result.limit == "wall_s"


async def _of_tester(problem: Problem, said: str, solution: str | None, sandbox: Sandbox, shaping: Shaping) -> Parts:
    newest = None if solution is None else await _graded(problem, solution, sandbox)
    (team, seen), timed_out = _team(newest, shaping), newest is not None and newest.by_clock
    tests = written_tests(said, TESTS)
    if shaping == "outcome":
        return Parts(team, seen, [_format(bool(tests), "a test" if tests else "no test", 1.0)], timed_out)
    if problem.reference is None or not isinstance(problem.tests, StdinTests):
        return Parts(team, seen, [_masked("no reference solution that reads stdin")], timed_out)
    known = await _graded(problem, problem.reference, sandbox)
    timed_out |= known.by_clock
    if not known.correct:
        return Parts(team, seen, [_masked("the reference solution fails the golden tests")], timed_out)
    if not tests:
        return Parts(team, seen, [RewardTerm(name="valid", value=0.0, weight=0.2, reason="no test")], timed_out)
    grade = await grade_code(sandbox, problem.reference, StdinTests(tests=tests), most_timeouts=1)
    bad = next((test for test in grade.tests if test.outcome not in ENDED), None)
    reason = "the reference takes them" if bad is None else f"the reference ends with {bad.outcome}"
    return Parts(
        team,
        seen,
        [
            RewardTerm(name="valid", value=float(bad is None), weight=0.2, reason=reason),
            RewardTerm(
                name="right",
                value=grade.passed / grade.total,
                weight=0.8,
                reason=f"the reference passes {grade.passed} of {grade.total}",
            ),
        ],
        timed_out or grade.by_clock,
    )
