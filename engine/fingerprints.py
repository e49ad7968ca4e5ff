"""Digests of weights that are the same on every device: whether two processes hold the same tensors.

They guard against mistakes, not against forgery. What is then done about a difference is the caller's business.

A tensor's bytes are read as 64-bit words in rows of 1,024. Of each row two sums are kept, modulo 2**64: of its words,
and of their upper halves, each times an odd constant of its place. So a row in which one word differs, or in which two
elements have changed places, has other sums for certain; of other differences about one in 2**32 would be missed in a
row. The sums are the same in whatever order a device adds them up, and take one pass over the memory. With type and
shape they go through BLAKE2b.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch

from engine.threads import mapped

VERSION = "w2:"
"""Digests begin with it. Those of other versions tell nothing about these."""
_ROW = 1024
"""Words."""
_ON_CPU, _ON_DEVICE = 128, 1 << 13
"""Rows taken at once: 1 MiB, which stays in a core's cache, and 64 MiB. It bounds the memory that is taken."""
_CONSTANTS = np.frombuffer(hashlib.shake_256(b"weights").digest(2 * 8 * _ROW), np.int64).reshape(2, _ROW) | 1
"""Odd. No two of a row have a difference divisible by 2**33, so that no exchange of two elements cancels out."""


def fingerprint(tensors: Mapping[str, torch.Tensor]) -> str:
    """A digest of names, types, shapes and every bit of the values: equal for equal weights on any devices.

    Computed where the tensors lie, on CPUs in several threads. A mapping that makes its tensors when they are asked for
    is asked for each of them once, by those threads.
    """
    return combined(fingerprint_parts(tensors))


def fingerprint_parts(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """By name the digest of each tensor. Parts of one model that are computed at different times, or by different
    processes, are put together with `|` and go into `combined`."""
    return dict(mapped(lambda name: (name, _digest(tensors[name])), tensors))


def combined(parts: Mapping[str, str]) -> str:
    """The fingerprint of the weights whose `fingerprint_parts` these are, in whatever order they came."""
    lines = "".join(f"{name!r} {parts[name]}\n" for name in sorted(parts))
    return VERSION + hashlib.blake2b(lines.encode(), digest_size=32).hexdigest()


def comparable(fingerprint: str) -> bool:
    """Whether a fingerprint that was kept is of the kind that is made here."""
    return fingerprint.startswith(VERSION)


def _digest(tensor: torch.Tensor) -> str:
    digest = hashlib.blake2b(f"{tensor.dtype} {list(tensor.shape)}".encode(), digest_size=16)
    # A single element counts as contiguous whatever its stride, and is no bytes then.
    octets = tensor.detach().contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    whole = len(octets) // (8 * _ROW) * (8 * _ROW)
    last = octets.new_zeros(8 * _ROW)
    last[: len(octets) - whole] = octets[whole:]
    sums = _sums_on_cpu if octets.device.type == "cpu" else _sums_on_device
    for part in (octets[:whole], last):
        digest.update(sums(_words(part).view(-1, _ROW)).tobytes())
    return digest.hexdigest()


def _words(octets: torch.Tensor) -> torch.Tensor:
    """The same memory as int64, or a copy where a word would lie across two."""
    aligned = octets.storage_offset() % 8 == octets.data_ptr() % 8 == 0
    return (octets if aligned else octets.clone()).view(torch.int64)


def _sums_on_cpu(rows: torch.Tensor) -> np.ndarray:
    """The two sums [2, rows] of words [rows, 1024]. numpy, as it starts no threads of its own and multiplies integers
    twice as fast."""
    low, high = _CONSTANTS
    words = rows.numpy()
    sums = np.empty((2, len(words)), np.int64)
    upper = np.empty((_ON_CPU, _ROW), np.int64)
    for start in range(0, len(words), _ON_CPU):
        some, here = words[start : start + _ON_CPU], sums[:, start : start + _ON_CPU]
        np.dot(some, low, out=here[0])
        np.dot(np.right_shift(some, 32, out=upper[: len(some)]), high, out=here[1])
    return sums


def _sums_on_device(rows: torch.Tensor) -> np.ndarray:
    """The same in torch, where the memory is."""
    low, high = torch.from_numpy(_CONSTANTS).to(rows.device)
    sums = rows.new_empty(2, len(rows))
    for start in range(0, len(rows), _ON_DEVICE):
        some, here = rows[start : start + _ON_DEVICE], sums[:, start : start + _ON_DEVICE]
        here[0] = (some * low).sum(1)
        here[1] = (some >> 32).mul_(high).sum(1)
    return sums.cpu().numpy()
