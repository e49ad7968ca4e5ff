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
from trainer.update.backend import LoraSettings, Objective, UpdateReport, ValueObjective
from trainer.update.dice import Dice
from trainer.update.forward import Forward
from trainer.update.master_adamw import MasterAdamW
from trainer.update.micro_batches import Batch, check_samples, mini_batches, used
from trainer.update.shared_prompts import can_share
from trainer.update.snapshot import ModelSnapshot, PolicySnapshot, copied
from trainer.update.terms import Tally, Terms, infinite_loss, means, terms_of, too_little_memory, wants_reference
from trainer.update.torch_model import adapted, check_head, loaded
from trainer.update.value_head import FILE, STEM, ValueHead, add_separator, head_of, values_of


class TorchBackend:
    """One policy (see `trainer.update.backend.Backend`), loaded from a local folder or the Hugging Face hub.

    Samples are computed in micro-batches of at most `max_tokens_per_micro_batch` padded tokens. `shared_prompts` are
    computed once for all samples that begin with them (not with `gradient_checkpointing`). `keeps_reference` keeps
    a second, frozen model of the start weights for the KL term; with `lora` the base without adapters is that model.
    With a `separator` it is a model of values (`trainer.update.value_head`), which learns by `ValueObjective` alone.
    On a CPU the same calls give the same bits. Random numbers (adapters' start, dropout) are the backend's own.
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
        separator: str | None = None,
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
        self._dice = Dice(seed, self._device)
        self._tokenizer: Any
        self._model: Any
        self._tokenizer, self._model = loaded(path_or_id, getattr(torch, dtype))
        self._model.to(self._device).eval()
        self._causal: Any = self._model
        """The transformers model; `_model` is the same, or peft's around it."""
        self.base = ""
        """Of a model of values: the fingerprint of what it was loaded from."""
        self._head: ValueHead | None = None
        if separator is not None:
            self.base = weights.fingerprint(self._model.state_dict())
            with self._dice.own():
                add_separator(self._tokenizer, self._model, separator)
            self._head = head_of(path_or_id, self._model)
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
            with self._dice.own():
                self._model = adapted(self._model, lora)
            self._causal = self._model.get_base_model()
        trained = list(self._model.named_parameters())
        if self._head is not None:
            trained += self._head.named_parameters(STEM)
        self._optimizer: Any = MasterAdamW(trained, learning_rate=learning_rate, betas=betas, weight_decay=weight_decay)

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
        self._check_objective(objective)
        with_reference = wants_reference(objective, self._reference is not None or self._lora is not None)
        parts = mini_batches(samples, objective)
        tally: Tally = defaultdict(list)
        losses: list[float] = []
        norm, before = 0.0, self.steps
        with self._dice.own(), self._enough_memory():
            # The first step needs none: until it is taken, the current log-probabilities are the old ones.
            later = [index for part in parts[1:] for index in part]
            old = self._forward.logprobs(self._causal, samples, later)
            for part in parts:
                reference: dict[int, torch.Tensor] = {}
                if with_reference:
                    reference = self._reference_logprobs(samples, list(part))
                loss, norm = self._step(samples, part, terms_of(objective, part, old, reference, tally), tally)
                losses.append(loss)
        return UpdateReport(
            loss=math.fsum(losses) / max(1, len(losses)),
            gradient_norm=norm,
            steps=self.steps - before,
            samples=len(samples),
            computed_samples=sum(map(len, parts)),
            tokens=sum(sum(samples[index].loss_mask) for part in parts for index in part),
            **means(tally),
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

    def values(self, samples: Sequence[Sample]) -> list[float]:
        """V in [-1, 1] of each sample, which has a chosen token. Of a model of values alone."""
        self._check(samples)
        self._check_objective(ValueObjective())
        assert self._head is not None
        return values_of(self._forward, self._causal, self._head, samples)

    def weights(self) -> Mapping[str, Any]:
        """See `Backend`. With adapters each weight is merged when it is asked for, of the adapters as they are now;
        without them the memory is the model's own."""
        if self._lora is not None:
            return weights.merged(self._opened())
        return {name: tensor.detach() for name, tensor in self._opened().state_dict().items()}

    def stream(self) -> Iterator[list[tuple[str, Any]]]:
        """The weights as a `DeepSpeedRank` has them: here one by one."""
        for pair in self.weights().items():
            yield [pair]

    def probe(self, token_ids: Sequence[int]) -> Probe:
        """See `Backend`. The tolerance suits the backend's dtype and the model."""
        return weights.probe(self._opened(), list(token_ids))

    def save(self, folder: Path) -> None:
        """See `Backend`. With adapters `model/` is the merged model, and `adapter/` holds them in peft's format."""
        self._as_it_is(lambda tensors: tensors).write(folder)
        synced(folder)

    def snapshot(self) -> PolicySnapshot:
        """See `Backend`. Frozen weights, which stay as they are, are not copied."""
        return self._as_it_is(copied)

    def load(self, folder: Path) -> None:
        """See `Backend`. Raises ValueError, with nothing changed, for files that are damaged or do not fit."""
        model = self._opened()
        state = policy_files.read_state(folder)
        policy_files.check_state(folder, state, self._state())
        path, part = folder / policy_files.TENSORS, folder / ("adapter" if self._lora else "model")
        tensors, given = policy_files.read_tensors(path), policy_files.read_tensors(part)
        self._optimizer.check(path, {name: each for name, each in tensors.items() if name not in self._dice.states})
        head: dict[str, torch.Tensor] = {}
        if self._head is not None:
            head = policy_files.read_tensors(folder / "model" / FILE)
            policy_files.check_fits(folder / "model" / FILE, head, self._head.state_dict())
        dice = self._dice.checked(path, tensors)
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
        if self._head is not None:
            self._head.load_state_dict(head)
        self._optimizer.load(tensors)
        self._dice.load(dice)
        self.steps = state.steps

    def close(self) -> None:
        """See `Backend`."""
        self._model = self._causal = self._reference = self._head = None
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
            for batch, found in self._outputs(samples, list(part), tally):
                loss = terms(batch, found)
                loss.sum().backward()
                losses.append(loss.detach())
                order += batch.indices
            each = torch.cat(losses).tolist()
            for index, loss in zip(order, each, strict=True):
                if not math.isfinite(loss):
                    raise infinite_loss(index, loss, samples[index].advantage)
            norm = self._optimizer.step(self._max_norm)
            self.steps += 1
            return math.fsum(each), norm
        finally:
            self._causal.eval()
            self._optimizer.clear()

    def _outputs(
        self, samples: Sequence[Sample], indices: Sequence[int], tally: Tally
    ) -> Iterator[tuple[Batch, torch.Tensor]]:
        """Micro-batches with what the loss is made of: log-probabilities [batch, tokens], or values' logits [batch]."""
        if self._head is not None:
            for batch, states in self._forward.states(self._causal, samples, indices):
                yield batch, self._head(states)
            return
        for batch, logprobs, entropy in self._forward.computed(self._causal, samples, indices):
            tally["entropy"].append(entropy[batch.mask])
            yield batch, logprobs

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
            raise too_little_memory(self.steps - before, self._forward.budget) from error

    # Holding

    def _state(self) -> policy_files.State:
        return policy_files.State(steps=self.steps, dtype=self._dtype, lora=self._lora, start=self._start)

    def _as_it_is(self, kept: Callable[[Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]) -> PolicySnapshot:
        """`kept` is what becomes of tensors that will change."""
        model, adapter = self._opened(), None
        if self._lora is not None:
            adapter = kept({name: each.detach() for name, each in model.named_parameters() if each.requires_grad})
        return PolicySnapshot(
            model=ModelSnapshot(
                model=model,
                tokenizer=self._tokenizer,
                weights=kept(self.weights()) if self._lora is None else self.weights(),
                adapter=adapter,
                head=None if self._head is None else kept(self._head.state_dict()),
            ),
            optimizer=kept(self._optimizer.tensors() | self._dice.states),
            state=self._state(),
        )

    def _opened(self) -> Any:
        if self._model is None:
            raise RuntimeError("the backend is closed. Fix: make a new one")
        return self._model

    def _check(self, samples: Sequence[Sample]) -> None:
        config = self._opened().config.get_text_config()
        vocabulary = self._causal.get_input_embeddings().num_embeddings
        check_samples(samples, vocabulary, getattr(config, "max_position_embeddings", None))

    def _check_objective(self, objective: Objective) -> None:
        """Raise ValueError unless the model has what the objective is about."""
        if isinstance(objective, ValueObjective) and self._head is None:
            raise ValueError("this model has no head for values. Fix: make the backend with a separator")
        if not isinstance(objective, ValueObjective) and self._head is not None:
            raise ValueError(
                f"a model of values does not learn by {type(objective).__name__}. Fix: a ValueObjective, or make the "
                "backend without a separator"
            )
