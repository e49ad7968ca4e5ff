"""From samples to new weights: the protocol of a backend, the one in plain torch, and the one of several processes with
DeepSpeed; what both have in common is the loss (the clipped ratio), micro-batches and files.

Not here: papers, problems, programs, rewards: a backend knows samples and an objective. Nor how processes are started:
`DeepSpeedBackend` is given a `Group` of them. `TorchBackend` needs the extra `train`, `DeepSpeedBackend` the extra
`cluster`; both are loaded on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from trainer.update.backend import (
    Backend,
    ImitationObjective,
    LoraSettings,
    Objective,
    PolicyObjective,
    Snapshot,
    UpdateFailed,
    UpdateReport,
    ValueObjective,
)

if TYPE_CHECKING:
    from trainer.update.deepspeed_backend import DeepSpeedBackend
    from trainer.update.deepspeed_group import DeepSpeedSettings, Group, GroupLost
    from trainer.update.deepspeed_rank import DeepSpeedRank
    from trainer.update.exchange import join
    from trainer.update.torch_backend import TorchBackend
    from trainer.update.value_head import read_values

__all__ = [
    "Backend",
    "DeepSpeedBackend",
    "DeepSpeedRank",
    "DeepSpeedSettings",
    "Group",
    "GroupLost",
    "ImitationObjective",
    "LoraSettings",
    "Objective",
    "PolicyObjective",
    "Snapshot",
    "TorchBackend",
    "UpdateFailed",
    "UpdateReport",
    "ValueObjective",
    "join",
    "read_values",
]

_LATE = {
    "DeepSpeedBackend": "deepspeed_backend",
    "DeepSpeedRank": "deepspeed_rank",
    "DeepSpeedSettings": "deepspeed_group",
    "Group": "deepspeed_group",
    "GroupLost": "deepspeed_group",
    "TorchBackend": "torch_backend",
    "join": "exchange",
    "read_values": "value_head",
}
"""What is loaded on first use, and from where."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"trainer.update.{_LATE[name]}"), name)
    raise AttributeError(f"module 'trainer.update' has no attribute {name!r}")
