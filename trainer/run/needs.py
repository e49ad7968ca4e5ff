"""What each GPU of a cluster holds in each phase of a step, and how many bytes a sync and a host have to carry.

    rollout   engines work; ranks that share their GPUs wait in the host's memory
    sync      new weights are sent piece by piece; of ranks that share GPUs only the weights are there, of engines all
              but the cache
    update    ranks work; engines that share their GPUs have dropped all

Only DeepSpeed's ranks and vLLM's engines take turns like this (`trainer.cluster.turns`); others keep what they have.
Formulas over a configuration and the models' shapes; docs/cluster.md has them. Where processes sit is
`trainer.cluster.layout`'s business, and how long anything takes `trainer.predict.costs`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel

from trainer.config import PolicyConfig, TrainConfig
from trainer.run.gpus import GPUS
from trainer.run.memory import (
    Memory,
    cache_per_token,
    checkpoint_bytes,
    engine_memory,
    engine_number_bytes,
    offloaded,
    rank_at_rest,
    rank_at_work,
)
from trainer.run.remedies import divides_heads, remedy
from trainer.run.sizes import NUMBER_BYTES, ModelSize, UnknownSize, model_folder, model_size

Phase = Literal["rollout", "sync", "update"]


class GpuNeeds(BaseModel):
    """One kind of GPU, or of process where there are none."""

    holds: Literal["rank", "engine", "rank and engine"]
    count: int
    phases: dict[Phase, Memory]

    @property
    def most(self) -> int:
        """Bytes of the phase that takes most."""
        return max(memory.total for memory in self.phases.values())


class PolicyNeeds(BaseModel):
    name: str
    gpus: list[GpuNeeds]
    cached_tokens: int
    """That an engine's cache holds."""
    cached_requests: float
    """Of full length, prompt and completion."""
    turn_bytes: int = 0
    """Of each rank that go to the host when its engine has its turn, and come back."""
    host_bytes: int
    """Of all ranks together, in their hosts' memory at most: what is offloaded, or waits for its turn, and the copy of
    a checkpoint that is being written; or the whole model, which DeepSpeed's ranks each load once."""
    sync_bytes: int
    """All weights, once, as they are sent; each engine gets as many."""
    received_bytes: int
    """By all engines in one sync."""


class ClusterNeeds(BaseModel):
    """On one kind of GPU."""

    gpu: str
    """A name in `trainer.run.gpus.GPUS`; empty without GPUs, where figures are those of processes."""
    gpu_bytes: int | None
    policies: list[PolicyNeeds]
    lacking: list[str]
    """What does not fit, with what to do; none if all fits."""


def known_sizes(config: TrainConfig) -> dict[str, ModelSize]:
    """By policy, of those whose `config.json` is here and can be read."""
    found: dict[str, ModelSize] = {}
    for name, policy in config.policies.items():
        folder = model_folder(policy.model)
        if folder is not None:
            try:
                found[name] = model_size(folder)
            except UnknownSize:
                continue
    return found


def cluster_needs(config: TrainConfig) -> list[ClusterNeeds]:
    """For every kind of GPU in `GPUS`, or once without GPUs. Empty where a model's size is unknown."""
    sizes = known_sizes(config)
    if len(sizes) < len(config.policies):
        return []
    kinds = [(gpu.name, gpu.memory_bytes) for gpu in GPUS.values()] if config.cluster.gpus_per_node else [("", None)]
    return [needs_on(config, sizes, name, memory_bytes) for name, memory_bytes in kinds]


def needs_on(config: TrainConfig, sizes: Mapping[str, ModelSize], gpu: str, gpu_bytes: int | None) -> ClusterNeeds:
    """On GPUs of `gpu_bytes`. Without any, vLLM's cache is not known and counted as 0."""
    policies = [_policy(name, policy, config, sizes[name], gpu_bytes or 0) for name, policy in config.policies.items()]
    lacking = [
        line
        for name, each in zip(config.policies, policies, strict=True)
        for line in _lacking(each, config, sizes[name], gpu, gpu_bytes)
    ]
    return ClusterNeeds(gpu=gpu, gpu_bytes=gpu_bytes, policies=policies, lacking=lacking)


def _policy(name: str, policy: PolicyConfig, config: TrainConfig, size: ModelSize, gpu_bytes: int) -> PolicyNeeds:
    context = config.rollout.max_prompt_tokens + config.rollout.max_tokens
    ranks, engines = policy.update.ranks, policy.engine.replicas
    work = rank_at_work(size, policy, config)
    rest = rank_at_rest(work)
    serving = engine_memory(size, policy, gpu_bytes, context)
    piece = min(size.largest_piece, size.parameters)
    divided = policy.update.backend == "deepspeed" and policy.update.zero_stage == 3
    sending = rest.model_copy(update={"gathered": piece * NUMBER_BYTES[policy.dtype]}) if divided else rest
    piece_bytes = piece * engine_number_bytes(size, policy)
    parallel = policy.engine.tensor_parallel
    receiving = serving.model_copy(update={"incoming": piece_bytes})
    parked = turn_bytes = 0
    loaded = ranks * NUMBER_BYTES[policy.dtype] * size.parameters if policy.update.backend == "deepspeed" else 0
    if config.cluster.layout == "colocated":
        both: dict[Phase, Memory]
        if config.cluster.gpus_per_node and policy.update.backend == "deepspeed" and policy.engine.kind == "vllm":
            weights = sending.model_copy(update={"masters": 0, "gradients": 0, "moments": 0, "reference": 0})
            awake = receiving.model_copy(update={"engine_cache": 0})
            both = {"rollout": serving, "sync": _sum(weights, awake), "update": work}
            turn_bytes = rest.total
            parked = turn_bytes * ranks
        else:
            both = {"rollout": _sum(rest, serving), "sync": _sum(sending, receiving), "update": _sum(work, serving)}
        gpus = [GpuNeeds(holds="rank and engine", count=ranks, phases=both)]
    else:
        gpus = [
            GpuNeeds(holds="rank", count=ranks, phases={"rollout": rest, "sync": sending, "update": work}),
            GpuNeeds(
                holds="engine",
                count=engines * parallel,
                phases={"rollout": serving, "sync": receiving, "update": serving},
            ),
        ]
    tokens = serving.engine_cache // cache_per_token(size, policy)
    sync_bytes = NUMBER_BYTES[policy.dtype] * size.parameters
    return PolicyNeeds(
        name=name,
        gpus=gpus,
        cached_tokens=tokens,
        cached_requests=tokens / context,
        turn_bytes=turn_bytes,
        host_bytes=max(parked + offloaded(size, policy) * ranks + checkpoint_bytes(size, policy), loaded),
        sync_bytes=sync_bytes,
        received_bytes=sync_bytes * engines,
    )


def _sum(one: Memory, other: Memory) -> Memory:
    theirs = other.model_dump()
    return Memory(**{name: count + theirs[name] for name, count in one.model_dump().items()})


def _lacking(needs: PolicyNeeds, config: TrainConfig, size: ModelSize, gpu: str, gpu_bytes: int | None) -> list[str]:
    name, policy = needs.name, config.policies[needs.name]
    parallel = policy.engine.tensor_parallel
    wrong = []
    if policy.engine.kind == "vllm" and not divides_heads(size, parallel):
        fits = [str(each) for each in range(1, 2 * parallel) if divides_heads(size, each)]
        wrong.append(
            f"policies.{name}: engine.tensor_parallel = {parallel} does not divide the model's {size.heads} heads, of "
            f"which {size.key_value_heads} have keys. Fix: {' or '.join(fits)}"
        )
    told = list(_over(needs, gpu, gpu_bytes)) if gpu_bytes else []
    if told:

        def helps(changed: PolicyConfig) -> bool:
            return not any(_over(_policy(name, changed, config, size, gpu_bytes or 0), gpu, gpu_bytes or 0))

        fix = remedy(policy, size, config.cluster.layout == "colocated", helps)
        wrong += [f"{each}. Fix: {fix}" for each in told]
    return wrong


def _over(needs: PolicyNeeds, gpu: str, gpu_bytes: int) -> Iterator[str]:
    """What is more than a GPU has, and a cache that is too small."""
    for each in needs.gpus:
        for phase, memory in each.phases.items():
            if memory.total > gpu_bytes:
                over = (memory.total - gpu_bytes) / 2**30
                yield (
                    f"policies.{needs.name}: {phase} takes {memory.total / 2**30:.1f} GiB on a GPU with its "
                    f"{each.holds}, {over:.1f} GiB more than an {gpu} has"
                )
    if needs.cached_requests < 1:
        yield (
            f"policies.{needs.name}: the cache of an engine holds {needs.cached_tokens:,} tokens on an {gpu}, less "
            "than one request of full length"
        )
