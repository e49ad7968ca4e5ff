"""One rank of a policy that several processes train with DeepSpeed: forward, update, its part of the weights and files.

All ranks are asked for the same at once (`trainer.update.deepspeed_backend` does that), and fail alike where they can
agree on it; what cannot be agreed on is `GroupLost`. Knows no Ray and makes no plan.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import gc
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from engine import weights
from engine.protocol import Probe
from trainer.samples import Sample
from trainer.update import deepspeed_files
from trainer.update.backend import Objective
from trainer.update.deepspeed_engine import take_step
from trainer.update.deepspeed_group import DeepSpeedSettings, Facts, Learnt, Work
from trainer.update.deepspeed_model import Held, hold
from trainer.update.dice import Dice
from trainer.update.exchange import joined
from trainer.update.global_plan import MicroBatch
from trainer.update.micro_batches import Batch, padded, used
from trainer.update.module_calls import ModuleCalls
from trainer.update.parked import Parked
from trainer.update.terms import Tally, Terms, infinite_loss, terms_of, too_little_memory, wants_reference

_NOBODY = -1
"""The number of what an empty micro-batch computes, and then multiplies by 0: two tokens, one of them chosen."""
_FILLER = Sample(policy="", token_ids=[0, 0], loss_mask=[0, 1], behaviour_logprobs=[0.0, 0.0], advantage=0.0)
Samples = Mapping[int, Sample]


class DeepSpeedRank:
    """This process's part of one policy; the process must have `join`ed its group. Several may live in one process."""

    def __init__(self, settings: DeepSpeedSettings) -> None:
        self.steps = 0
        """Optimizer steps taken since the beginning."""
        self._settings, self._exchange = settings, joined()
        self._dice = Dice(
            random.Random(f"{settings.seed} {self._exchange.rank}").getrandbits(63), self._exchange.device
        )
        self._parked: list[Parked] = []
        self._weights_are_here = True
        self._read: deepspeed_files.Read | None = None
        self._held: Held | None = hold(settings, self._exchange)
        models = [self._held.engine.module, *([] if self._held.reference is None else [self._held.reference])]
        self._calls = [ModuleCalls(each) for each in models] if settings.check_calls else []

    def facts(self) -> Facts:
        held = self._opened()
        config = held.causal.config.get_text_config()
        return Facts(
            settings=self._settings,
            vocabulary=held.vocabulary,
            context=getattr(config, "max_position_embeddings", None),
            tied=held.weights.tied,
            start=held.start,
            steps=self.steps,
        )

    def set_learning_rate(self, value: float) -> None:
        for group in self._opened().adamw.param_groups:
            group["lr"] = value

    # Computing

    def update(self, objective: Objective, work: Work) -> Learnt:
        """One optimizer step for each of `work.steps`. Raises `UpdateFailed` on all ranks alike."""
        held = self._opened()
        with_reference = wants_reference(objective, held.reference is not None or self._settings.lora is not None)
        samples = {**work.samples, _NOBODY: _FILLER}
        tally: Tally = defaultdict(list)
        losses: list[list[float]] = []
        norm, before = 0.0, self.steps
        with self._exchange.during("an update"), self._dice.own():
            try:
                # The first step needs none: until it is taken, the current log-probabilities are the old ones.
                old: dict[int, torch.Tensor] = {}
                for step in work.steps[1:]:
                    old |= self._logprobs(held.engine, step, samples)
                for step, part in zip(work.steps, work.weights, strict=True):
                    reference = self._reference_logprobs(step, samples) if with_reference else {}
                    each, norm = self._step(step, samples, terms_of(objective, part, old, reference, tally), tally)
                    losses.append(each)
            except torch.OutOfMemoryError as error:
                budget = self._settings.max_tokens_per_micro_batch
                raise too_little_memory(self.steps - before, budget) from error
        return Learnt(losses, norm, self.steps, {name: torch.cat(values).cpu() for name, values in tally.items()})

    def logprobs(self, work: Work) -> dict[int, list[float]]:
        """Of each of this rank's samples, up to its last chosen token."""
        held = self._opened()
        with self._exchange.during("log-probabilities"):
            found = self._logprobs(held.engine, work.steps[0], {**work.samples, _NOBODY: _FILLER})
        return {index: each.tolist() for index, each in found.items()}

    def probe(self, token_ids: list[int]) -> Probe:
        """What the model says about some tokens, on every rank alike."""
        held = self._opened()
        with self._exchange.during("a probe"):
            found = weights.probe(held.model, token_ids)
        for each in self._calls:
            each.forget()
        return found

    # Weights and files

    def stream(self, everywhere: bool = False) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """All weights, a layer at a time: names as in the model's checkpoint, tied ones once, adapters merged; copies
        on the model's device. Every rank iterates to the end, at the same pace; those behind the first one get empty
        tensors, unless they are wanted `everywhere`."""
        held = self._opened(streaming=True)
        with self._exchange.during("a stream of weights"):
            yield from held.weights.stream(copies=everywhere or self._exchange.rank == 0)

    def weights(self) -> dict[str, torch.Tensor] | None:
        """All of `stream` on the CPU, on the first rank."""
        found = {name: each.cpu() for layer in self.stream() for name, each in layer}
        return found if self._exchange.rank == 0 else None

    def snapshot(self) -> deepspeed_files.RankSnapshot:
        """This rank's part of the files, which it may write while it goes on."""
        held = self._opened()
        with self._exchange.during("a snapshot"):
            return deepspeed_files.snapshot(held, self._settings, self._exchange, self.steps, self._dice)

    def read(self, folder: str) -> None:
        """Check what `save` wrote, and hold it for `take`. Raises ValueError; changes nothing."""
        self._read = None
        self._read = deepspeed_files.read(self._opened(), self._settings, self._exchange, Path(folder), self._dice)

    def take(self) -> int:
        """Go on from what was read; returns how many steps that had taken."""
        assert self._read is not None
        deepspeed_files.take(self._opened(), self._exchange, self._read, self._dice)
        self.steps, self._read = self._read.state.steps, None
        return self.steps

    def forget(self) -> None:
        """What was read and not taken."""
        self._read = None

    # Memory

    def offload(self, keep_weights: bool = False) -> int:
        """Give the GPU's memory to somebody else until `reload`, all of it or all but the weights that `stream` reads;
        returns how many bytes are given in all. On a CPU there is nothing to give, and 0 is returned."""
        held = self._opened(streaming=True)
        if self._exchange.device.type == "cuda":
            self._weights_are_here = keep_weights
            kept = {each.untyped_storage()._cdata for each in held.weights_now()} if keep_weights else set()
            given = (each for each in held.tensors() if each.untyped_storage()._cdata not in kept)
            self._parked.append(Parked(given, self._exchange.device))
        return sum(each.nbytes for each in self._parked)

    def reload(self) -> None:
        """Take back what was given by `offload`; without it nothing happens."""
        while self._parked:
            self._parked.pop().restore()

    def close(self) -> None:
        """Release memory. Calling it twice is harmless."""
        for each in self._calls:
            each.close()
        if self._held is not None:
            self._held.close()
        self._held = self._read = None
        self._parked = []
        self._calls = []
        if self._exchange.device.type == "cuda":
            gc.collect()  # hooks and engine hold each other
            torch.cuda.empty_cache()

    # One step, one micro-batch

    def _step(self, step: list[MicroBatch], samples: Samples, terms: Terms, tally: Tally) -> tuple[list[float], float]:
        """Returns the losses of this rank's samples and the gradient's norm. Leaves no gradients behind."""
        held = self._opened()
        losses: list[torch.Tensor] = []
        order: list[int] = []
        held.engine.train()
        try:
            for micro in step:
                batch = self._batch(micro, samples)
                with self._alike():
                    logprobs, entropy = self._scored(held.engine, batch, micro)
                    loss = terms(batch, logprobs) if micro.indices else logprobs.sum(-1) * 0.0
                with self._alike():
                    self._backward(loss.sum())
                self._compare(f"a step's micro-batch with {len(micro.indices)} samples on rank {self._exchange.rank}")
                if micro.indices:
                    tally["entropy"].append(entropy[batch.mask])
                    losses.append(loss.detach())
                    order += batch.indices
            each = torch.cat(losses).tolist() if losses else []
            bad = self._first_infinite(dict(zip(order, each, strict=True)), samples)
            norm = take_step(held.engine, held.adamw, refuses=bad is not None)
            if bad is not None:
                raise infinite_loss(*bad)
            self.steps += 1
            return each, norm
        except torch.OutOfMemoryError:
            self._drop()
            raise
        finally:
            held.engine.eval()

    def _backward(self, loss: torch.Tensor) -> None:
        # DeepSpeed takes the mean over ranks; what weighs how much has been decided for all of them.
        try:
            self._opened().engine.backward(loss * self._exchange.ranks, scale_wrt_gas=False)
        except torch.OutOfMemoryError as error:
            if self._settings.zero_stage < 2:
                raise
            # From there on gradients are exchanged on the way, and DeepSpeed cannot begin again.
            tokens = self._settings.max_tokens_per_micro_batch
            raise self._exchange.lose(f"ran out of memory in a backward pass, with {tokens} tokens at once") from error

    def _drop(self) -> None:
        """The gradients so far: a step that is not taken does away with them, and needs some of every weight."""
        held, micro = self._opened(), MicroBatch((), 1)
        logprobs, _ = self._scored(held.engine, self._batch(micro, {_NOBODY: _FILLER}), micro)
        self._backward(logprobs.sum() * 0.0)
        take_step(held.engine, held.adamw, refuses=True)
        for each in self._calls:
            each.forget()

    @torch.no_grad()
    def _logprobs(self, scorer: Any, step: list[MicroBatch], samples: Samples) -> dict[int, torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for micro in step:
            batch = self._batch(micro, samples)
            with self._alike():
                logprobs, _ = self._scored(scorer, batch, micro)
            self._compare(f"a micro-batch of log-probabilities, {len(micro.indices)} on rank {self._exchange.rank}")
            for row, index in enumerate(micro.indices):
                found[index] = logprobs[row, : used(samples[index])]
        return found

    def _reference_logprobs(self, step: list[MicroBatch], samples: Samples) -> dict[int, torch.Tensor]:
        held = self._opened()
        if held.reference is not None:
            return self._logprobs(held.reference, step, samples)
        with held.model.disable_adapter():
            return self._logprobs(held.engine, step, samples)

    def _batch(self, micro: MicroBatch, samples: Samples) -> Batch:
        indices = list(micro.indices) or [_NOBODY]
        return padded(samples, indices, self._exchange.device, [0] * len(indices))

    def _scored(self, scorer: Any, batch: Batch, micro: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        return scorer(batch.token_ids, batch.mask, batch.temperatures, micro.chunks)

    # Agreement

    @contextlib.contextmanager
    def _alike(self) -> Iterator[None]:
        """What runs out of memory within on one rank has done so on all. Where that happens amid an exchange the
        others are not heard, and the time limit says so."""
        problem: torch.OutOfMemoryError | None = None
        try:
            yield
        except torch.OutOfMemoryError as error:
            problem = error
        if any(failed for (failed,) in self._exchange.gathered([problem is not None])):
            raise torch.OutOfMemoryError(f"{problem or 'another rank ran out of memory'}") from problem

    def _first_infinite(self, losses: Mapping[int, float], samples: Samples) -> tuple[int, float, float] | None:
        """The first sample of all whose loss is not finite, with its loss and advantage."""
        mine = [(index, loss, samples[index].advantage) for index, loss in losses.items() if not math.isfinite(loss)]
        found = self._exchange.gathered(min(mine, default=(_NOBODY, 0.0, 0.0)))
        bad = [(int(index), loss, advantage) for index, loss, advantage in found if index != _NOBODY]
        return min(bad, default=None)

    def _compare(self, where: str) -> None:
        for each in self._calls:
            each.compare(self._exchange, where)

    def _opened(self, streaming: bool = False) -> Held:
        if self._held is None:
            raise RuntimeError("the backend is closed. Fix: make a new one")
        if self._parked and not (streaming and self._weights_are_here):
            raise RuntimeError("the memory of this policy is given away. Fix: reload() it first")
        return self._held
