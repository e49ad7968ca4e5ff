"""Problems and graders: math answers, code, games. Light: math-verify is loaded only in the jailed forks that use it.

Not here: which part of a reply is the answer (`workflow.answers`), and rewards (`trainer.credit`).
"""

from tasks.code import CodeGrade, TestResult, grade_code, written_tests
from tasks.data import READERS, DatasetError, asked_in_math500, in_math500, normal_form, read_task
from tasks.grading import GameGrade, Grade, grade
from tasks.math import WORKER as MATH_WORKER
from tasks.math import MathGrade, MathPair, equal_numbers, gold_is_readable, grade_math, grade_math_batch
from tasks.problems import (
    AssertTests,
    CallTest,
    CallTests,
    CodeTests,
    Environment,
    PlanPathLevel,
    Problem,
    SokobanLevel,
    StdinTest,
    StdinTests,
    SudokuLevel,
)

__all__ = [
    "MATH_WORKER",
    "READERS",
    "AssertTests",
    "CallTest",
    "CallTests",
    "CodeGrade",
    "CodeTests",
    "DatasetError",
    "Environment",
    "GameGrade",
    "Grade",
    "MathGrade",
    "MathPair",
    "PlanPathLevel",
    "Problem",
    "SokobanLevel",
    "StdinTest",
    "StdinTests",
    "SudokuLevel",
    "TestResult",
    "asked_in_math500",
    "equal_numbers",
    "gold_is_readable",
    "grade",
    "grade_code",
    "grade_math",
    "grade_math_batch",
    "in_math500",
    "normal_form",
    "read_task",
    "written_tests",
]
