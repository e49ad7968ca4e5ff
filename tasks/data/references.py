"""Published solutions to code problems, and the first of them that is right: a problem's `reference`.

Right is what passes all tests of the problem in the sandbox. Not here: which rows are kept (`tasks.data.prepare`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.code import grade_code
from tasks.data.published_sets import NotUsable
from tasks.problems import Problem, StdinTests

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox

TRIED = 10
"""Solutions to one problem that are tried: some are wrong, some were for Python 2."""
SLOW = 2
"""Solutions that took too long, after which no more are tried."""
_PYTHON3 = 3
"""In `solutions.language` of CodeContests."""


def python_solutions(solutions: Any) -> list[str]:
    """Those in Python of a row's field. APPS has a JSON text with a list; CodeContests, lists of languages and of
    sources. What is no text is left out."""
    return [code for code in _python(solutions) if isinstance(code, str) and code.strip() and _is_text(code)]


def _python(solutions: Any) -> list[Any]:
    if isinstance(solutions, str):
        try:
            solutions = json.loads(solutions)
        except (ValueError, RecursionError):
            return []
        return solutions if isinstance(solutions, list) else []
    if isinstance(solutions, dict):
        both = [solutions.get(part) for part in ("language", "solution")]
        if all(isinstance(each, list) for each in both):
            return [code for language, code in zip(*both, strict=False) if language == _PYTHON3]
    return []


def _is_text(code: str) -> bool:
    """Whether JSON can say it: no half of a character."""
    try:
        code.encode()
    except UnicodeEncodeError:
        return False
    return True


async def reference_of(problem: Problem, solutions: Sequence[str], sandbox: Sandbox) -> str:
    """The first of a problem's solutions that passes all its tests, twice: some are right at times. Raises `NotUsable`
    where none of the first `TRIED` does, or `SLOW` of them take too long, and for tests that are no scripts' stdin,
    which no tester writes; and `SandboxUnavailable`."""
    if not isinstance(problem.tests, StdinTests):
        raise NotUsable("tests that call a function", problem.id)
    if not solutions:
        raise NotUsable("no solution in Python", problem.id)
    slow = 0
    for code in solutions[:TRIED]:
        grades = [await grade_code(sandbox, code, problem.tests, stop_at_failure=True)]
        if grades[0].correct:
            grades.append(await grade_code(sandbox, code, problem.tests, stop_at_failure=True))
        if grades[-1].correct:
            return code
        slow += any(test.outcome == "timeout" for test in grades[-1].tests)
        if slow == SLOW:
            break
    raise NotUsable("no solution that passes all tests", f"{problem.id}: {len(solutions)} in Python")
