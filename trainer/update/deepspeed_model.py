"""What one rank holds of a policy: its model inside DeepSpeed's engine, its optimizer, its reference.

Makes them, and has the agreement of all ranks that they could be made. Computes nothing: that is
`trainer.update.deepspeed_rank`'s.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from engine import weights
from trainer.update.backend import ModelUnusable
from trainer.update.deepspeed_engine import GuardedAdamW, Scorer, engine_of, frozen_engine
from trainer.update.deepspeed_group import DeepSpeedSettings
from trainer.update.deepspeed_weights import LayeredWeights
from trainer.update.dice import Dice
from trainer.update.exchange import Exchange
from trainer.update.parked import tensors_in
from trainer.update.torch_model import adapted, check_head, loaded


@dataclass(frozen=True, slots=True)
class Held:
    """One rank's part."""

    tokenizer: Any
    causal: Any
    """The transformers model; with adapters inside of it where there are any."""
    model: Any
    """The same, or peft's around it."""
    weights: LayeredWeights
    outline: dict[str, torch.Tensor]
    """Types and shapes of the trained parameters, on the meta device."""
    vocabulary: int
    start: str | None
    """Fingerprint of the weights that stay as they are; None where there are none."""
    reference: Any
    """A `Scorer` of the start weights, or an engine around one; None with adapters, and where none was asked for."""
    engine: Any
    """DeepSpeed's around a `Scorer` of the model."""
    adamw: GuardedAdamW

    @property
    def trained(self) -> dict[str, Any]:
        """Parameters by name: peft's names with adapters, else the checkpoint's."""
        return {name: each for name, each in self.model.named_parameters() if each.requires_grad}

    def tensors(self) -> Iterator[torch.Tensor]:
        """All that takes memory between two updates."""
        yield from self.weights_now()
        yield from _of(self.reference)
        yield from tensors_in(vars(self.engine.optimizer))
        yield from tensors_in(vars(self.adamw))

    def weights_now(self) -> Iterator[torch.Tensor]:
        """Those of the policy, in the type that it computes in."""
        yield from _of(self.engine.module)

    def close(self) -> None:
        for engine in (self.engine, self.reference):
            if hasattr(engine, "destroy"):
                engine.destroy()


def _of(module: Any) -> Iterator[torch.Tensor]:
    for parameter in module.parameters() if module is not None else ():
        yield parameter
        yield from tensors_in(getattr(parameter, "ds_tensor", None))


def hold(settings: DeepSpeedSettings, exchange: Exchange) -> Held:
    """Raises on all ranks where one cannot make its part: there what is wrong, elsewhere `ModelUnusable`."""
    parts, problem = None, None
    try:
        parts = _load(settings, exchange.device)
    except Exception as error:  # the others wait for this rank's word
        problem = error
    with exchange.during("loading the model"):
        failed = [rank for rank, (one,) in enumerate(exchange.gathered([problem is not None])) if one]
    if problem is not None:
        raise problem
    if parts is None or failed:
        raise ModelUnusable(f"rank {failed[0]} cannot use the model {settings.model!r}. Fix: see what that rank says")
    tokenizer, causal, model, layered, start, reference = parts
    outline = {
        name: torch.empty_like(each, device="meta") for name, each in model.named_parameters() if each.requires_grad
    }
    vocabulary = causal.get_input_embeddings().num_embeddings
    with exchange.during("the start of DeepSpeed"):
        engine, adamw = engine_of(Scorer(causal), settings, exchange)
        if reference is not None and settings.zero_stage == 3:
            reference = frozen_engine(reference, settings, exchange)
    engine.eval()
    return Held(tokenizer, causal, model, layered, outline, vocabulary, start, reference, engine, adamw)


def _load(settings: DeepSpeedSettings, device: torch.device) -> tuple[Any, Any, Any, LayeredWeights, str | None, Any]:
    tokenizer, causal = loaded(settings.model, getattr(torch, settings.dtype))
    causal.to(device).eval()
    check_head(causal)
    frozen = settings.lora is not None or settings.keeps_reference
    start = weights.fingerprint(causal.state_dict()) if frozen else None
    reference = None
    if settings.keeps_reference and settings.lora is None:
        reference = Scorer(copy.deepcopy(causal).requires_grad_(False)).eval()
    if settings.gradient_checkpointing:
        causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    layered, model = LayeredWeights(causal), causal
    if settings.lora is not None:
        with Dice(settings.seed, device).own():  # the same on all ranks
            model = adapted(causal, settings.lora)
    return tokenizer, causal, model, layered, start, reference
