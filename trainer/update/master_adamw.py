"""AdamW over a model's trained weights, in float32 whatever the model computes in.

Weights in another type have a float32 copy here that gradients are summed into and that is stepped; the weights are
then rounded from it. Knows no loss and no samples.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from trainer.update.policy_files import check_fits
from trainer.update.terms import infinite_norm

_MOMENTS = ("exp_avg", "exp_avg_sq")


class MasterAdamW:
    """Steps those of the weights, given by name, that require a gradient (Loshchilov and Hutter, 2019)."""

    def __init__(
        self,
        named: Iterable[tuple[str, torch.nn.Parameter]],
        *,
        learning_rate: float,
        betas: tuple[float, float],
        weight_decay: float,
    ) -> None:
        self._trained = {name: each for name, each in named if each.requires_grad}
        self._masters = {name: _master(parameter) for name, parameter in self._trained.items()}
        self._adamw: Any = torch.optim.AdamW(
            self._masters.values(), lr=learning_rate, betas=betas, weight_decay=weight_decay, fused=True
        )

    @property
    def learning_rate(self) -> float:
        return self._adamw.param_groups[0]["lr"]

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._adamw.param_groups[0]["lr"] = value

    def step(self, max_norm: float) -> float:
        """Clip the gradients to a joint norm of `max_norm` and take a step; returns their norm before that. Raises
        `UpdateFailed`, with the weights unchanged, where it is not finite."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._masters.values(), max_norm))
        if not math.isfinite(norm):
            grads = {name: master.grad for name, master in self._masters.items() if master.grad is not None}
            culprit = next((name for name, grad in grads.items() if not bool(grad.isfinite().all())), "their sum")
            raise infinite_norm(norm, culprit)
        self._adamw.step()
        with torch.no_grad():
            for parameter, master in self._copied().values():
                parameter.copy_(master)
        return norm

    def clear(self) -> None:
        """Drop all gradients."""
        for each in [*self._masters.values(), *self._trained.values()]:
            each.grad = None

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that the next step depends on besides weights and gradients, by `kind/name`."""
        tensors = {f"master/{name}": master for name, (_, master) in self._copied().items()}
        for name, master in self._masters.items():
            tensors |= {f"{kind}/{name}": value for kind, value in self._adamw.state[master].items()}
        return {name: tensor.detach() for name, tensor in tensors.items()}

    def check(self, path: Path, given: Mapping[str, torch.Tensor]) -> None:
        """Raise ValueError, naming `path`, unless `given` are the `tensors` of such a model after any steps."""
        held = {f"master/{name}": master for name, (_, master) in self._copied().items()}
        for name, master in self._masters.items():
            if f"step/{name}" in given:
                held |= {f"{kind}/{name}": master for kind in _MOMENTS} | {f"step/{name}": torch.tensor(0.0)}
        check_fits(path, given, held)

    @torch.no_grad()
    def load(self, given: Mapping[str, torch.Tensor]) -> None:
        """Take over what `tensors` gave, after `check`."""
        for name, (_, master) in self._copied().items():
            master.copy_(given[f"master/{name}"])
        # Clones: the tensors of a file may be the file's own memory.
        state = {
            number: {kind: given[f"{kind}/{name}"].clone() for kind in ("step", *_MOMENTS)}
            for number, name in enumerate(self._masters)
            if f"step/{name}" in given
        }
        self._adamw.load_state_dict({"state": state, "param_groups": self._adamw.state_dict()["param_groups"]})

    def _copied(self) -> dict[str, tuple[torch.nn.Parameter, torch.Tensor]]:
        return {
            name: (parameter, self._masters[name])
            for name, parameter in self._trained.items()
            if self._masters[name] is not parameter
        }


def _master(parameter: torch.nn.Parameter) -> torch.Tensor:
    """What is stepped: the parameter itself, or where it is not float32 a copy that gets its gradients."""
    if parameter.dtype == torch.float32:
        return parameter
    master = parameter.detach().float()

    def hand_over(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        master.grad = parameter.grad.float() if master.grad is None else master.grad.add_(parameter.grad)
        parameter.grad = None

    parameter.register_post_accumulate_grad_hook(hand_over)
    return master
