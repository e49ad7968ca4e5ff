"""Tensors into safetensors files: cut into shards, which are made, hashed and written several at a time.

A tensor that is made when it is asked for, or lies on a GPU, takes memory only while it is written. Reading is
`trainer.update.policy_files`' business; the format is safetensors' (8 bytes of length, a header in JSON, the bytes).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from engine.merging import outline
from engine.threads import mapped
from trainer.disk import Written, hashing

SHARD = 1 << 30
"""Bytes of tensors in a file; a larger tensor has one of its own. Small enough that an 8B model's files keep every
thread busy, here and where they are checked."""
_PIECE = 1 << 22
"""Elements that are copied from a GPU at once."""
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write(
    folder: Path,
    stem: str,
    tensors: Mapping[str, torch.Tensor],
    names: Iterable[str] | None = None,
    shard: int = SHARD,
) -> list[Written]:
    """`folder/STEM.safetensors`. Where that would have more than `shard` bytes, `STEM-00001-of-00002.safetensors` and
    so on with `STEM.safetensors.index.json`, as transformers has them.

    Of `tensors` those called `names` are written, all unless given; each is asked for once. Raises OSError, and
    ValueError for a type that the format does not have.
    """
    shapes = outline(tensors)
    shapes = {name: shapes[name] for name in (tensors if names is None else names)}
    shards = _shards(shapes, shard)
    single = len(shards) == 1
    names = [
        f"{stem}.safetensors" if single else f"{stem}-{number:05}-of-{len(shards):05}.safetensors"
        for number in range(1, len(shards) + 1)
    ]
    written = mapped(
        lambda job: _write(folder / job[0], {name: shapes[name] for name in job[1]}, tensors),
        zip(names, shards, strict=True),
    )
    if single:
        return written
    places = {name: file for file, inside in zip(names, shards, strict=True) for name in inside}
    index = {"metadata": {"total_size": sum(map(_bytes, shapes.values()))}, "weight_map": dict(sorted(places.items()))}
    with hashing(folder / f"{stem}.safetensors.index.json") as file:
        file.write(json.dumps(index, indent=1).encode())
    return [*written, file.written()]


def _shards(shapes: Mapping[str, torch.Tensor], most: int) -> list[list[str]]:
    """Names, the widest types first, so that every tensor lies at a multiple of its elements' size."""
    shards: list[list[str]] = [[]]
    size = 0
    for name in sorted(shapes, key=lambda name: (-shapes[name].element_size(), name)):
        size += _bytes(shapes[name])
        if size > most and shards[-1]:
            shards.append([])
            size = _bytes(shapes[name])
        shards[-1].append(name)
    return shards


def _write(path: Path, shapes: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> Written:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + _bytes(shape)
        header[name] = {"dtype": _name(name, shape), "shape": list(shape.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with hashing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            tensor = tensors[name].detach()
            if (tensor.dtype, tensor.shape) != (shape.dtype, shape.shape):
                raise ValueError(
                    f"{name!r} is {tensor.dtype} {list(tensor.shape)}, not {shape.dtype} {list(shape.shape)}"
                )
            for piece in tensor.contiguous().as_strided((tensor.numel(),), (1,)).split(_PIECE):
                file.write(piece.cpu().view(torch.uint8).numpy().data)
    return file.written()


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _name(name: str, tensor: torch.Tensor) -> str:
    if tensor.dtype not in _NAMES:
        raise ValueError(f"{name!r} is {tensor.dtype}, which safetensors files do not hold here. Fix: convert it first")
    return _NAMES[tensor.dtype]
