"""Grade math: is the final answer the gold? Asked of math-verify in killable jailed forks (`tasks.math_worker`).

A gold that cannot be read is told apart from a wrong answer, and an answer that takes too long (`10^{10^{10}}`) ends
as `timeout`. Reading the final answer out of an agent's text is `tasks.answers`' job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from workflow.failures import LimitExceeded, ProgramFailed, SandboxUnavailable

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox

WORKER = "tasks.math_worker"
"""Module that a sandbox must preload for `grade_math`: `ProcessSandbox(preload=(WORKER,))`."""
WALL_S = 5.0
"""Seconds for one pair; a typical one takes 1-2 ms."""
MEMORY_MB = 1024
BATCH = 64
"""Pairs that share one fork."""

MathVerdict = Literal["correct", "wrong", "gold_unparseable", "timeout", "memory", "failed", "no_answer"]
"""`failed`: the comparison itself broke on this pair; `MathGrade.detail` says how."""
_Verdict = tuple[MathVerdict, str]
_REPLY = TypeAdapter(list[_Verdict])


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


async def gold_is_readable(sandbox: Sandbox, gold: str) -> bool:
    """Can any answer but the gold's own text be graded with it? Ask before spending anything on a run."""
    return (await grade_math(sandbox, gold, "")).verdict == "wrong"


async def grade_math_batch(sandbox: Sandbox, pairs: Sequence[MathPair]) -> list[MathGrade]:
    """Grades in the order of `pairs`. `BATCH` of them share one fork; if that is killed, each gets its own."""
    answered = [pair for pair in pairs if pair.answer is not None]
    verdicts: list[_Verdict] = []
    for start in range(0, len(answered), BATCH):
        verdicts += await _ask(sandbox, answered[start : start + BATCH])
    remaining = iter(verdicts)
    grades = []
    for pair in pairs:
        verdict, detail = ("no_answer", "") if pair.answer is None else next(remaining)
        grades.append(MathGrade(verdict=verdict, gold=pair.gold, answer=pair.answer, detail=detail))
    return grades


async def _ask(sandbox: Sandbox, pairs: Sequence[MathPair]) -> list[_Verdict]:
    payload: list[JsonValue] = [pair.model_dump() for pair in pairs]
    try:
        reply = await sandbox.call(f"{WORKER}:verify_batch", payload, wall_s=WALL_S, memory_mb=MEMORY_MB)
        return _REPLY.validate_python(reply)
    except LimitExceeded as exceeded:
        killed: _Verdict = (
            "memory" if exceeded.limit_kind == "memory_mb" else "timeout",
            f"stopped at {exceeded.limit_kind}={exceeded.limit:g}",
        )
    except ProgramFailed as failed:
        if failed.error_type != "Died":  # the worker is broken or missing, whatever the answers are
            fix = f"check that math-verify is installed and that the sandbox has preload=({WORKER!r},)"
            raise SandboxUnavailable(f"math grading failed: {failed}", fix) from failed
        killed = ("failed", str(failed))
    if len(pairs) == 1:
        return [killed]
    return [verdict for pair in pairs for verdict in await _ask(sandbox, [pair])]
