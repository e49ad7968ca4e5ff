"""What the driver and the ranks of a DeepSpeed policy say to each other, and the group of processes that carries it.

Not here: what a rank does with it (`trainer.update.deepspeed_rank`), and any way to start processes: whoever has some
implements `Group`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainer.disk import Written
from trainer.samples import Sample
from trainer.update.backend import LoraSettings

if TYPE_CHECKING:
    from trainer.update.global_plan import MicroBatch


class Group(Protocol):
    """Processes that each hold a `DeepSpeedRank` of the same policy, made with the same settings."""

    size: int

    def call(self, method: str, *arguments: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Run `DeepSpeedRank.method(*arguments)` on every rank at once, with `each[rank]` as one more argument if
        given. Returns the results in the order of ranks, and raises the first failure."""
        ...

    def snapshot(self) -> None:
        """As `call("snapshot")`, but each process keeps what that returns, in place of what it has kept so far."""
        ...

    def write(self, folder: Path) -> list[Written]:
        """Have every process write the snapshot that it keeps into a folder, and keep it no longer. Another thread may
        `call` meanwhile. Raises the first failure."""
        ...

    def close(self) -> None:
        """Release the processes, or what they hold for this policy. Calling it twice is harmless."""
        ...


class GroupLost(RuntimeError):
    """A rank is late or gone, or failed amid an exchange with the others: the group is of no more use, and all of it
    has to be made anew."""


class DeepSpeedSettings(BaseModel):
    """How ranks hold a policy and learn; those of `TorchBackend` mean the same. The device is the process's (`join`).

    Prompts that samples share are computed with each of them: which are shared differs between ranks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str
    """Folder or Hugging Face id; every rank loads all of it once, before it keeps its part."""
    learning_rate: float
    zero_stage: Literal[0, 1, 2, 3] = 3
    """What ranks divide between them (Rajbhandari et al., 2020): nothing, the optimizer, the gradients too, the weights
    too."""
    offload_optimizer: bool = False
    """Whether optimizer and float32 weights stay in the host's memory, where a step is then taken."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    lora: LoraSettings | None = None
    gradient_checkpointing: bool = False
    max_tokens_per_micro_batch: int = Field(default=16_384, ge=1)
    """Of each rank."""
    max_gradient_norm: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    keeps_reference: bool = False
    seed: int = 0
    persistence_threshold: int = Field(default=100_000, ge=0)
    """Elements up to which each rank keeps a weight whole at stage 3."""
    live_weights: int = Field(default=1_000_000_000, ge=0)
    """Elements of gathered weights that each rank keeps for their next use at stage 3."""
    chunk_logits: int = Field(default=1 << 26, ge=1)
    """Logits in memory at once on each rank, tokens times vocabulary."""
    check_calls: bool = False
    """Whether ranks compare which modules they called after every micro-batch; for tests and for looking into a group
    that hangs."""

    @model_validator(mode="after")
    def _possible(self) -> DeepSpeedSettings:
        if self.zero_stage == 0 and self.dtype == "bfloat16":
            raise ValueError(
                'zero_stage = 0 keeps no float32 weights, which dtype = "bfloat16" needs. Fix: zero_stage 1 to 3, or '
                'dtype = "float32"'
            )
        if self.zero_stage == 0 and self.offload_optimizer:
            raise ValueError("offload_optimizer has nothing to move at zero_stage = 0. Fix: zero_stage 1 to 3")
        return self


@dataclass(frozen=True, slots=True)
class Facts:
    """What a rank holds, as far as the driver must know it; the same on all ranks."""

    settings: DeepSpeedSettings
    vocabulary: int
    context: int | None
    """Tokens, where the model has a limit."""
    tied: dict[str, str]
    """Further names of weights in the model's checkpoint, and the name that each is streamed under."""
    start: str | None
    """Fingerprint of the weights that stay as they are: what adapters are added to, or the reference."""
    steps: int


@dataclass(frozen=True, slots=True)
class Work:
    """One rank's share of an update, or of log-probabilities, which are one step without weights."""

    samples: dict[int, Sample]
    """By their numbers in the whole update."""
    steps: list[list[MicroBatch]]
    weights: list[dict[int, float]]
    """For each step what each token of a sample weighs in the loss."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What one rank saw in an update."""

    losses: list[list[float]]
    """For each step those of the rank's samples, weighted."""
    norm: float
    """Of the last step's gradient, before clipping; the same on all ranks."""
    steps: int
    """Taken since the beginning."""
    tally: dict[str, Any]
    """Values at chosen tokens: flat tensors on the CPU."""
