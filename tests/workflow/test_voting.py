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
        ("3 1/2", "31/2", False),
        ("$3$ $1/2$", "31/2", False),
        (r"3\,1/2", "31/2", False),
        (r"3\ 1/2", "3 1/2", True),
        ("3   1/2", "3 1/2", True),
        ("1 2", "12", False),
        ("1. 5", "1.5", False),
        ("1, 234", "1234", False),
        ("(1, 2)", "(1,2)", True),
        (r"10,\!000", "10000", True),
        (r"10\,000", "10,000", True),
        ("$1,000$.", "1000", True),
        ("2 x", "2x", True),
        ("x + 1", "x+1", True),
        ("X + 1", "x + 1", False),
        ("XY + 1", "xy+1", False),
        ("f(X)", "f(x)", False),
        (r"\Delta", r"\delta", False),
        (r"\frac{A}{b}", r"\dfrac{a}{b}", False),
        ("Yes", "yes", True),
        ("NO", "no", True),
        ("New York", "new  york", True),
        ("5 Apples", "5 apples", True),
        (r"\text{Prime}, x", r"\text{prime}, x", True),
        ("A", "a", True),
        (r"\text{(B)}.", "{(b)}", True),
        ("A", "B", False),
        ("def f(x):\n    return x", "def f(x):\n    return x  \n\n", True),
        ("\n \nif x:\n  a\n\n  b", "if x:\n  a\n\n  b", True),
        ("if x:\n  a\nb", "if x:\n  a\n  b", False),
        ("  a\nb", "a\nb", False),
        ("N = 1\nn = 2", "n = 1\nn = 2", False),
        ("a b\nc", "ab\nc", False),
        ("a\n\nb", "a\nb", False),
        ("a\r\nb", "a\nb", True),
        ("\n5\n", "5", True),
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


@given(
    st.lists(st.sampled_from(["a", "  a", "A", "b 1", "", " "]), min_size=2).filter(
        lambda x: sum(map(bool, map(str.strip, x))) > 1
    ),
    st.lists(st.sampled_from(["a", "  a", "A", "b 1", "", " "]), min_size=2).filter(
        lambda x: sum(map(bool, map(str.strip, x))) > 1
    ),
)
def test_answers_of_several_lines_are_one_vote_where_their_lines_are_equal(one: list[str], other: list[str]) -> None:
    def told(lines: list[str]) -> list[str]:
        return "\n".join(line.rstrip() for line in lines).strip("\n").split("\n")

    assert (vote_key("\n".join(one)) == vote_key("\n".join(other))) is (told(one) == told(other))


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_numbers_beside_each_other_are_one_vote_where_they_are_the_same_numbers(
    one: list[int], other: list[int]
) -> None:
    assert (vote_key(" ".join(map(str, one))) == vote_key("  ".join(map(str, other)))) is (one == other)


@given(st.text(alphabet="aXx12 +.,/$\\{}!"), st.sampled_from([" ", "\n", " \n\t"]))
def test_space_around_an_answer_of_one_line_does_not_count(answer: str, space: str) -> None:
    assert vote_key(f"{space}{answer}{space}") == vote_key(answer)
