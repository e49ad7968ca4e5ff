"""Problems and graders: math answers and code. Light: math-verify is loaded only in the jailed forks that use it."""

from tasks.answers import code_answer, final_answer, math_answer
from tasks.code import grade_code
from tasks.code_grades import CodeGrade, TestResult
from tasks.datasets import READERS, read_task
from tasks.grading import Grade, grade
from tasks.math import WORKER as MATH_WORKER
from tasks.math import MathGrade, MathPair, gold_is_readable, grade_math, grade_math_batch
from tasks.problems import AssertTests, CallTest, CallTests, CodeTests, Problem, StdinTest, StdinTests
from tasks.rows import DatasetError

__all__ = [
    "MATH_WORKER",
    "READERS",
    "AssertTests",
    "CallTest",
    "CallTests",
    "CodeGrade",
    "CodeTests",
    "DatasetError",
    "Grade",
    "MathGrade",
    "MathPair",
    "Problem",
    "StdinTest",
    "StdinTests",
    "TestResult",
    "code_answer",
    "final_answer",
    "gold_is_readable",
    "grade",
    "grade_code",
    "grade_math",
    "grade_math_batch",
    "math_answer",
    "read_task",
]
