"""What is the torch backend's own: models that it cannot train, memory, adapters on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

pytest.importorskip("transformers")

import transformers

from benchmarks.tiny_models import make_model, make_tokenizer
from trainer.samples import Sample
from trainer.update.backend import LoraSettings, ModelUnusable, PolicyObjective, UpdateFailed
from trainer.update.torch_backend import TorchBackend

SAMPLE = Sample(
    policy="p0",
    token_ids=list(range(12)),
    loss_mask=[0] * 4 + [1] * 8,
    behaviour_logprobs=[0.0] * 4 + [-5.0] * 8,
    advantage=1.0,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_model(tmp_path / "tiny", context=64)
    return tmp_path / "tiny"


def save_unlike(folder: Path, config: Any, model: Any, **settings: Any) -> None:
    """A random model of another architecture, with one layer."""
    tokenizer = make_tokenizer()
    small = config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        **settings,
    )
    torch.manual_seed(0)
    model(small).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_a_model_whose_logits_are_capped_is_refused(tmp_path: Path) -> None:
    settings = {"head_dim": 8, "final_logit_softcapping": 0.5, "initializer_range": 1.0}
    save_unlike(tmp_path, transformers.Gemma2Config, transformers.Gemma2ForCausalLM, **settings)
    with pytest.raises(ValueError, match=r"logits of Gemma2ForCausalLM are not its output layer.*Fix: "):
        TorchBackend(tmp_path, learning_rate=1e-3, device="cpu")


@pytest.mark.parametrize("where", ["forward", "backward", "reference"])
def test_running_out_of_memory_changes_nothing(folder: Path, where: str) -> None:
    backend = TorchBackend(folder, learning_rate=1e-3, device="cpu", keeps_reference=True)
    before = {name: tensor.clone() for name, tensor in backend.weights().items()}

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    mlp = (backend._reference if where == "reference" else backend._causal).model.layers[0].mlp
    hook = mlp.register_full_backward_hook(full) if where == "backward" else mlp.register_forward_hook(full)
    with pytest.raises(UpdateFailed, match=r"after 0 steps of this update, with at most 16384 tokens.*Fix: "):
        backend.update([SAMPLE], PolicyObjective(kl_coefficient=0.1))
    hook.remove()
    assert backend.steps == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in backend.weights().items())


def test_running_out_of_memory_says_how_far_it_came(folder: Path) -> None:
    """Passes of the model: the old log-probabilities of the second mini-batch, the first one's step, the second's."""
    backend = TorchBackend(folder, learning_rate=1e-3, device="cpu")
    passes = 0

    def full(*_: Any) -> None:
        nonlocal passes
        passes += 1
        if passes == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")

    backend._causal.model.register_forward_hook(full)
    with pytest.raises(UpdateFailed, match="after 1 steps of this update"):
        backend.update([SAMPLE, SAMPLE], PolicyObjective(mini_batches=2))
    assert (passes, backend.steps) == (3, 1)


@pytest.mark.parametrize(("saving", "times"), [(False, 1), (True, 2)])
def test_gradient_checkpointing_computes_layers_again_rather_than_keeping_them(
    folder: Path, saving: bool, times: int
) -> None:
    backend = TorchBackend(folder, learning_rate=1e-3, device="cpu", gradient_checkpointing=saving)
    calls: list[int] = []
    backend._causal.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    backend.update([SAMPLE], PolicyObjective())
    assert len(calls) == times


def test_a_shared_prompt_goes_through_the_model_once(folder: Path) -> None:
    """Four samples of a prompt of 4 tokens and 8 chosen ones: 3 + 4 * 8 tokens in place of 4 * 11 (the last token
    predicts nothing), and one of another prompt by itself."""
    other = replace(SAMPLE, token_ids=list(range(1, 13)))

    def computed(**settings: Any) -> int:
        backend = TorchBackend(folder, learning_rate=1e-3, device="cpu", **settings)
        seen: list[int] = []
        backend._causal.model.layers[0].mlp.register_forward_pre_hook(lambda _, given: seen.append(given[0].numel()))
        backend.update([SAMPLE, other, SAMPLE, SAMPLE, SAMPLE], PolicyObjective())
        return sum(seen) // backend._causal.config.hidden_size

    assert computed() == 3 + 4 * 8 + 11
    assert computed(shared_prompts=False) == computed(gradient_checkpointing=True, shared_prompts=False) // 2 == 5 * 11
    assert computed(gradient_checkpointing=True) == 2 * 5 * 11, "these cannot be shared"


def test_prompts_and_what_continues_them_stay_within_the_budget(folder: Path) -> None:
    """Two prompts, each with 9 tokens that four samples share; behind one a sample has 9 tokens left, and holds 18."""
    mask = [0] * 10 + [1] * 8
    samples = [
        replace(SAMPLE, token_ids=[first] * 10 + [7] * 8, loss_mask=mask, behaviour_logprobs=[0.0] * 18)
        for first in (1, 2)
        for _ in range(4)
    ]
    for budget, prompts, rows in [(35, 1, 1), (36, 2, 1), (53, 2, 1), (54, 2, 2), (90, 2, 4), (1000, 2, 8)]:
        assert 9 * prompts + 18 * rows <= budget
        backend = TorchBackend(folder, learning_rate=1e-3, device="cpu", max_tokens_per_micro_batch=budget)
        seen: list[tuple[int, ...]] = []
        backend._causal.model.layers[0].mlp.register_forward_pre_hook(lambda _, given, s=seen: s.append(given[0].shape))
        backend.logprobs(samples)
        read = [shape[0] for shape in seen if shape[1] == 9]
        continued = [shape[0] for shape in seen if shape[1] == 8]  # the last token predicts nothing
        assert (sum(read), max(read)) == (2, prompts)
        assert (sum(continued), max(continued)) == (8, rows)


def test_prompts_are_not_shared_by_layers_that_forget(tmp_path: Path) -> None:
    save_unlike(
        tmp_path,
        transformers.MistralConfig,
        transformers.MistralForCausalLM,
        sliding_window=3,
        tie_word_embeddings=False,
    )
    longer = replace(
        SAMPLE, token_ids=list(range(20)), loss_mask=[0] * 12 + [1] * 8, behaviour_logprobs=[0.0] * 12 + [-5.0] * 8
    )
    found = [
        TorchBackend(tmp_path, learning_rate=1e-3, device="cpu", shared_prompts=shared).logprobs([SAMPLE, longer] * 2)
        for shared in (True, False)
    ]
    assert found[0] == found[1]


def test_adapters_are_saved_as_peft_loads_them(folder: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    backend = TorchBackend(folder, learning_rate=1e-2, device="cpu", lora=LoraSettings(rank=4))
    backend.update([SAMPLE], PolicyObjective())
    backend.save(tmp_path / "saved")
    model = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(folder), tmp_path / "saved" / "adapter"
    )
    with torch.no_grad():
        logits = model(torch.tensor([SAMPLE.token_ids])).logits[0, :-1]
    found = logits.log_softmax(-1).gather(-1, torch.tensor(SAMPLE.token_ids[1:])[:, None])[:, 0]
    assert backend.probe(SAMPLE.token_ids).logprobs == pytest.approx(found.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"max_tokens_per_micro_batch": 0}, {"max_gradient_norm": 0.0}, {"max_gradient_norm": float("nan")}]
)
def test_settings_that_make_no_sense_are_refused(folder: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be "):
        TorchBackend(folder, learning_rate=1e-3, **wrong)


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnusable, match=r"cannot load the model '.*empty': .*Fix: name a folder or a hub id"):
        TorchBackend(tmp_path / "empty", learning_rate=1e-3, device="cpu")
