"""The ranks of one policy as one update backend: in actors, as a group that DeepSpeed's backend talks to, or one rank
with plain torch.

Not here: what a rank computes (`trainer.update`), and what follows when one is lost (`trainer.cluster.runtime`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.protocol import Probe
from trainer.cluster.losses import Limits
from trainer.cluster.ray_session import Actor, Limit, gathered
from trainer.config import PolicyConfig, TrainConfig
from trainer.disk import Written
from trainer.run import backend_settings
from trainer.samples import Sample
from trainer.update import Backend, Objective, Snapshot, UpdateReport


def on_ranks(actors: Sequence[Actor], key: str) -> Callable[..., Any]:
    """`trainer.cluster.sync.Ranks` of the policy that these actors hold under `key`."""

    async def call(function: Callable[..., Any], *arguments: Any, limit: Limit) -> list[Any]:
        references = [actor.begin("on", key, function, *arguments) for actor in actors]
        return await asyncio.to_thread(gathered, actors, function.__name__, references, limit)

    return call


@dataclass(frozen=True, slots=True)
class _Held:
    """The snapshot of an actor's only rank."""

    actor: Actor
    key: str
    limit: Limit

    def write(self, folder: Path) -> list[Written]:
        return self.actor.wait("write", self.key, folder, limit=self.limit)


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

    def snapshot(self) -> Snapshot:
        self._actor.wait("snapshot", self._key, limit=self._limit)
        return _Held(self._actor, self._key, self._limit)

    def load(self, folder: Path) -> None:
        self._do("load", folder)

    def close(self) -> None:
        self._actor.wait("drop", self._key, limit=self._limit)

    def _do(self, method: str, *arguments: Any) -> Any:
        return self._actor.wait("do", self._key, method, *arguments, limit=self._limit)


class ActorGroup:
    """A `trainer.update.Group` of actors that hold a `DeepSpeedRank` each."""

    def __init__(self, actors: Sequence[Actor], key: str, limit: Limit) -> None:
        self.size = len(actors)
        self._actors, self._key, self._limit = actors, key, limit

    def call(self, method: str, *arguments: Any, each: Sequence[Any] | None = None) -> list[Any]:
        own = [()] * self.size if each is None else [(one,) for one in each]
        references = [
            actor.begin("do", self._key, method, *arguments, *one) for actor, one in zip(self._actors, own, strict=True)
        ]
        return gathered(self._actors, method, references, self._limit)

    def snapshot(self) -> None:
        self._of_all("snapshot")

    def write(self, folder: Path) -> list[Written]:
        return [each for written in self._of_all("write", folder) for each in written]

    def _of_all(self, method: str, *arguments: Any) -> list[Any]:
        references = [actor.begin(method, self._key, *arguments) for actor in self._actors]
        return gathered(self._actors, method, references, self._limit)

    def close(self) -> None:
        self._of_all("drop")


def torch_rank(model: str, settings: dict[str, Any]) -> Any:
    """In an actor: the backend that is its only rank."""
    from trainer.update import TorchBackend

    return TorchBackend(model, **settings)


def deepspeed_rank(settings: Any) -> Any:
    from trainer.update import DeepSpeedRank

    return DeepSpeedRank(settings)


def backend_on(
    actors: Sequence[Actor], name: str, policy: PolicyConfig, config: TrainConfig, limits: Limits
) -> Backend:
    """The policy's backend, loaded, in actors that run. Blocks."""
    settings = backend_settings(name, policy, config)
    if policy.update.backend == "torch":
        actors[0].wait("make", name, torch_rank, policy.model, settings, limit=limits.start)
        return OneRank(actors[0], name, limits.call)
    from trainer.update import DeepSpeedBackend, DeepSpeedSettings

    host, port = actors[0].wait("address", limit=limits.start)
    device = "cuda" if policy.device != "cpu" and config.cluster.gpus_per_node else "cpu"
    meeting = [actor.begin("join", len(actors), host, port, limits.collective.seconds, device) for actor in actors]
    gathered(actors, "join", meeting, limits.start)
    for other in ("device", "shared_prompts"):
        del settings[other]
    update = {"zero_stage": policy.update.zero_stage, "offload_optimizer": policy.update.offload_optimizer}
    told = DeepSpeedSettings.model_validate({"model": policy.model, **settings, **update})
    made = [actor.begin("make", name, deepspeed_rank, told) for actor in actors]
    gathered(actors, "make", made, limits.start)
    return DeepSpeedBackend(ActorGroup(actors, name, limits.call))
