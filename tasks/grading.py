"""Grade what an agent wrote: the one entry that the command line and the trainer use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from tasks.code import GRADING_LIMITS, CodeGrade, grade_code
from tasks.environments import propose, reset
from tasks.math import MathGrade, equal_numbers, grade_math
from tasks.problems import Problem
from workflow.answers import final_answer
from workflow.limits import CodeLimits

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox


class GameGrade(BaseModel):
    """What one action does at a game's start."""

    model_config = ConfigDict(frozen=True)

    solved: bool
    readable: bool
    legal: bool
    applied: int
    """Moves or edits that were played."""
    wrong: str
    """Why it could not be read, or what ended it."""


class Grade(BaseModel):
    """`correct` is the binary grade. `math`, `code` or `game` says more; all are None for code with no answer."""

    model_config = ConfigDict(frozen=True)

    problem_id: str
    correct: bool
    answer: str | None
    """The final answer that was graded, None if the text had none."""
    math: MathGrade | None = None
    code: CodeGrade | None = None
    game: GameGrade | None = None

    @property
    def by_clock(self) -> bool:
        """Whether a clock ended code that was graded: the grade could be another one on another machine."""
        return self.code is not None and self.code.by_clock

    @property
    def verdict(self) -> str:
        """One short phrase: `correct`, `wrong`, `timeout`, `3 of 5 tests passed`, `no_answer`..."""
        if self.math is not None:
            return self.math.verdict
        if self.game is not None:
            return "correct" if self.correct else "not solved" if self.game.legal else f"not solved: {self.game.wrong}"
        if self.code is None:
            return "no_answer"
        if self.correct:
            return "correct"
        if self.by_clock:
            return f"{self.code.passed} of {self.code.total} tests passed, and a clock ended one"
        limits = f", {self.code.ungradable} are beyond this grader" if self.code.ungradable else ""
        return f"{self.code.passed} of {self.code.total} tests passed{limits}"


async def grade(
    problem: Problem,
    answer_text: str,
    sandbox: Sandbox,
    *,
    limits: CodeLimits = GRADING_LIMITS,
    stop_at_failure: bool = False,
) -> Grade:
    """Grade the final answer in `answer_text` (a box, a `<solution>` or an action; see `workflow.answers`).

    Of a game the answer is one action, played from the start.
    `limits` and `stop_at_failure` are for code. Raises `SandboxUnavailable`, never for a bad answer.
    """
    answer = final_answer(answer_text, problem.domain)
    if problem.environment is not None:
        game = _played(problem, answer_text)
        return Grade(problem_id=problem.id, correct=game.solved, answer=answer, game=game)
    if problem.gold is not None:
        math = await grade_math(sandbox, problem.gold, answer, percent=asks_for_percent(problem.question))
        near = problem.tolerance if math.verdict == "wrong" else None
        if near is not None and await equal_numbers(sandbox, problem.gold, answer or "", near):
            math = math.model_copy(update={"verdict": "correct", "detail": f"within {near:g}"})
        return Grade(problem_id=problem.id, correct=math.correct, answer=answer, math=math)
    if answer is None or problem.tests is None:
        return Grade(problem_id=problem.id, correct=False, answer=answer)
    code = await grade_code(sandbox, answer, problem.tests, limits=limits, stop_at_failure=stop_at_failure)
    return Grade(problem_id=problem.id, correct=code.correct, answer=answer, code=code)


def _played(problem: Problem, answer_text: str) -> GameGrade:
    step = propose(reset(problem), "", answer_text)
    return GameGrade(
        solved=step.solved, readable=step.readable, legal=step.legal, applied=step.applied, wrong=step.wrong
    )


def asks_for_percent(question: str) -> bool:
    """True where a bare number in the gold may mean percent, so that `10\\%` answers gold 10."""
    return "percent" in question.lower()
