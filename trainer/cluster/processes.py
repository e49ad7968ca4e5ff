"""A process of an actor, as the driver must know it: who it is, so that it can be ended for good, and how busy.

Not here: what it does (`trainer.cluster.actors`), and its end (`trainer.cluster.fencing`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """A process, as whoever must end it needs to know it."""

    pid: int
    group: int
    """Its process group."""
    node: str
    devices: tuple[str, ...] = ()
    """UUIDs of the GPUs that it sees."""
    children: tuple[int, ...] = ()
    """Processes of its own that may outlive it."""
    leftovers: tuple[str, ...] = ()
    """Paths that stay when it is killed: shared memory, sockets."""


def identity(children: Sequence[int] = (), leftovers: Sequence[str] = ()) -> Identity:
    from ray import get_runtime_context

    return Identity(
        pid=os.getpid(),
        group=os.getpgid(0),
        node=get_runtime_context().get_node_id(),
        devices=_device_uuids(),
        children=tuple(children),
        leftovers=tuple(leftovers),
    )


def _device_uuids() -> tuple[str, ...]:
    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return ()
    import torch

    return tuple(str(torch.cuda.get_device_properties(n).uuid) for n in range(torch.cuda.device_count()))


@dataclass
class Busy:
    """Seconds in which something was under way."""

    inside: int = 0
    since: float = 0.0
    total: float = 0.0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        if not self.inside:
            self.since = time.monotonic()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self.total += time.monotonic() - self.since

    def taken(self) -> float:
        """Since this was last asked."""
        now = time.monotonic()
        if self.inside:
            self.total, self.since = self.total + now - self.since, now
        total, self.total = self.total, 0.0
        return total
