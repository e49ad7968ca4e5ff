"""Fingerprints of weights: the same for the same weights however they are held, another one for anything else."""

from __future__ import annotations

import itertools
import math
import threading
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
from allocations import allocations

from engine import fingerprints
from engine.fingerprints import combined, fingerprint, fingerprint_parts

TYPES = [torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.int8, torch.int64, torch.bool]
ROW = 8 * 1024
"""Bytes of a row of sums."""


@st.composite
def tensors(draw: Any, least: int = 1, types: list[Any] = TYPES) -> Any:
    """Random bits, from one element to a little over two rows, also lengths that end amid a word or a row."""
    dtype = draw(st.sampled_from(types))
    size = torch.empty((), dtype=dtype).element_size()
    count = draw(
        st.one_of(
            st.integers(least, 20),
            st.integers(max(least, ROW // size - 3), ROW // size + 3),
            st.integers(max(least, 2 * ROW // size - 3), 2 * ROW // size + 20),
        )
    )
    torch.manual_seed(draw(st.integers(0, 1 << 30)))
    if dtype == torch.bool:
        return torch.rand(count) < 0.5
    return torch.randint(0, 256, (count * size,), dtype=torch.uint8).view(dtype)


def bits(tensor: Any) -> Any:
    """The tensor's own memory as bytes."""
    return tensor.view(torch.uint8)


@settings(deadline=None)
@given(tensor=tensors(), data=st.data())
def test_any_flipped_bits_are_found(tensor: Any, data: st.DataObject) -> None:
    before = fingerprint({"w": tensor})
    other = tensor.clone()
    places = data.draw(st.sets(st.tuples(st.integers(0, other.nbytes - 1), st.integers(0, 7)), min_size=1, max_size=6))
    for place, bit in places:
        bits(other)[place] ^= 1 << bit
    assert fingerprint({"w": other}) != before


@settings(deadline=None)
@given(tensor=tensors(least=2), data=st.data())
def test_swapped_elements_are_found(tensor: Any, data: st.DataObject) -> None:
    size = tensor.element_size()
    held = bits(tensor).view(-1, size)
    one, two = data.draw(st.lists(st.integers(0, len(held) - 1), min_size=2, max_size=2, unique=True))
    assume(not torch.equal(held[one], held[two]))
    other = tensor.clone()
    bits(other).view(-1, size)[[one, two]] = held[[two, one]]
    assert fingerprint({"w": other}) != fingerprint({"w": tensor})


def test_signs_that_flip_by_pairs_and_swap_are_found() -> None:
    """The uppermost bit of a word reaches but one bit of a sum that is taken modulo 2**64."""
    base = torch.zeros(4096, dtype=torch.bfloat16)
    seen = {fingerprint({"w": base})}
    for one in range(3, 64, 4):
        for two in range(one + 4, 64, 4):
            other = base.clone()
            other[[one, two]] = -0.0
            seen.add(fingerprint({"w": other}))
    assert len(seen) == 1 + math.comb(16, 2)


def test_no_exchange_of_two_elements_of_a_row_cancels_out() -> None:
    """Words differ by d < 2**32 times at most 2**31, and constants by less than 2**33: no product is 0 mod 2**64."""
    for row in fingerprints._CONSTANTS.tolist():
        assert all(number % 2 for number in row)
        assert all((a - b) % 2**33 for index, a in enumerate(row) for b in row[:index])


@settings(deadline=None)
@given(one=tensors(), other=tensors())
def test_swapped_tensors_types_shapes_and_names_are_found(one: Any, other: Any) -> None:
    here = {"a": one, "b": other}
    same = one.dtype == other.dtype and torch.equal(bits(one), bits(other))
    assert (fingerprint(here) == fingerprint({"a": other, "b": one})) == same
    others = [{"a": one}, {"a": one, "c": other}, {"a": one[None], "b": other}, {"a": one, "b": other[:-1]}]
    others += [{"a": bits(one), "b": other}] if one.dtype != torch.uint8 else []
    assert len({fingerprint(each) for each in [here, *others]}) == 1 + len(others)


@settings(deadline=None)
@given(
    tensor=tensors(types=[torch.bfloat16, torch.float32, torch.int8]), offset=st.integers(0, 9), step=st.integers(1, 3)
)
def test_the_same_values_are_the_same_however_they_lie(tensor: Any, offset: int, step: int) -> None:
    roomy = torch.zeros(offset + step * len(tensor), dtype=tensor.dtype)
    view = roomy[offset:][::step]
    view[:] = tensor
    expected = fingerprint({"w": tensor})
    assert fingerprint({"w": view}) == expected
    assert fingerprint({"w": torch.nn.Parameter(view, requires_grad=False)}) == expected
    square = tensor[: len(tensor) // 2 * 2].view(-1, 2)
    assert fingerprint({"w": square.T.contiguous().T}) == fingerprint({"w": square})


def test_tensors_without_elements_or_axes_have_one() -> None:
    empty, wide, alone = torch.empty(0), torch.empty(0, 3), torch.tensor(1.0)
    assert len({fingerprint({"w": each}) for each in (empty, wide, alone, alone[None])} | {fingerprint({})}) == 5


@settings(deadline=None, max_examples=30)
@given(tensor=tensors())
def test_a_device_adds_up_the_same(tensor: Any) -> None:
    """The sums as GPUs are asked for them, here on the CPU, in several pieces."""
    words = torch.cat([bits(tensor)] * 3)[: 2 * ROW].clone()
    if len(words) < 2 * ROW:
        words = torch.nn.functional.pad(words, (0, 2 * ROW - len(words)))
    rows = words.view(torch.int64).view(2, -1)
    piece = fingerprints._ON_DEVICE
    try:
        fingerprints._ON_DEVICE = 1
        assert (fingerprints._sums_on_device(rows) == fingerprints._sums_on_cpu(rows)).all()
    finally:
        fingerprints._ON_DEVICE = piece


def test_the_sums_are_those_of_plain_integers() -> None:
    rows = torch.randint(-(2**63), 2**63 - 1, (3, 1024))
    low, high = fingerprints._CONSTANTS.tolist()
    expected = [
        [sum(word * one for word, one in zip(row, low, strict=True)) % 2**64 for row in rows.tolist()],
        [sum((word >> 32) * one for word, one in zip(row, high, strict=True)) % 2**64 for row in rows.tolist()],
    ]
    assert [[each % 2**64 for each in sums] for sums in fingerprints._sums_on_cpu(rows).tolist()] == expected


# Parts


@settings(deadline=None, max_examples=30)
@given(
    model=st.dictionaries(st.text(min_size=1), tensors(), max_size=6),
    dice=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(0, 6), max_size=3),
)
def test_parts_are_put_together_in_any_order(model: dict[str, Any], dice: Any, cuts: list[int]) -> None:
    names = list(model)
    dice.shuffle(names)
    parts: dict[str, str] = {}
    bounds = sorted([0, *cuts, len(names)])
    for begin, end in itertools.pairwise(bounds):
        parts |= fingerprint_parts({name: model[name] for name in names[begin:end]})
    assert combined(parts) == fingerprint(model) == combined(fingerprint_parts(model))
    assert fingerprint(model).startswith(fingerprints.VERSION)


def test_names_cannot_be_mistaken_for_digests_or_for_each_other() -> None:
    assert combined({"a": "1", "b": "2"}) != combined({"a 1\nb": "2"})
    assert combined({"a": "1"}) != combined({"a": "1", "": ""})


# What it takes


class Made(Mapping[str, Any]):
    """Tensors that are made when they are asked for."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, []
        self.threads: set[int] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.append(name)
        self.threads.add(threading.get_ident())
        return torch.full((1 << 20,), float(name))

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self.count))

    def __len__(self) -> int:
        return self.count


def test_each_tensor_is_asked_for_once_and_not_kept() -> None:
    made = Made(40)
    with allocations() as found:
        digest = fingerprint(made)
    assert sorted(made.asked, key=int) == list(made)
    assert found.peak < (8 + 2) * (4 << 20)  # a tensor per thread
    assert digest == fingerprint({name: torch.full((1 << 20,), float(name)) for name in made})


def test_a_large_tensor_takes_no_memory_of_its_size() -> None:
    tensor = torch.zeros(1 << 26, dtype=torch.bfloat16)
    fingerprint({"w": tensor[:1]})
    tracemalloc.start()
    with allocations() as found:
        fingerprint({"w": tensor, "v": tensor})
    numpys = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.peak + numpys < 8 << 20 < tensor.nbytes // 8
