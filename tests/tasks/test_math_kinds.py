"""What the comparison decides for each kind of gold, where a rule and not a value decides it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gold_mutants import mutants, redressed
from tasks.math import units
from tasks.math.worker import compare, compare_values

UNREADABLE = ["2k+", r"\frac{1}{", r"2^n \text{ for every } n > 1", r"\{", "3 +", "{" * 50]


@pytest.mark.parametrize("gold", UNREADABLE)
def test_an_unreadable_gold_accepts_nothing_not_even_its_own_text(gold: str) -> None:
    assert {compare(gold, answer) for answer in (gold, "5", "")} == {"gold_unparseable"}
    assert compare_values(gold, gold) == "gold_unparseable"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 999), st.integers(-30, 30), st.integers(-30, 30))
def test_e_notation_and_powers_of_ten_are_the_same_both_ways(digits: int, exponent: int, other: int) -> None:
    written = f"{digits / 100}e{exponent}"
    power = rf"{digits / 100} \times 10^{{{other}}}"
    wanted = "correct" if exponent == other else "wrong"
    assert compare(written, power) == wanted
    assert compare(power, written) == wanted


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=3, max_size=5), st.lists(st.integers(0, 3), min_size=3, max_size=5))
def test_lists_are_multisets_where_the_gold_repeats(gold: list[int], answer: list[int]) -> None:
    repeats = len(set(gold)) < len(gold)
    same = sorted(gold) == sorted(answer) if repeats else set(gold) == set(answer)
    assert (compare(str(gold)[1:-1], str(answer)[1:-1]) == "correct") is same


@settings(max_examples=60, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(2, 9))
def test_sums_that_are_false_are_no_answer(one: int, other: int, off: int) -> None:
    total = one + other
    assert compare(str(total), rf"{one} + ({other}) = {total}") == "correct"
    assert compare(str(total), rf"{one} + ({other + off}) = {total}") == "wrong"


@pytest.mark.parametrize(
    ("gold", "unit", "answer", "verdict"),
    [
        ("3", "m", "300 \\text{ cm}", "correct"),
        ("3", "m", "3 \\text{ cm}", "wrong"), ("3", "m", "3 \\text{ kg}", "wrong"),
        ("3", "m", "3 \\text{ apples}", "correct"), ("3", "m^2", "30000 \\text{ cm}^2", "correct"),
        ("36", "km/h", "10 \\text{ m/s}", "correct"), ("2", "apples", "2 \\text{ m}", "correct"),
    ],
)  # fmt: skip
def test_units_that_are_known_on_both_sides_count(gold: str, unit: str, answer: str, verdict: str) -> None:
    assert compare(rf"{gold} \text{{ {unit}}}", answer) == verdict


def test_units_are_what_they_measure() -> None:
    newton, same = units.unit_of("N"), units.unit_of("kg m / s^2")
    assert newton is not None
    assert newton == same
    assert units.unit_of("parsnips per hour") is None
    assert units.split_unit("3xy", letters=False) == ("3xy", "")
    assert units.split_unit(r"9.8 \frac{\text{m}}{\text{s}^2}", letters=False)[0] == "9.8"


GOLDS = [
    "12", "-7", r"\frac{3}{4}", "0.25", "3+4i", "6.5e7", r"2.1 \times 10^{-4}", r"\text{(B)}", "C", "[2, 5)",
    "1,2,4", "2,2,9", r"15 \text{ cm}", "431_5", r"\sqrt{2}", "(1,2)",
]  # fmt: skip


@pytest.mark.parametrize("gold", GOLDS)
def test_mutants_are_refused_and_redressings_accepted(gold: str) -> None:
    assert mutants(gold)
    assert [other for other in mutants(gold) if compare(gold, other) != "wrong"] == []
    assert [other for other in redressed(gold) if compare(gold, other) != "correct"] == []
