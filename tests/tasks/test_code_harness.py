"""The wire, in this process."""

import inspect
import json
import math
import sys
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.code import harness
from tasks.code.harness import Opaque, decode, encode, names_bound
from tasks.code.remote import CandidateError, rebuild_error

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.fractions() | st.decimals(allow_nan=False)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers() | st.none(), inner)
        | st.sets(SCALARS) | st.frozensets(SCALARS)
    ),
    max_leaves=12,
)  # fmt: skip


def over_the_wire(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))), _no_references)


def _no_references(number: int, kind: str) -> Any:
    raise AssertionError("no reference was sent")


@given(VALUES)
def test_values_come_back_with_their_types(value: Any) -> None:
    found = over_the_wire(value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [-0.0, math.inf, -math.inf, math.nan, int, bytearray(b"x"), "\ud800"])
def test_awkward_values_come_back(value: Any) -> None:
    assert repr(over_the_wire([value])) == repr([value])


def test_integers_too_long_for_decimal_digits_come_back() -> None:
    assert over_the_wire([10**6000, -(10**6000)]) == [10**6000, -(10**6000)]


class _Liar(list):
    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self):
        return iter([1, 2, 3])


class _LyingInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_subclasses_travel_as_what_they_hold() -> None:
    assert over_the_wire(_Liar([9])) == [9]
    lying = over_the_wire(_LyingInt(9))
    assert type(lying) is int
    assert lying == 9
    point = namedtuple("point", "x y")
    assert over_the_wire([point(1, 2), Counter("aa"), OrderedDict(a=1)]) == [(1, 2), {"a": 2}, {"a": 1}]


def test_other_objects_stay_where_they_are() -> None:
    kept: list[object] = []

    def keep(value: object) -> int:
        kept.append(value)
        return len(kept) - 1

    queue = deque([1])
    assert encode([queue], keep) == [{"ref": [0, "deque"]}]
    assert kept == [queue]
    with pytest.raises(Opaque, match="deque"):
        encode(queue)


@pytest.mark.parametrize(
    "wire", [{"set": [[1]]}, {"nonsense": 1}, {"a": 1, "b": 2}, {"type": "eval"}, {"int": "z"}, {}]
)
def test_malformed_wire_is_an_error(wire: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        decode(wire, _no_references)


def test_fractions_and_decimals() -> None:
    assert over_the_wire([Fraction(1, 3), Decimal("0.10")]) == [Fraction(1, 3), Decimal("0.10")]


def test_errors_travel_by_name_and_only_ordinary_ones_are_rebuilt() -> None:
    assert isinstance(rebuild_error("ValueError", "no"), ValueError)
    assert "SystemExit" in str(rebuild_error("SystemExit", "0"))
    for kind in ("SystemExit", "StopIteration", "eval", "MyError", "UnicodeDecodeError"):
        assert isinstance(rebuild_error(kind, "x"), CandidateError)


def test_names_bound_sees_the_top_level_only() -> None:
    assert names_bound("def f(): pass\nclass C: pass\ng = lambda: 1\nif 1:\n    def h(): pass") == {"f", "C", "g"}
    assert names_bound("    return 1") == set()


def test_the_harness_can_be_sent_as_text() -> None:
    imported = {
        line.split()[1] for line in inspect.getsource(harness).splitlines() if line.startswith(("import", "from"))
    }
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
