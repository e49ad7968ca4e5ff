"""Ranks and engines of one GPU take turns with its memory (`cluster.layout = "colocated"`).

    rollout       engines have all; the ranks' memory waits in the host's
    update        engines sleep (level 2: their weights are dropped), ranks are back
    sync          optimizer out, the engines' weights are awake and taken in, by IPC
    rollout       the ranks' weights out, the engines' cache awake

On CPUs, and where a policy has plain torch's one rank, nothing is moved: both keep what they have. Not here: what is
computed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from trainer.cluster.ray_session import Actor, Limit
from trainer.config import TrainConfig
from trainer.update import Backend

if TYPE_CHECKING:
    from trainer.update import DeepSpeedBackend


def take_turns(config: TrainConfig, policy: str) -> bool:
    """Whether a policy's ranks and engines must."""
    settings = config.policies[policy]
    return (
        config.cluster.layout == "colocated"
        and config.cluster.gpus_per_node > 0
        and settings.update.backend == "deepspeed"
        and settings.engine.kind == "vllm"
    )


async def to_ranks(backend: Backend, engines: Sequence[Actor], limit: Limit) -> None:
    """Before an update, a probe or a checkpoint is loaded; nothing happens where it is their turn already."""
    await asleep(engines, limit)
    await asyncio.to_thread(_deepspeed(backend).reload)


async def asleep(engines: Sequence[Actor], limit: Limit) -> None:
    """Engines drop weights and cache, when requests under way have ended."""
    await asyncio.gather(*(engine.call("vllm", "sleep", 2, limit=limit) for engine in engines))


async def to_both(backend: Backend, engines: Sequence[Actor], limit: Limit) -> None:
    """Before weights are taken in; it is the ranks' turn."""
    await asyncio.to_thread(_deepspeed(backend).offload, True)
    await asyncio.gather(*(engine.call("vllm", "wake", ["weights"], limit=limit) for engine in engines))


async def to_engines(backend: Backend, engines: Sequence[Actor], limit: Limit) -> None:
    """When weights are in, before they are proven, which needs the cache."""
    await asyncio.to_thread(_deepspeed(backend).offload)
    await asyncio.gather(*(engine.call("vllm", "wake", ["kv_cache"], limit=limit) for engine in engines))


def _deepspeed(backend: Backend) -> DeepSpeedBackend:
    """What a policy that takes turns has."""
    return cast("DeepSpeedBackend", backend)
