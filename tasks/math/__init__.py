"""Grades math answers by math-verify, in killable jailed calls.

`worker` is for jailed calls: it imports sympy. Not here: which part of a reply is the answer (`workflow.answers`).
"""

from typing import TYPE_CHECKING

from tasks.math.math_grader import (
    WORKER,
    MathGrade,
    MathPair,
    equal_numbers,
    gold_is_readable,
    grade_math,
    grade_math_batch,
)

if TYPE_CHECKING:
    from tasks.math import worker

__all__ = [
    "WORKER",
    "MathGrade",
    "MathPair",
    "equal_numbers",
    "gold_is_readable",
    "grade_math",
    "grade_math_batch",
    "worker",
]
