"""Numbers and words as pages show them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewer.html import figure, fixed, folded, percent, seconds, signed


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (999.6, "1,000"),
        (-999.6, "-1,000"),
        (999.4, "999"),
        (1234.5, "1,234"),
        (0.0001234, "0.000123"),
        (1e-9, "1e-09"),
        (0.0, "0"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "over 10^18"),
    ],
)
def test_figures_have_so_many_digits(number: float | None, shown: str) -> None:
    assert figure(number) == shown


@given(st.floats(allow_nan=False, min_value=-1e17, max_value=1e17), st.integers(1, 8))
def test_no_figure_of_everyday_size_is_told_by_powers(number: float, digits: int) -> None:
    assert "e+" not in figure(number, digits)


@pytest.mark.parametrize("number", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_shown_as_none(number: float | None) -> None:
    assert (percent(number), signed(number), fixed(number)) == ("–", "–", "–")


def test_numbers_with_fixed_digits() -> None:
    assert (percent(0.125), signed(0.25), signed(-1.5, 1), fixed(2.25)) == ("12.5 %", "+0.250", "-1.5", "2.2")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("İstanbul", "istanbul"),
        ("Größe", "GROSSE"),
        ("Ångström", "angstrom"),
        ("naïve", "NAIVE"),
        ("ﬁne", "fine"),
        ("\u2460", "1"),
    ],
)
def test_words_are_the_same_in_any_case_and_form(text: str, word: str) -> None:
    assert folded(text) == folded(word) == folded(folded(text))


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_whole_numbers_that_have_no_float(number: int) -> None:
    assert figure(number) == ("over 10^18" if number > 0 else "under -10^18")
    assert {show(number) for show in (fixed, signed, percent, seconds)} == {"–"}
