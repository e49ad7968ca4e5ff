from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import test_datasets as data

from sandbox.protocol import Sandbox
from tasks import CallTest, CallTests, Problem, grade
from tasks.data.benchmarks import read_humaneval, read_mbpp

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]

CIRCLE = Problem(id="circle", question="Area for r=1?", domain="math", gold=r"\pi")
SHARE = Problem(id="share", question="By what percent does it grow?", domain="math", gold="10")


def test_math(in_jail: InJail) -> None:
    right = in_jail(lambda sandbox: grade(CIRCLE, r"First \boxed{1}, no: \boxed{\frac{2\pi}{2}}.", sandbox))
    assert (right.correct, right.answer, right.verdict) == (True, r"\frac{2\pi}{2}", "correct")
    wrong = in_jail(lambda sandbox: grade(CIRCLE, r"\boxed{3.14}", sandbox))
    assert (wrong.correct, wrong.verdict) == (False, "wrong")
    silent = in_jail(lambda sandbox: grade(CIRCLE, r"It is $\pi$.", sandbox))
    assert (silent.correct, silent.answer, silent.verdict) == (False, None, "no_answer")


def test_percent_follows_the_question(in_jail: InJail) -> None:
    assert in_jail(lambda sandbox: grade(SHARE, r"\boxed{10\%}", sandbox)).correct
    count = SHARE.model_copy(update={"question": "How many?"})
    assert not in_jail(lambda sandbox: grade(count, r"\boxed{10\%}", sandbox)).correct


def test_code(in_jail: InJail) -> None:
    tests = CallTests(fn_name="inc", tests=[CallTest(args=[n], expected=n + 1) for n in (1, 2, 3)])
    problem = Problem(id="inc", question="Increment.", domain="code", tests=tests)
    text = "<solution>\n```python\ndef inc(n):\n    return {}\n```\n</solution>"
    assert in_jail(lambda sandbox: grade(problem, text.format("n + 1"), sandbox)).correct
    partly = in_jail(lambda sandbox: grade(problem, text.format("n + 1 if n < 3 else 0"), sandbox))
    assert (partly.correct, partly.verdict) == (False, "2 of 3 tests passed")
    assert partly.code.tests[2].outcome == "wrong_answer"
    silent = in_jail(lambda sandbox: grade(problem, "I cannot.", sandbox))
    assert (silent.correct, silent.verdict, silent.code) == (False, "no_answer", None)


def test_rows_of_the_benchmarks(in_jail: InJail, tmp_path: Path) -> None:
    (triple,) = read_humaneval(data.lines(tmp_path, data.HUMANEVAL))
    for code, right in (
        ("    return x * 3", True),
        ("def triple(x):\n    return 3 * x", True),
        ("    return 6", False),
    ):
        graded = in_jail(lambda sandbox, code=code: grade(triple, f"<solution>\n{code}\n</solution>", sandbox))
        assert graded.correct is right
    (digits,) = read_mbpp(data.lines(tmp_path, data.MBPP))
    code = "def sum(n):\n    return n % 10 + sum(n // 10) if n else 0"
    assert in_jail(lambda sandbox: grade(digits, f"```python\n{code}\n```", sandbox)).correct
    assert not in_jail(lambda sandbox: grade(digits, "```python\ndef sum(n): return 3\n```", sandbox)).correct
