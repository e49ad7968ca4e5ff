"""Grade math: is the final answer the gold? Asked of math-verify in killable jailed forks (`tasks.math.worker`).

Plain integers are compared right here, with the verdict that the worker would give (`equal_integers`). A gold that
cannot be read is told apart from wrong answers and from right ones, as nothing can be measured with it, and an answer
that takes too long (`10^{10^{10}}`) ends as `timeout`. Reading the final answer out of an agent's text is
`workflow.answers`' job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from workflow.failures import LimitExceeded, ProgramFailed, SandboxUnavailable

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox

WORKER = "tasks.math.worker"
"""Module that a sandbox must preload for `grade_math`: `ProcessSandbox(preload=(WORKER,))`."""
CPU_S = 5
"""CPU seconds for one pair; a typical one takes 1-2 ms. Not of the clock: a busy machine must change no verdict."""
MEMORY_MB = 1024
BUSY = "run less on this machine at once"
BATCH = 64
"""Pairs that share one fork."""

MathVerdict = Literal["correct", "wrong", "gold_unparseable", "timeout", "memory", "failed", "no_answer"]
"""`failed`: the comparison itself broke on this pair; `MathGrade.detail` says how."""
_Verdict = tuple[MathVerdict, str]
_REPLY = TypeAdapter(list[_Verdict])
_INTEGERS = re.compile(r"\s*[+-]?[0-9]{1,40}(?:, ?[+-]?(?:[0-9]{1,2}|[0-9]{4,40})){0,15}\s*")


class MathPair(BaseModel):
    """One answer to grade. `percent` tells that the question asks for percent: `10\\%` then answers gold 10."""

    model_config = ConfigDict(frozen=True)

    gold: str
    answer: str | None
    percent: bool = False


class MathGrade(BaseModel):
    model_config = ConfigDict(frozen=True)

    verdict: MathVerdict
    gold: str
    answer: str | None
    detail: str = ""

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"


async def grade_math(sandbox: Sandbox, gold: str, answer: str | None, *, percent: bool = False) -> MathGrade:
    """Grade one final answer (the content of a box). Raises `SandboxUnavailable`, never for a bad answer."""
    return (await grade_math_batch(sandbox, [MathPair(gold=gold, answer=answer, percent=percent)]))[0]


async def equal_numbers(sandbox: Sandbox, gold: str, answer: str, tolerance: float | None = None) -> bool | None:
    """Whether both are numbers that differ by a millionth at most, or by `tolerance`; an answer that takes too long
    is none. None where the gold is no number. See `tasks.math.worker.equal_numbers`. Raises `SandboxUnavailable`."""
    if tolerance is None and _INTEGERS.fullmatch(gold) and _INTEGERS.fullmatch(answer) and "," not in gold + answer:
        return abs(int(answer) - int(gold)) * 10**6 <= max(1, abs(int(gold)))
    within = [] if tolerance is None else [repr(tolerance)]
    equal = await _call(sandbox, "equal_numbers", [gold, answer, *within])
    return False if isinstance(equal, tuple) else TypeAdapter(bool | None).validate_python(equal)


def equal_integers(gold: str, answer: str) -> bool | None:
    """Are both the same integer, or bare lists of the same integers in any order? None where this cannot be told here.

    Left to math-verify are lists in which a later number may be a group of thousands (`1,000`), or in which a number
    stands twice, and a list against a single number.
    """
    if not _INTEGERS.fullmatch(gold) or not _INTEGERS.fullmatch(answer):
        return None
    golds, answers = [int(part) for part in gold.split(",")], [int(part) for part in answer.split(",")]
    if len(set(golds)) < len(golds) or len(set(answers)) < len(answers) or (len(golds) == 1) != (len(answers) == 1):
        return None
    return set(golds) == set(answers)


async def gold_is_readable(sandbox: Sandbox, gold: str) -> bool:
    """Can answers be graded with it? Ask before spending anything on a run."""
    return (await grade_math(sandbox, gold, "")).verdict == "wrong"


async def grade_math_batch(sandbox: Sandbox, pairs: Sequence[MathPair]) -> list[MathGrade]:
    """Grades in the order of `pairs`. `BATCH` of them share one fork; if that is killed, each gets its own."""
    seen = [_at_sight(pair) for pair in pairs]
    unclear = [pair for pair, verdict in zip(pairs, seen, strict=True) if verdict is None]
    verdicts: list[_Verdict] = []
    for start in range(0, len(unclear), BATCH):
        verdicts += await _ask(sandbox, unclear[start : start + BATCH])
    remaining = iter(verdicts)
    grades = []
    for pair, at_sight in zip(pairs, seen, strict=True):
        verdict, detail = at_sight or next(remaining)
        grades.append(MathGrade(verdict=verdict, gold=pair.gold, answer=pair.answer, detail=detail))
    return grades


def _at_sight(pair: MathPair) -> _Verdict | None:
    """The verdict that needs no fork."""
    if pair.answer is None:
        return ("no_answer", "") if _INTEGERS.fullmatch(pair.gold) else None
    equal = equal_integers(pair.gold, pair.answer)
    return None if equal is None else ("correct" if equal else "wrong", "")


async def _ask(sandbox: Sandbox, pairs: Sequence[MathPair]) -> list[_Verdict]:
    payload: list[JsonValue] = [{**pair.model_dump(), "answer": pair.answer or ""} for pair in pairs]
    reply = await _call(sandbox, "verify_batch", payload)
    if not isinstance(reply, tuple):
        return [
            ("no_answer", "") if pair.answer is None and verdict[0] == "wrong" else verdict
            for pair, verdict in zip(pairs, _REPLY.validate_python(reply), strict=True)
        ]
    if len(pairs) == 1:
        return [reply]
    return [verdict for pair in pairs for verdict in await _ask(sandbox, [pair])]


async def _call(sandbox: Sandbox, function: str, payload: JsonValue) -> JsonValue | _Verdict:
    """What the worker's function returns, or how it was killed."""
    try:
        return await sandbox.call(f"{WORKER}:{function}", payload, cpu_s=CPU_S, memory_mb=MEMORY_MB)
    except LimitExceeded as exceeded:
        if exceeded.limit_kind == "wall_s":  # it only computes, and has not been let to
            raise SandboxUnavailable(f"math grading got too little of the processor: {exceeded}", BUSY) from None
        kind = "memory" if exceeded.limit_kind == "memory_mb" else "timeout"
        return kind, f"stopped at {exceeded.limit_kind}={exceeded.limit:g}"
    except ProgramFailed as failed:
        if failed.error_type != "Died":  # the worker is broken or missing, whatever the answers are
            fix = f"check that math-verify is installed and that the sandbox has preload=({WORKER!r},)"
            raise SandboxUnavailable(f"math grading failed: {failed}", fix) from failed
        return "failed", str(failed)
