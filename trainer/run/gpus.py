"""What GPUs have by their data sheets. How much of it software gets out of them is not said here."""

from __future__ import annotations

from dataclasses import dataclass

GB = 10**9


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory_bytes: int
    """As on the label. What the driver reports is about 6 % more, of which CUDA's own context takes a part."""
    flops: float
    """Dense bfloat16, per second."""
    bandwidth: float
    """Bytes per second of its own memory."""
    link: float
    """Bytes per second to the GPUs of its node, one way."""
    network: float
    """Bytes per second to other nodes, one way: an adapter of 400 Gb/s for each GPU, as in NVIDIA's own machines."""


GPUS = {
    "H100": Gpu("H100", 80 * GB, 989e12, 3.35e12, 450e9, 50e9),
    "H200": Gpu("H200", 141 * GB, 989e12, 4.8e12, 450e9, 50e9),
}
"""NVIDIA's SXM modules, by name."""
