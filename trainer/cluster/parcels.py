"""Weights in pieces for Ray's object store: arrays of bytes with what they are, and the proof that they arrived whole.

Only what both ends do to the bytes; who sends and who takes is `trainer.cluster.sync`'s business.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import importlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.vllm import Tally

PARCEL_BYTES = 64 << 20


@dataclass(frozen=True)
class Parcel:
    """Some tensors: name, dtype, shape and bytes of each."""

    tensors: Sequence[tuple[str, str, tuple[int, ...], Any]]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for *_, array in self.tensors)


def packed(stream: Iterable[Sequence[tuple[str, Any]]]) -> Iterator[tuple[Parcel, Mapping[str, Any]]]:
    """Pieces of a stream of named tensors (`DeepSpeedRank.stream`), of some `PARCEL_BYTES` each, with the tensors on
    the CPU that are in each, as they went."""
    torch = importlib.import_module("torch")
    held: dict[str, Any] = {}
    size = 0
    for group in stream:
        for name, tensor in group:
            held[name] = tensor.detach().to("cpu", copy=True).contiguous()
            size += held[name].nbytes
        if size >= PARCEL_BYTES:
            yield _parcel(torch, held), held
            held, size = {}, 0
    if held:
        yield _parcel(torch, held), held


def _parcel(torch: Any, tensors: Mapping[str, Any]) -> Parcel:
    return Parcel(
        [
            (name, str(each.dtype).removeprefix("torch."), tuple(each.shape), each.flatten().view(torch.uint8).numpy())
            for name, each in tensors.items()
        ]
    )


async def unpacked(parcels: Sequence[Parcel], sent: str) -> dict[str, Any]:
    """The tensors in parcels. Raises RuntimeError where their fingerprint (`Tally`) is not `sent`."""
    tally = Tally()
    tensors = await asyncio.to_thread(lambda: dict(tally.passing(_tensors(parcels))))
    if tally.fingerprint != sent:
        told = f"{tally.fingerprint[:12]}, not {sent[:12]}"
        raise RuntimeError(f"the weights that arrived are not those that were sent: their fingerprint is {told}")
    return tensors


def _tensors(parcels: Sequence[Parcel]) -> Iterator[tuple[str, Any]]:
    torch = importlib.import_module("torch")
    for name, dtype, shape, array in (tensor for parcel in parcels for tensor in parcel.tensors):
        # The store's memory is read-only, which torch cannot say and warns of; nothing writes to it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            flat = torch.from_numpy(array)
        yield name, flat.view(getattr(torch, dtype)).reshape(shape)
