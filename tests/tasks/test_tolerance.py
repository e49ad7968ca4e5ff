"""A number as near to the right one as the problem allows; whatever it allows, what is another number is wrong."""

import pytest
from one_jail import in_jail
from pydantic import ValidationError

from tasks import Problem, grade

PAPERS = 1e-3
"""Appendix B.2 of MASPRM."""


def is_right(gold: str, answer: str, tolerance: float | None = None) -> bool:
    problem = Problem(id="a", question="?", domain="math", gold=gold).within(tolerance)
    return in_jail(lambda sandbox: grade(problem, f"Final Answer: \\boxed{{{answer}}}", sandbox)).correct


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("42", "42.0004", True),
        ("42", "42.001", True),
        ("42", "42.0011", False),
        ("1000000", "1000001", False),
        ("0.3333", "\\frac{1}{3}", True),
        ("-2", "2", False),
        ("x + 1", "x + 1.0001", False),
        ("42", "about 42.0004 or 17", False),
    ],
)
def test_numbers_alone_may_be_near(gold: str, answer: str, right: bool) -> None:
    assert is_right(gold, answer, PAPERS) is right
    assert not is_right(gold, answer)


@pytest.mark.parametrize("tolerance", [None, PAPERS])
@pytest.mark.parametrize(
    ("gold", "answer"),
    [("\\frac{1}{2}", "\\frac{1}{3}"), ("\\frac{1}{2}", "2"), ("3\\sqrt{7}", "\\sqrt{7}"), ("\\sqrt{7}", "3\\sqrt{7}")],
)
def test_other_numbers_are_wrong(gold: str, answer: str, tolerance: float | None) -> None:
    """The released answer_utils takes each of these pairs for equal."""
    assert not is_right(gold, answer, tolerance)
    assert not is_right(answer, gold, tolerance)
    assert is_right(gold, gold, tolerance)


def test_it_is_a_math_problems() -> None:
    near = Problem(id="a", question="?", domain="math", gold="1", tolerance=0.5)
    assert "tolerance" in near.model_dump()
    assert "tolerance" not in Problem(id="a", question="?", domain="math", gold="1").model_dump()
    with pytest.raises(ValidationError, match="tolerance"):
        Problem(id="a", question="?", domain="math", gold="1", tolerance=-1)
