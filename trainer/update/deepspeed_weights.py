"""The weights of a model that ranks share, a layer at a time, as a whole checkpoint names and holds them.

Partitioned ones (ZeRO-3) are gathered, and adapters merged, for one layer at once; peft does that arithmetic. Moves
nothing between processes beside that, and writes no file.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from trainer.update.exchange import deepspeed


class LayeredWeights:
    """Made from a transformers model before adapters or DeepSpeed change it."""

    def __init__(self, causal: Any) -> None:
        self._causal = causal
        first: dict[int, str] = {}
        self.tied: dict[str, str] = {}
        """Further names of a weight, and the one that it has here."""
        self.outline: dict[str, torch.Tensor] = {}
        """Types and shapes of all names, on the meta device."""
        for name, tensor in causal.state_dict(keep_vars=True).items():
            self.outline[name] = torch.empty_like(tensor, device="meta")
            if first.setdefault(id(tensor), name) != name:
                self.tied[name] = first[id(tensor)]
        self._held = dict(causal.state_dict(keep_vars=True))
        self._layers: dict[str, list[str]] = {}
        for name in self.outline:
            if name not in self.tied:
                self._layers.setdefault(_layer(name), []).append(name)

    def stream(self, copies: bool) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """Names and weights of one layer after another; all ranks must go through to the end together.

        With `copies` they are copies where the model lies, else empty tensors, on a rank that only lends its parts.
        """
        adapters = self._adapters()
        for names in self._layers.values():
            layer = {name: self._held[name] for name in names}
            needed = list(layer.values())
            needed += [each for one in layer.values() for unit in adapters.get(id(one), []) for each in _own(unit)]
            with torch.no_grad(), gathered(needed):
                found = []
                for name, tensor in layer.items():
                    copy = tensor.detach().clone() if copies else torch.empty(0)
                    for unit in adapters.get(id(tensor), []) if copies else []:
                        for adapter in unit.active_adapters:
                            copy += unit.get_delta_weight(adapter).to(copy.dtype)
                    found.append((name, copy))
            yield found

    def _adapters(self) -> dict[int, list[Any]]:
        """What peft has put around which weights."""
        found: dict[int, list[Any]] = {}
        for unit in self._causal.modules():
            if hasattr(unit, "get_delta_weight") and hasattr(unit, "base_layer"):
                found.setdefault(id(unit.base_layer.weight), []).append(unit)
        return found


def gathered(parameters: Sequence[Any]) -> Any:
    """A context in which partitioned ones among `parameters` are whole on every rank."""
    return deepspeed().zero.GatheredParameters([each for each in parameters if hasattr(each, "ds_id")])


def whole(parameters: Mapping[str, Any], copies: bool) -> dict[str, torch.Tensor]:
    """Copies of some parameters on the CPU, gathered all at once: for small ones, such as adapters."""
    with gathered(list(parameters.values())):
        return {name: each.detach().cpu().clone() for name, each in parameters.items()} if copies else {}


def _own(unit: Any) -> list[Any]:
    base = {id(each) for each in unit.base_layer.parameters()}
    return [each for each in unit.parameters() if id(each) not in base]


def _layer(name: str) -> str:
    """A numbered layer's path, or the name itself for what is in none."""
    parts = name.split(".")
    number = next((at for at, part in enumerate(parts) if part.isdigit()), None)
    return name if number is None else ".".join(parts[: number + 1])
