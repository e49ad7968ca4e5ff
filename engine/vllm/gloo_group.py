"""A group of processes, a sender at rank 0 and receivers, and tensors broadcast through it by gloo.

It needs torch and no vLLM, so that a trainer's rank need not load it. What is sent, and what becomes of it, is
`engine.vllm.transfer`'s and `engine.vllm.gloo_backend`'s business.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed


@dataclass
class Group:
    """One member's hold on the group."""

    gloo: Any
    rank: int
    world_size: int
    timeout_s: float

    def leave(self) -> None:
        """Close the connections, which the others notice at once. Its own `shutdown` and `abort` do not do that."""
        self.gloo = None


def join(host: str, port: int, rank: int, world_size: int, timeout_s: float) -> Group:
    """Meet the others at `host:port`, where rank 0 listens. `timeout_s` bounds the meeting, and then the wait for each
    tensor. Raises TimeoutError or ConnectionError."""
    limit = timedelta(seconds=timeout_s)
    try:
        store = distributed.TCPStore(host, port, world_size, rank == 0, timeout=limit)
        gloo = distributed.ProcessGroupGloo(distributed.PrefixStore("weights", store), rank, world_size, timeout=limit)
    except Exception as error:  # torch has several, by version
        told = f"rank {rank} did not meet the other {world_size - 1} at {host}:{port} within timeout_s={timeout_s:g}"
        raise _kind(error)(f"{told}: {error}") from error
    return Group(gloo, rank, world_size, timeout_s)


def send(group: Group, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Broadcast tensors, from whatever device. Raises TimeoutError or ConnectionError, naming the tensor."""
    for name, tensor in tensors:
        _broadcast(group, name, tensor.detach().cpu().contiguous())


def receive(group: Group, metadata: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """What rank 0 sends, in the host's memory. `metadata` has `names`, `dtype_names` and `shapes`, in the order of
    sending. Raises as `send` does."""
    for name, dtype, shape in zip(metadata["names"], metadata["dtype_names"], metadata["shapes"], strict=True):
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        _broadcast(group, name, tensor)
        yield name, tensor


def _broadcast(group: Group, name: str, tensor: torch.Tensor) -> None:
    options = distributed.BroadcastOptions()
    options.rootRank = options.rootTensor = 0
    try:
        group.gloo.broadcast([tensor.view(-1).view(torch.uint8)], options).wait()
    except RuntimeError as error:
        way = f"{name!r} did not reach every receiver" if group.rank == 0 else f"{name!r} did not come"
        raise _kind(error)(f"{way} within timeout_s={group.timeout_s:g}: {error}") from error


def _kind(error: Exception) -> type[TimeoutError | ConnectionError]:
    return TimeoutError if "timed out" in str(error).lower() else ConnectionError
