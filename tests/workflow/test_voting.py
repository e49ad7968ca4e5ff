import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workflow.voting import vote_key, winning_vote


@pytest.mark.parametrize(
    ("answers", "weights", "winner"),
    [
        (["5", "7", "5"], [1, 1, 1], 0),
        (["5", "7", "7"], [1, 1, 1], 1),
        (["5", "7", "5"], [1, 3, 1], 1),
        (["5", "7"], [1, 1], 0),  # a tie goes to the class that was named first
        (["7", "5", "5", "7"], [1, 1, 1, 1], 0),
        ([None, "7", None], [9, 1, 9], 1),
        ([None, None], [1, 1], None),
        ([], [], None),
        (["5", "7"], [0, 0], 0),
        (["x", "y", "y"], [0.3, 0.1, 0.2], 0),  # 0.1 + 0.2 is no more than 0.3
        (["1,000", "7", "1000"], [1, 1, 1], 0),
        ([r"\dfrac{1}{2}", "7", r"$\frac{1}{2}$"], [1, 1, 1], 0),
        (["", "7", "7"], [1, 1, 1], 1),
    ],
)
def test_winning_vote(answers: list[str | None], weights: list[float], winner: int | None) -> None:
    assert winning_vote(answers, weights) == winner


def test_every_answer_needs_a_weight() -> None:
    with pytest.raises(ValueError, match="zip"):
        winning_vote(["5", "7"], [1])


@given(st.lists(st.tuples(st.sampled_from([None, "5", "7", "9"]), st.integers(0, 5)), max_size=7))
def test_vote_is_the_heaviest_class_and_its_first_member(votes: list[tuple[str | None, int]]) -> None:
    answers = [answer for answer, _ in votes]
    winner = winning_vote(answers, [weight for _, weight in votes])
    totals = {answer: sum(w for a, w in votes if a == answer) for answer in answers if answer is not None}
    if not totals:
        assert winner is None
        return
    assert winner is not None
    assert totals[answers[winner] or ""] == max(totals.values())
    heaviest = [answer for answer in totals if totals[answer] == max(totals.values())]
    assert winner == min(answers.index(answer) for answer in heaviest)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("5", " 5 ", True),
        ("5", "$5$", True),
        ("5", "5.", True),
        ("1,234,567", "1234567", True),
        (r"\left( 3, 4 \right)", "(3,4)", True),
        (r"\text{Yes}", "{yes}", True),
        ("3,4", "34", False),
        ("12,34", "1234", False),
        ("5", "-5", False),
        ("0.5", "5", False),
        (r"\sqrt{2}", "2", False),
    ],
)
def test_vote_key(one: str, other: str, same: bool) -> None:
    assert (vote_key(one) == vote_key(other)) is same


def test_infinite_weights_do_not_break_a_vote() -> None:
    assert winning_vote(["5", "7"], [1, math.inf]) == 1


@given(
    *[st.from_regex(r"[-+]?[0-9]{0,4}(\.[0-9]{0,4})?", fullmatch=True).filter(lambda text: any(map(str.isdigit, text)))]
    * 2
)
@example("1", "1.0")
@example("-0.00", "0")
@example(".5", "0.50")
@example("+07.", "7")
@example("10", "1")
def test_decimal_numbers_are_one_vote_where_they_are_equal(one: str, other: str) -> None:
    assert (vote_key(one) == vote_key(other)) is (Decimal(one) == Decimal(other))
