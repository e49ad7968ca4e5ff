"""The dry run against figures worked out by hand, for Qwen3-8B and for a model of a few thousand parameters."""

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from tasks.environments import problem_of
from tasks.problems import PlanPathLevel
from trainer.config import DataConfig, EngineConfig, PolicyConfig, Roles, RolloutConfig, TrainConfig
from trainer.run.memory import LOGITS_BYTES
from trainer.run.planning import CHOSEN_TOKEN_BYTES, PROMPT_TOKEN_BYTES, Plan, PolicyPlan, SamplePlan, plan
from trainer.run.sizes import UnknownSize, model_size
from trainer.update.backend import LoraSettings
from workflow.completion import Completion, Sampling
from workflow.limits import Limits
from workflow.trace import AgentTurn, Trace

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
PARAMETERS_8B = 8_190_735_360
"""36 x (2 x 4096 x (4096 + 1024) + 3 x 4096 x 12288 + 2 x (4096 + 128)) + 2 x 151936 x 4096 + 4096."""


def folder(at: Path, config: dict[str, Any], **tensors: list[int]) -> Path:
    """A model's folder; with tensors, a safetensors file of their shapes, in float32."""
    at.mkdir(exist_ok=True)
    (at / "config.json").write_text(json.dumps(config))
    if tensors:
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        for name, shape in tensors.items():
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
        text = json.dumps(header).encode()
        (at / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return at


def config(model: Path | str, *, data: list[DataConfig] | None = None, **settings: Any) -> TrainConfig:
    policy = settings.pop("policy", {})
    return TrainConfig(
        policies={"p0": PolicyConfig(model=str(model), **policy)},
        data=data or [DataConfig(format="aime", path=Path("absent.jsonl"))],
        **settings,
    )


def only(planned: Plan) -> PolicyPlan:
    (policy,) = planned.policies
    return policy


# Models


def test_parameters_of_qwen3_8b(tmp_path: Path) -> None:
    assert model_size(folder(tmp_path / "m", QWEN3_8B)).parameters == PARAMETERS_8B
    tied = model_size(folder(tmp_path / "m", {**QWEN3_8B, "tie_word_embeddings": True}))
    assert tied.parameters == PARAMETERS_8B - 151936 * 4096


def test_what_is_in_the_files_counts_more_than_the_shape(tmp_path: Path) -> None:
    at = folder(tmp_path / "m", QWEN3_8B, embed=[10, 4], norm=[4], scalar=[])
    assert model_size(at).parameters == 45
    (at / "model-00002.safetensors").write_bytes((at / "model.safetensors").read_bytes())
    assert model_size(at).parameters == 90


def test_what_a_configuration_leaves_out(tmp_path: Path) -> None:
    shape = {name: value for name, value in QWEN3_8B.items() if name not in ("num_key_value_heads", "head_dim")}
    size = model_size(folder(tmp_path / "m", {**shape, "torch_dtype": None}))
    assert (size.key_value_heads, size.head_dim, size.dtype) == (32, 128, "float32")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no "),
        ("{", "cannot be read"),
        ("[]", "cannot be read: it is no JSON object"),
        ('{"num_hidden_layers": 3}', "config.json, hidden_size: Field required"),
        (json.dumps({**QWEN3_8B, "num_hidden_layers": "many"}), "num_hidden_layers: Input should be a valid integer"),
        (json.dumps({**QWEN3_8B, "num_experts": 128}), "has num_experts"),
    ],
)
def test_a_size_that_cannot_be_read_says_why(tmp_path: Path, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(UnknownSize) as caught:
        model_size(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert told in str(caught.value)
    policy = only(plan(config(tmp_path)))
    assert told in (policy.unknown or "")
    assert policy.memory is None


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, (2).to_bytes(8, "little") + b"[]", b"\x02\0\0\0\0\0\0\0{"])
def test_a_file_that_is_no_safetensors_file_is_named(tmp_path: Path, content: bytes) -> None:
    at = folder(tmp_path / "m", QWEN3_8B)
    (at / "model.safetensors").write_bytes(content)
    with pytest.raises(UnknownSize, match=r"model\.safetensors is no safetensors file"):
        model_size(at)


@pytest.mark.parametrize("model", ["nobody/no-such-model", "/no/such/folder"])
def test_a_model_that_is_not_here_is_told(model: str) -> None:
    planned = plan(config(model))
    reason = only(planned).unknown or ""
    assert reason.startswith(f"{model} is no folder here, and not in Hugging Face's cache. Fix: ")
    assert planned.disk_bytes is planned.device_bytes is None


def test_a_model_in_hugging_faces_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    at = tmp_path / "models--Qwen--Qwen3-8B"
    (at / "refs").mkdir(parents=True)
    (at / "refs" / "main").write_text("c0ffee")
    (at / "snapshots").mkdir()
    folder(at / "snapshots" / "c0ffee", QWEN3_8B)
    planned = plan(config("Qwen/Qwen3-8B"))
    assert only(planned).parameters == PARAMETERS_8B
    memory = only(planned).memory
    assert memory is not None
    assert planned.device_bytes == memory.total


# Memory


def test_memory_of_full_fine_tuning_in_bfloat16(tmp_path: Path) -> None:
    at = folder(tmp_path / "m", QWEN3_8B)
    policy = only(plan(config(at)))
    memory = policy.memory
    assert memory is not None
    assert policy.parameters == policy.trained == PARAMETERS_8B
    assert memory.weights == 2 * PARAMETERS_8B
    assert memory.weights + memory.masters + memory.gradients + memory.moments == 18 * PARAMETERS_8B
    assert (memory.masters, memory.moments, memory.reference) == (4 * PARAMETERS_8B, 8 * PARAMETERS_8B, 0)
    # One layer keeps 8 x (8192 + 4096 + 1024) + 2 x (4096 + 1024 + 4 x 12288) = 215,040 bytes a token.
    assert memory.activations == 16384 * (36 * 2 * 4096 + 215_040)
    assert memory.logits == 1 << 30
    assert memory.engine_weights == 2 * PARAMETERS_8B
    assert policy.cache_bytes_per_token == 2 * 36 * 1024 * 2 == 147_456
    assert policy.cache_bytes_per_request == 16384 * 147_456
    assert memory.total == sum(memory.model_dump().values())


@pytest.mark.parametrize("held", [{"objective": {"kl_coefficient": 0.1}}, {"designer_kl_coefficient": 1.0}])
def test_memory_without_checkpointing_in_float32_with_a_reference(tmp_path: Path, held: Any) -> None:
    at = folder(tmp_path / "m", QWEN3_8B)
    policy = {"dtype": "float32", "gradient_checkpointing": False, "max_tokens_per_micro_batch": 10}
    memory = only(plan(config(at, policy=policy, **held))).memory
    assert memory is not None
    assert memory.weights + memory.masters + memory.gradients + memory.moments == 16 * PARAMETERS_8B
    assert memory.reference == 4 * PARAMETERS_8B
    assert memory.activations == 10 * 36 * (12 * 13312 + 4 * 54272)
    assert memory.logits == 4 * 4 * 151936 * 10
    assert memory.engine_weights == 2 * PARAMETERS_8B  # the checkpoint's own dtype


def test_memory_of_adapters(tmp_path: Path) -> None:
    at = folder(tmp_path / "m", QWEN3_8B)
    lora = LoraSettings(rank=16, targets=("q_proj", "k_proj", "down_proj"))
    adapters = 36 * 16 * ((4096 + 4096) + (4096 + 1024) + (12288 + 4096))
    policy = only(plan(config(at, policy={"lora": lora}, objective={"kl_coefficient": 0.1})))
    memory = policy.memory
    assert memory is not None
    assert policy.trained == adapters == 17_104_896
    assert (memory.masters, memory.reference) == (0, 0)
    assert memory.weights + memory.gradients + memory.moments == 2 * PARAMETERS_8B + 16 * adapters
    assert policy.checkpoint_bytes == 2 * PARAMETERS_8B + 12 * adapters


def test_an_engine_may_compute_in_another_type(tmp_path: Path) -> None:
    at = folder(tmp_path / "m", QWEN3_8B)
    policy = only(plan(config(at, policy={"engine": EngineConfig(dtype="float64")})))
    assert policy.memory is not None
    assert policy.memory.engine_weights == 8 * PARAMETERS_8B
    assert policy.cache_bytes_per_token == 4 * 147_456


def test_traces() -> None:
    """A step of 32 designs and 128 runs: 160 turns of 8192 tokens each way, 12 and 34 bytes a token."""
    step = 160 * 8192 * (12 + 34)
    assert (plan(config("m")).traces, plan(config("m")).trace_bytes) == (300, 300 * step)
    # The step that is rolled out stands beside the two that are kept until these are three.
    assert (plan(config("m", traces_kept=2)).traces, plan(config("m", traces_kept=2)).trace_bytes) == (3, 3 * step)
    assert plan(config("m", traces_kept=2, steps=2)).traces == 2
    ahead = {"layout": "disaggregated", "staleness": 2}
    found = [plan(config("m", steps=3, traces_kept=kept, cluster=ahead)).traces for kept in (1, None)]
    assert found == [4, 5], "two steps are rolled out ahead, beyond the last one, too"
    assert plan(config("m", steps=1, rollout=RolloutConfig(repair=True))).trace_bytes == step * 192 // 160


def test_a_traces_bytes_per_token() -> None:
    dice = random.Random(0)
    ids = [dice.randrange(100_000, 151_936) for _ in range(3000)]
    words = [" ".join("abcdef"[: dice.randrange(1, 6)] for _ in range(1000)) for _ in range(2)]
    turn = AgentTurn(
        key="solver/0",
        path="w/solver",
        agent="solver",
        turn=0,
        messages=[{"role": "user", "content": words[0]}],
        sampling=Sampling(),
        completion=Completion(
            text=words[1],
            prompt_token_ids=ids[:1000],
            token_ids=ids[1000:],
            logprobs=[struct.unpack("f", struct.pack("f", -3 * dice.random()))[0] for _ in range(2000)],
        ),
    )
    (line,) = Trace(events=[turn]).lines()
    assert len(line) == pytest.approx(1000 * PROMPT_TOKEN_BYTES + 2000 * CHOSEN_TOKEN_BYTES, rel=0.2)


def test_disk(tmp_path: Path) -> None:
    at = folder(tmp_path / "m", QWEN3_8B)
    planned = plan(config(at))
    assert only(planned).checkpoint_bytes == 14 * PARAMETERS_8B
    assert (planned.checkpoints, planned.disk_bytes) == (4, 4 * 14 * PARAMETERS_8B)
    short = plan(config(at, steps=15, checkpoint_every=10, policy={"dtype": "float32"}))
    assert (short.checkpoints, short.disk_bytes) == (2, 2 * 12 * PARAMETERS_8B)
    two = config(at).model_dump() | {"roles": {"executor": "p1"}}
    two["policies"]["p1"] = {"model": str(at)}
    split = plan(TrainConfig.model_validate(two))
    assert [policy.roles for policy in split.policies] == [["designer"], ["executor"]]
    assert split.disk_bytes == 4 * 2 * 14 * PARAMETERS_8B
    memories = [policy.memory for policy in split.policies]
    assert split.device_bytes == sum(memory.total for memory in memories if memory is not None) > 0
    assert None not in memories


def test_activations_are_what_torch_keeps() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from trainer.run.sizes import ModelSize

    shape: dict[str, Any] = {
        "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 64, "tie_word_embeddings": True,
    }  # fmt: skip
    size = ModelSize.model_validate(shape)
    for dtype, number in ((torch.float32, 4), (torch.bfloat16, 2)):
        model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**shape), dtype=dtype)
        assert sum(each.numel() for each in model.parameters()) == size.parameters
        own = {each.untyped_storage().data_ptr() for each in model.parameters()}
        kept: dict[int, Any] = {}

        def keep(tensor: Any, own: set[int] = own, kept: dict[int, Any] = kept) -> Any:
            if tensor.untyped_storage().data_ptr() not in own:
                kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.base_model(input_ids=torch.zeros(1, 512, dtype=torch.long), use_cache=False)
        seen = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        assert size.activation_bytes(512, number, checkpointing=False) == pytest.approx(seen, rel=0.05)


# Steps


def test_runs_and_tokens_of_the_papers_setting() -> None:
    planned = plan(config("x"))
    assert (planned.designs_per_step, planned.runs_per_step) == (8 * 4, 8 * 4 * 4)
    tokens = planned.tokens
    assert tokens.designer_at_most == 32 * 16384
    assert tokens.executor_at_most == 128 * 500_000  # 64 calls of 16384 would be more
    assert tokens.executor_single_turn == 128 * 16384
    assert tokens.generated_single_turn == (32 + 128) * 8192


PROGRAM = "from workflow import AgentNode, Workflow\nworkflow = Workflow('w').add_node(AgentNode('A', 'x'))\n"


def test_runs_and_tokens_of_other_settings(tmp_path: Path) -> None:
    limits = Limits(agent_calls=3, tokens=10_000)
    sizes = {"questions": 2, "designs": 3, "executions": 5, "max_prompt_tokens": 100, "max_tokens": 50}
    repaired = plan(config("x", rollout=RolloutConfig(repair=True, limits=limits, **sizes)))
    assert (repaired.designs_per_step, repaired.runs_per_step) == (6, 30)
    assert repaired.tokens.designer_at_most == 6 * 2 * 150
    assert repaired.tokens.executor_at_most == 30 * 3 * 150
    (tmp_path / "p.py").write_text(PROGRAM)
    fixed = config("x", rollout=RolloutConfig(program=tmp_path / "p.py", **sizes), schedule="executor-only")
    assert plan(fixed).tokens.designer_at_most == 0
    assert plan(fixed).tokens.generated_single_turn == 30 * 50


def test_samples_where_runs_part(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROGRAM)
    sizes = {"questions": 2, "designs": 1, "executions": 3, "branching": {"candidates": 4, "turns": 5}}
    given: dict[str, Any] = {"schedule": "executor-only", "credit": "at-grpo"}
    fixed = {**sizes, "program": str(tmp_path / "p.py")}
    given |= {"policies": {"p0": {"model": "x"}, "p1": {"model": "x"}}, "data": [problems(tmp_path / "a.jsonl", 9)]}

    def samples(rollout: dict[str, Any], **more: Any) -> SamplePlan | None:
        return plan(TrainConfig.model_validate({**given, "rollout": rollout, **more})).samples

    named = samples(fixed, roles={"agents": {"A": "p0", "B": "p1", "C": "p1"}})
    assert named == SamplePlan(agents=3, turns=5, candidates=4, at_most=2 * 3 * 3 * 5 * 4)
    others = samples(fixed, roles={"agents": {"A": "p0"}, "executor": "p1"})
    assert others == SamplePlan(agents=None, turns=5, candidates=4, at_most=2 * 3 * 5 * 4)
    assert samples(sizes, roles={"executor": "p1"}) == others
    assert plan(config("x")).samples is None


@pytest.mark.parametrize(
    ("schedule", "steps", "length", "expected"),
    [
        ("stagewise", 100, 30, ["executor 0+30", "designer 30+30", "executor 60+30", "designer 90+10"]),
        ("stagewise", 20, 30, ["executor 0+20"]),
        ("stagewise", 3, 1, ["executor 0+1", "designer 1+1", "executor 2+1"]),
        ("coupled", 9, 3, ["designer+executor 0+9"]),
        ("designer-only", 9, 3, ["designer 0+9"]),
    ],
)
def test_stages(schedule: str, steps: int, length: int, expected: list[str]) -> None:
    planned = plan(config("x", schedule=schedule, steps=steps, stage_length=length))
    assert [f"{'+'.join(stage.roles)} {stage.first}+{stage.steps}" for stage in planned.stages] == expected


# Data


def problems(path: Path, count: int) -> DataConfig:
    rows = ({"id": number, "problem": "1 + 1?", "answer": "2"} for number in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DataConfig(format="aime", path=path)


def test_epochs(tmp_path: Path) -> None:
    half = problems(tmp_path / "a.jsonl", 23).model_copy(update={"share": 0.5})
    quarters = [DataConfig(format="aime", path=tmp_path / f"{name}.jsonl", share=0.25) for name in "bc"]
    problems(tmp_path / "b.jsonl", 4)
    planned = plan(config("x", data=[half, *quarters], steps=10))
    assert [(source.name, source.per_step, source.problems, source.epochs) for source in planned.sources] == [
        ("aime:a.jsonl", 4, 23, 2.0),  # 5 whole batches an epoch
        ("aime:b.jsonl", 2, 4, 5.0),
        ("aime:c.jsonl", 2, None, None),
    ]
    assert planned.sources[2].unknown == f"there is no {tmp_path / 'c.jsonl'}. Fix: name a file"


def test_sources_that_cannot_fill_their_places(tmp_path: Path) -> None:
    few = problems(tmp_path / "a.jsonl", 7)
    with pytest.raises(ValueError, match=r"aime:a\.jsonl: 7 problems do not fill 8 places"):
        plan(config("x", data=[few]))
    rare = few.model_copy(update={"share": 0.01})
    with pytest.raises(ValueError, match=r"share 0\.01 is no place in a batch"):
        plan(config("x", data=[problems(tmp_path / "b.jsonl", 9), rare]))


def test_turns_are_rewarded_in_games_or_a_fixed_program(tmp_path: Path) -> None:
    turns: dict[str, Any] = {
        "credit": "at-grpo",
        "schedule": "executor-only",
        "reward": {"kind": "turns"},
        "rollout": {"questions": 2, "designs": 1, "executions": 1, "branching": {"score": "turn"}},
    }
    with pytest.raises(
        ValueError, match=r"problem '.*' is no game, and reward\.kind = \"turns\" has .* Fix: a fixed program"
    ):
        plan(config("x", data=[problems(tmp_path / "a.jsonl", 7)], **turns))
    (tmp_path / "math.py").write_text(PROGRAM)
    fixed = {**turns, "rollout": {**turns["rollout"], "program": str(tmp_path / "math.py")}}
    assert plan(config("x", data=[problems(tmp_path / "a.jsonl", 7)], **fixed)).sources[0].problems == 7
    path = tmp_path / "levels.jsonl"
    path.write_text(problem_of(PlanPathLevel(level="@.\n.G")).model_dump_json() + "\n")
    path.write_text(path.read_text() + problem_of(PlanPathLevel(level="@#\n.G")).model_dump_json() + "\n")
    planned = plan(config("x", data=[DataConfig(format="problems", path=path)], **turns))
    assert planned.sources[0].problems == 2
    assert planned.tokens.executor_at_most == 2 * 4 * 500_000, "4 replies to each call, and none is run on to the end"


def test_roles_are_told(tmp_path: Path) -> None:
    both = config("x")
    assert only(plan(both)).roles == ["designer", "executor"]
    assert both.roles == Roles()


def test_the_logits_are_those_of_the_loss() -> None:
    pytest.importorskip("torch")
    from trainer.update.loss import CHUNK_LOGITS

    assert LOGITS_BYTES == 4 * 4 * CHUNK_LOGITS
