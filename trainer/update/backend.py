"""The update protocol: what holds one policy's weights and its optimizer, and learns from samples.

`trainer.update.torch_backend` is one process of plain torch, `trainer.update.deepspeed_backend` several with DeepSpeed;
both pass the same suite (`tests/trainer/update/test_every_backend.py`). A backend knows samples and an objective, and
no problem, program, reward, paper or engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.protocol import Probe
from trainer.disk import Written
from trainer.samples import Sample


class PolicyObjective(BaseModel):
    """The clipped surrogate of MetaAgent-X, Eqs. 2 and 3, with what is named here. See `trainer.update.loss`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ratio: Literal["token", "sequence", "sequence-mean"] = "token"
    """Of which the importance ratio is taken: each token (GRPO), the whole output (Eq. 3 as written), or its geometric
    mean per token (GSPO)."""
    aggregation: Literal["group", "trajectory", "token"] = "group"
    """What counts as one: each group, a role's trajectories of one question, with the mean over them (the 1/|G| of
    Eq. 2) of the mean over their tokens, and roles that learn together weigh the same; each trajectory, so that
    questions and roles with many of them count for more; or each token (DAPO)."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    """1 - clip_low and 1 + clip_high bound the ratio; Eq. 2 has one epsilon for both, DAPO's clip-higher 0.28 above."""
    correction: Literal["truncate", "mask"] = "truncate"
    """What is done with each token's importance weight pi_old / pi_behaviour, for an engine whose log-probabilities
    differ from the trainer's or are of older weights: cut at the bounds (truncated importance sampling, Yao et al.,
    2025), or where it is beyond them set to 0, so that the token teaches nothing (IcePop, Ling team, 2025)."""
    truncation: float | None = Field(default=2.0, gt=0)
    """The upper bound. None leaves the weights out."""
    truncation_low: float = Field(default=0.0, ge=0)
    """The lower bound; IcePop takes 0.5, with 5 above."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Times the KL divergence from the reference policy (the weights at the start), added to the loss."""
    mini_batches: int = Field(default=1, ge=1)
    """Optimizer steps per update: the samples are dealt into as many parts, in their order."""

    @model_validator(mode="after")
    def _bounds(self) -> PolicyObjective:
        low, high = self.truncation_low, self.truncation
        if high is None and (self.correction == "mask" or low):
            given = 'correction = "mask"' if self.correction == "mask" else f"truncation_low = {low:g}"
            raise ValueError(
                f"{given} bounds weights that truncation = none leaves out. Fix: an upper bound, such as 5"
            )
        if high is not None and not low <= 1 <= high:
            raise ValueError(
                f"truncation_low = {low:g} and truncation = {high:g} do not have 1 between them, the weight of tokens "
                "of the policy's own. Fix: a lower bound of at most 1, an upper one of at least 1"
            )
        return self


class ImitationObjective(BaseModel):
    """Supervised fine-tuning: the mean negative log-likelihood of the masked tokens. Advantages and behaviour
    log-probabilities are not used."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ValueObjective(BaseModel):
    """Regression of V in [-1, 1] on a sample's `advantage`, the target y in [-1, 1] (MASPRM, section 4.1): the mean
    over samples, each times its `weight`. V = tanh(w h + b), where h is the last hidden state at the last token whose
    mask is 1. Every loss is finite for all y, -1 and 1 included, and bounded below by 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: Literal["huber", "mse", "bce"] = "huber"
    """`huber` and `mse` are of V - y; `bce` is the cross-entropy of the probabilities (1 + y) / 2 and (1 + V) / 2."""
    delta: float = Field(default=1.0, gt=0)
    """Where `huber` goes from a square to a line; 1 is not in the paper."""


Objective = PolicyObjective | ImitationObjective | ValueObjective


class LoraSettings(BaseModel):
    """Low-rank adapters in place of full fine-tuning (peft; Hu et al., 2021). The weights below them stay as they are,
    and are the reference policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class UpdateReport(BaseModel):
    """What one update saw. Means are over the tokens that the policy chose and that were computed; samples with
    advantage 0 count in the loss's denominators and, without KL, are not computed. Where none was computed, loss, norm
    and means are these defaults and 0: nothing was measured."""

    loss: float
    """Mean over the optimizer steps."""
    gradient_norm: float
    """Before clipping; the last mini-batch's."""
    steps: int
    """Optimizer steps taken: 0 where no sample was computed."""
    samples: int
    computed_samples: int
    tokens: int
    """Chosen tokens that were computed."""
    ratio_mean: float = 1.0
    ratio_max: float = 1.0
    clipped: float = 0.0
    """Share of tokens where the clipped branch was the smaller one."""
    kl: float = 0.0
    """Estimated divergence from the reference, k3 estimator; 0 where it was not asked for."""
    entropy: float = 0.0
    """Of the policy's distribution, in nats, at the temperature of the rollout."""
    gap_mean: float = 0.0
    """Of |trainer's old - engine's log-probability|, with its tail."""
    gap_p99: float = 0.0
    gap_max: float = 0.0
    truncated: float = 0.0
    """Share of tokens whose importance weight was out of bounds: cut or masked, as the objective's correction says."""
    below: float = 0.0
    """Share of tokens whose importance weight was under the lower bound; the others of `truncated` were over the upper
    one."""
    duration_s: float = 0.0


class UpdateFailed(RuntimeError):
    """A loss or gradient is not finite, or memory ran out. The optimizer step that it was meant for was not taken;
    those of earlier mini-batches were."""


class ModelUnusable(ValueError):
    """A model that cannot be loaded or cannot be trained here. The message names it and says what to do."""


class Snapshot(Protocol):
    """A policy as it was at one moment, held in host memory."""

    def write(self, folder: Path) -> list[Written]:
        """What `Backend.save` would have written then, into an empty folder; returns those of the files whose digests
        are known by now. Once, in any thread, while the backend goes on. Raises ValueError and OSError."""
        ...


class Backend(Protocol):
    """One policy. Calls block and are made one at a time."""

    @property
    def steps(self) -> int:
        """Optimizer steps taken since the beginning."""
        ...

    @property
    def learning_rate(self) -> float:
        """Of the optimizer steps to come. Set between updates by whoever has a schedule; `save` does not keep it."""
        ...

    @learning_rate.setter
    def learning_rate(self, value: float) -> None: ...

    def update(self, samples: Sequence[Sample], objective: Objective) -> UpdateReport:
        """Learn from samples. Raises `UpdateFailed`, and ValueError for samples that do not fit the model."""
        ...

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """For each sample one natural log-probability per token, at the sample's temperature; 0 where the mask is 0."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """All weights as tensors, named as in the model's checkpoint, adapters merged: what an engine is updated with.
        They may share memory with the model."""
        ...

    def probe(self, token_ids: Sequence[int]) -> Probe:
        """What the model says about some tokens, for the engine's check of an update."""
        ...

    def save(self, folder: Path) -> None:
        """Write the policy into an empty folder: `model/`, which plain transformers loads, and `optimizer/`. Syncs the
        files to disk."""
        ...

    def snapshot(self) -> Snapshot:
        """What `save` would write now, in copies that stay as they are while the backend goes on."""
        ...

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote, bit for bit: what follows is as if there had been no break."""
        ...

    def close(self) -> None:
        """Release memory and processes. Calling it twice is harmless."""
        ...
