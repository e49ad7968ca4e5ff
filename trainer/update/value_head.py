"""The head of a model of values, V = tanh(w h + b) (MASPRM, section 3), and the separator token that it is read at.

h is the last hidden state at the separator. The rest is a causal model with one more token in its vocabulary. Knows no
loss (`trainer.update.loss`), no states and no search (`trainer.values`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from trainer.samples import Sample
from trainer.update.backend import ModelUnusable
from trainer.update.forward import Forward
from trainer.update.policy_files import check_fits, read_tensors

STEM = "value_head"
"""Of its file, beside the model's, and of its weights' names."""
FILE = f"{STEM}.safetensors"


class ValueHead(torch.nn.Linear):
    """From hidden states [batch, width] in float32 to logits [batch], of which tanh is V. New ones are 0: V is 0
    everywhere before the first step."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input)[:, 0]


def head_of(path_or_id: str | Path, model: Any) -> ValueHead:
    """The one in a folder, or a new one where there is none. Raises ValueError where it does not fit the model."""
    head = ValueHead(model.config.get_text_config().hidden_size)
    path = Path(path_or_id) / FILE
    if path.exists():
        given = read_tensors(path)
        check_fits(path, given, head.state_dict())
        head.load_state_dict(given)
    return head.to(model.device)


@torch.no_grad()
def add_separator(tokenizer: Any, model: Any, separator: str) -> int:
    """Make `separator` a token of both; returns its id. A new one begins as the token that ends a text, which stands
    where it will."""
    added = tokenizer.add_tokens([separator], special_tokens=True)
    token = tokenizer.convert_tokens_to_ids(separator)
    if not added:
        return token
    if tokenizer.eos_token_id is None:
        raise ModelUnusable(
            "the tokenizer has no token that ends a text, as which the separator would begin. Fix: set its eos_token"
        )
    if token >= model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(token + 1, mean_resizing=False)
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        layer.weight[token] = layer.weight[tokenizer.eos_token_id]
    return token


@torch.no_grad()
def values_of(forward: Forward, model: Any, head: ValueHead, samples: Sequence[Sample]) -> list[float]:
    """V of each sample."""
    values = [0.0] * len(samples)
    for batch, states in forward.states(model, samples, range(len(samples))):
        for index, value in zip(batch.indices, head(states).tanh().tolist(), strict=True):
            values[index] = value
    return values
