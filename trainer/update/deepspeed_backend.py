"""The update backend of several processes: DeepSpeed's ZeRO over the ranks of a group (the extra `cluster`).

It plans who computes what, asks all ranks at once and puts their answers together; they hold the weights
(`trainer.update.deepspeed_rank`). With the same samples it learns what `TorchBackend` learns, to the rounding of sums.
Starts and replaces no process, and knows no Ray.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.protocol import Probe
from trainer.disk import Written, synced
from trainer.samples import Sample
from trainer.update.backend import Objective, UpdateFailed, UpdateReport, ValueObjective
from trainer.update.deepspeed_group import Facts, Group, Learnt, Work
from trainer.update.global_plan import global_plan
from trainer.update.micro_batches import check_samples, mini_batches, used
from trainer.update.snapshot import empty
from trainer.update.terms import Tally, means, wants_reference


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """What ranks hold of one moment. See `trainer.update.backend.Snapshot`; raises `GroupLost` too. Ranks on other
    machines must see the same folder."""

    group: Group

    def write(self, folder: Path) -> list[Written]:
        empty(folder)
        return self.group.write(folder)


class DeepSpeedBackend:
    """One policy (see `trainer.update.backend.Backend`), which the ranks of `group` were made with.

    Any number of samples may go to any number of ranks. Prompts that samples share are computed with each of them.
    `GroupLost` from any method means that the group is of no more use; a failed update leaves it as it was.
    """

    def __init__(self, group: Group) -> None:
        self._group: Group | None = group
        self._ranks = group.size
        facts: list[Facts] = group.call("facts")
        for rank, each in enumerate(facts):
            if each != facts[0]:
                raise ValueError(
                    f"rank {rank} has another model or other settings than rank 0: {each}, {facts[0]}. Fix: the same "
                    "files and settings on all nodes"
                )
        self._facts = facts[0]
        self._settings = self._facts.settings
        self._learning_rate = self._settings.learning_rate
        self.steps = self._facts.steps

    @property
    def learning_rate(self) -> float:
        """Of the steps to come."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._opened().call("set_learning_rate", value)
        self._learning_rate = value

    def update(self, samples: Sequence[Sample], objective: Objective) -> UpdateReport:
        """See `Backend`. One optimizer step per mini-batch in which anything is to be computed."""
        began = time.perf_counter()
        if isinstance(objective, ValueObjective):
            raise ValueError(
                "DeepSpeed's ranks train policies, and no model of values. Fix: TorchBackend with a separator, on one "
                "GPU; where memory is short, with lora or gradient_checkpointing"
            )
        group = self._opened()
        self._check(samples)
        wants_reference(objective, self._settings.keeps_reference or self._settings.lora is not None)
        parts = mini_batches(samples, objective)
        before = self.steps
        learnt: list[Learnt] = []
        if parts:
            try:
                learnt = group.call("update", objective, each=self._work(samples, parts))
            except UpdateFailed:
                self.steps = group.call("facts")[0].steps
                raise
            self.steps = learnt[0].steps
        losses = [math.fsum(loss for one in learnt for loss in one.losses[step]) for step in range(len(parts))]
        tally: Tally = defaultdict(list)
        for one in learnt:
            for name, values in one.tally.items():
                tally[name].append(values)
        return UpdateReport(
            loss=math.fsum(losses) / max(1, len(losses)),
            gradient_norm=learnt[0].norm if learnt else 0.0,
            steps=self.steps - before,
            samples=len(samples),
            computed_samples=sum(map(len, parts)),
            tokens=sum(sum(samples[index].loss_mask) for part in parts for index in part),
            **means(tally),
            duration_s=time.perf_counter() - began,
        )

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """See `Backend`."""
        group = self._opened()
        self._check(samples)
        values: list[list[float]] = [[0.0] * len(sample.token_ids) for sample in samples]
        part = {index: 0.0 for index, sample in enumerate(samples) if used(sample)}
        for found in group.call("logprobs", each=self._work(samples, [part])) if part else []:
            for index, row in found.items():
                values[index][: len(row)] = row
        return values

    def weights(self) -> Mapping[str, Any]:
        """See `Backend`. Copies on the CPU."""
        found = self._opened().call("weights")[0]
        return found | {name: found[other] for name, other in self._facts.tied.items()}

    def probe(self, token_ids: Sequence[int]) -> Probe:
        """See `Backend`. The tolerance suits the backend's dtype and the model."""
        return self._opened().call("probe", list(token_ids))[0]

    def save(self, folder: Path) -> None:
        """See `Backend`. With adapters `model/` is the merged model, and `adapter/` holds them in peft's format."""
        self.snapshot().write(folder)
        synced(folder)

    def snapshot(self) -> GroupSnapshot:
        """See `Backend`. Each rank holds its part, the first one all weights; a later snapshot takes their place."""
        group = self._opened()
        group.snapshot()
        return GroupSnapshot(group)

    def load(self, folder: Path) -> None:
        """See `Backend`; also what another number of ranks wrote, at another stage, to the rounding of sums. Raises
        ValueError, with nothing changed on any rank, for files that are damaged or do not fit."""
        group = self._opened()
        try:
            group.call("read", str(folder))
        except ValueError:
            group.call("forget")
            raise
        self.steps = group.call("take")[0]

    def offload(self, keep_weights: bool = False) -> int:
        """Give the GPUs' memory to somebody else until `reload`, all of it or all but the weights that a sync reads;
        returns how many bytes of all ranks are given. 0 on CPUs, where there is none to give."""
        return sum(self._opened().call("offload", keep_weights))

    def reload(self) -> None:
        """Take back what `offload` gave."""
        self._opened().call("reload")

    def close(self) -> None:
        """See `Backend`."""
        group, self._group = self._group, None
        if group is not None:
            try:
                group.call("close")
            finally:
                group.close()

    def _work(self, samples: Sequence[Sample], parts: Sequence[Mapping[int, float]]) -> list[Work]:
        """Each rank's share of steps on `parts`: samples by number, with weights."""
        work = [Work({}, [], []) for _ in range(self._ranks)]
        for part in parts:
            plan = global_plan(
                {index: used(samples[index]) for index in part},
                {index: sum(samples[index].loss_mask) for index in part},
                ranks=self._ranks,
                budget=self._settings.max_tokens_per_micro_batch,
                chunk_tokens=max(1, self._settings.chunk_logits // self._facts.vocabulary),
            )
            for mine, batches in zip(work, plan, strict=True):
                indices = [index for batch in batches for index in batch.indices]
                mine.samples.update({index: samples[index] for index in indices})
                mine.steps.append(batches)
                mine.weights.append({index: part[index] for index in indices})
        return work

    def _check(self, samples: Sequence[Sample]) -> None:
        check_samples(samples, self._facts.vocabulary, self._facts.context)

    def _opened(self) -> Group:
        if self._group is None:
            raise RuntimeError("the backend is closed. Fix: make a new one")
        return self._group
