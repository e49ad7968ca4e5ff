"""New weights for a model: what does not go in is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from benchmarks.tiny_models import make_model
from engine import weights


def tiny(folder: Path, **settings: Any) -> Any:
    make_model(folder, **settings)
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def new(model: Any) -> dict[str, Any]:
    return {name: tensor + 1 for name, tensor in model.state_dict().items()}


def test_values_that_did_not_arrive_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(tmp_path)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, _: self)
    with pytest.raises(RuntimeError, match="does not hold what was given"):
        weights.load(model, new(model))


def test_two_values_for_one_weight_are_found(tmp_path: Path) -> None:
    model = tiny(tmp_path, tied=True)
    given = new(model)
    given["lm_head.weight"] += 1
    with pytest.raises(RuntimeError, match="does not hold what was given"):
        weights.load(model, given)


def test_they_are_rounded_to_the_models_type(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    given = {name: tensor + 0.1 for name, tensor in model.state_dict().items()}
    rounded = {name: tensor.to(torch.bfloat16) for name, tensor in given.items()}
    digest = weights.load(model.to(torch.bfloat16), given)
    assert digest == weights.fingerprint(rounded) == weights.fingerprint(model.state_dict())
