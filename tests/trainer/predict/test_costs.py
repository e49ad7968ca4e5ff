"""Seconds that are assumed, against figures worked out by hand for Qwen3-8B on an H100."""

from typing import Any

import pytest
from predicted import PARAMETERS_8B, QWEN3_4B, SIZE_8B, config, costs, workload

from trainer.config import TrainConfig
from trainer.predict.costs import CPU_CORE, PARAMETERS, RUN_S, PolicyCosts, Seen, costs_of, update_seconds
from trainer.run.gpus import GPUS
from trainer.run.sizes import ModelSize

P = PARAMETERS_8B
H100 = GPUS["H100"]


def of(run: TrainConfig, seen: Seen | None = None) -> PolicyCosts:
    return costs_of(run, {"p0": SIZE_8B}, H100, workload(reply=2000, prompt=1000), seen).policies["p0"]


def test_an_engine_reads_its_weights_for_each_token() -> None:
    one = of(config())
    reads = 2 * P / (0.4 * 989e12)
    assert one.token_s == pytest.approx(0.002 + 2 * P / (0.6 * 3.35e12))
    assert one.request_token_s == pytest.approx(2000 * 147_456 / (0.6 * 3.35e12) + reads)
    assert one.prompt_token_s == pytest.approx(reads)
    four = of(config(parallel=4))
    assert four.token_s - 0.002 == pytest.approx((one.token_s - 0.002) / 4)
    assert four.prompt_token_s == pytest.approx(one.prompt_token_s / 4)


def test_an_update_computes_eight_operations_per_weight_and_token_with_checkpointing() -> None:
    assert of(config()).update_token_s == pytest.approx(8 * P / (0.35 * 989e12))
    whole = of(config(policy={"gradient_checkpointing": False}))
    assert whole.update_token_s == pytest.approx(6 * P / (0.35 * 989e12))


@pytest.mark.parametrize(("stage", "micro_batch", "step"), [(1, 0, 6 * P), (2, 4 * P, 2 * P), (3, (2 * 2 + 4) * P, 0)])
def test_what_ranks_send_each_other_grows_with_the_stage(stage: int, micro_batch: float, step: float) -> None:
    policy: dict[str, Any] = {"update": {"backend": "deepspeed", "ranks": 8, "zero_stage": stage}}
    within = of(config(policy=policy))
    assert within.micro_batch_s == pytest.approx(7 / 8 * micro_batch / (0.7 * 450e9))
    assert within.optimizer_step_s == pytest.approx(7 / 8 * step / (0.7 * 450e9))
    between = of(config(policy=policy, cluster={"gpus_per_node": 4, "nodes": 2}))
    assert between.micro_batch_s == pytest.approx(within.micro_batch_s * 450 / 50)
    alone = of(config())
    assert (alone.micro_batch_s, alone.optimizer_step_s) == (0, 0)


@pytest.mark.parametrize(
    ("cluster", "engine", "rate"),
    [
        ({}, "vllm", 0.7 * 450e9),
        ({"gpus_per_node": 1, "nodes": 2}, "vllm", 0.7 * 50e9),
        ({"layout": "colocated"}, "vllm", 0.7 * 450e9),
        ({}, "transformers", 0.5e9),
        ({"gpus_per_node": 0}, "vllm", 1e9),
        ({"transport": "store"}, "vllm", 0.5e9),
        ({"layout": "one-process"}, "transformers", 3.35e12),
    ],
)
def test_a_sync_goes_by_the_transport_of_the_layout(cluster: dict[str, Any], engine: str, rate: float) -> None:
    backend = "torch" if cluster.get("layout") == "one-process" else "deepspeed"
    one = of(config(policy={"update": {"backend": backend}, "engine": {"kind": engine}}, cluster=cluster))
    assert one.sync_rate == pytest.approx(rate)
    assert one.sync_total_s == pytest.approx(0.5 + 2 * P / rate)


def test_shared_gpus_change_hands_twice() -> None:
    assert of(config()).turn_s == 0
    # 18 bytes of each weight wait in the host's memory, over 8 ranks.
    shared = of(config(ranks=8, engines=8, cluster={"layout": "colocated"}))
    assert shared.turn_s == pytest.approx(1 + 18 * P / 8 / 25e9)


def test_what_a_run_has_shown_is_a_factor() -> None:
    before = costs_of(config(), {"p0": SIZE_8B}, H100, workload())
    seen = Seen(factors=dict.fromkeys(PARAMETERS, 2.0))
    after = costs_of(config(), {"p0": SIZE_8B}, H100, workload(), seen)
    assert after.run_s == 2 * before.run_s == 2 * RUN_S
    for name in PARAMETERS:
        if name != "run_s":
            assert getattr(after.policies["p0"], name) == pytest.approx(2 * getattr(before.policies["p0"], name))


def test_policies_have_their_own_models() -> None:
    run = config(roles={"designer": "p0", "executor": "p1"})
    small = ModelSize.model_validate(QWEN3_4B)
    found = costs_of(run, {"p0": SIZE_8B, "p1": small}, H100, workload()).policies
    assert found["p1"].prompt_token_s / found["p0"].prompt_token_s == pytest.approx(small.parameters / P)
    assert (found["p0"].sync_bytes, found["p1"].sync_bytes) == (2 * P, 2 * small.parameters)


def test_cpus_have_no_memory_that_could_be_full() -> None:
    run = config(policy={"engine": {"kind": "transformers"}}, cluster={"gpus_per_node": 0})
    assert costs_of(run, {"p0": SIZE_8B}, CPU_CORE, workload()).policies["p0"].turn_s == 0


# Updates


def test_an_update_is_shared_by_ranks_and_no_sequence_is_cut() -> None:
    spent = costs(update_s=3.0, update_token_s=0.01, micro_batch_s=0.5, optimizer_step_s=0.25).policies["p0"]
    policy = config(ranks=4, policy={"max_tokens_per_micro_batch": 100, "update": {"backend": "deepspeed", "ranks": 4}})
    one = policy.policies["p0"]
    assert update_seconds(one, spent, []) == 0
    assert update_seconds(one, spent, [100.0] * 8) == pytest.approx(3 + 200 * 0.01 + 2 * 0.5 + 0.25)
    assert update_seconds(one, spent, [100.0] * 8, 2) == pytest.approx(3 + 200 * 0.01 + 2 * 0.5 + 2 * 0.25)
    assert update_seconds(one, spent, [350.0, 10.0]) == pytest.approx(3 + 350 * 0.01 + 4 * 0.5 + 0.25)
