"""Prompts that several samples begin with: the M designs of a question, the N executions of a design. They go through
the model once, forward and backward, and each sample continues the keys and values that came out.

The numbers are those of samples computed whole, up to rounding. It needs the keys and values of all tokens: layers with
a window or a state are out, and so is gradient checkpointing, which keeps nothing. Knows no loss and no optimizer.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import DynamicCache, DynamicLayer

from trainer.samples import Sample


@dataclass(frozen=True, slots=True)
class Share:
    """Samples that are computed together; they continue `prompts`, or are computed whole where there are none."""

    indices: list[int]
    """Which samples."""
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    which: dict[int, int] = field(default_factory=dict)
    """From a sample's index to the place of its prompt in `prompts`."""

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt, to which the others are padded."""
        return max(map(len, self.prompts), default=0)

    def start(self, index: int) -> int:
        """The first token of a sample that is computed by itself: 0, or the prompt's last one, which predicts the first
        that the policy chose."""
        return len(self.prompts[self.which[index]]) if self.which else 0


def shares(samples: Sequence[Sample], indices: Sequence[int], budget: int) -> list[Share]:
    """Samples at `indices` that share a prompt with another one, together with as many prompts as `budget` padded
    tokens hold (a longer prompt is alone), longest first; and all others. Each has tokens that the policy chose."""
    same: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index in indices:
        same[_prompt(samples[index])].append(index)
    groups = {prompt: each for prompt, each in same.items() if prompt and len(each) > 1}
    shared = {index for each in groups.values() for index in each}
    alone = [index for index in indices if index not in shared]
    found = [Share(alone)] if alone else []
    last: Share | None = None
    for prompt in sorted(groups, key=lambda prompt: -len(prompt)):
        if last is None or last.longest * (len(last.prompts) + 1) > budget:
            last = Share([])
            found.append(last)
        last.which.update(dict.fromkeys(groups[prompt], len(last.prompts)))
        last.prompts.append(prompt)
        last.indices.extend(groups[prompt])
    return found


def _prompt(sample: Sample) -> tuple[int, ...]:
    """What comes before the token that predicts the first chosen one."""
    return tuple(sample.token_ids[: max(0, sample.loss_mask.index(1) - 1)])


def can_share(causal: Any) -> bool:
    """Whether all layers of a transformers model keep the keys and values of every token."""
    return all(type(layer) is DynamicLayer for layer in _cache(causal).layers)


def _cache(causal: Any) -> Any:
    return DynamicCache(config=causal.config.get_text_config())


class ReadPrompts:
    """Keys and values of prompts, for any number of continuations.

    Where gradients are on, each continuation goes backward by itself, and `backward` then takes what they sum to
    through the prompts.
    """

    def __init__(self, causal: Any, prompts: Sequence[Sequence[int]]) -> None:
        self._causal, device = causal, causal.device
        self._lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        ids = pad_sequence([torch.tensor(prompt) for prompt in prompts], batch_first=True).to(device)
        cache = _cache(causal)
        # Padded on the right, where no token of a prompt looks.
        causal.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
        self._made: list[torch.Tensor] = [each for layer in cache.layers for each in (layer.keys, layer.values)]
        self._given = [each.detach().requires_grad_(each.requires_grad) for each in self._made]

    def continued(self, token_ids: torch.Tensor, which: Sequence[int]) -> torch.Tensor:
        """The last hidden states [batch, tokens, width] of `token_ids` [batch, tokens], padded on the right, each row
        behind the prompt at its place in `which`."""
        rows = torch.tensor(which, device=token_ids.device)
        lengths = self._lengths[rows]
        longest = int(lengths.max())
        cache = _cache(self._causal)
        for number in range(len(self._given) // 2):
            keys, values = (each[:, :, :longest].index_select(0, rows) for each in self._given[2 * number :][:2])
            cache.update(keys, values, number)
        places = torch.arange(longest + token_ids.shape[1], device=token_ids.device)
        return self._causal.base_model(
            input_ids=token_ids,
            # Where a shorter prompt is padded there is nothing to look at.
            attention_mask=((places < lengths[:, None]) | (places >= longest)).long(),
            position_ids=lengths[:, None] + places[: token_ids.shape[1]],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state

    def backward(self) -> None:
        """After the last continuation has gone backward."""
        learnt = [(made, given.grad) for made, given in zip(self._made, self._given, strict=True)]
        learnt = [(made, grad) for made, grad in learnt if grad is not None]
        if learnt:
            torch.autograd.backward([made for made, _ in learnt], [grad for _, grad in learnt])
