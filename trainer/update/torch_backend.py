"""The update backend of one process: plain torch and transformers, on a CPU or one GPU (the extra `train`).

It holds one policy's weights and its AdamW, whole or as LoRA adapters. It generates nothing, knows no other process,
and decides neither when to update nor where checkpoints lie.

With `dtype="bfloat16"` the model computes in bfloat16, rounding as an engine does, while the optimizer has float32
copies of the trained weights: gradients are summed into those, and after each step the weights are rounded from them.
A step of 5e-6 would be lost in bfloat16. That costs 18 bytes per trained weight, float32 16.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from engine import weights
from engine.protocol import Probe
from trainer.disk import synced
from trainer.samples import Sample
from trainer.update import policy_files
from trainer.update.backend import (
    ImitationObjective,
    LoraSettings,
    Objective,
    PolicyObjective,
    UpdateFailed,
    UpdateReport,
)
from trainer.update.forward import Forward, rows_of
from trainer.update.loss import imitation_loss, policy_terms
from trainer.update.master_adamw import MasterAdamW
from trainer.update.micro_batches import Batch, check_samples, mini_batches, used
from trainer.update.shared_prompts import can_share
from trainer.update.torch_model import adapted, check_head, loaded

_DICE = ("rng/cpu", "rng/cuda")
"""States of random numbers, as named on disk."""
Terms = Callable[[Batch, torch.Tensor], torch.Tensor]
"""From a batch and its log-probabilities [batch, tokens] to the loss of each sample."""
Tally = dict[str, list[torch.Tensor]]
"""Values at chosen tokens, for the report."""


class TorchBackend:
    """One policy (see `trainer.update.backend.Backend`), loaded from a local folder or the Hugging Face hub.

    Samples are computed in micro-batches of at most `max_tokens_per_micro_batch` padded tokens. `shared_prompts` are
    computed once for all samples that begin with them (not with `gradient_checkpointing`). `keeps_reference` keeps
    a second, frozen model of the start weights for the KL term; with `lora` the base without adapters is that model. On
    a CPU the same calls give the same bits. Random numbers (adapters' start, dropout) are the backend's own.
    """

    def __init__(
        self,
        path_or_id: str | Path,
        *,
        learning_rate: float,
        device: str = "auto",
        dtype: Literal["float32", "bfloat16"] = "float32",
        lora: LoraSettings | None = None,
        gradient_checkpointing: bool = False,
        max_tokens_per_micro_batch: int = 16_384,
        shared_prompts: bool = True,
        max_gradient_norm: float = 1.0,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        keeps_reference: bool = False,
        seed: int = 0,
    ) -> None:
        if max_tokens_per_micro_batch < 1 or not max_gradient_norm > 0:
            raise ValueError(
                "max_tokens_per_micro_batch must be at least 1, and max_gradient_norm must be above 0, got "
                f"{max_tokens_per_micro_batch} and {max_gradient_norm}"
            )
        self.steps = 0
        self._device = torch.device(
            device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu",
        )
        self._dtype, self._lora = dtype, lora
        self._max_norm = max_gradient_norm
        self._dice = {_DICE[0]: torch.Generator().manual_seed(seed).get_state()}
        if self._device.type == "cuda":
            self._dice[_DICE[1]] = torch.Generator("cuda").manual_seed(seed).get_state()
        self._tokenizer: Any
        self._model: Any
        self._tokenizer, self._model = loaded(path_or_id, getattr(torch, dtype))
        self._model.to(self._device).eval()
        self._causal: Any = self._model
        """The transformers model; `_model` is the same, or peft's around it."""
        self._start = weights.fingerprint(self._model.state_dict()) if lora or keeps_reference else None
        self._reference: Any = None
        if keeps_reference and lora is None:
            self._reference = copy.deepcopy(self._model).requires_grad_(False)
        check_head(self._model)
        shares_prompts = shared_prompts and not gradient_checkpointing and can_share(self._model)
        self._forward = Forward(max_tokens_per_micro_batch, shares_prompts)
        if gradient_checkpointing:
            self._causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if lora is not None:
            with self._own_dice():
                self._model = adapted(self._model, lora)
            self._causal = self._model.get_base_model()
        self._optimizer: Any = MasterAdamW(
            self._model, learning_rate=learning_rate, betas=betas, weight_decay=weight_decay
        )

    @property
    def learning_rate(self) -> float:
        """Of the steps to come."""
        return self._optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._optimizer.learning_rate = value

    def update(self, samples: Sequence[Sample], objective: Objective) -> UpdateReport:
        """See `Backend`. One optimizer step per mini-batch in which anything is to be computed."""
        began = time.perf_counter()
        self._check(samples)
        if isinstance(objective, PolicyObjective) and objective.kl_coefficient and not self._has_reference:
            raise ValueError(
                f"kl_coefficient is {objective.kl_coefficient}, and there is no reference policy. Fix: make the "
                "backend with keeps_reference=True, or set kl_coefficient to 0"
            )
        parts = mini_batches(samples, objective)
        tally: Tally = defaultdict(list)
        losses: list[float] = []
        norm, before = 0.0, self.steps
        with self._own_dice(), self._enough_memory():
            # The first step needs none: until it is taken, the current log-probabilities are the old ones.
            later = [index for part in parts[1:] for index in part]
            old = self._forward.logprobs(self._causal, samples, later)
            for part in parts:
                reference: dict[int, torch.Tensor] = {}
                if isinstance(objective, PolicyObjective) and objective.kl_coefficient:
                    reference = self._reference_logprobs(samples, list(part))
                loss, norm = self._step(samples, part, self._terms(objective, part, old, reference, tally), tally)
                losses.append(loss)
        return UpdateReport(
            loss=math.fsum(losses) / max(1, len(losses)),
            gradient_norm=norm,
            steps=self.steps - before,
            samples=len(samples),
            computed_samples=sum(map(len, parts)),
            tokens=sum(sum(samples[index].loss_mask) for part in parts for index in part),
            **_means(tally),
            duration_s=time.perf_counter() - began,
        )

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """See `Backend`."""
        self._check(samples)
        indices = [index for index, sample in enumerate(samples) if used(sample)]
        values: list[list[float]] = [[0.0] * len(sample.token_ids) for sample in samples]
        for index, found in self._forward.logprobs(self._causal, samples, indices).items():
            values[index][: len(found)] = found.tolist()
        return values

    def weights(self) -> Mapping[str, Any]:
        """See `Backend`. Adapters are merged into a copy; without them the memory is the model's own."""
        if self._lora is not None:
            return weights.merged(self._opened())
        return {name: tensor.detach() for name, tensor in self._opened().state_dict().items()}

    def probe(self, token_ids: Sequence[int]) -> Probe:
        """See `Backend`. The tolerance suits the backend's dtype."""
        ids = list(token_ids)
        return Probe(ids, weights.probed(self._opened(), ids), 1e-3 if self._dtype == "float32" else 0.05)

    def save(self, folder: Path) -> None:
        """See `Backend`. With adapters `model/` is the merged model, and `adapter/` holds them in peft's format."""
        model = self._opened()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty. Fix: save into an empty folder")
        whole = model
        if self._lora is not None:
            whole = copy.deepcopy(model).merge_and_unload(safe_merge=True)
            model.save_pretrained(folder / "adapter", save_embedding_layers=False)
        whole.save_pretrained(folder / "model")
        self._tokenizer.save_pretrained(folder / "model")
        policy_files.write(folder, self._state(), self._optimizer.tensors() | self._dice)
        synced(folder)

    def load(self, folder: Path) -> None:
        """See `Backend`. Raises ValueError, with nothing changed, for files that are damaged or do not fit."""
        model = self._opened()
        state, mine = policy_files.read_state(folder), self._state()
        for name in ("dtype", "lora", "start"):
            found, here = getattr(state, name), getattr(mine, name)
            if found != here:
                what = "start weights (their fingerprint)" if name == "start" else name
                raise ValueError(f"{folder} has another {what}: {found}, here it is {here}. Fix: set it as it was")
        path, part = folder / policy_files.TENSORS, folder / ("adapter" if self._lora else "model")
        tensors, given = policy_files.read_tensors(path), policy_files.read_tensors(part)
        self._optimizer.check(path, {name: each for name, each in tensors.items() if name not in _DICE})
        dice = {name: tensors[name].clone() for name in self._dice if name in tensors}
        self._check_dice(path, dice)
        if self._lora is None:
            held = model.state_dict()
            try:
                weights.check(model, given)
            except ValueError as error:
                raise ValueError(f"{part} does not fit: {error}. Fix: {policy_files.FIX}") from error
            policy_files.check_fits(part, given, {name: held[name] for name in given})
            weights.load(model, given)
        else:
            peft: Any = importlib.import_module("peft")
            policy_files.check_fits(part, given, peft.get_peft_model_state_dict(model, save_embedding_layers=False))
            peft.set_peft_model_state_dict(model, given)
        self._optimizer.load(tensors)
        self._dice |= dice
        self.steps = state.steps

    def close(self) -> None:
        """See `Backend`."""
        self._model = self._causal = self._reference = None
        self._optimizer = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    # Computing

    def _step(
        self, samples: Sequence[Sample], part: Mapping[int, float], terms: Terms, tally: Tally
    ) -> tuple[float, float]:
        """One optimizer step on the samples at `part`; returns loss and gradient norm. Leaves no gradients behind."""
        losses: list[torch.Tensor] = []
        order: list[int] = []
        try:
            self._causal.train()
            for batch, logprobs, entropy in self._forward.computed(self._causal, samples, list(part)):
                tally["entropy"].append(entropy[batch.mask])
                loss = terms(batch, logprobs)
                loss.sum().backward()
                losses.append(loss.detach())
                order += batch.indices
            each = torch.cat(losses).tolist()
            for index, loss in zip(order, each, strict=True):
                if not math.isfinite(loss):
                    raise UpdateFailed(
                        f"the loss of sample {index} is {loss} (advantage {samples[index].advantage}); no step was "
                        "taken. Fix: a lower learning_rate; if its behaviour log-probabilities are far off, "
                        "see the engine's weights, or, in a new run, lower truncation"
                    )
            norm = self._optimizer.step(self._max_norm)
            self.steps += 1
            return math.fsum(each), norm
        finally:
            self._causal.eval()
            self._optimizer.clear()

    def _terms(
        self,
        objective: Objective,
        part: Mapping[int, float],
        old: Mapping[int, torch.Tensor],
        reference: Mapping[int, torch.Tensor],
        tally: Tally,
    ) -> Terms:
        """The loss of a batch of samples whose weights are `part`, and whose old and reference log-probabilities are
        given where they are needed."""

        def weights_of(batch: Batch) -> torch.Tensor:
            return torch.tensor([part[index] for index in batch.indices], device=self._device)

        def imitation(batch: Batch, logprobs: torch.Tensor) -> torch.Tensor:
            return imitation_loss(logprobs, batch.mask, weights_of(batch))

        if isinstance(objective, ImitationObjective):
            return imitation

        def policy(batch: Batch, logprobs: torch.Tensor) -> torch.Tensor:
            before = rows_of(old, batch)
            found = policy_terms(
                logprobs,
                old=logprobs.detach() if before is None else before,
                behaviour=batch.behaviour,
                mask=batch.mask,
                advantages=batch.advantages,
                weights=weights_of(batch),
                objective=objective,
                reference=rows_of(reference, batch),
            )
            for name in ("ratio", "clipped", "kl", "gap", "truncated"):
                tally[name].append(getattr(found, name)[batch.mask].float())
            return found.loss

        return policy

    def _reference_logprobs(self, samples: Sequence[Sample], indices: Sequence[int]) -> dict[int, torch.Tensor]:
        if self._reference is not None:
            return self._forward.logprobs(self._reference, samples, indices)
        with self._model.disable_adapter():
            return self._forward.logprobs(self._causal, samples, indices)

    @contextlib.contextmanager
    def _enough_memory(self) -> Iterator[None]:
        """Too little of the GPU's is a failed update."""
        before = self.steps
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise UpdateFailed(
                f"memory ran out after {self.steps - before} steps of this update, with at most {self._forward.budget} "
                "tokens at once (a longer sample is alone). Fix: a lower max_tokens_per_micro_batch, "
                "gradient_checkpointing, or, in a new run, lora"
            ) from error

    # Holding

    @property
    def _has_reference(self) -> bool:
        return self._reference is not None or self._lora is not None

    def _state(self) -> policy_files.State:
        return policy_files.State(steps=self.steps, dtype=self._dtype, lora=self._lora, start=self._start)

    def _opened(self) -> Any:
        if self._model is None:
            raise RuntimeError("the backend is closed. Fix: make a new one")
        return self._model

    def _check(self, samples: Sequence[Sample]) -> None:
        config = self._opened().config.get_text_config()
        vocabulary = self._causal.get_input_embeddings().num_embeddings
        check_samples(samples, vocabulary, getattr(config, "max_position_embeddings", None))

    def _check_dice(self, path: Path, dice: Mapping[str, torch.Tensor]) -> None:
        """Raise ValueError, naming `path`, for states that no random numbers come from."""
        if _DICE[0] not in dice:
            raise ValueError(f"{path} has no {_DICE[0]!r}. Fix: {policy_files.FIX}")
        for name, state in dice.items():
            try:
                torch.Generator(self._device if name == _DICE[1] else "cpu").set_state(state)
            except (RuntimeError, TypeError) as error:
                fix = "load another checkpoint"
                raise ValueError(
                    f"{path} has {name!r}, which is no state of random numbers: {error}. Fix: {fix}"
                ) from error

    @contextlib.contextmanager
    def _own_dice(self) -> Iterator[None]:
        """Torch's global random numbers come from the backend's own state within, and are as before afterwards."""
        on_cuda = _DICE[1] in self._dice
        with torch.random.fork_rng(devices=[self._device] if on_cuda else []):
            torch.set_rng_state(self._dice[_DICE[0]])
            if on_cuda:
                torch.cuda.set_rng_state(self._dice[_DICE[1]], self._device)
            yield
            self._dice[_DICE[0]] = torch.get_rng_state()
            if on_cuda:
                self._dice[_DICE[1]] = torch.cuda.get_rng_state(self._device)


def _means(tally: Tally) -> dict[str, float]:
    """The part of an `UpdateReport` that is about tokens."""
    found = {name: torch.cat(values).double() for name, values in tally.items()}
    report = {name: float(found[name].mean()) for name in ("clipped", "kl", "entropy", "truncated") if name in found}
    if "ratio" in found:
        report |= {"ratio_mean": float(found["ratio"].mean()), "ratio_max": float(found["ratio"].max())}
    if "gap" in found:
        gap = found["gap"].sort().values
        p99 = gap[math.ceil(0.99 * len(gap)) - 1]
        report |= {"gap_mean": float(gap.mean()), "gap_p99": float(p99), "gap_max": float(gap[-1])}
    return report
