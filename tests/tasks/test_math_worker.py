"""The comparison itself, in this process, where a case costs a millisecond. Jailed grading is in test_math.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from tasks.math_worker import compare, compare_values, verify_batch

EQUAL = [
    ("204", "204"), ("33", "033"), ("11", "11.0"), ("10080", r"10,\!080"), ("10080", "10,080"), ("5000", "5 000"),
    (r"\frac{14}{3}", "14/3"), (r"\frac{1}{2}", "0.5"), (r"-\frac{35}{9}", r"\frac{-35}{9}"), (r"\frac{3}{2}", "1 1/2"),
    (r"1\frac{4}{5}", r"\frac95"), (r"\frac13", "0.333333"), (r"2\pi", "2π"), ("-5", "−5"), ("5", "5."), ("5", "$5$"),
    (r"90^\circ", "90"), (r"90^\circ", "90 degrees"), (r"864 \mbox{ inches}^2", "864"), ("5", "5 dollars"),
    ("5", r"\$5"), (r"5 \text{ m}", "5 m"), ("x=5", "5"), ("y = 2x + 3", "2x+3"), ("3, 5, 7", "7,5,3"),
    (r"x \in [-2,7]", "[-2,7]"), (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}"), ("6 - 5i", "-5i+6"),
    (r"\begin{pmatrix} -1/3 \\ 2 \end{pmatrix}", r"\begin{bmatrix} -\frac13 \\ 2 \end{bmatrix}"), ("2k+2", "2(k+1)"),
    (r"\text{Evelyn}", "evelyn"), (r"\text{(C)}", "C"), (r"\text{east}", r"\textbf{East}"), ("52_8", "52_{8}"),
    ("52_8", "52"), (r"10\%", "10%"), (r"10\%", "10"), ("0.1", r"10\%"), (r".0000672", r"6.72 \times 10^{-5}"),
    ("2ab", "2ba"), ("42", "{42}"), ("x", "X"), (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"),
]  # fmt: skip

DIFFERENT = [
    ("204", "205"), ("204", "2040"), ("5", "-5"), (r"\frac13", "0.333"), (r"\frac{1}{2}", "2"), (".5", "5"),
    (".0000672", ".0000673"), ("10", r"10\%"), ("10", "0.1"), ("3", "3t"), ("2m", "2"), ("2ab", "2"),
    ("5", "5 million"), ("(2,4)", "(4,2)"), ("(3,4]", "(3,4)"), ("(2,4)", "(2,4,1)"), (r"(3,\frac{\pi}{2})", "3"),
    ("1,-2", "1"), ("5", "5 or 7"), ("5", "3, or maybe 5"), ("5", "7 apples, so 5"), ("3", r"3 \text{ or } 4"),
    (r"\text{Evelyn}", "Evelyna"), (r"\text{(C)}", "B"), (r"\text{even}", "neve"), ("52_8", "52_9"),
    ("52_8", "53_8"), ("x=5", "y=5"), ("y = 2x + 3", "y = 2x - 3"), ("p - q", "q - p"), (r"\sqrt{13}", r"\sqrt[3]{13}"),
    ("11/2", "1 1/2"), ("5", "5} or {7"), ("5", ""), ("5", ","), ("5", r"\text{none}"), ("6 - 5i", "6 + 5i"),
    (r"\cot x", r"\tan x"), ("5", "5" * 10**5), ("5", "{" * 10**5),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_same_value_in_other_dress_is_correct(gold: str, answer: str) -> None:
    assert compare(gold, answer) == "correct"


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_other_values_are_wrong(gold: str, answer: str) -> None:
    assert compare(gold, answer) == "wrong"


@pytest.mark.parametrize("gold", sorted({gold for gold, _ in EQUAL}))
def test_golds_verify_against_themselves_as_formulas(gold: str) -> None:
    assert compare_values(gold, gold) == "correct"


@pytest.mark.parametrize("gold", ["", "{{", "2k+", r"\frac{1}{"])
def test_unreadable_golds_are_told_apart_from_wrong_answers(gold: str) -> None:
    assert compare(gold, "5") == "gold_unparseable"


def test_percent_answers_a_question_about_percent() -> None:
    assert compare("10", r"10\%", percent=True) == "correct"
    assert compare("10", r"11\%", percent=True) == "wrong"


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_integers_are_equal_only_to_themselves(gold: int, answer: int) -> None:
    assert (compare(str(gold), f"{answer:,}") == "correct") == (gold == answer)


def test_a_batch_keeps_its_order() -> None:
    pairs: list[JsonValue] = [
        {"gold": "1", "answer": "1", "percent": False},
        {"gold": "1", "answer": "2", "percent": False},
    ]
    assert verify_batch(pairs) == [["correct", ""], ["wrong", ""]]
    with pytest.raises(TypeError, match="list of pairs"):
        verify_batch("1")
