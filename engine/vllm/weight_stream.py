"""Weights as a stream: a trainer's layers that are whole only for a moment, and a tally of what passed by.

No torch is loaded before tensors come. How they travel is `engine.vllm.transfer`'s business.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Weight:
    """One tensor of a stream, as vLLM's senders ask for it."""

    name: str
    dtype: Any
    shape: tuple[int, ...]


class ZeroSource:
    """What vLLM's senders ask of a `WeightSource`, over a stream of layers.

    `stream()` yields one list of (name, tensor) per decoder layer, and may take the tensors away when it is asked for
    the next list, as ZeRO-3's gathers do. What comes out of this are copies, a layer's at a time: senders that pack
    keep views of several tensors, which would point at memory that was given up. Gathers are collectives: all ranks of
    the trainer iterate.
    """

    def __init__(self, stream: Callable[[], Iterable[Sequence[tuple[str, Any]]]]) -> None:
        self.stream = stream
        self._metadata: list[Weight] | None = None

    def metadata(self) -> list[Weight]:
        """Names, types and shapes in the stream's order. The first call goes through it once: make it on all ranks."""
        if self._metadata is None:
            named = (pair for layer in self.stream() for pair in layer)
            self._metadata = [Weight(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in named]
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for layer in self.stream():
            yield from [(name, tensor.detach().clone().contiguous()) for name, tensor in layer]


def told_of(weights: Sequence[Weight]) -> dict[str, list[Any]]:
    """What engines are told before the bytes come, in plain lists: `names`, `dtype_names` and `shapes`."""
    return {
        "names": [weight.name for weight in weights],
        "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in weights],
        "shapes": [list(weight.shape) for weight in weights],
    }


@dataclass
class Tally:
    """What passed by, tensor by tensor. Both ends keep one, and they agree if everything came as it went."""

    parts: dict[str, str] = field(default_factory=dict)
    """By name the digest of each tensor (`engine.fingerprints.fingerprint_parts`)."""
    bytes: int = 0

    def passing(self, tensors: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """`tensors`, each of which is noted before it is handed on."""
        noted = importlib.import_module("engine.fingerprints").fingerprint_parts
        for name, tensor in tensors:
            self.parts |= noted({name: tensor})
            self.bytes += tensor.nbytes
            yield name, tensor

    @property
    def fingerprint(self) -> str:
        """What `engine.fingerprints.fingerprint` says of all of them together."""
        return importlib.import_module("engine.fingerprints").combined(self.parts)
