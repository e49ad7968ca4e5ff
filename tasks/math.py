"""Grade math: is the final answer the gold? Asked of math-verify in killable jailed forks (`tasks.math_worker`).

A gold that cannot be read is told apart from a wrong answer, and an answer that takes too long (`10^{10^{10}}`) ends
as `timeout`. Reading the final answer out of an agent's text is `tasks.answers`' job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from workflow.failures import LimitExceeded

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox

WORKER = "tasks.math_worker:verify_batch"
WALL_S = 5.0
"""Seconds for one pair; a typical one takes 1-2 ms."""
MEMORY_MB = 1024
BATCH = 64
"""Pairs that share one fork."""

MathVerdict = Literal["correct", "wrong", "gold_unparseable", "timeout", "memory", "no_answer"]
_REPLY = TypeAdapter(list[MathVerdict])


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

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"


async def grade_math(sandbox: Sandbox, gold: str, answer: str | None, *, percent: bool = False) -> MathGrade:
    """Grade one final answer (the content of a box). Raises `SandboxUnavailable`, never for a bad answer."""
    return (await grade_math_batch(sandbox, [MathPair(gold=gold, answer=answer, percent=percent)]))[0]


async def grade_math_batch(sandbox: Sandbox, pairs: Sequence[MathPair]) -> list[MathGrade]:
    """Grades in the order of `pairs`. `BATCH` of them share one fork; if that hits a limit, each gets its own."""
    verdicts: list[MathVerdict] = []
    for start in range(0, len(pairs), BATCH):
        verdicts += await _verdicts(sandbox, pairs[start : start + BATCH])
    return [
        MathGrade(verdict=verdict, gold=pair.gold, answer=pair.answer)
        for pair, verdict in zip(pairs, verdicts, strict=True)
    ]


async def _verdicts(sandbox: Sandbox, pairs: Sequence[MathPair]) -> list[MathVerdict]:
    answered = [pair for pair in pairs if pair.answer is not None]
    found: list[MathVerdict] = []
    if answered:
        payload: list[JsonValue] = [pair.model_dump() for pair in answered]
        try:
            reply = await sandbox.call(WORKER, payload, wall_s=WALL_S, memory_mb=MEMORY_MB)
        except LimitExceeded as exceeded:
            if len(answered) == 1:
                found = ["memory" if exceeded.limit_kind == "memory_mb" else "timeout"]
            else:
                found = [verdict for pair in answered for verdict in await _verdicts(sandbox, [pair])]
        else:
            found = _REPLY.validate_python(reply)
    remaining = iter(found)
    return ["no_answer" if pair.answer is None else next(remaining) for pair in pairs]
