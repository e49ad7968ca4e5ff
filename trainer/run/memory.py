"""Bytes that a policy takes on a GPU: in plain torch, which holds it whole, in a rank of DeepSpeed, in an engine.

Formulas over shapes; docs/cluster.md has them with their sources, and what they leave out. What is on a GPU at which
time is `trainer.run.needs`' business. Nothing here needs torch or a GPU.
"""

from __future__ import annotations

import math

from pydantic import BaseModel

from trainer.config import PolicyConfig, TrainConfig
from trainer.run.sizes import NUMBER_BYTES, ModelSize

LOGITS_BYTES = 4 * 4 * (1 << 26)
"""The loss makes up to 2**26 logits at a time in float32 (`trainer.update.loss.CHUNK_LOGITS`), and about four such
arrays."""
LIVE_PARAMETERS = 1_000_000_000
"""Weights of other ranks that one at ZeRO stage 3 keeps for their next use (`DeepSpeedSettings.live_weights`)."""
BUCKET = 100_000_000
"""Gradients that are summed over ranks at once (`reduce_bucket_size`), in float32."""
ENGINE_WORKSPACE = 3 << 30
"""Bytes of activations, CUDA graphs and NCCL in a vLLM engine: assumed."""
VLLM_UTILIZATION = 0.92
"""vLLM 0.32's default of `gpu_memory_utilization`."""


class BadOption(ValueError):
    """An option of an engine that memory cannot be worked out with."""


class Memory(BaseModel):
    """Bytes on one device. In one process, while a policy is updated and its engine is loaded, too."""

    weights: int = 0
    masters: int = 0
    """Float32 copies of the trained weights, where these are not float32; with ZeRO stages 1 to 3 always."""
    gradients: int = 0
    moments: int = 0
    """AdamW's two."""
    reference: int = 0
    """The frozen start weights of the KL term."""
    gathered: int = 0
    """Other ranks' weights, for the moment (ZeRO stage 3)."""
    buckets: int = 0
    """Gradients on their way between ranks."""
    activations: int = 0
    """Estimated, for one micro-batch of the largest size."""
    logits: int = 0
    engine_weights: int = 0
    engine_cache: int = 0
    """Of keys and values, where the engine's share of a GPU is known. In one process it comes on top: see
    `PolicyPlan.cache_bytes_per_request`."""
    engine_workspace: int = 0
    incoming: int = 0
    """New weights that the engine has not taken over yet."""

    @property
    def total(self) -> int:
        return sum(self.model_dump().values())


def trained_parameters(size: ModelSize, policy: PolicyConfig) -> int:
    """Parameters that learn: all, or the adapters'."""
    return size.adapters(policy.lora.rank, policy.lora.targets) if policy.lora else size.parameters


def engine_number_bytes(size: ModelSize, policy: PolicyConfig) -> int:
    """Of one weight in the engine."""
    dtype = size.dtype if policy.engine.dtype == "auto" else policy.engine.dtype
    return NUMBER_BYTES.get(dtype, NUMBER_BYTES[policy.dtype])


def whole_policy(size: ModelSize, policy: PolicyConfig, config: TrainConfig) -> Memory:
    """Plain torch on one device, and the engine's weights. Full fine-tuning in bfloat16 holds 2 + 4 + 4 + 8 = 18 bytes
    per parameter (weights, masters, gradients, moments), in float32 4 + 0 + 4 + 8 = 16. Adapters are float32 and hold
    16 bytes each, beside frozen weights."""
    number, trained = NUMBER_BYTES[policy.dtype], trained_parameters(size, policy)
    adapted = policy.lora is not None
    return Memory(
        weights=number * size.parameters + (4 * trained if adapted else 0),
        masters=0 if adapted or number == 4 else 4 * trained,
        gradients=4 * trained,
        moments=8 * trained,
        reference=_reference(size, policy, config),
        activations=size.activation_bytes(policy.max_tokens_per_micro_batch, number, policy.gradient_checkpointing),
        logits=min(LOGITS_BYTES, 4 * 4 * size.vocabulary * policy.max_tokens_per_micro_batch),
        engine_weights=engine_number_bytes(size, policy) * size.parameters,
    )


def rank_at_work(size: ModelSize, policy: PolicyConfig, config: TrainConfig) -> Memory:
    """One rank while it updates. With P parameters in b bytes each, T of which learn, and N ranks, ZeRO (Rajbhandari et
    al., 2020, section 3) holds b P + 4 T + (4 + 8) T / N at stage 1, b P + (4 + 4 + 8) T / N at stage 2 and
    (b P + (4 + 4 + 8) T) / N at stage 3; DeepSpeed's bfloat16 stage 1 has b T more, as it keeps bfloat16 gradients
    beside the float32 ones. Offloaded are masters, moments and gradients: see `offloaded`."""
    one = whole_policy(size, policy, config).model_copy(update={"engine_weights": 0})
    if policy.update.backend == "torch":
        return one
    ranks, stage = policy.update.ranks, policy.update.zero_stage
    number, trained = NUMBER_BYTES[policy.dtype], trained_parameters(size, policy)
    one.masters = 4 * trained if stage else 0
    if stage == 1 and number != 4 and policy.lora is None:
        one.gradients += number * trained
    divided = {1: ("masters", "moments"), 2: ("masters", "moments", "gradients")}
    shared = {0: (), **divided, 3: ("masters", "moments", "gradients", "weights", "reference")}[stage]
    for name in shared:
        setattr(one, name, -(-getattr(one, name) // ranks))
    one.buckets = 4 * min(BUCKET, trained)
    if stage == 3:
        one.gathered = number * min(LIVE_PARAMETERS, size.parameters)
    if policy.update.offload_optimizer and stage:
        one.masters = one.moments = one.gradients = 0
    return one


def offloaded(size: ModelSize, policy: PolicyConfig) -> int:
    """Bytes of one rank in the host's memory while it updates: masters, moments and gradients, 16 T / N."""
    if policy.update.backend == "torch" or not policy.update.offload_optimizer or not policy.update.zero_stage:
        return 0
    return -(-16 * trained_parameters(size, policy) // policy.update.ranks)


def rank_at_rest(at_work: Memory) -> Memory:
    """What stays of it between updates. Gradients are counted, as stages 1 and 3 keep room for them."""
    return at_work.model_copy(update={"gathered": 0, "buckets": 0, "activations": 0, "logits": 0})


def engine_memory(size: ModelSize, policy: PolicyConfig, gpu_bytes: int, context: int) -> Memory:
    """One GPU of an engine: its part of the weights (P b / tensor_parallel) and the cache. vLLM takes
    `gpu_memory_utilization` of the GPU, and the cache has what is left of that; transformers has room for `max_batch`
    requests of `context` tokens. The cache is 0 where nothing is left."""
    engine = policy.engine
    weights = -(-engine_number_bytes(size, policy) * size.parameters // engine.tensor_parallel)
    if engine.kind == "transformers":
        return Memory(engine_weights=weights, engine_cache=engine.max_batch * cache_per_token(size, policy) * context)
    share = _utilization(policy)
    workspace = ENGINE_WORKSPACE if gpu_bytes else 0
    room = int(share * gpu_bytes) - weights - workspace
    return Memory(engine_weights=weights, engine_cache=max(0, room), engine_workspace=workspace)


def _utilization(policy: PolicyConfig) -> float:
    given = policy.engine.options.get("gpu_memory_utilization", VLLM_UTILIZATION)
    try:
        share = float(given)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise BadOption(
            f"engine.options.gpu_memory_utilization = {given!r}, of the policy with model = {policy.model!r}, is no "
            "share of a GPU. Fix: a number above 0, and 1 at most, such as 0.9"
        )
    return share


def cache_per_token(size: ModelSize, policy: PolicyConfig) -> int:
    """Bytes on one GPU of an engine: heads are divided between its GPUs, and no head is."""
    whole = size.cache_bytes(engine_number_bytes(size, policy))
    return -(-whole // min(policy.engine.tensor_parallel, size.key_value_heads))


def checkpoint_bytes(size: ModelSize, policy: PolicyConfig) -> int:
    """The model in its own dtype, AdamW's moments (8 bytes per trained parameter), and 4 more for a float32 master or
    for an adapter."""
    number, trained = NUMBER_BYTES[policy.dtype], trained_parameters(size, policy)
    zero = policy.update.backend == "deepspeed" and policy.update.zero_stage > 0
    return number * size.parameters + (8 if number == 4 and policy.lora is None and not zero else 12) * trained


def _reference(size: ModelSize, policy: PolicyConfig, config: TrainConfig) -> int:
    keeps = config.has_reference and policy.lora is None
    return NUMBER_BYTES[policy.dtype] * size.parameters if keeps else 0
