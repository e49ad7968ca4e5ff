"""The grader that the corpus's wrong solutions are put to: all three ways of testing code."""

from sandbox.protocol import Sandbox
from tasks import AssertTests, CallTest, CallTests, StdinTest, StdinTests, grade_code
from workflow.limits import CodeLimits

LIMITS = CodeLimits(wall_s=8, cpu_s=8, memory_mb=256, output_bytes=1 << 20)
TESTS = (
    AssertTests(names={"candidate": "square"}, tests=["assert candidate(3) == 9", "assert candidate(-4) == 16"]),
    CallTests(fn_name="square", tests=[CallTest(args=[3], expected=9), CallTest(args=[-4], expected=16)]),
    StdinTests(tests=[StdinTest(stdin="3\n", stdout="9\n")]),
)
SCRIPT = "\nif __name__ == '__main__':\n    import sys\n    line = sys.stdin.readline()\n    print(square(int(line)))\n"


async def passed_tests(sandbox: Sandbox, solution: str) -> int:
    """How many tests a solution of `square` passes: the grader for the corpus's wrong solutions."""
    passed = 0
    for tests in TESTS:
        source = solution + SCRIPT if isinstance(tests, StdinTests) else solution
        grade = await grade_code(sandbox, source, tests, limits=LIMITS, stop_at_failure=True)
        passed += grade.passed
    return passed
