"""What a problem is: a question with a gold answer (math), with tests (code) or with an environment (game).

Types only: files are read in `tasks.data.benchmarks`, answers graded in `tasks.grading`, games played in
`tasks.environments`, which also says whether a level is one.
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


TURNS = 4
"""T of Stronger-MAS, section 5.1."""


class _Level(_Frozen):
    level: Annotated[str, AfterValidator(lambda text: text.removesuffix("\n"))] = Field(min_length=1)
    """The initial state as text, without the end of its last line; `tasks.environments` says in which form."""
    turns: int = Field(default=TURNS, ge=1)
    """How many actions there may be."""


class PlanPathLevel(_Level):
    """A way through a grid."""

    kind: Literal["plan_path"] = "plan_path"
    optimum: int | None = Field(default=None, ge=1)
    """Moves of a shortest path; None where nobody has worked it out."""


class SokobanLevel(_Level):
    """Boxes to be pushed onto goals. What is stored of the fewest pushes and moves is believed where a file is read: to
    look for them may take long."""

    kind: Literal["sokoban"] = "sokoban"
    pushes: int | None = Field(default=None, ge=0)
    """The fewest that solve it; None where nobody has worked it out."""
    moves: int | None = Field(default=None, ge=0)
    """The fewest that solve it, pushes included, which may take more than the fewest pushes."""


class SudokuLevel(_Level):
    """A grid to be filled in."""

    kind: Literal["sudoku"] = "sudoku"


Environment = Annotated[PlanPathLevel | SokobanLevel | SudokuLevel, Field(discriminator="kind")]


def _is_none(value: object) -> bool:
    return value is None


class Problem(_Frozen):
    """One problem. Math problems carry `gold`, code problems `tests`, games an `environment`, never two of them."""

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    """What the agents are shown."""
    domain: Domain
    gold: str | None = None
    tests: CodeTests | None = None
    environment: Environment | None = Field(default=None, exclude_if=_is_none)
    """Of a game: its kind, its parameters and its initial state."""
    tolerance: float | None = Field(default=None, ge=0, allow_inf_nan=False, exclude_if=_is_none)
    """Of a math problem: a number that is as near to the gold's is right, too."""
    reference: str | None = Field(default=None, min_length=1, exclude_if=_is_none)
    """Of a code problem: a solution that is known to be right. It is shown to nobody and never leaves the host."""

    @model_validator(mode="after")
    def _gradable(self) -> Problem:
        carried = (self.gold is not None, self.tests is not None, self.environment is not None)
        if carried != (self.domain == "math", self.domain == "code", self.domain == "game"):
            raise ValueError(
                f"problem {self.id}: a math problem needs gold only, a code problem tests only, a game an environment "
                "only"
            )
        if self.reference is not None and self.domain != "code":
            raise ValueError(f"problem {self.id}: only a code problem has a reference. Fix: leave it out")
        if self.tolerance is not None and self.domain != "math":
            raise ValueError(f"problem {self.id}: only a math problem has a tolerance. Fix: leave it out")
        return self

    def within(self, tolerance: float | None) -> Problem:
        """The same problem with this tolerance, where it is one of math and there is one."""
        if tolerance is None or self.domain != "math":
            return self
        return self.model_copy(update={"tolerance": tolerance})
