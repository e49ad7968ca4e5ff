"""Memory of a GPU that is given to somebody else for a while: what is in it waits in the host's memory.

For ranks that share GPUs with engines and take turns. Works on the memory itself, so that whoever holds a tensor or a
view of one holds it still afterwards. DeepSpeed's own `offload_states` knows neither stage 0, nor bfloat16 at stage 1,
nor a model without an optimizer. Does not decide whose turn it is.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch


def tensors_in(held: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """All tensors in an object's attributes, and in the lists, tuples, sets and dictionaries in them, so deep."""
    if isinstance(held, torch.Tensor):
        yield held
    elif depth and isinstance(held, dict):
        for each in list(held.values()):
            yield from tensors_in(each, depth - 1)
    elif depth and isinstance(held, (list, tuple, set)):
        for each in list(held):
            yield from tensors_in(each, depth - 1)


class Parked:
    """The memory of `tensors` on a device, until `restore`. Meanwhile they must not be touched."""

    def __init__(self, tensors: Iterable[torch.Tensor], device: torch.device) -> None:
        storages = {each.untyped_storage()._cdata: each.untyped_storage() for each in tensors if each.device == device}
        self._waiting: list[tuple[Any, torch.Tensor]] = []
        for storage in storages.values():
            if not storage.nbytes():
                continue
            held = _bytes(storage)
            host = torch.empty(len(held), dtype=torch.uint8, pin_memory=device.type == "cuda")
            host.copy_(held)
            storage.resize_(0)
            self._waiting.append((storage, host))
        self._free(device)

    @property
    def nbytes(self) -> int:
        return sum(len(host) for _, host in self._waiting)

    def restore(self) -> None:
        """Everything back to where it was; calling it again does nothing."""
        while self._waiting:
            storage, host = self._waiting[-1]
            storage.resize_(len(host))
            _bytes(storage).copy_(host)
            self._waiting.pop()

    @staticmethod
    def _free(device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _bytes(storage: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
