import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.code.equality import same_output, same_value
from tasks.code.grades import raised
from tasks.code.harness import encode


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        ("1  2 \n3\n\n", "1 2\n3\n", True),
        ("1 2 3", "1 2\n3", False),  # lines count
        ("\n1", "1", False),
        ("YES", "Yes", False),
        ("0.3333333", "0.33333333", True),
        ("0.333", "0.33333333", False),
        ("1.0", "1", False),  # the expected word is an integer: no tolerance
        ("1", "1.0", True),
        ("1000000.4", "1000000.0", False),  # written with one place
        ("1000000.04", "1000000.0", True),
        ("1000000.4", "1000000.5", True),
        ("1234567890.12", "1234567890.00", False),
        ("1000000900", "1e9", False),
        ("1000000000.0", "1e9", True),
        ("1000000900.0", "1000000000.0", False),
        ("2.9999999", "3.0", True),
        ("1e999999999999", "1e999999999999.0", False),
        ("2e999999999999", "1e999999999999", False),
        ("1e-999999999999", "0.0", True),
        ("\u0661\u0662.0", "12.0", False),  # digits, but not ours
        ("\uff11", "1", False),
        ("1" * 401 + ".0", "1" * 401 + ".00", False),
        ("1" * 401, "1" * 401, True),
        ("9e9999999", "1.0", False),  # decimal raises for this difference, and for reading the next ones
        ("1e" + "9" * 380, "1.0", False),
        ("1.0", "1e" + "9" * 30, False),
        ("1e-" + "9" * 30, "0.0", True),
        ("1e309", "1.5e309", False),  # beyond floats
        ("1000002.0", "1000000.0", False),
        ("nan", "1.0", False),
        ("1_0", "10.0", False),
        ("100000000000000000001", "100000000000000000000", False),
        ("", "", True),
        ("", "0", False),
    ],
)
def test_printed_output(actual: str, expected: str, same: bool) -> None:
    assert same_output(actual, expected) is same


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_every_json_value_equals_its_wire_form(value: Any) -> None:
    assert same_value(encode(value), value)


@given(JSON)
def test_a_value_is_not_itself_in_a_list(value: Any) -> None:
    assert not same_value(encode([value]), value)


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ((1, (2,)), [1, [2]], True),
        ({1, 2}, [1, 2], False),
        ([1, 2], [1, 3], False),
        ([1], [1, 1], False),
        ("1", 1, False),
        (1, "1", False),
        (0.1 + 0.2, 0.3, True),
        (0.31, 0.3, False),
        (2, 2.0, True),
        (2.0000001, 2, False),
        (2.0, 2, True),
        (1000000900.0, 10**9, False),
        (float(2**53), 2**53 + 1, False),
        (10**9 + 900, 1e9, False),  # whole, though written as a float
        (1000000900.0, 1e9, False),
        (999999999.99, 1e9, True),
        (10**400, 1.5, False),
        (math.inf, math.inf, True),
        (math.nan, math.nan, True),
        (math.inf, 1.0, False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": [1]}, {"a": [2]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({1: 1}, {"1": 1}, False),
        (b"a", "a", False),
        (None, None, True),
        (None, False, False),
    ],
)
def test_returned_values(actual: Any, expected: Any, same: bool) -> None:
    assert same_value(encode(actual), expected) is same


def test_integers_too_long_for_decimal_digits() -> None:
    assert same_value(encode(10**5000), 10**5000)
    assert not same_value(encode(10**5000), 10**5000 + 1)


@pytest.mark.parametrize("wire", [{"ref": [0, "X"]}, {"tuple": 3}, {"dict": [[1]]}, {"dict": 1}, {"a": 1, "b": 2}, {}])
def test_opaque_and_malformed_values_equal_nothing(wire: Any) -> None:
    for expected in (None, 0, [], {}, wire):
        assert not same_value(wire, expected)


NUMBERS = st.from_regex(r"[+-]?[0-9]{0,3}\.?[0-9]{0,3}([eE][+-]?[0-9]{1,30})?", fullmatch=True)


@given(NUMBERS, NUMBERS)
def test_no_number_makes_the_comparison_raise(actual: str, expected: str) -> None:
    assert same_output(actual, expected) in (True, False)
    assert same_output(actual, actual)


@pytest.mark.parametrize(
    "wire",
    [
        {"float": "1.5"},
        {"float": "\u0663"},
        {"float": "1_0"},
        {"float": 3},
        {"int": "zz"},
        {"int": " 0x5_0 "},
        {"int": 5},
    ],
)
def test_what_no_harness_sends_is_refused(wire: Any) -> None:
    with pytest.raises(ValueError, match="is not how"):
        same_value(wire, 1.5 if "float" in wire else 5)


def test_what_a_solution_raises_can_be_written_down() -> None:
    assert raised("E", "half a \ud800 pair").model_dump_json()
