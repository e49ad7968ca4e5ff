"""What each GPU of a cluster holds, against figures worked out by hand and against tensors that DeepSpeed keeps."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import TrainConfig
from trainer.run.memory import BUCKET, ENGINE_WORKSPACE, LIVE_PARAMETERS, engine_memory, rank_at_work
from trainer.run.needs import ClusterNeeds, cluster_needs, known_sizes
from trainer.run.planning import plan
from trainer.run.remedies import divides_heads
from trainer.run.sizes import ModelSize

SHAPE: dict[str, Any] = {
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
P = 8_190_735_360
EMBEDDINGS = 151936 * 4096
GIB = 1 << 30


def config(model: Path, *, policy: dict[str, Any] | None = None, **settings: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "policies": {"p0": {"model": str(model), **(policy or {})}},
            "data": [{"format": "aime", "path": model / "absent.jsonl"}],
            **settings,
        }
    )


def deepspeed(ranks: int = 8, stage: int = 3, **update: Any) -> dict[str, Any]:
    return {"update": {"backend": "deepspeed", "ranks": ranks, "zero_stage": stage, **update}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


def of(needs: list[ClusterNeeds], gpu: str) -> ClusterNeeds:
    (found,) = [each for each in needs if each.gpu == gpu]
    return found


@pytest.mark.parametrize(
    ("stage", "weights", "masters", "gradients", "moments"),
    [
        (1, 2 * P, 4 * P / 8, (4 + 2) * P, 8 * P / 8),
        (2, 2 * P, 4 * P / 8, 4 * P / 8, 8 * P / 8),
        (3, 2 * P / 8, 4 * P / 8, 4 * P / 8, 8 * P / 8),
    ],
)
def test_zero_divides_what_the_paper_says(
    model: Path, stage: int, weights: float, masters: float, gradients: float, moments: float
) -> None:
    run = config(model, policy=deepspeed(8, stage), cluster={"layout": "disaggregated"})
    memory = rank_at_work(ModelSize.model_validate(SHAPE), run.policies["p0"], run)
    assert (memory.weights, memory.masters, memory.gradients, memory.moments) == (weights, masters, gradients, moments)
    assert memory.buckets == 4 * BUCKET
    assert memory.gathered == (2 * LIVE_PARAMETERS if stage == 3 else 0)
    assert memory.engine_weights == 0


def test_offloading_moves_the_optimizer_to_the_host(model: Path) -> None:
    run = config(model, policy=deepspeed(4, 2, offload_optimizer=True), cluster={"layout": "disaggregated"})
    needs = of(cluster_needs(run), "H100").policies[0]
    memory = needs.gpus[0].phases["update"]
    assert (memory.weights, memory.masters, memory.gradients, memory.moments) == (2 * P, 0, 0, 0)
    assert needs.host_bytes == (16 + 2 + 12) * P  # and a checkpoint's copy, while it is written


def test_float32_has_no_masters_without_zero(model: Path) -> None:
    for stage, masters in ((0, 0), (2, 2 * P)):
        run = config(model, policy={"dtype": "float32", **deepspeed(2, stage)}, cluster={"layout": "disaggregated"})
        memory = rank_at_work(ModelSize.model_validate(SHAPE), run.policies["p0"], run)
        assert (memory.weights, memory.masters) == (4 * P, masters)


def test_phases_of_gpus_apart(model: Path) -> None:
    policy = {**deepspeed(8), "engine": {"replicas": 4, "tensor_parallel": 2, "options": {}}}
    run = config(model, policy=policy, cluster={"layout": "disaggregated", "nodes": 2})
    needs = of(cluster_needs(run), "H100")
    assert needs.lacking == []
    (policy_needs,) = needs.policies
    rank, engine = policy_needs.gpus
    assert (rank.holds, rank.count, engine.holds, engine.count) == ("rank", 8, "engine", 8)
    resting = 18 * P / 8
    assert rank.phases["rollout"].total == resting
    assert rank.phases["sync"].total == resting + 2 * EMBEDDINGS
    assert rank.phases["update"].total > rank.phases["sync"].total
    assert rank.most == rank.phases["update"].total
    serving = engine.phases["rollout"]
    assert serving.engine_weights == P  # 2 bytes, over two GPUs
    assert serving.total == int(0.92 * 80e9)
    assert engine.phases["sync"].incoming == 2 * EMBEDDINGS
    assert policy_needs.cached_tokens == (int(0.92 * 80e9) - P - ENGINE_WORKSPACE) // (147_456 // 2)
    assert policy_needs.cached_requests == pytest.approx(policy_needs.cached_tokens / 16384)
    assert (policy_needs.sync_bytes, policy_needs.received_bytes) == (2 * P, 4 * 2 * P)
    assert policy_needs.host_bytes == 8 * 2 * P  # each rank loads the model before it keeps its part


def test_who_shares_a_gpu_takes_turns(model: Path) -> None:
    policy = {**deepspeed(8), "engine": {"replicas": 8, "options": {"gpu_memory_utilization": 0.5}}}
    run = config(model, policy=policy, cluster={"layout": "colocated"})
    needs = of(cluster_needs(run), "H200").policies[0]
    (both,) = needs.gpus
    assert (both.holds, both.count) == ("rank and engine", 8)
    assert both.phases["rollout"].total == int(0.5 * 141e9)
    assert both.phases["update"].engine_weights == both.phases["rollout"].weights == 0
    assert both.phases["sync"].engine_cache == 0
    assert both.phases["sync"].total == 2 * P / 8 + 2 * EMBEDDINGS + 2 * P + ENGINE_WORKSPACE + 2 * EMBEDDINGS
    assert (needs.turn_bytes, needs.host_bytes) == (18 * P / 8, (18 + 2 + 12) * P)


def test_plain_torch_keeps_what_it_has_beside_its_engine(model: Path) -> None:
    policy = {"lora": {"rank": 8}, "engine": {"options": {"gpu_memory_utilization": 0.5}}}
    run = config(model, policy=policy, cluster={"layout": "colocated", "gpus_per_node": 1})
    needs = of(cluster_needs(run), "H100").policies[0]
    phases = needs.gpus[0].phases
    adapters = 16 * (phases["rollout"].weights - 2 * P) // 4
    assert phases["rollout"].total == 2 * P + adapters + int(0.5 * 80e9)
    assert phases["update"].engine_cache == phases["rollout"].engine_cache > 0
    assert phases["update"].activations > 0
    assert (needs.turn_bytes, needs.host_bytes) == (0, 2 * P + 12 * adapters // 16)  # a checkpoint's copy


def test_heads_are_not_divided_further_than_there_are_heads(model: Path) -> None:
    few = {"engine": {"tensor_parallel": 16}}
    run = config(model, policy=few, cluster={"layout": "disaggregated", "gpus_per_node": 16})
    size = ModelSize.model_validate(SHAPE)
    cache = engine_memory(size, run.policies["p0"], 80 * 10**9, 16384).engine_cache
    assert cluster_needs(run)[0].policies[0].cached_tokens == cache // (147_456 // 8)


def test_what_does_not_fit_is_told_with_what_to_do(model: Path) -> None:
    whole = config(model, policy=deepspeed(1), cluster={"layout": "disaggregated"})
    told = of(cluster_needs(whole), "H100").lacking
    assert [line.split(" takes ")[0] for line in told] == [
        "policies.p0: rollout", "policies.p0: sync", "policies.p0: update"
    ]  # fmt: skip
    over = (18 * P - 80e9) / GIB
    fix = "update.offload_optimizer = true, or update.ranks = 4, or lora = { rank = 16 }"
    assert told[0].endswith(
        f"takes {18 * P / GIB:.1f} GiB on a GPU with its rank, {over:.1f} GiB more than an H100 has. Fix: {fix}"
    )
    small = config(
        model, policy={"engine": {"options": {"gpu_memory_utilization": 0.25}}}, cluster={"layout": "disaggregated"}
    )
    of_engine = [each for each in of(cluster_needs(small), "H100").lacking if "one request of full length" in each]
    assert of_engine
    odd = config(model, policy={"engine": {"tensor_parallel": 3}}, cluster={"layout": "disaggregated"})
    told = "engine.tensor_parallel = 3 does not divide the model's 32 heads, of which 8 have keys. Fix: 1 or 2 or 4"
    assert f"policies.p0: {told}" in of(cluster_needs(odd), "H100").lacking


@pytest.mark.parametrize(
    ("heads", "keys", "parallel", "divides"),
    [
        (32, 8, 4, True), (32, 8, 16, True), (32, 2, 8, True),  # several GPUs then hold the same keys
        (12, 4, 8, False),  # a head and a half
        (24, 8, 3, False), (24, 8, 12, False),  # the keys do not
    ],
)  # fmt: skip
def test_heads_are_divided_whole(heads: int, keys: int, parallel: int, divides: bool) -> None:
    size = ModelSize.model_validate({**SHAPE, "num_attention_heads": heads, "num_key_value_heads": keys})
    assert divides_heads(size, parallel) == divides


def followed(policy: dict[str, Any], fix: str) -> dict[str, Any]:
    """A policy's settings with what an advice says of them."""
    changed = json.loads(json.dumps(policy))
    for said in fix.split(" and "):
        key, _, value = said.partition(" = ")
        *sections, name = key.split(".")
        part = changed
        for section in sections:
            part = part.setdefault(section, {})
        part[name] = {"rank": 16} if name == "lora" else json.loads(value)
    return changed


@given(
    stage=st.integers(0, 3) | st.just("torch"),
    ranks=st.sampled_from([1, 2, 4, 8]),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    layers=st.sampled_from([28, 36, 64, 150]),
    engine=st.sampled_from(
        [
            {"kind": "transformers"},
            {"kind": "transformers", "max_batch": 512},
            {"options": {"gpu_memory_utilization": 0.3}},
            {"options": {"gpu_memory_utilization": 0.99}},
            {"tensor_parallel": 2},
            {},
        ]
    ),
    layout=st.sampled_from(["colocated", "disaggregated"]),
    tokens=st.sampled_from([1024, 16384, 65536]),
)
def test_what_is_advised_fits(
    tmp_path_factory: pytest.TempPathFactory,
    stage: int | str,
    ranks: int,
    dtype: str,
    layers: int,
    engine: dict[str, Any],
    layout: str,
    tokens: int,
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"layers-{layers}"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHAPE, "num_hidden_layers": layers}))
    parallel = engine.get("tensor_parallel", 1)
    ranks = 1 if stage == "torch" else max(ranks, parallel)
    update = {} if stage == "torch" else {"backend": "deepspeed", "ranks": ranks, "zero_stage": stage}
    policy: dict[str, Any] = {"dtype": dtype, "max_tokens_per_micro_batch": tokens, "update": update}
    policy["engine"] = {**engine, "replicas": max(1, ranks // parallel)}

    def lacking(policy: dict[str, Any]) -> list[str]:
        return of(cluster_needs(config(folder, policy=policy, cluster={"layout": layout})), "H100").lacking

    try:
        told = lacking(policy)
    except ValueError:
        return  # refused for other reasons
    for line in told:
        fix = line.partition("Fix: ")[2]
        if fix == "GPUs with more memory, or a smaller model":
            continue
        for option in fix.split(", or "):
            assert lacking(followed(policy, option)) == [], option


def test_without_gpus_figures_are_those_of_processes(model: Path) -> None:
    engine = {"kind": "transformers", "dtype": "float64", "max_batch": 4}
    run = config(
        model, policy={**deepspeed(2), "engine": engine}, cluster={"layout": "disaggregated", "gpus_per_node": 0}
    )
    (needs,) = cluster_needs(run)
    assert (needs.gpu, needs.gpu_bytes, needs.lacking) == ("", None, [])
    serving = needs.policies[0].gpus[1].phases["rollout"]
    assert serving.engine_weights == 8 * P
    assert serving.engine_cache == 4 * 4 * 147_456 * 16384
    assert serving.engine_workspace == 0
    assert needs.policies[0].cached_requests == 4


def test_a_plan_has_them_for_clusters_only(model: Path) -> None:
    alone = plan(config(model))
    assert alone.cluster == []
    assert alone.device_bytes is not None
    run = config(model, policy=deepspeed(), cluster={"layout": "disaggregated"})
    assert plan(run).device_bytes is None
    assert [needs.gpu for needs in plan(run).cluster] == ["H100", "H200"]
    absent = config(Path("nobody/no-model"), policy=deepspeed(), cluster={"layout": "disaggregated"})
    assert plan(absent).cluster == []
    assert known_sizes(absent) == {}


# Measured


def test_the_constants_are_those_of_the_backend() -> None:
    pytest.importorskip("deepspeed")
    from trainer.update import DeepSpeedSettings, deepspeed_engine

    assert DeepSpeedSettings(model="m", learning_rate=1.0).live_weights == LIVE_PARAMETERS
    assert deepspeed_engine._BUCKET == BUCKET


RANK = """
import gc, os, sys
rank, stage, dtype, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.environ.update(DS_ACCELERATOR="cpu", RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=port, OMP_NUM_THREADS="1")
import deepspeed, torch
torch.set_num_threads(1)
deepspeed.init_distributed("gloo", verbose=False)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False) for _ in range(16)]).to(getattr(torch, dtype))
zero = {"stage": stage, "reduce_bucket_size": 64 * 64, "stage3_param_persistence_threshold": 0}
settings = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "zero_optimization": zero,
            "zero_allow_untested_optimizer": True, "communication_data_type": "fp32",
            "data_types": {"grad_accum_dtype": "fp32"}, "bf16": {"enabled": dtype == "bfloat16"}}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=settings)
for last in (False, True, False, True):
    loss = engine(torch.ones(1, 64, dtype=getattr(torch, dtype))).float().sum()
    engine.set_gradient_accumulation_boundary(last)
    engine.backward(loss)
    gradients = [each.grad for each in model.parameters()]  # none of Python's objects until asked for
    tensors = [each for each in [*gc.get_objects(), *gradients] if isinstance(each, torch.Tensor)]
    kept = sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())
    del gradients, tensors, loss
    if last:
        engine.step()
print("kept", kept)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""
"""One of two ranks: prints the bytes of all its tensors after the last backward pass of its second step."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("stage", "dtype"), [(0, "float32"), (1, "bfloat16"), (2, "bfloat16"), (3, "bfloat16")])
def test_memory_is_what_deepspeed_keeps(stage: int, dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(stage), dtype, port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    said = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    kept = [int(line.split()[1]) for out, _ in said for line in out.splitlines() if line.startswith("kept ")]

    run = config(tmp_path, policy={"dtype": dtype, **deepspeed(2, stage)}, cluster={"layout": "disaggregated"})
    layer = 64 * 64
    size = ModelSize.model_validate(SHAPE).model_copy(update={"stored": 16 * layer})
    memory = rank_at_work(size, run.policies["p0"], run)
    states = memory.weights + memory.masters + memory.gradients + memory.moments
    if stage == 3:  # which has a bucket, of a layer here, for good
        assert min(kept) == pytest.approx(states + 4 * layer, rel=0.03)
    else:  # a bucket and a layer's gradient may be about to go
        assert states <= min(kept) <= states + 2 * 4 * layer + 0.01 * states
