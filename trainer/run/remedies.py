"""What to change where a policy does not fit its GPUs: only what was tried, by the same formulas, and found to fit.

Not here: the formulas (`trainer.run.memory`), and what a phase needs (`trainer.run.needs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainer.config import PolicyConfig
from trainer.run.sizes import ModelSize
from trainer.update import LoraSettings

Step = tuple[str, PolicyConfig]
"""What is said, and the policy with it."""


def remedy(policy: PolicyConfig, size: ModelSize, colocated: bool, fits: Callable[[PolicyConfig], bool]) -> str:
    """Each change that alone lets the policy fit, in the least degree that does; else what does it together."""
    alone = [said for ladder in _ladders(policy, size, colocated) for said in _first(ladder, fits)]
    if alone:
        return ", or ".join(alone)
    told, changed = [], policy
    for number in range(len(_ladders(policy, size, colocated))):
        ladder = _ladders(changed, size, colocated)[number]
        if ladder:
            said, changed = ladder[-1]
            told.append(said)
            if fits(changed):
                return " and ".join(told)
    return "GPUs with more memory, or a smaller model"


def divides_heads(size: ModelSize, parallel: int) -> bool:
    """Whether vLLM can divide a model between so many GPUs."""
    keys = size.key_value_heads
    return size.heads % parallel == 0 and (keys % parallel == 0 or parallel % keys == 0)


def _first(ladder: Sequence[Step], fits: Callable[[PolicyConfig], bool]) -> Iterator[str]:
    for said, changed in ladder:
        if fits(changed):
            yield said
            return


def _ladders(policy: PolicyConfig, size: ModelSize, colocated: bool) -> list[list[Step]]:
    """Ways to take less memory, each in growing degrees; the least costly way first."""
    update, engine = policy.update, policy.engine
    divided = update.backend == "deepspeed"
    return [
        _utilization(policy) if engine.kind == "vllm" else _batches(policy),
        [_step(policy, update={"offload_optimizer": True})]
        if divided and update.zero_stage and not update.offload_optimizer
        else [],
        [_step(policy, update={"zero_stage": 3})] if divided and update.zero_stage < 3 else [],
        [_own(policy, gradient_checkpointing=True)] if not policy.gradient_checkpointing else [],
        [
            _own(policy, max_tokens_per_micro_batch=tokens)
            for tokens in (8192, 4096, 2048, 1024)
            if tokens < policy.max_tokens_per_micro_batch
        ],
        _parallel(policy, size, colocated) if engine.kind == "vllm" else [],
        _ranks(policy, colocated),
        [("lora = { rank = 16 }", policy.model_copy(update={"lora": LoraSettings()}))] if policy.lora is None else [],
    ]


def _utilization(policy: PolicyConfig) -> list[Step]:
    """Of a GPU by vLLM: less leaves more to ranks, more holds a larger cache."""
    now = policy.engine.options.get("gpu_memory_utilization", 0.92)
    shares = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
    return [
        (
            f"engine.options.gpu_memory_utilization = {share}",
            _changed(policy, engine={"options": {**policy.engine.options, "gpu_memory_utilization": share}}),
        )
        for share in shares
        if share != now
    ]


def _batches(policy: PolicyConfig) -> list[Step]:
    most = policy.engine.max_batch
    return [_step(policy, engine={"max_batch": batch}) for batch in (64, 32, 16, 8, 4, 2, 1) if batch < most]


def _parallel(policy: PolicyConfig, size: ModelSize, colocated: bool) -> list[Step]:
    """Over more GPUs; where those are the ranks', fewer engines share them."""
    replicas, now = policy.engine.replicas, policy.engine.tensor_parallel
    steps: list[Step] = []
    for parallel in (2, 4, 8):
        fewer = replicas * now // parallel
        if parallel > now and divides_heads(size, parallel) and not (colocated and fewer * parallel != replicas * now):
            engines = {"replicas": fewer} if colocated else {}
            steps.append(_step(policy, engine={"tensor_parallel": parallel, **engines}))
    return steps


def _ranks(policy: PolicyConfig, colocated: bool) -> list[Step]:
    """More ranks, and as many more engines where they share GPUs."""
    update, engine = policy.update, policy.engine
    backend = {} if update.backend == "deepspeed" else {"backend": "deepspeed"}
    steps: list[Step] = []
    for times in (2, 4, 8, 16, 32):
        engines = {"engine": {"replicas": engine.replicas * times}} if colocated else {}
        steps.append(_step(policy, update={**backend, "ranks": update.ranks * times}, **engines))
    return steps


def _own(policy: PolicyConfig, **keys: Any) -> Step:
    [(key, value)] = keys.items()
    return f"{key} = {_told(value)}", policy.model_copy(update=keys)


def _step(policy: PolicyConfig, **sections: dict[str, Any]) -> Step:
    said = [f"{section}.{key} = {_told(value)}" for section, keys in sections.items() for key, value in keys.items()]
    return " and ".join(said), _changed(policy, **sections)


def _changed(policy: PolicyConfig, **sections: dict[str, Any]) -> PolicyConfig:
    copies = {name: getattr(policy, name).model_copy(update=keys) for name, keys in sections.items()}
    return policy.model_copy(update=copies)


def _told(value: object) -> str:
    """As TOML has it."""
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
