"""Configurations, costs and steps' reports for tests of what is predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.config import RolloutConfig, TrainConfig
from trainer.evaluate import Diversity, spread
from trainer.predict.costs import Costs, PolicyCosts, update_seconds
from trainer.predict.rollout_model import rolled_out
from trainer.predict.workload import Lengths, Requests, Workload, drawn, sequences
from trainer.run.sizes import ModelSize
from trainer.run.step_report import StepReport, Timings
from trainer.update.backend import UpdateReport
from workflow.completion import Usage
from workflow.usage import PolicyRole

QWEN3_8B: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3_4B = QWEN3_8B | {"hidden_size": 2560, "intermediate_size": 9728, "tie_word_embeddings": True}
SIZE_8B = ModelSize.model_validate(QWEN3_8B)
PARAMETERS_8B = 8_190_735_360
CHEAP = PolicyCosts(token_s=0.01, request_token_s=0.0, prompt_token_s=0.0, update_s=0.0, update_token_s=0.0, sync_s=0.0)
ONE = {"questions": 1, "designs": 1, "executions": 1}


def model(folder: Path, shape: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape))
    return folder


def config(
    *, ranks: int = 1, engines: int = 1, parallel: int = 1, policy: dict[str, Any] | None = None, **changes: Any
) -> TrainConfig:
    """A disaggregated run of one policy. Its `rollout` may have a single run, which teaches nothing, and takes its time
    all the same."""
    settings = {
        "model": "m",
        "update": {"backend": "deepspeed", "ranks": ranks},
        "engine": {"replicas": engines, "tensor_parallel": parallel},
        **(policy or {}),
    }
    names = {"p0", *(changes.get("roles") or {}).values()}
    values = {
        "policies": dict.fromkeys(sorted(names), settings),
        "data": [{"format": "aime", "path": Path("x.jsonl")}],
        "steps": 8,
        **changes,
        "cluster": {"layout": "disaggregated", **changes.get("cluster", {})},
    }
    rollout = RolloutConfig.model_validate(values.pop("rollout", {}))
    return TrainConfig.model_validate(values).model_copy(update={"rollout": rollout})


def costs(run_s: float = 0.0, failures_per_hour: float = 0.0, recovery_s: float = 0.0, **policy: float) -> Costs:
    """Of one policy, which has 0.01 s for a token whatever its load, and nothing else but what is given."""
    each = CHEAP.model_copy(update=policy)
    return Costs(policies={"p0": each}, run_s=run_s, failures_per_hour=failures_per_hour, recovery_s=recovery_s)


def workload(reply: float = 100, prompt: float = 0.0, designer: float = 0.0, **more: Any) -> Workload:
    """Replies that are all as long; without `designer`, designs are given."""
    asked = Requests(reply=Lengths(mean=designer), prompt=prompt) if designer else None
    return Workload(designer=asked, executor=Requests(reply=Lengths(mean=reply), prompt=prompt), **more)


def report_of(config: TrainConfig, spent: Costs, content: Workload, step: int) -> StepReport:
    """The line that a run would write if it took exactly what `spent` says."""
    asked_for = drawn(content, config.rollout, 100 + step)
    rolled, tokens_of = rolled_out(config, spent, content, asked_for), sequences(content, asked_for)
    roles: list[PolicyRole] = ["executor", *(["designer"] if content.designer else [])]
    designs = config.rollout.questions * config.rollout.designs
    requests = {"executor": content.executor, "designer": content.designer}
    lengths, usage = {}, {}
    for role in roles:
        asked = requests[role]
        assert asked is not None
        replies = [tokens - asked.prompt for tokens in tokens_of[role]]
        lengths[role] = spread(replies)
        usage[role] = Usage(prompt_tokens=round(asked.prompt * len(replies)), completion_tokens=round(sum(replies)))
    trajectories = tokens_of["executor"]
    learned = trajectories[: round(content.executor.learned * len(trajectories))]
    update_s = update_seconds(config.policies["p0"], spent.policies["p0"], learned)
    update = UpdateReport(
        loss=0.0, gradient_norm=0.0, steps=1, samples=len(trajectories), computed_samples=len(learned), tokens=1,
        duration_s=update_s,
    )  # fmt: skip
    return StepReport(
        step=step,
        active=["executor"],
        questions=config.rollout.questions,
        designs=designs,
        executions=designs * config.rollout.executions,
        reward=0.0,
        reward_by_role={},
        terms={},
        correct=0.0,
        solved=0.0,
        ready=content.ready,
        structures={"ensemble": 1.0},
        diversity=Diversity(),
        failures={},
        silent={},
        lengths=lengths,
        usage=usage,
        updates={"p0": update},
        weights={},
        timings=Timings(
            rollout_s=rolled.seconds,
            update_s=update_s,
            sync_s=spent.policies["p0"].sync_total_s,
        ),
    )
