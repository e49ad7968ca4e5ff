"""New weights for a model that serves: checked before they go in, and proven to be in afterwards.

Used by engines on the thread or in the process that holds the model. It moves nothing between processes and does not
decide when to update; an engine pauses before and resumes after.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from engine.fingerprints import combined, fingerprint, fingerprint_parts
from engine.merging import merged, outline
from engine.protocol import Probe, least_rounding, unit_of_rounding
from engine.threads import mapped
from workflow.checks import nearest

__all__ = [
    "check",
    "combined",
    "fingerprint",
    "fingerprint_parts",
    "load",
    "merged",
    "probe",
    "probed",
    "skeleton",
    "unshared",
]

_ROWS = 8
"""Copies of a probe's tokens on which rounding is measured."""


def check(model: Any, given: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError, naming the culprit, unless `given` is a whole new set of values for the model's weights.

    Of weights that are one and the same, such as tied embeddings, the first name is enough. The model may lie on the
    meta device.
    """
    held = model.state_dict()
    once = {name for name, _ in model.named_parameters()}
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
    for name, tensor in outline(given).items():
        if name not in held:
            near = nearest(name, held)
            raise ValueError(f"the model has no weight {name!r}" + (f"; did you mean {near!r}?" if near else ""))
        if tensor.shape != held[name].shape:
            raise ValueError(f"{name!r} has shape {list(tensor.shape)}, the model's is {list(held[name].shape)}")
    missing = [name for name in held if name not in given and name not in again]
    if missing:
        raise ValueError(f"{len(missing)} weights are missing, the first is {missing[0]!r}")


def unshared(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of all but the first of tensors that share memory, which a safetensors file cannot hold."""
    seen: set[int] = set()
    alone = {}
    for name, tensor in tensors.items():
        alone[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return alone


def probed(model: Any, token_ids: list[int]) -> list[float]:
    """Natural log-probabilities that a transformers model gives to each token after the first, for a `Probe`."""
    [logits] = _logits(model, [token_ids])
    return _chosen(logits.log_softmax(-1), token_ids).tolist()


def probe(model: Any, token_ids: list[int]) -> Probe:
    """What an engine with this model's weights is to say, and what rounding does to each of it in this very model.

    How much the rounding of a step in between changes a log-probability depends on the model and on the token, by a
    factor of a hundred. So it is measured: the model is run on `_ROWS` copies of the tokens, with the outputs of all
    its parts off at random by what two engines' rounding makes of them, 0.6 u in root mean square. To that comes
    `least_rounding`, for sums that are no part's output.

    Measured: SmolLM2-135M (30 layers), models with random weights and the shapes of Qwen3 (28 and 36 layers), and
    trained policies of four layers, computed with another attention, another matrix product, token by token, with
    float32 inside, in float32 alone and in vLLM, are off by at most 2.3 times that, and 0.6 times in the mean.

    What changes a model no more than rounding does passes: weights of one step ago at a rate of 5e-6, one layer that is
    old by a hundred steps, rows of tokens that the probe does not have. To find those is the fingerprint's business. A
    probe finds tensors that are missing, layers and tokens in each other's place, and weights that are old by a hundred
    steps, or one layer by a thousand. Its tokens should be ordinary text (`engine.pretrained.probe_ids`): what a model
    has never seen in a row, rounding changes most, and wrong weights are then harder to tell.
    """
    [logits] = _logits(model, [token_ids])
    said = _chosen(logits.log_softmax(-1), token_ids)
    largest = torch.maximum(_chosen(logits, token_ids).abs(), logits.amax(-1).abs())
    dtype = str(model.get_input_embeddings().weight.dtype).removeprefix("torch.")
    least = least_rounding(
        dtype,
        model.config.get_text_config().num_hidden_layers,
        spread=float(logits.std(-1).mean()),
        size=float(largest.square().mean().sqrt()),
    )
    variance = torch.full_like(said, least**2)
    if dtype in ("bfloat16", "float16"):  # else the least is far more
        with _rounded_otherwise(model, 0.6 * unit_of_rounding(dtype)):
            rows = _logits(model, [token_ids] * _ROWS)
        off = [_chosen(row.log_softmax(-1), token_ids) - said for row in rows]
        variance += torch.stack(off).square().mean(0)
    return Probe(token_ids, said.tolist(), variance.sqrt().tolist())


@contextlib.contextmanager
def _rounded_otherwise(model: Any, relative: float) -> Iterator[None]:
    """The outputs of all parts with weights, but embeddings, are off by `relative` times themselves, in root mean
    square; the same for the same model and tokens."""
    dice: dict[Any, torch.Generator] = {}

    def change(_part: Any, _given: Any, said: Any) -> torch.Tensor | None:
        if not isinstance(said, torch.Tensor) or not said.is_floating_point():
            return None
        if said.device not in dice:
            dice[said.device] = torch.Generator(said.device).manual_seed(0)
        noise = torch.randn(said.shape, generator=dice[said.device], device=said.device)
        return (said * (1 + relative * noise)).to(said.dtype)

    parts = [
        part
        for part in model.modules()
        if next(part.children(), None) is None
        and next(part.parameters(recurse=False), None) is not None
        and not isinstance(part, torch.nn.Embedding)
    ]
    hooks = [part.register_forward_hook(change) for part in parts]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _logits(model: Any, rows: list[list[int]]) -> Iterator[torch.Tensor]:
    """Row by row those from which each token after the first is drawn [tokens - 1, vocabulary], in float32."""
    with torch.inference_mode():
        logits = model(torch.tensor(rows, device=model.device)).logits
        return (row[:-1].float() for row in logits)


def _chosen(values: torch.Tensor, token_ids: list[int]) -> torch.Tensor:
    """Of values [tokens - 1, vocabulary] those of the tokens after the first."""
    return values.gather(-1, torch.tensor(token_ids[1:], device=values.device)[:, None])[:, 0]


def skeleton(config: Any) -> Any:
    """The transformers model of a configuration without its weights: names and shapes, no memory."""
    transformers: Any = importlib.import_module("transformers")
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)


@torch.no_grad()
def load(model: Any, given: Mapping[str, torch.Tensor]) -> str:
    """Copy `given` into the model's own memory, in the model's own types; returns the fingerprint of what it holds.

    Each tensor of `given` is asked for once, several at the same time. Raises ValueError before anything is changed
    when the weights do not fit, RuntimeError when afterwards the model does not hold what was given: it must not serve
    then.
    """
    check(model, given)
    held = model.state_dict()

    def put(name: str) -> dict[str, str]:
        tensor = given[name].to(held[name].dtype)
        held[name].copy_(tensor)
        return fingerprint_parts({name: tensor})

    parts: dict[str, str] = {}
    for part in mapped(put, given):
        parts |= part
    now, meant = fingerprint({name: held[name] for name in given}), combined(parts)
    if now != meant:
        raise RuntimeError(f"the model does not hold what was given (fingerprint {now[:12]}, not {meant[:12]})")
    return now
