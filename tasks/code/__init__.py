"""Grades code: a solution runs under its tests in jails, and what it gives is compared outside of them.

Not here: which part of a reply is the solution (`workflow.answers`), and jails (`sandbox`).
"""

from tasks.code.code_grader import GRADING_LIMITS, grade_code
from tasks.code.grades import CodeGrade, TestResult
from tasks.code.harness import names_bound
from tasks.code.written_tests import written_tests

__all__ = [
    "GRADING_LIMITS",
    "CodeGrade",
    "TestResult",
    "grade_code",
    "names_bound",
    "written_tests",
]
