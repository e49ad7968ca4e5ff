"""What a problem is: a question with a gold answer (math) or with tests (code).

Types only: files are read in `tasks.data.benchmarks`, answers graded in `tasks.grading`.
"""

from __future__ import annotations

import keyword
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from workflow.answers import Domain


def _is_a_name(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise ValueError("it should be the name of a function or class")
    return name


Name = Annotated[str, AfterValidator(_is_a_name)]
"""Of a function or a class of the solution: data files say which."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StdinTest(_Frozen):
    stdin: str
    stdout: str
    """Expected output; `tasks.code.equality.same_output` says what counts as equal."""


class StdinTests(_Frozen):
    """The solution is a script: it reads stdin and prints. Each test runs it afresh."""

    kind: Literal["stdin"] = "stdin"
    tests: list[StdinTest] = Field(min_length=1)


class CallTest(_Frozen):
    args: list[JsonValue]
    """Positional arguments."""
    expected: JsonValue
    also: list[JsonValue] = []
    """Further values that count as right."""


class CallTests(_Frozen):
    """The solution defines `fn_name`, at the top level or as a method of a class `Solution` (LeetCode style)."""

    kind: Literal["call"] = "call"
    fn_name: Name
    tests: list[CallTest] = Field(min_length=1)


class AssertTests(_Frozen):
    """Tests written in Python. They run in a jail of their own and reach the solution only through proxies."""

    kind: Literal["assert"] = "assert"
    names: dict[Name, Name]
    """Name in the tests -> name in the solution, for each function or class of the solution that tests use."""
    tests: list[str] = Field(min_length=1)
    """Python sources, run in order in one namespace; each is one test."""
    setup: str = ""
    """Python source run before the tests, in their namespace; never seen by the solution."""
    prompt: str = ""
    """Python source that the solution may rely on, or that it continues (HumanEval)."""


CodeTests = Annotated[StdinTests | CallTests | AssertTests, Field(discriminator="kind")]


class Problem(_Frozen):
    """One problem. Math problems carry `gold`, code problems `tests`, never both."""

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    """What the agents are shown."""
    domain: Domain
    gold: str | None = None
    tests: CodeTests | None = None

    @model_validator(mode="after")
    def _gradable(self) -> Problem:
        if (self.gold is not None) != (self.domain == "math") or (self.tests is not None) != (self.domain == "code"):
            raise ValueError(f"problem {self.id}: a math problem needs gold only, a code problem tests only")
        return self
