"""The head of a model of values, V = tanh(w h + b) (MASPRM, section 3), and the separator token that it is read at.

h is the last hidden state at the separator. The rest is a causal model with one more token in its vocabulary. Models of
others that tell right from wrong in two classes are read here, too. Knows no loss (`trainer.update.loss`), no states
and no search (`trainer.values`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from trainer.samples import Sample
from trainer.update.backend import ModelUnusable
from trainer.update.forward import Forward
from trainer.update.policy_files import check_fits, read_tensors
from trainer.update.shared_prompts import can_share

STEM = "value_head"
"""Of its file, beside the model's, and of its weights' names."""
FILE = f"{STEM}.safetensors"


class ValueHead(torch.nn.Linear):
    """From hidden states [batch, width], never in less than float32, to logits [batch], of which tanh is V. A new head
    is 0, and so is V before the first step."""

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
    return head.to(model.device, torch.promote_types(model.dtype, torch.float32))


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


class TwoClassHead(torch.nn.Module):
    """Linear layers with a ReLU between them, onto the classes wrong and right; from [batch, width] to logits [batch],
    of which tanh is 2 p - 1 for the probability p of right. `layers` are weights and biases."""

    def __init__(self, layers: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> None:
        super().__init__()
        self._layers = layers

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        for number, (weight, bias) in enumerate(self._layers):
            states = torch.nn.functional.linear(states.relu() if number else states, weight, bias)
        return (states[:, 1] - states[:, 0]) / 2


def two_class_head(folder: Path, model: Any) -> TwoClassHead:
    """Of the weights `score.weight`, or `score.0.weight`, `score.2.weight` and so on, and biases, in a folder. Raises
    `ModelUnusable` where these are no such head."""
    from safetensors import safe_open

    dtype = torch.promote_types(model.dtype, torch.float32)
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith("score.")]  # noqa: SIM118 - it is no mapping
            found |= {name: file.get_tensor(name).to(model.device, dtype) for name in names}
    weights = sorted(name for name in found if name.endswith("weight"))
    layers = [(found[name], found.get(name.removesuffix("weight") + "bias")) for name in weights]
    widths = [layer.shape[1] for layer, _ in layers] + [2]
    fits = widths[0] == model.config.get_text_config().hidden_size
    if not layers or not fits or [layer.shape[0] for layer, _ in layers] != widths[1:]:
        shapes = {name: list(found[name].shape) for name in weights}
        raise ModelUnusable(
            f"{folder} has no head of two classes (score.weight), but {shapes}. Fix: a model for token classification "
            "with two classes"
        )
    return TwoClassHead(layers)


def read_values(
    model: Any, folder: Path, max_tokens: int, *, two_class: bool = False
) -> Callable[[Sequence[Sample]], list[float]]:
    """What says V of samples, with at most `max_tokens` padded tokens at once (a longer sample is alone), and each
    prompt that samples share computed once; `model` is the one in `folder`. Raises ValueError where it has no head."""
    if not two_class and not (folder / FILE).exists():
        raise ModelUnusable(f"{folder} has no {FILE}. Fix: the model/ of a metaagent prm run")
    head = two_class_head(folder, model) if two_class else head_of(folder, model)
    forward = Forward(max_tokens, can_share(model))
    return lambda samples: values_of(forward, model, head, samples)


@torch.no_grad()
def values_of(forward: Forward, model: Any, head: torch.nn.Module, samples: Sequence[Sample]) -> list[float]:
    """V of each sample, rounded to float32."""
    values = [0.0] * len(samples)
    for batch, states in forward.states(model, samples, range(len(samples))):
        for index, value in zip(batch.indices, head(states).tanh().float().tolist(), strict=True):
            values[index] = value
    return values
