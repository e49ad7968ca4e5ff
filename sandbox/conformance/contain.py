"""Puts a sandbox to the attacks of the corpus and says which were contained.

An attack is contained when nothing outside noticed it, it ended as it should have, and the next run found everything
as it was. Attacks that last run side by side; what is noticed while they do is put down to the one that just ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from engine.session import Run
from engine.stall_watch import StallWatch
from sandbox.conformance.attacks import ESCAPED, Attack
from sandbox.conformance.outside import Outside
from sandbox.conformance.scripted import SHORT, Scripted
from sandbox.conformance.subject import Subject
from sandbox.protocol import CodeResult
from workflow.failures import MetaAgentError, SandboxUnavailable
from workflow.limits import CodeLimits, Limits
from workflow.trace import AgentTurn, Trace

AT_ONCE = 4
GRACE_S = 5.0
"""How much longer than its wall limit a run may take, on a busy machine."""
SIX = "six: \\boxed{6}"
"""What agents say when an unguarded program asks them."""
STALL_S = 2.0
"""How long the host's event loop may stand still on a busy machine; `benchmarks.soak` asks for less."""
Grader = Callable[[Any, str], Awaitable[int]]
"""Grades a solution of `square` in a sandbox; how many tests it passed."""

KEEP = "def keep(*loot): print('ESCAPED', *loot)\n"
PROGRAM_END = """
from workflow import AgentNode, Workflow
workflow = Workflow('w')
workflow.add_node(AgentNode('a', 'b'))
"""
UNGUARDED_END = "\nanswer = 'finished'\nWorkflow('w').add_node(AgentNode('a', 'b')).run(question)\n"

NEXT_CODE = """\
import json, os, threading
t = threading.Thread(target=lambda: open('probe', 'w').write('x')); t.start(); t.join()
print(json.dumps([6 * 7, os.listdir('.'), hasattr(json, 'poison')]))
"""
NEXT_PROGRAM = """\
import json, math
from workflow import AgentNode, Message, MessageType, Workflow
print(json.loads('[1]'), json.dumps([1.5]), math.pi, 'x'.upper(), Message('text').content, MessageType.ERROR)
workflow = Workflow('w')
workflow.add_node(AgentNode('solver', 'Solve it.'))
"""


@dataclass(frozen=True)
class Verdict:
    attack: Attack
    escapes: tuple[str, ...] = ()
    """What went wrong; empty when the attack was contained."""
    left_out: str = ""
    """Why it was not tried."""

    @property
    def contained(self) -> bool:
        return not self.escapes and not self.left_out


async def contain(
    subject: Subject, attacks: Iterable[Attack], outside: Outside, grader: Grader | None = None
) -> list[Verdict]:
    """A verdict on each attack, in their order. `outside` must be older than the sandboxes of `subject`."""
    attacks = list(attacks)
    slots = asyncio.Semaphore(AT_ONCE)
    verdicts: dict[str, Verdict] = {}

    async def one(attack: Attack) -> None:
        async with slots:
            seen = len(watch.stalls)
            verdict = await _try(subject, attack, outside, grader)
            stalls = [stall for stall in watch.stalls[seen:] if stall.seconds > STALL_S]
            held = tuple(f"the host stood still for {stall.seconds:.1f} s in {stall.stack[:500]}" for stall in stalls)
            verdicts[attack.id] = replace(verdict, escapes=verdict.escapes + held)

    async with StallWatch() as watch:
        for attack in attacks:
            if not _together(attack):
                await one(attack)
        await asyncio.gather(*(one(attack) for attack in attacks if _together(attack)))
    return [verdicts[attack.id] for attack in attacks]


def _together(attack: Attack) -> bool:
    """Programs reach so little that they too can run side by side."""
    return attack.lasts or attack.kind == "program"


async def _try(subject: Subject, attack: Attack, outside: Outside, grader: Grader | None) -> Verdict:
    if attack.kind in ("unguarded", "channel") and subject.unguarded is None:
        return Verdict(attack, left_out=f"{subject.backend.name} has no unguarded programs")
    if attack.kind == "grade" and grader is None:
        return Verdict(attack, left_out="no grader was given")
    source = outside.fill_in(attack.source)
    try:
        match attack.kind:
            case "code":
                limits = CodeLimits.model_validate({**SHORT.model_dump(), "output_bytes": 1 << 20, **attack.limits})
                result = await subject.sandbox.run_code(source, limits=limits)
                escapes = [*judge_code(attack, result), *outside.noticed(result.stdout, result.stderr)]
                escapes += await _next_code(subject)
            case "grade":
                assert grader is not None
                passed = await grader(subject.sandbox, source)
                escapes = [f"it passed {passed} tests"] if passed else []
                escapes += [*outside.noticed(), *await _next_code(subject)]
            case _:
                escapes = await _try_program(subject, attack, source, outside)
    except SandboxUnavailable as error:
        escapes = [f"the sandbox broke: {error}"]
    return Verdict(attack, tuple(escapes))


async def _try_program(subject: Subject, attack: Attack, source: str, outside: Outside) -> list[str]:
    """Under the policy, which must refuse what is no program; then, where that can be had, without it."""
    limits = Limits.model_validate(attack.limits)
    guarded = KEEP + source + PROGRAM_END if attack.kind == "program" else source + UNGUARDED_END
    patient = limits if attack.kind == "program" else Limits(wall_s=20)
    run = await subject.sandbox.run_program(guarded, "6 * 7?", engine=Scripted(), limits=patient)
    escapes = [*judge_program(attack, run), *outside.noticed(everything(run))]
    if end_of_program(run) != "program_rejected":  # it did run
        escapes += await _next_program(subject)
    if subject.unguarded is None:
        return escapes
    end = PROGRAM_END if attack.kind == "program" else "" if attack.kind == "channel" else UNGUARDED_END
    prelude = KEEP if attack.kind == "program" else ""
    engine = Scripted(SIX)
    if not attack.limits:
        limits = Limits(wall_s=20, cpu_s=5)
    run = await subject.unguarded.run_program(prelude + source + end, "6 * 7?", engine=engine, limits=limits)
    judge = {"program": judge_escaped, "unguarded": judge_unguarded, "channel": judge_channel}[attack.kind]
    escapes += [f"unguarded: {escape}" for escape in [*judge(attack, run), *outside.noticed(everything(run))]]
    if attack.kind != "program":
        after = await subject.unguarded.run_program(PROGRAM_END, "6 * 7?", engine=engine, limits=Limits(wall_s=20))
        if (after.failure, after.answer_from) != (None, "a"):
            escapes.append(f"the next unguarded program failed: {after.failure}")
    return escapes


def everything(run: Run) -> str:
    """All that came out of a run, as the trace tells it (without the program's own text)."""
    return "".join(list(run.trace.lines())[1:])


def end_of_code(result: CodeResult) -> str:
    if result.limit is not None:
        return f"limit:{result.limit}"
    if result.signal is not None:
        return f"signal:{result.signal}"
    return "ok" if result.ok else "exit"


def end_of_program(run: Run) -> str:
    if run.failure is None:
        return "answer"
    if run.failure.kind == "limit_exceeded":
        return f"limit:{run.failure.fields['limit_kind']}"
    return run.failure.kind


def judge_code(attack: Attack, result: CodeResult) -> list[str]:
    """What is wrong with how an attack by code ended."""
    return _judge(attack, end_of_code(result), result.stdout + result.stderr, result.duration_s, SHORT.wall_s)


def judge_program(attack: Attack, run: Run) -> list[str]:
    """What is wrong with how a program ended under the policy. What is no program at all must be refused."""
    if attack.kind != "program":
        refused = run.failure is not None and run.failure.kind in ("program_rejected", "program_failed")
        return [] if refused else [f"the policy let it run: {end_of_program(run)}"]
    said = "" if attack.worthless else run.output + str(run.answer)
    return _judge(attack, end_of_program(run), said, run.duration_s, Limits().wall_s)


def judge_escaped(attack: Attack, run: Run) -> list[str]:
    """What is wrong with how a program ended that had no policy around it. It may do what it likes in its jail."""
    end = end_of_program(run)
    late = run.duration_s > attack.limits.get("wall_s", 20) + GRACE_S
    if end in ("engine_failed", "sandbox_unavailable"):
        return [f"it made the machinery look broken: {run.failure}"]
    return [f"it took {run.duration_s:.1f} s"] if late else []


def judge_unguarded(attack: Attack, run: Run) -> list[str]:
    escapes = _judge(attack, end_of_program(run), run.output, run.duration_s, 20)
    if (run.answer, run.answer_from) != ("finished", None):
        escapes.append(f"it did not come to its end: {run.answer!r} from {run.answer_from}, {run.failure}")
    return escapes


def judge_channel(attack: Attack, run: Run) -> list[str]:
    """Whatever it claims: no agent said it, the machinery is not broken, and the trace is whole and true."""
    found = []
    asked = [event for event in run.trace.events if isinstance(event, AgentTurn)]
    kinds = [event.type for event in run.trace.events]
    if run.answer_from is not None:
        found.append(f"an answer is put down to {run.answer_from}")
    if run.failure is None and run.answer not in ("\\boxed{7}", None):
        found.append(f"its answer is {run.answer!r}")
    if len(asked) > attack.limits["agent_calls"] or len({turn.key for turn in asked}) < len(asked):
        found.append(f"{len(asked)} agent calls, some with the same key or beyond the limit")
    if any(turn.completion is not None and turn.completion.text != SIX for turn in asked):
        found.append("an agent said something else")
    if (
        kinds.count("run_ended") != 1
        or kinds[-1] != "run_ended"
        or (run.trace.started and run.trace.started.question) != "6 * 7?"
    ):
        found.append(f"the trace is not whole: {kinds[:5]} ... {kinds[-5:]}")
    try:
        Trace.from_lines(list(run.trace.lines()))
    except (ValueError, MetaAgentError) as error:
        found.append(f"the trace cannot be read back: {error}")
    return found + judge_escaped(attack, run)


def _judge(attack: Attack, end: str, said: str, took_s: float, wall_s: float) -> list[str]:
    found = []
    if ESCAPED in said:
        found.append(next(line for line in said.splitlines() if ESCAPED in line)[:300])
    if attack.ends and end not in attack.ends:
        found.append(f"it ended with {end}, not with {' or '.join(attack.ends)}: {said[-300:]}")
    if attack.says and not any(text in said for text in attack.says):
        found.append(f"it did not say {' or '.join(attack.says)}: {said[-300:]}")
    if took_s > attack.limits.get("wall_s", wall_s) + GRACE_S:
        found.append(f"it took {took_s:.1f} s")
    return found


async def _next_code(subject: Subject) -> list[str]:
    """What is wrong with the next run of code."""
    result = await subject.sandbox.run_code(NEXT_CODE, limits=SHORT)
    if (result.ok, result.stdout) == (True, '[42, ["probe"], false]\n'):
        return []
    return [f"the next run of code differs: {result}"]


async def _next_program(subject: Subject) -> list[str]:
    """What is wrong with the next program: shared classes and modules must be as they were."""
    run = await subject.sandbox.run_program(NEXT_PROGRAM, "6 * 7?", engine=Scripted(), limits=Limits(wall_s=20))
    expected = "[1] [1.5] 3.141592653589793 X text error\n"
    if (run.failure, run.answer_from, run.output) == (None, "solver", expected):
        return []
    return [f"the next program differs: {run.failure or run.output}"]
