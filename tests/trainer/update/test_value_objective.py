"""A model of values in the torch backend: what its losses are, what it saves, what it shares, whom it refuses."""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainer.samples import Sample
from trainer.update.backend import ImitationObjective, LoraSettings, PolicyObjective, ValueObjective

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import torch
import transformers

from benchmarks.tiny_models import make_model
from trainer.update.loss import value_loss
from trainer.update.micro_batches import mini_batches
from trainer.update.torch_backend import TorchBackend

SEPARATOR, ID = "<|value|>", 259
LOSSES = [ValueObjective(loss=loss) for loss in ("huber", "mse", "bce")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    make_model(path, context=128, spread=0.6)
    return path


def backend(folder: Path, **settings: Any) -> TorchBackend:
    given = {"learning_rate": 1e-3, "device": "cpu", "separator": SEPARATOR, **settings}
    return TorchBackend(folder, **given)


def state(seed: int, target: float, prompt: int = 5, reply: int = 4, **more: Any) -> Sample:
    """Random tokens; siblings have the seed's integer part, and so the prompt, in common."""
    dice = random.Random(seed // 10)
    tokens = [dice.randrange(250) for _ in range(prompt)]
    dice = random.Random(1000 + seed)
    tokens += [*(dice.randrange(250) for _ in range(reply)), ID]
    return Sample(
        policy="",
        token_ids=tokens,
        loss_mask=[0] * prompt + [1] * (reply + 1),
        behaviour_logprobs=[0.0] * len(tokens),
        advantage=target,
        **more,
    )


SAMPLES = [state(0, 1.0), state(1, -1.0, reply=7), state(2, 0.25, reply=2), state(10, -0.5, prompt=9)]


# Losses


def test_losses_by_hand() -> None:
    """V = tanh(ln 3 / 2) = 1/2, for which (1 + V) / 2 = 3/4; and V = 0."""
    logits, targets = torch.tensor([math.log(3) / 2, 0.0]), torch.tensor([-1.0, 1.0])
    ones = torch.ones(2)

    def of(**settings: Any) -> list[float]:
        return value_loss(logits, targets, ones, ValueObjective(**settings)).tolist()

    assert of() == pytest.approx([1.0, 0.5])  # 1.5 - 1/2, and half of 1
    assert of(delta=2.0) == pytest.approx([1.125, 0.5])
    assert of(loss="mse") == pytest.approx([2.25, 1.0])
    assert of(loss="bce") == pytest.approx([math.log(4), math.log(2)])


@pytest.mark.parametrize("objective", LOSSES)
@pytest.mark.parametrize("logit", [-1e4, -50.0, 0.0, 50.0, 1e4])
def test_no_loss_is_unbounded_below_or_infinite_anywhere(objective: ValueObjective, logit: float) -> None:
    """The released default, cross-entropy of logits against atanh of the label, is -92 for logit -50, label -0.95
    (train/trainer.py:98, 144-145, 196-202)."""
    targets = torch.tensor([-1.0, -0.95, 0.0, 0.95, 1.0])
    logits = torch.full((5,), logit, requires_grad=True)
    loss = value_loss(logits, targets, torch.ones(5), objective)
    loss.sum().backward()
    assert logits.grad is not None
    assert bool(loss.isfinite().all())
    assert bool(logits.grad.isfinite().all())
    assert float(loss.detach().min()) >= 0


def test_huber_is_of_the_bounded_output() -> None:
    """The released one regresses logits that are clamped at 0.05; here a logit far out costs what V = 1 does."""
    loss = value_loss(torch.tensor([100.0]), torch.tensor([-1.0]), torch.ones(1), ValueObjective())
    assert loss.tolist() == [1.5]


@pytest.mark.parametrize("objective", LOSSES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_on_labels_of_exactly_one_is_finite(folder: Path, objective: ValueObjective, dtype: Any) -> None:
    model = backend(folder, dtype=dtype)
    assert model.values(SAMPLES) == [0.0] * 4, "a new head says 0"
    first = model.update(SAMPLES, objective)
    expected = {"huber": (0.5 + 0.5 + 0.03125 + 0.125) / 4, "mse": (1 + 1 + 0.0625 + 0.25) / 4, "bce": math.log(2)}
    assert first.loss == pytest.approx(expected[objective.loss])
    for _ in range(10):
        report = model.update(SAMPLES, objective)
        assert math.isfinite(report.loss)
        assert math.isfinite(report.gradient_norm)
    assert report.loss < first.loss


def test_weights_multiply_and_targets_are_bounded() -> None:
    weighed = [replace(SAMPLES[0], weight=3.0), replace(SAMPLES[1], weight=0.5)]
    assert mini_batches(weighed, ValueObjective()) == [{0: 1.5, 1: 0.25}]
    with pytest.raises(ValueError, match=r"sample 1 has the target 1.5. Fix: targets in \[-1, 1\]"):
        mini_batches([SAMPLES[0], replace(SAMPLES[1], advantage=1.5)], ValueObjective())


# The model


def taught(folder: Path, steps: int = 3, **settings: Any) -> TorchBackend:
    model = backend(folder, **settings)
    for _ in range(steps):
        model.update(SAMPLES, ValueObjective())
    return model


def test_v_is_tanh_of_a_linear_head_at_the_separator(folder: Path, tmp_path: Path) -> None:
    """What plain transformers computes from the folder and the head's file."""
    model = taught(folder)
    values = model.values(SAMPLES)
    model.save(tmp_path / "saved")
    from safetensors.torch import load_file

    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved" / "model")
    assert tokenizer.convert_tokens_to_ids(SEPARATOR) == ID
    assert plain.get_input_embeddings().num_embeddings == plain.config.vocab_size == ID + 1
    head = load_file(tmp_path / "saved" / "model" / "value_head.safetensors")
    for sample, value in zip(SAMPLES, values, strict=True):
        hidden = plain.model(torch.tensor([list(sample.token_ids)])).last_hidden_state[0, -1]
        expected = torch.tanh(head["weight"][0] @ hidden + head["bias"][0])
        assert value == pytest.approx(float(expected.detach()), abs=1e-6)
        assert value != 0


def test_what_comes_behind_the_separator_does_not_matter(folder: Path) -> None:
    model = taught(folder)
    sample = SAMPLES[0]
    longer = replace(
        sample, token_ids=[*sample.token_ids, 7], loss_mask=[*sample.loss_mask, 0], behaviour_logprobs=[0.0] * 11
    )
    assert model.values([longer]) == model.values([sample])


def test_a_shared_prompt_changes_nothing_but_rounding(folder: Path) -> None:
    shared, alone = taught(folder), taught(folder, shared_prompts=False)
    assert shared.values(SAMPLES) == pytest.approx(alone.values(SAMPLES), abs=1e-4)
    seen: list[int] = []
    shared._causal.model.layers[0].mlp.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[1]))
    shared.values(SAMPLES[:2])  # a prompt of 5: 4 tokens once, then the fifth and what follows it
    assert sorted(seen) == [4, 9]


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, alpha=8, dropout=0.3)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_and_loaded_it_goes_on_with_the_same_bits(
    folder: Path, tmp_path: Path, lora: LoraSettings | None, dtype: Any
) -> None:
    if lora:
        pytest.importorskip("peft")
    whole, half = taught(folder, 4, lora=lora, dtype=dtype), taught(folder, 2, lora=lora, dtype=dtype)
    half.save(tmp_path / "half")
    again = backend(folder, lora=lora, dtype=dtype)
    again.load(tmp_path / "half")
    assert again.values(SAMPLES) == half.values(SAMPLES)
    for _ in range(2):
        again.update(SAMPLES, ValueObjective())
    assert again.values(SAMPLES) == whole.values(SAMPLES)
    again.save(tmp_path / "again")
    whole.save(tmp_path / "whole")
    for name in ("model/model.safetensors", "model/value_head.safetensors", "optimizer/optimizer.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_model_of_values_is_where_the_next_one_starts(folder: Path, tmp_path: Path) -> None:
    model = taught(folder)
    model.save(tmp_path / "first")
    assert backend(tmp_path / "first" / "model").values(SAMPLES) == model.values(SAMPLES)


def test_policies_are_as_they_were(folder: Path) -> None:
    """The separator and the head are there only where they are asked for."""
    policy = backend(folder, separator=None)
    assert policy._causal.get_input_embeddings().num_embeddings == ID
    assert "value_head.weight" not in policy.weights()
    assert "value_head.weight" not in backend(folder).weights()


# Refusals


def test_objectives_and_models_that_do_not_fit(folder: Path, tmp_path: Path) -> None:
    policy, values = backend(folder, separator=None), backend(folder)
    short = [replace(each, token_ids=[*each.token_ids[:-1], 3]) for each in SAMPLES]
    with pytest.raises(ValueError, match=r"no head for values. Fix: make the backend with a separator"):
        policy.update(short, ValueObjective())
    with pytest.raises(ValueError, match=r"no head for values"):
        policy.values(short)
    for objective in (ImitationObjective(), PolicyObjective()):
        with pytest.raises(ValueError, match=rf"does not learn by {type(objective).__name__}. Fix: a ValueObjective"):
            values.update(SAMPLES, objective)
    policy.save(tmp_path / "policy")
    before = values.values(SAMPLES)
    with pytest.raises(ValueError, match="Fix: "):
        values.load(tmp_path / "policy")
    assert values.values(SAMPLES) == before


def test_a_head_of_another_width_is_refused(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    taught(folder).save(tmp_path / "saved")
    path = tmp_path / "saved" / "model" / "value_head.safetensors"
    path.unlink()
    save_file({"weight": torch.zeros(1, 16), "bias": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"value_head.safetensors has 'weight' as torch.float32 \[1, 16\]"):
        backend(tmp_path / "saved" / "model")


def test_deepspeed_says_where_values_are_trained() -> None:
    from trainer.update.deepspeed_backend import DeepSpeedBackend

    with pytest.raises(ValueError, match=r"DeepSpeed's ranks train policies.*Fix: TorchBackend with a separator"):
        DeepSpeedBackend.__new__(DeepSpeedBackend).update(SAMPLES, ValueObjective())
