"""Adapters merged layer by layer: bit for bit what peft merges, in the memory of a layer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import peft
import torch
import transformers
from allocations import allocations

from benchmarks.tiny_models import make_model
from engine import weights
from engine.merging import merged, outline
from engine.threads import mapped

pytestmark = pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings=True`")
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapted(
    folder: Path, targets: Sequence[str], *, tied: bool = False, dtype: Any = torch.float32, **settings: Any
) -> Any:
    """A tiny model with adapters that change something."""
    if not folder.exists():
        make_model(folder, tied=tied)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    given = {"r": 4, "lora_alpha": 16, "init_lora_weights": False, **settings}
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=list(targets), **given)).eval()


def by_peft(model: Any) -> dict[str, Any]:
    return copy.deepcopy(model).merge_and_unload(safe_merge=True).state_dict()


def assert_same(found: Any, expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    "targets",
    [*((name,) for name in LINEAR), LINEAR, ("embed_tokens",), ("lm_head",), ("embed_tokens", "lm_head", "q_proj")],
    ids=",".join,
)
def test_it_is_what_peft_merges(targets: Sequence[str], tied: bool, dtype: Any, tmp_path: Path) -> None:
    model = adapted(tmp_path / "tiny", targets, tied=tied, dtype=dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = merged(model)
    expected = by_peft(model)
    assert_same(found, expected)
    assert_same(found, expected)
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "tiny", dtype=dtype).state_dict()
    changed = {name for name, tensor in base.items() if not torch.equal(tensor, expected[name])}
    assert {name.split(".")[-2] for name in changed} >= set(targets)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()), "it stays as it is"
    shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in outline(found).items()}
    assert shapes == {name: (tensor.dtype, tensor.shape) for name, tensor in expected.items()}


@pytest.mark.parametrize(
    "settings",
    [{"use_dora": True}, {"use_rslora": True}, {"modules_to_save": ["lm_head"]}, {"rank_pattern": {"q_proj": 8}}],
    ids=lambda settings: next(iter(settings)),
)
def test_so_it_is_with_other_kinds_of_adapters(settings: dict[str, Any], tmp_path: Path) -> None:
    model = adapted(tmp_path / "tiny", ("q_proj", "up_proj"), **settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "modules_to_save" in name:
                parameter += 1
    assert_same(merged(model), by_peft(model))


def test_biases_below_adapters_are_kept(tmp_path: Path) -> None:
    config = transformers.Qwen2Config(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = transformers.Qwen2ForCausalLM(config)
    torch.nn.init.normal_(model.model.layers[0].self_attn.q_proj.bias)
    trained = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    assert_same(merged(trained), by_peft(trained))


def test_adapters_are_those_of_the_moment(tmp_path: Path) -> None:
    model = adapted(tmp_path / "tiny", LINEAR)
    found, expected = merged(model), by_peft(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 1
    assert_same(found, expected)
    assert not torch.equal(
        merged(model)["model.layers.0.mlp.up_proj.weight"], expected["model.layers.0.mlp.up_proj.weight"]
    )


def test_several_threads_may_read(tmp_path: Path) -> None:
    model = adapted(tmp_path / "tiny", LINEAR)
    found, expected = merged(model), by_peft(model)
    names = list(found) * 5
    for name, tensor in zip(names, mapped(lambda name: found[name], names, threads=8), strict=True):
        assert torch.equal(tensor, expected[name])


def test_what_is_not_finite_is_not_merged(tmp_path: Path) -> None:
    model = adapted(tmp_path / "tiny", ("q_proj",))
    with torch.no_grad():
        next(parameter for parameter in model.parameters() if parameter.requires_grad).fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        dict(merged(model).items())


def test_reading_all_takes_the_memory_of_a_layer(tmp_path: Path) -> None:
    make_model(tmp_path / "tiny", layers=12, width=128)
    model = adapted(tmp_path / "tiny", LINEAR)
    size = sum(parameter.nbytes for parameter in model.get_base_model().parameters())
    largest = max(parameter.nbytes for parameter in model.model.model.layers.parameters())
    with allocations() as whole:
        by_peft(model)
    with allocations() as layered:
        for tensor in merged(model).values():
            del tensor
    with allocations() as printed:
        weights.fingerprint(merged(model))
    adapters = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    assert whole.peak > size
    assert layered.peak < adapters + 5 * largest < size / 4
    assert printed.peak < adapters + (8 + 5) * largest
    assert layered.kept == printed.kept == 0


def test_a_model_takes_merged_weights_without_a_second_model(tmp_path: Path) -> None:
    make_model(tmp_path / "tiny", layers=12, width=128)
    trained = adapted(tmp_path / "tiny", LINEAR)
    serving = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "tiny")
    size = sum(parameter.nbytes for parameter in serving.parameters())
    with allocations() as found:
        digest = weights.load(serving, merged(trained))
    assert digest == weights.fingerprint(by_peft(trained)) == weights.fingerprint(serving.state_dict())
    assert found.peak < size / 2
