"""A model inside DeepSpeed's engine: what goes forward through it, how it is configured, and the step that it takes.

Measured with DeepSpeed 0.19: the model is loaded whole and then partitioned, since loading it in parts
(`zero.Init`) makes float32 buffers such as rotary frequencies bfloat16. Gradients are summed and exchanged in float32,
as `trainer.update.master_adamw` sums them. Knows no samples and no files.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from typing import Any

import torch

from trainer.update.deepspeed_group import DeepSpeedSettings
from trainer.update.exchange import Exchange, deepspeed
from trainer.update.loss import chosen_logprobs
from trainer.update.terms import infinite_norm

_LARGEST = math.sqrt(torch.finfo(torch.float32).max)
"""Of norms whose square float32 can hold. Stage 3 adds squares up in float64, and would step where others do not."""
_BUCKET = 100_000_000
"""Gradients that are exchanged at once: 400 MB in float32."""


class Scorer(torch.nn.Module):
    """A causal model whose forward pass ends in log-probabilities, so that the output head is called inside of it,
    where DeepSpeed gathers partitioned weights."""

    def __init__(self, causal: Any) -> None:
        super().__init__()
        self.causal = causal

    def forward(
        self, token_ids: torch.Tensor, mask: torch.Tensor, temperatures: torch.Tensor, chunks: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies [batch, tokens] (`chosen_logprobs`)."""
        hidden = self.causal.base_model(input_ids=token_ids[:, :-1], use_cache=False).last_hidden_state
        head = self.causal.get_output_embeddings()
        return chosen_logprobs(hidden, head, token_ids, mask, temperatures, chunks=chunks)


class GuardedAdamW(torch.optim.AdamW):
    """AdamW that takes no step where `refuses` is set or the gradient's norm is not finite. DeepSpeed calls it amid its
    own step and cleans up around it: it would itself clip by an infinite norm, to zeros, and step."""

    def __init__(self, parameters: list[Any], settings: DeepSpeedSettings) -> None:
        super().__init__(
            parameters,
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.refuses = False
        self._zero: Any = None
        self._max_norm = settings.max_gradient_norm
        self._norm = math.nan

    def belong_to(self, engine: Any) -> None:
        """After `engine` was made with it."""
        self._zero = None if engine.optimizer is self else engine.optimizer
        for flat in self.stepped():
            # Made now rather than in the first step, where one rank might have no memory for them.
            self.state[flat] = {
                "step": torch.zeros((), device=flat.device),
                "exp_avg": torch.zeros_like(flat, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(flat, requires_grad=False),
            }

    def stepped(self) -> list[torch.Tensor]:
        """What is stepped on this rank: parameters, or flat parts of all together."""
        flats = getattr(self._zero, "fp32_partitioned_groups_flat", None)  # at stage 3 groups are empty between steps
        return flats if flats is not None else [each for group in self.param_groups for each in group["params"]]

    @property
    def norm(self) -> float:
        """Of the last step's gradient, before clipping; infinite where DeepSpeed says that it was not finite."""
        if self._zero is None:
            return self._norm
        norm = float(self._zero._global_grad_norm)
        return norm if 0 <= norm <= _LARGEST else math.inf

    def drop(self) -> None:
        """Gradients of a step that was not taken. Of an optimizer that is offloaded DeepSpeed keeps them, and would add
        the next step's to them."""
        for flat in self.stepped():
            if flat.grad is not None:
                flat.grad.zero_()
        kept = getattr(self._zero, "averaged_gradients", {})
        kept.update(dict.fromkeys(kept))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if self._zero is None:  # at stage 0 gradients are whole, and nobody else has looked at them
            given = [each for each in self.stepped() if each.grad is not None]
            self._norm = float(torch.nn.utils.clip_grad_norm_(given, self._max_norm))
        if not self.refuses and math.isfinite(self.norm):
            super().step(closure)
        return None


def take_step(engine: Any, adamw: GuardedAdamW, refuses: bool) -> float:
    """End the mini-batch: exchange gradients, step unless it `refuses`, and drop them. Returns their norm before
    clipping; raises `UpdateFailed`, with the weights unchanged, where it is not finite. The same on all ranks."""
    adamw.refuses = refuses
    engine.step()
    if refuses or not math.isfinite(adamw.norm):
        adamw.drop()
    if not refuses and not math.isfinite(adamw.norm):
        # DeepSpeed says that it is not finite, and not which of both it is.
        raise infinite_norm(adamw.norm if engine.optimizer is adamw else "inf or nan")
    return adamw.norm


def engine_of(model: Scorer, settings: DeepSpeedSettings, exchange: Exchange) -> tuple[Any, GuardedAdamW]:
    """The engine that trains those weights of `model` that require a gradient, and its optimizer."""
    adamw = GuardedAdamW([each for each in model.parameters() if each.requires_grad], settings)
    engine, *_ = deepspeed().initialize(model=model, optimizer=adamw, config=configuration(settings, exchange))
    exchange.limit_all()
    adamw.belong_to(engine)
    return engine, adamw


def frozen_engine(model: Scorer, settings: DeepSpeedSettings, exchange: Exchange) -> Any:
    """The same model, partitioned like one that is trained; without an optimizer."""
    settings = settings.model_copy(update={"offload_optimizer": False})
    engine, *_ = deepspeed().initialize(model=model, config=configuration(settings, exchange))
    exchange.limit_all()
    return engine


def configuration(settings: DeepSpeedSettings, exchange: Exchange) -> dict[str, Any]:
    """DeepSpeed's. The caller says where a mini-batch ends (`managed_gradient_accumulation`)."""
    zero: dict[str, Any] = {
        "stage": settings.zero_stage,
        "reduce_bucket_size": _BUCKET,
        "stage3_param_persistence_threshold": settings.persistence_threshold,
        "stage3_max_live_parameters": settings.live_weights,
        "stage3_max_reuse_distance": settings.live_weights,
    }
    if settings.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": exchange.device.type == "cuda"}
    chosen: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "managed_gradient_accumulation": False,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": settings.max_gradient_norm if settings.zero_stage else 0.0,
    }
    if settings.dtype == "bfloat16" and settings.lora is None:  # adapters are float32 themselves
        chosen |= {
            "bf16": {"enabled": True},
            "data_types": {"grad_accum_dtype": "fp32"},
            "communication_data_type": "fp32",
        }
    return chosen
