"""A policy as it was at one moment, and its files: what is written while training goes on.

A policy that lies in several processes has one snapshot per process, each with what that process writes: copies in host
memory, made while all wait, and a `write` in which no process waits for another, as training has the collectives by
then. Not here: a rank's (`trainer.update.deepspeed_files`); when a checkpoint is due, and that it is whole
(`trainer.disk`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.merging import again
from trainer.disk import Written
from trainer.update import policy_files, tensor_files, value_head


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """`weights` and `adapter` are tensors that nobody changes until this is written."""

    model: Any
    """The transformers model, or peft's around it. Its tensors are not read."""
    tokenizer: Any
    weights: Mapping[str, torch.Tensor]
    """All, named as in the model's checkpoint, adapters merged."""
    adapter: Mapping[str, torch.Tensor] | None
    """The trained parameters by peft's names; None without adapters."""
    head: Mapping[str, torch.Tensor] | None = None
    """Of a model of values (`trainer.update.value_head`)."""

    def write(self, folder: Path) -> list[Written]:
        """`model/`, which plain transformers loads, and with adapters `adapter/`, which peft loads. Returns the files
        that were hashed on the way; the large ones are on disk by then. Raises OSError."""
        causal = self.model
        if self.adapter is not None:
            causal = self.model.get_base_model()
            self.model.save_pretrained(folder / "adapter", state_dict=dict(self.adapter), save_embedding_layers=False)
        causal.save_pretrained(folder / "model", state_dict={})  # all but the weights
        self.tokenizer.save_pretrained(folder / "model")
        written = tensor_files.write(folder / "model", "model", *_as_on_disk(causal, self.weights))
        if self.head is not None:
            written += tensor_files.write(folder / "model", value_head.STEM, self.head)
        return written


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySnapshot:
    """All of a policy. See `trainer.update.backend.Snapshot`; nobody changes `optimizer` until this is written."""

    model: ModelSnapshot
    optimizer: Mapping[str, torch.Tensor]
    state: policy_files.State

    def write(self, folder: Path) -> list[Written]:
        empty(folder)
        return [*self.model.write(folder), *policy_files.write(folder, self.state, self.optimizer)]


def empty(folder: Path) -> None:
    """Make a folder with an empty `optimizer/`. Raises ValueError where there is something in it."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty. Fix: save into an empty folder")
    (folder / policy_files.STATE).parent.mkdir()


def copied(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies in host memory; of tensors that are one and the same, of the first."""
    twice = again(tensors)
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
        if name not in twice
    }


def _as_on_disk(causal: Any, tensors: Mapping[str, torch.Tensor]) -> tuple[Mapping[str, torch.Tensor], list[str]]:
    """Tensors, and which of them are written: as transformers does it, tied weights once. Where it holds several
    weights of the checkpoint as one, such as a layer's experts, they are taken apart, all at once in memory."""
    left_out = again(tensors) | set(causal._keys_to_ignore_on_save or ())
    names = [name for name in tensors if name not in left_out]
    if not getattr(causal, "_weight_conversions", None):
        return tensors, names
    conversion: Any = importlib.import_module("transformers.core_model_loading")
    apart = conversion.revert_weight_conversion(causal, {name: tensors[name] for name in names})
    return apart, list(apart)
