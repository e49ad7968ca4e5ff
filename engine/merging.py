"""Trained adapters merged into the weights below them, a layer at a time, for engines and for files.

peft does the arithmetic. Nothing here trains, and the model stays as it is.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch


class Merged(Mapping[str, torch.Tensor]):
    """The weights of a PEFT model with its active adapters merged in, named as in the base model's checkpoint; bit for
    bit those of peft's `merge_and_unload(safe_merge=True)`.

    A weight with adapters is merged each time that it is asked for, which takes the memory of a few copies of it and
    not of a second model; all others are the model's own memory. The adapters are copies, made when this is made; the
    frozen weights below them must stay as they are. Several threads may read; they merge one after another.
    """

    def __init__(self, model: Any) -> None:
        self._layers: dict[str, Any] = {}
        self._held: dict[str, torch.Tensor] = {}
        """Every weight before it is merged."""
        self._changes: dict[str, list[tuple[str, str]]] = {}
        """For some names the layers whose adapters change it, in peft's order, each with its own name for it. More than
        one changes a weight that is tied."""
        self._merging = threading.Lock()
        base = model.get_base_model()
        units = dict(_units(base))
        below: dict[str, dict[str, torch.Tensor]] = {}
        changed: dict[int, list[tuple[str, str]]] = {}
        for place, unit in units.items():
            apart = _apart(unit)
            if _has_own_way(unit):
                below[place] = _unloaded(apart).state_dict()
                continue
            self._layers[place] = apart
            below[place] = unit.get_base_layer().state_dict(keep_vars=True)
            for name, tensor in below[place].items():
                changed.setdefault(id(tensor), []).append((place, name))
        for name, tensor in base.state_dict(keep_vars=True).items():
            place = next((up for up in _above(name) if up in units), None)
            found = {name: tensor} if place is None else {f"{place}.{own}": one for own, one in below[place].items()}
            self._held |= {each: one.detach() for each, one in found.items()}
            self._changes |= {each: changed[id(one)] for each, one in found.items() if id(one) in changed}

    def __getitem__(self, name: str) -> torch.Tensor:
        """Raises ValueError where the merged weight is not finite."""
        tensor = self._held[name]
        for place, own in self._changes.get(name, []):
            with self._merging, torch.no_grad():
                layer = _apart(self._layers[place])
                layer.get_base_layer().get_parameter(own).data = tensor
                tensor = _unloaded(layer).state_dict()[own]
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def outline(self) -> dict[str, torch.Tensor]:
        """Types and shapes, on the meta device; nothing is merged for them."""
        return {name: tensor.to("meta") for name, tensor in self._held.items()}

    def again(self) -> set[str]:
        """See the function `again`."""
        return again(self._held)


def merged(model: Any) -> Merged:
    """What an engine is updated with when adapters are trained."""
    return Merged(model)


def outline(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """Tensors of the same types and shapes, which cost nothing to make."""
    return tensors.outline() if isinstance(tensors, Merged) else tensors


def again(tensors: Mapping[str, torch.Tensor]) -> set[str]:
    """Names of those that are one and the same as an earlier one, such as tied weights."""
    if isinstance(tensors, Merged):
        return tensors.again()
    seen: set[tuple[object, ...]] = set()
    found = set()
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place in seen and tensor.numel():
            found.add(name)
        seen.add(place)
    return found


def _units(base: Any) -> Iterator[tuple[str, Any]]:
    """What peft put in the place of a module, by where it is; nothing that is inside of another one."""
    places: set[str] = set()
    for place, module in base.named_modules():
        if (_has_own_way(module) or hasattr(module, "base_layer")) and places.isdisjoint(_above(place)):
            places.add(place)
            yield place, module


def _above(name: str) -> list[str]:
    """The modules that a name lies in, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _has_own_way(unit: Any) -> bool:
    """Whether peft puts something other than merged weights in the place of `unit`, such as a module trained whole."""
    return hasattr(unit, "unload_and_optionally_merge_module")


def _apart(unit: Any) -> Any:
    """A copy whose frozen weights are the same memory, so that new ones can be put into it."""
    frozen = [each for each in unit.parameters() if not each.requires_grad and type(each) is torch.nn.Parameter]
    return copy.deepcopy(unit, {id(each): torch.nn.Parameter(each.detach(), requires_grad=False) for each in frozen})


def _unloaded(apart: Any) -> Any:
    """What peft would put in the place of this copy, which is used up."""
    if _has_own_way(apart):
        return apart.unload_and_optionally_merge_module(merge=True, safe_merge=True, adapter_names=None)
    apart.merge(safe_merge=True)
    return apart.get_base_layer()
