"""The comparison itself, in this process, where a case costs a millisecond. Jailed grading is in test_math.py."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from tasks.math.math_grader import equal_integers
from tasks.math.worker import compare, compare_values, verify_batch

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
    ("BADC", "B, A, D, C"), ("BADC", r"\text{BADC}"), ("ab", "ba"), ("10:30", "10 : 30"), ("2:3", r"2\!:\!3"),
    ("10:30", r"10:30 \text{ a.m.}"), (r"\sqrt{3}:1", r"\sqrt3:1"),
    ("2ab", "2ba"), ("42", "{42}"), ("x", "X"), (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"),
]  # fmt: skip

DIFFERENT = [
    ("204", "205"), ("204", "2040"), ("5", "-5"), (r"\frac13", "0.333"), (r"\frac{1}{2}", "2"), (".5", "5"),
    (".0000672", ".0000673"), ("10", r"10\%"), ("10", "0.1"), ("3", "3t"), ("2m", "2"), ("2ab", "2"),
    ("5", "5 million"), ("(2,4)", "(4,2)"), ("(3,4]", "(3,4)"), ("(2,4)", "(2,4,1)"), (r"(3,\frac{\pi}{2})", "3"),
    ("1,-2", "1"), ("5", "5 or 7"), ("5", "3, or maybe 5"), ("5", "7 apples, so 5"), ("3", r"3 \text{ or } 4"),
    (r"\text{Evelyn}", "Evelyna"), (r"\text{(C)}", "B"), (r"\text{even}", "neve"), ("52_8", "52_9"),
    ("52_8", "53_8"), ("x=5", "y=5"), ("y = 2x + 3", "y = 2x - 3"), ("p - q", "q - p"), (r"\sqrt{13}", r"\sqrt[3]{13}"),
    ("BADC", "ABCD"), ("AB", "BA"), ("BADC", "BAD"), ("10:30", "20:60"), ("10:30", r"\frac{1}{3}"), ("1/3", "10:30"),
    ("2:3", "3:2"), ("2:3", "2:3:1"), ("5", "\u0665"), ("15", "1\uff15"),
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


NUMBERS = st.one_of(
    st.integers(-12, 12),
    st.integers(0, 999),
    st.integers(-999, 9999),
    st.integers(-(10**6), 10**7),
    st.integers(-(10**38), 10**38),
)


@st.composite
def dressed(draw: st.DrawFn, values: list[int]) -> str:
    """The numbers with signs, leading zeros and blanks, as agents may write them."""
    parts = [
        ("-" if value < 0 else draw(st.sampled_from(["", "", "+"]))) + "0" * draw(st.integers(0, 2)) + str(abs(value))
        for value in values
    ]
    around = st.sampled_from(["", " ", "\n"])
    return draw(around) + draw(st.sampled_from([",", ", "])).join(parts) + draw(around)


@st.composite
def integer_pairs(draw: st.DrawFn) -> tuple[str, str]:
    """A gold and an answer that is the same in another order, or nearly the same."""
    golds = draw(st.lists(NUMBERS, min_size=1, max_size=draw(st.sampled_from([1, 4]))))
    answers = draw(st.permutations(golds))
    change = draw(st.sampled_from(["none", "none", "one", "sign", "more", "twice", "fewer", "joined"]))
    place = draw(st.integers(0, len(answers) - 1))
    if change == "one":
        answers[place] += draw(st.sampled_from([-1, 1, 10, 1000]))
    elif change == "sign":
        answers[place] = -answers[place]
    elif change in ("more", "twice"):
        answers.append(draw(NUMBERS) if change == "more" else answers[place])
    elif change == "fewer" and len(answers) > 1:
        answers.pop(place)
    elif change == "joined":
        answers = [int("".join(str(abs(answer)) for answer in answers)[:40])]
    return draw(dressed(golds)), draw(dressed(answers))


@settings(max_examples=200, deadline=None)
@given(integer_pairs())
@example(("1,000", "1000"))
@example(("755,8", "8,755"))
@example(("3,0923", "3,923"))
@example(("5,8,5", "5,8"))
@example(("1,5", "1.5"))
@example(("-0", "0"))
@example(("-9999999999999999832227840", "-9999999999999999832227841"))
def test_integers_compared_at_sight_are_what_math_verify_says(pair: tuple[str, str]) -> None:
    gold, answer = pair
    equal = equal_integers(gold, answer)
    if equal is not None:
        assert compare(gold, answer) == ("correct" if equal else "wrong")


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        ("7", "+007", True), ("7", "-7", False), ("12, -5", " -5,12", True), ("1,2", "1,3", False),
        ("1,23", "23,1", True), ("1,000", "1000", None), ("4,5", "5,044", None), ("4,5", "4,5,5", None),
        ("4", "4,5", None), ("4", "4.0", None), ("4", "", None), ("4", "5 000", None), ("٤", "4", None),
        ("9" * 41, "9" * 41, None), ("1,", "1", None),
    ],
)  # fmt: skip
def test_what_is_compared_at_sight(gold: str, answer: str, equal: bool | None) -> None:
    assert equal_integers(gold, answer) is equal


def test_a_batch_keeps_its_order() -> None:
    pairs: list[JsonValue] = [
        {"gold": "1", "answer": "1", "percent": False},
        {"gold": "1", "answer": "2", "percent": False},
    ]
    assert verify_batch(pairs) == [["correct", ""], ["wrong", ""]]
    with pytest.raises(TypeError, match="list of pairs"):
        verify_batch("1")
