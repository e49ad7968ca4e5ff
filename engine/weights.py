"""New weights for a model that serves: checked before they go in, and proven to be in afterwards.

Used by engines on the thread or in the process that holds the model. It moves nothing between processes and does not
decide when to update; an engine pauses before and resumes after.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

from engine.fingerprints import combined, fingerprint, fingerprint_parts
from engine.merging import merged, outline
from engine.protocol import Probe, probe_tolerance
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
    return _chosen(_logits(model, token_ids).log_softmax(-1), token_ids).tolist()


def probe(model: Any, token_ids: list[int]) -> Probe:
    """What an engine with this model's weights is to say, up to its rounding (`engine.protocol.probe_tolerance`)."""
    logits = _logits(model, token_ids)
    largest = torch.maximum(_chosen(logits, token_ids).abs(), logits.amax(-1).abs())
    tolerances = probe_tolerance(
        str(model.get_input_embeddings().weight.dtype).removeprefix("torch."),
        model.config.get_text_config().num_hidden_layers,
        spread=float(logits.std(-1).mean()),
        size=float(largest.square().mean().sqrt()),
    )
    return Probe(token_ids, _chosen(logits.log_softmax(-1), token_ids).tolist(), *tolerances)


def _logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    """Those from which each token after the first is drawn [tokens - 1, vocabulary], in float32."""
    with torch.inference_mode():
        return model(torch.tensor([token_ids], device=model.device)).logits[0, :-1].float()


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
