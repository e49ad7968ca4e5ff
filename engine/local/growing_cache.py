"""A key-value cache with room to grow: a token's keys and values are written behind those of the tokens before it.

The cache of transformers copies all of them for each new token, which on a CPU takes as long as the model does. What
such layers cannot hold (windows, recurrent states) stays as transformers has it. Draws no tokens.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

ROOM = 128
"""Columns that are free after the layer has been copied."""


class RoomyLayer(DynamicLayer):
    """`keys` and `values` are [rows, heads, columns, width], as in any layer, and may be replaced by others."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._held: list[torch.Tensor | None] = [None, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self._held[0] = _appended(self.keys, self._held[0], key_states)
        self.values, self._held[1] = _appended(self.values, self._held[1], value_states)
        return self.keys, self.values


def _appended(before: Any, held: torch.Tensor | None, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`before` with `new` behind it, as a view of the memory that is held: the same, unless `before` does not begin
    there any more (rows or columns were taken out) or it is full."""
    columns = before.shape[-2] if before.numel() else 0
    end = columns + new.shape[-2]
    begins = held is not None and before.data_ptr() == held.data_ptr() and len(before) == len(held)
    memory: Any = held
    if held is None or not begins or end > held.shape[-2]:
        memory = new.new_empty(*new.shape[:-2], end + ROOM, new.shape[-1])
        if columns:
            memory[..., :columns, :] = before
    memory[..., columns:end, :] = new
    return memory[..., :end, :], memory


def roomy_cache(config: Any) -> Any:
    """An empty cache for a model of this configuration."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def is_plain(cache: Any) -> bool:
    """Whether all layers hold the keys and values of every column: neither a window nor a recurrent state."""
    return all(isinstance(layer, RoomyLayer) for layer in cache.layers)
