"""Loading a causal language model for training: with its tokenizer, adapters put on, and unfit ones refused.

What is then done with it is `trainer.update.torch_backend`'s.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from engine.pretrained import load_model, load_tokenizer
from trainer.update.backend import LoraSettings, ModelUnusable


def loaded(path_or_id: str | Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """Tokenizer and model."""
    try:
        return load_tokenizer(path_or_id), load_model(path_or_id, dtype)
    except Exception as error:  # whatever is wrong with the files or the network
        reason = str(error).strip().partition("\n")[0]
        raise ModelUnusable(
            f"cannot load the model {str(path_or_id)!r}: {type(error).__name__}: {reason} Fix: name a folder or a hub "
            "id that holds a causal language model with its tokenizer"
        ) from error


def adapted(model: Any, lora: LoraSettings) -> Any:
    peft: Any = importlib.import_module("peft")
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets),
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, config).eval()


@torch.no_grad()
def check_head(model: Any) -> None:
    """Raise `ModelUnusable` unless the logits are the output layer of the last hidden states, which is all that is
    computed here. Some models scale or cap them afterwards."""
    ids = torch.arange(min(8, model.get_input_embeddings().num_embeddings), device=model.device)[None]
    head = model.get_output_embeddings()
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    if head is None or not torch.allclose(head(hidden).float(), model(ids).logits.float(), rtol=1e-2, atol=1e-2):
        raise ModelUnusable(
            f"the logits of {type(model).__name__} are not its output layer on its last hidden states (does its "
            "configuration scale or cap them?), so it cannot be trained here. Fix: take another model"
        )
