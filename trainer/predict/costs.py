"""How long the parts of a step take: formulas over shapes and data sheets, each with the share of the peak that is
assumed to be reached, until a run has shown better (`trainer.predict.fit`).

Seconds only; bytes are `trainer.run.needs`', and which part waits for which is `trainer.predict.simulate`'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from trainer.config import PolicyConfig, TrainConfig
from trainer.predict.workload import Workload
from trainer.run import (
    NUMBER_BYTES,
    ClusterNeeds,
    Gpu,
    ModelSize,
    PolicyNeeds,
    engine_number_bytes,
    needs_on,
    trained_parameters,
)

CPU_CORE = Gpu("a CPU core", 0, 100e9, 5e9, 1e9, 1e9)
"""Two fused multiply-adds of 8 float32 in a cycle, at 3 GHz; the rest is assumed. What a step of a small model takes is
hardly arithmetic, so fit a run."""
DECODE_STEP_S = 0.002
"""Of an engine, whatever the model: scheduling and sampling."""
DECODE_SHARE = 0.6
"""Of the memory's bandwidth that decoding reaches."""
READ_SHARE = 0.4
"""Of the peak that reading prompts reaches."""
UPDATE_SHARE = 0.35
"""Of the peak that forward and backward passes reach."""
LINK_SHARE = 0.7
"""Of what GPUs or nodes have between them, in collectives."""
UPDATE_S = 1.0
"""Of an update beside its passes."""
SYNC_S = 0.5
"""Of a sync beside its bytes: the probe, the gate, and dropping caches."""
STORE_RATE = 1e9
"""Bytes per second through Ray's object store or over gloo."""
HOST_RATE = 25e9
"""Bytes per second between a GPU and its host."""
TURN_S = 1.0
"""Of handing a GPU over, beside the bytes."""
RUN_S = 0.05
"""Of a run worker, for one run: its jail, its program, its grade."""
FAILURES_PER_HOUR = 419 / (54 * 24 * 16_384)
"""Of a process with a GPU. Llama 3 (2024, section 3.3.4): 419 unexpected interruptions in 54 days of 16,384 GPUs."""
RECOVERY_S = 120.0
"""To fence and replace an engine or a group of ranks."""

PARAMETERS = {
    "token_s": "an engine's decoding step",
    "request_token_s": "each request in it",
    "prompt_token_s": "reading prompts",
    "run_s": "a run's sandbox",
    "update_s": "an update of any size",
    "update_token_s": "its tokens",
    "sync_s": "a sync of any size",
    "sync_rate": "its bytes",
}
"""What a run can show, with words for it."""


class PolicyCosts(BaseModel):
    model_config = ConfigDict(frozen=True)

    token_s: float
    """Of one decoding step of an engine, whatever its load."""
    request_token_s: float
    """More for each request in it."""
    prompt_token_s: float
    """Of reading one token."""
    update_s: float
    """Of an update, whatever its size."""
    update_token_s: float
    """Of one token forward and backward on one rank."""
    micro_batch_s: float = 0.0
    """More for each micro-batch: what ranks send each other."""
    optimizer_step_s: float = 0.0
    """The same, for each optimizer step."""
    sync_s: float
    """Of new weights, whatever their size."""
    sync_bytes: int = 0
    sync_rate: float = math.inf
    """Bytes per second from the ranks to all engines at once."""
    turn_s: float = 0.0
    """Of handing shared GPUs from ranks to engines or back, twice in a step."""

    @property
    def sync_total_s(self) -> float:
        return self.sync_s + self.sync_bytes / self.sync_rate


class Costs(BaseModel):
    model_config = ConfigDict(frozen=True)

    policies: dict[str, PolicyCosts]
    run_s: float
    failures_per_hour: float = 0.0
    """Of an engine, and of each rank."""
    recovery_s: float = RECOVERY_S


class Seen(BaseModel):
    """What a run has shown, as factors on what is assumed for its hardware, so that it holds for other layouts, too.
    Names are those of `PARAMETERS`; a missing one is as assumed."""

    model_config = ConfigDict(frozen=True)

    factors: dict[str, float] = {}


def costs_of(
    config: TrainConfig,
    sizes: Mapping[str, ModelSize],
    gpu: Gpu,
    workload: Workload,
    seen: Seen | None = None,
    needed: ClusterNeeds | None = None,
) -> Costs:
    """For `config`'s layout on these GPUs, or CPU cores. All processes of a policy are taken to be as near to each
    other as they can be. `needed` there is what that layout needs, where it is known already."""
    factors = dict.fromkeys(PARAMETERS, 1.0) | (seen.factors if seen else {})
    needed = needed or needs_on(config, sizes, gpu.name, gpu.memory_bytes or None)
    needs = {each.name: each for each in needed.policies}
    policies = {
        name: _policy(name, config, sizes[name], gpu, needs[name], _context(config, name, workload), factors)
        for name in config.policies
    }
    failures = FAILURES_PER_HOUR if config.cluster.layout != "one-process" else 0.0
    return Costs(policies=policies, run_s=RUN_S * factors["run_s"], failures_per_hour=failures)


def update_seconds(
    policy: PolicyConfig, costs: PolicyCosts, sequences: Sequence[float], mini_batches: int = 1
) -> float:
    """Of an update over sequences of so many tokens, which ranks share evenly, none being cut. 0 for none."""
    if not sequences:
        return 0.0
    each = max(math.fsum(sequences) / policy.update.ranks, *sequences)
    micro_batches = max(1, math.ceil(each / policy.max_tokens_per_micro_batch))
    return (
        costs.update_s
        + each * costs.update_token_s
        + micro_batches * costs.micro_batch_s
        + mini_batches * costs.optimizer_step_s
    )


def _policy(
    name: str,
    config: TrainConfig,
    size: ModelSize,
    gpu: Gpu,
    needs: PolicyNeeds,
    context: float,
    factors: Mapping[str, float],
) -> PolicyCosts:
    """An engine reads its weights once and all keys and values of its requests for one token of each, and computes 2 P
    operations for a token (Kaplan et al., 2020); a backward pass has twice a forward's, and checkpointing one forward
    more. Attention's own operations, which grow with the context, are left out."""
    policy = config.policies[name]
    ranks, number = policy.update.ranks, engine_number_bytes(size, policy)
    parallel = policy.engine.tensor_parallel
    bandwidth = gpu.bandwidth * DECODE_SHARE * parallel
    operations = 2 * size.parameters
    reads_s = operations / (gpu.flops * READ_SHARE * parallel)
    passes = 4 if policy.gradient_checkpointing else 3
    per_micro_batch, per_step = _exchanged(policy, size)
    between_s = (ranks - 1) / ranks / (_between(config, ranks, gpu) * LINK_SHARE)
    return PolicyCosts(
        token_s=factors["token_s"] * (DECODE_STEP_S + number * size.parameters / bandwidth),
        request_token_s=factors["request_token_s"] * (context * size.cache_bytes(number) / bandwidth + reads_s),
        prompt_token_s=factors["prompt_token_s"] * reads_s,
        update_s=factors["update_s"] * UPDATE_S,
        update_token_s=factors["update_token_s"] * passes * operations / (gpu.flops * UPDATE_SHARE),
        micro_batch_s=per_micro_batch * between_s,
        optimizer_step_s=per_step * between_s,
        sync_s=factors["sync_s"] * SYNC_S,
        sync_bytes=needs.sync_bytes,
        sync_rate=factors["sync_rate"] * _sync_rate(config, name, gpu),
        turn_s=TURN_S + needs.turn_bytes / HOST_RATE if needs.turn_bytes else 0.0,
    )


def _context(config: TrainConfig, policy: str, workload: Workload) -> float:
    """Tokens that a request has behind it while it decodes, in the mean, of the role that has more."""
    asked = {"designer": workload.designer, "executor": workload.executor}
    roles = [asked[role] for role, name in config.role_policies.items() if name == policy]
    return max((each.prompt + each.reply.mean / 2 for each in roles if each), default=0.0)


def _exchanged(policy: PolicyConfig, size: ModelSize) -> tuple[int, int]:
    """Bytes that each rank has to send for each micro-batch, and for each optimizer step, but for the factor
    (N - 1) / N (Rajbhandari et al., 2020, section 7): gradients of float32 are reduced, and weights gathered, once at
    stages 0 and 1; at stage 2 gradients go with each micro-batch, at stage 3 weights do, too, forward and backward."""
    number, trained = NUMBER_BYTES[policy.dtype], trained_parameters(size, policy)
    match policy.update.zero_stage:
        case 0:
            return 0, 2 * 4 * trained
        case 1:
            return 0, (4 + number) * trained
        case 2:
            return 4 * trained, number * trained
        case 3:
            return 2 * number * size.parameters + 4 * trained, 0


def _between(config: TrainConfig, processes: int, gpu: Gpu) -> float:
    """Bytes per second between so many processes: of the node, where they fit into one."""
    of_a_node = config.cluster.gpus_per_node or processes
    return gpu.link if processes <= of_a_node else gpu.network


def _sync_rate(config: TrainConfig, name: str, gpu: Gpu) -> float:
    """Bytes per second by the transport that is used. A copy through the store is written once and read once."""
    policy, cluster = config.policies[name], config.cluster
    if cluster.layout == "one-process":
        return gpu.bandwidth
    transport = cluster.transport
    if transport == "auto":
        on_gpus = "ipc" if cluster.layout == "colocated" else "nccl"
        transport = "store" if policy.engine.kind != "vllm" else on_gpus if cluster.gpus_per_node else "gloo"
    if transport == "ipc":
        return gpu.link * LINK_SHARE
    if transport == "nccl":
        processes = policy.update.ranks + policy.engine.replicas * policy.engine.tensor_parallel
        return _between(config, processes, gpu) * LINK_SHARE
    return STORE_RATE / 2 if transport == "store" else STORE_RATE
