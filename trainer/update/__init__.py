"""From samples to new weights: the protocol of a backend, and the one in plain torch with its loss (the clipped ratio),
micro-batches, shared prompts and optimizer.

Not here: papers, problems, programs, rewards: a backend knows samples and an objective. `TorchBackend` needs the extra
`train` and is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from trainer.update.backend import (
    Backend,
    ImitationObjective,
    LoraSettings,
    Objective,
    PolicyObjective,
    UpdateFailed,
    UpdateReport,
)

if TYPE_CHECKING:
    from trainer.update.torch_backend import TorchBackend

__all__ = [
    "Backend",
    "ImitationObjective",
    "LoraSettings",
    "Objective",
    "PolicyObjective",
    "TorchBackend",
    "UpdateFailed",
    "UpdateReport",
]


def __getattr__(name: str) -> Any:
    if name == "TorchBackend":
        from trainer.update.torch_backend import TorchBackend

        return TorchBackend
    raise AttributeError(f"module 'trainer.update' has no attribute {name!r}")
