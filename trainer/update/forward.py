"""Samples through a causal model: the log-probabilities and entropies of their tokens, or the hidden states that values
are read from, micro-batch by micro-batch.

Prompts that several samples begin with are read once where the model allows it (`trainer.update.shared_prompts`). Knows
no loss, no objective and no optimizer.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer.samples import Sample
from trainer.update.loss import chosen_logprobs
from trainer.update.micro_batches import Batch, micro_batches, padded, used
from trainer.update.shared_prompts import ReadPrompts, Share, shares


@dataclass(frozen=True, slots=True)
class Forward:
    """How samples go through a transformers model."""

    budget: int
    """Padded tokens that are held at once: a micro-batch, with the prompts that it continues."""
    shares_prompts: bool

    def computed(
        self, causal: Any, samples: Sequence[Sample], indices: Sequence[int]
    ) -> Iterator[tuple[Batch, torch.Tensor, torch.Tensor]]:
        """Micro-batches of the samples at `indices`, with the log-probabilities and entropies [batch, tokens] of their
        tokens. Who learns from one goes backward through it before asking for the next."""
        head = causal.get_output_embeddings()
        for batch, hidden in self._hidden(causal, samples, indices, left_out=1):
            yield batch, *chosen_logprobs(hidden, head, batch.token_ids, batch.mask, batch.temperatures)

    def states(
        self, causal: Any, samples: Sequence[Sample], indices: Sequence[int]
    ) -> Iterator[tuple[Batch, torch.Tensor]]:
        """The same with the hidden states [batch, width] at the last chosen token of each sample, in float32 or, where
        the model is, float64."""
        for batch, hidden in self._hidden(causal, samples, indices, left_out=0):
            ends = [used(samples[index]) - start - 1 for index, start in zip(batch.indices, batch.starts, strict=True)]
            last = hidden[torch.arange(len(ends), device=hidden.device), ends]
            yield batch, last.to(torch.promote_types(last.dtype, torch.float32))

    def _hidden(
        self, causal: Any, samples: Sequence[Sample], indices: Sequence[int], *, left_out: int
    ) -> Iterator[tuple[Batch, torch.Tensor]]:
        """Micro-batches with their last hidden states [batch, tokens - left_out, width]; as many tokens at the end of
        the longest are not computed."""
        for share in shares(samples, indices, self.budget // 2) if self.shares_prompts else [Share(list(indices))]:
            prompts = ReadPrompts(causal, share.prompts) if share.prompts else None
            lengths = [used(samples[index]) - share.start(index) for index in share.indices]
            left = self.budget - share.longest * len(share.prompts)
            for rows in micro_batches(lengths, left, before=share.longest):
                chosen = [share.indices[row] for row in rows]
                batch = padded(samples, chosen, causal.device, [share.start(index) for index in chosen])
                token_ids = batch.token_ids[:, : batch.token_ids.shape[1] - left_out]
                if prompts is None:
                    hidden = causal.base_model(input_ids=token_ids, use_cache=False).last_hidden_state
                else:
                    hidden = prompts.continued(token_ids, [share.which[index] for index in chosen])
                yield batch, hidden
            if prompts is not None:
                prompts.backward()

    @torch.no_grad()
    def logprobs(self, causal: Any, samples: Sequence[Sample], indices: Sequence[int]) -> dict[int, torch.Tensor]:
        """For each of the samples at `indices` the log-probabilities of its tokens, up to the last chosen one, on the
        model's device. Nothing can be learnt from them."""
        found: dict[int, torch.Tensor] = {}
        for batch, logprobs, _ in self.computed(causal, samples, indices):
            for row, (index, start) in enumerate(zip(batch.indices, batch.starts, strict=True)):
                found[index] = torch.nn.functional.pad(logprobs[row, : used(samples[index]) - start], (start, 0))
        return found


def rows_of(values: Mapping[int, torch.Tensor], batch: Batch) -> torch.Tensor | None:
    """What `Forward.logprobs` found of a batch's samples, [batch, tokens]; None where it has none of them."""
    rows = [values[index][start:] for index, start in zip(batch.indices, batch.starts, strict=True) if index in values]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True) if rows else None
