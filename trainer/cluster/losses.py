"""What may be lost, and how often: the limits of a run's waits, and the count of what was replaced.

Not here: replacing (`trainer.cluster.runtime`), and ending a process for good (`trainer.cluster.fencing`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.vllm import TransferFailed
from trainer.cluster.ray_session import ActorLost, CallTimedOut, Limit, NotStarted
from trainer.config import ClusterConfig
from trainer.update import GroupLost
from workflow.failures import EngineFailed

FENCE = Limit("the limit of a fence", 30.0)
"""For a killed process to be gone. SIGKILL cannot be refused; a process that waits for a device may be late."""


@dataclass(frozen=True)
class Limits:
    """The configuration's waits, by what waits."""

    start: Limit
    call: Limit
    collective: Limit
    heartbeat: Limit

    @classmethod
    def of(cls, config: ClusterConfig) -> Limits:
        return cls(
            Limit("cluster.start_timeout_s", config.start_timeout_s),
            Limit("cluster.call_timeout_s", config.call_timeout_s),
            Limit("cluster.collective_timeout_s", config.collective_timeout_s),
            Limit("cluster.heartbeat_s", config.heartbeat_s),
        )


@dataclass
class Restarts:
    """How much was replaced within the last hour."""

    per_hour: int
    now: Callable[[], float] = time.monotonic
    _at: deque[float] = field(default_factory=deque)
    history: list[str] = field(default_factory=list)

    def count(self, what: str) -> None:
        """Before something is replaced. Raises `EngineFailed` past the limit, naming all of them."""
        while self._at and self._at[0] < self.now() - 3600:
            self._at.popleft()
        self._at.append(self.now())
        self.history.append(what)
        if len(self._at) > self.per_hour:
            told = "; ".join(self.history[-len(self._at) :])
            raise EngineFailed(
                "cluster",
                f"{len(self._at)} processes were lost within an hour, more than cluster.restarts_per_hour="
                f"{self.per_hour}: {told}. Fix: see why they end (memory? the nodes' logs), or raise it; then --resume",
            )


def is_loss(error: BaseException) -> bool:
    """Whether an exception of a call to ranks says that a process is lost: gone, silent, or left alone by another one
    in an exchange."""
    if isinstance(error, NotStarted):
        return error.gone
    return isinstance(error, (ActorLost, CallTimedOut, GroupLost, TransferFailed))
