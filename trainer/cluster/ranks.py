"""The ranks of one policy as one update backend: in actors, as a group that DeepSpeed's backend talks to, or one rank
with plain torch.

Not here: what a rank computes (`trainer.update`), and what follows when one is lost (`trainer.cluster.runtime`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.protocol import Probe
from trainer.cluster.failures import Limits
from trainer.cluster.session import Actor, Limit, gathered
from trainer.config import PolicyConfig, TrainConfig
from trainer.run import backend_settings
from trainer.samples import Sample
from trainer.update import Backend, Objective, UpdateReport


def on_ranks(actors: Sequence[Actor], key: str) -> Callable[..., Any]:
    """`trainer.cluster.sync.Ranks` of the policy that these actors hold under `key`."""

    async def call(function: Callable[..., Any], *arguments: Any, limit: Limit) -> list[Any]:
        references = [actor.begin("on", key, function, *arguments) for actor in actors]
        return await asyncio.to_thread(gathered, actors, function.__name__, references, limit)

    return call


class OneRank:
    """A `Backend` whose only rank, with plain torch, is in an actor."""

    def __init__(self, actor: Actor, key: str, limit: Limit) -> None:
        self._actor, self._key, self._limit = actor, key, limit

    @property
    def steps(self) -> int:
        return self._do("steps")

    @property
    def learning_rate(self) -> float:
        return self._do("learning_rate")

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._actor.wait("set", self._key, "learning_rate", value, limit=self._limit)

    def update(self, samples: Sequence[Sample], objective: Objective) -> UpdateReport:
        return self._do("update", samples, objective)

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return self._do("logprobs", samples)

    def weights(self) -> Mapping[str, Any]:
        return self._do("weights")

    def probe(self, token_ids: Sequence[int]) -> Probe:
        return self._do("probe", token_ids)

    def save(self, folder: Path) -> None:
        self._do("save", folder)

    def load(self, folder: Path) -> None:
        self._do("load", folder)

    def close(self) -> None:
        self._actor.wait("drop", self._key, limit=self._limit)

    def _do(self, method: str, *arguments: Any) -> Any:
        return self._actor.wait("do", self._key, method, *arguments, limit=self._limit)


def torch_rank(model: str, settings: dict[str, Any]) -> Any:
    """In an actor: the backend that is its only rank."""
    from trainer.update import TorchBackend

    return TorchBackend(model, **settings)


def backend_on(
    actors: Sequence[Actor], name: str, policy: PolicyConfig, config: TrainConfig, limits: Limits
) -> Backend:
    """The policy's backend, loaded, in actors that run. Blocks."""
    settings = backend_settings(name, policy, config)
    if policy.update.backend == "torch":
        actors[0].wait("make", name, torch_rank, policy.model, settings, limit=limits.start)
        return OneRank(actors[0], name, limits.call)
    raise NotImplementedError
