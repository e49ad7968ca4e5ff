"""The cache with room to grow holds what transformers' own holds, whatever is appended, taken out or replaced."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import Gemma2Config, Qwen3Config
from transformers.cache_utils import DynamicLayer

from engine.local.growing_cache import ROOM, RoomyLayer, is_plain, roomy_cache

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([1, 1, 1, 5, ROOM])),
        st.tuples(st.just("keep"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        st.tuples(st.just("trim"), st.integers(0, 2)),
        st.tuples(st.just("first"), st.just(1)),
    ),
    max_size=12,
)


@given(CHANGES)
@settings(deadline=None)
def test_it_holds_what_the_plain_one_holds(changes: list[tuple[str, Any]]) -> None:
    dice = torch.Generator().manual_seed(0)
    layers = (RoomyLayer(), DynamicLayer())

    def change(kind: str, much: Any) -> None:
        rows = 4 if layers[0].keys is None else len(layers[0].keys)
        if kind == "append":
            new = [torch.rand(rows, 2, much, 3, generator=dice) for _ in range(2)]
            results = [layer.update(*new) for layer in layers]
            assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
        for layer in layers:
            if kind == "keep":
                layer.batch_select_indices(torch.tensor([at % rows for at in much]))
            elif kind == "trim":
                layer.keys, layer.values = layer.keys[:, :, much:], layer.values[:, :, much:]
            elif kind == "first":  # a view that begins where the memory does
                layer.keys, layer.values = layer.keys[:much], layer.values[:much]

    for kind, much in [("append", 3), *changes, ("append", 1)]:
        change(kind, much)
        assert torch.equal(layers[0].keys, layers[1].keys)
        assert torch.equal(layers[0].values, layers[1].values)
        assert layers[0].get_seq_length() == layers[1].get_seq_length()


def test_a_token_is_written_where_there_is_room() -> None:
    layer, token = RoomyLayer(), torch.ones(2, 1, 1, 4)
    layer.update(token, token)
    before = layer.keys
    for _ in range(ROOM):
        layer.update(token, token)
    assert layer.keys.shape == (2, 1, 1 + ROOM, 4)
    assert layer.keys.data_ptr() == before.data_ptr()
    layer.update(token, token)
    assert layer.keys.data_ptr() != before.data_ptr()


def test_windows_stay_as_they_are() -> None:
    """Rows cannot be put beside others where a layer keeps only the last columns."""
    assert is_plain(roomy_cache(Qwen3Config(num_hidden_layers=2)))
    assert not is_plain(roomy_cache(Gemma2Config(num_hidden_layers=2, sliding_window=4)))
