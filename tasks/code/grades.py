"""How a solution did: one outcome per test, and the whole. Types and their reading of a `CodeResult`; runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, field_validator

if TYPE_CHECKING:
    from sandbox.protocol import CodeResult

Outcome = Literal[
    "pass",
    "wrong_answer",
    "exception",  # the solution raised, or its script ended with an error
    "timeout",
    "memory",
    "output",  # printed or wrote more than allowed
    "crash",  # killed by a signal
    "exited",  # ended without giving an answer (os._exit, a closed channel)
    "forged",  # wrote on the channel what it was not asked for
    "ungradable",  # the test does what this grader cannot do outside of the solution's process: no verdict on it
    "not_run",
]

_BY_LIMIT: dict[str, Outcome] = {
    "wall_s": "timeout",
    "cpu_s": "timeout",
    "memory_mb": "memory",
    "output_bytes": "output",
    "disk_mb": "output",
}


class TestResult(BaseModel):
    """Outcome of one test; `detail` is for people and at most a few lines."""

    __test__ = False  # not a pytest class
    model_config = ConfigDict(frozen=True)

    outcome: Outcome
    detail: str = ""
    by_clock: bool = False
    """Whether a clock ended it, and not its processor seconds: that says as much of the machine as of the solution."""

    @field_validator("detail")
    @classmethod
    def _is_text(cls, detail: str) -> str:
        """A solution's words may hold halves of surrogate pairs, which no file takes."""
        return detail.encode(errors="replace").decode()


class CodeGrade(BaseModel):
    """`correct` is the binary grade: every test passed."""

    model_config = ConfigDict(frozen=True)

    tests: tuple[TestResult, ...]

    @property
    def total(self) -> int:
        return len(self.tests)

    @property
    def passed(self) -> int:
        return sum(test.outcome == "pass" for test in self.tests)

    @property
    def ungradable(self) -> int:
        """Tests that tell nothing about the solution. None is passed, as a solution could bring them about."""
        return sum(test.outcome == "ungradable" for test in self.tests)

    @property
    def by_clock(self) -> bool:
        """Whether the tests that a solution passes could be others on another machine."""
        return any(test.by_clock for test in self.tests)

    @property
    def correct(self) -> bool:
        return self.total > 0 and self.passed == self.total


def ended(result: CodeResult) -> TestResult:
    """What the end of a process that gave no answer means."""
    detail = result.stderr.strip()[-300:]
    if result.limit:
        return TestResult(
            outcome=_BY_LIMIT[result.limit],
            detail=f"limit {result.limit}. {detail}".strip(),
            by_clock=result.limit == "wall_s",
        )
    if result.signal:
        return TestResult(outcome="crash", detail=f"signal {result.signal}. {detail}".strip())
    if result.exit_status:
        outcome: Outcome = "memory" if detail.rpartition("\n")[2].startswith("MemoryError") else "exception"
        return TestResult(outcome=outcome, detail=detail or f"exit status {result.exit_status}")
    return TestResult(outcome="exited", detail=detail or "the process ended without an answer")


def raised(kind: str, message: str) -> TestResult:
    """What an exception in the solution means."""
    return TestResult(outcome="memory" if kind == "MemoryError" else "exception", detail=f"{kind}: {message}"[:300])


def short(value: object) -> str:
    """`repr` cut to a length fit for a report."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer too long for decimal digits, a value too deep
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 120 else text[:80] + " ... " + text[-30:]
