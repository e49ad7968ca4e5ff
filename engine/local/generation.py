"""Sampling from a causal language model, several requests side by side: a plain loop over its key-value cache.

Every row has its own sampling parameters and its own random numbers, so what a row draws does not depend on its
neighbours (up to the rounding of the matrix products, which depends on the batch's shape). Knows nothing of
text, chat or threads; imports torch, and so is itself imported only when a model is at hand.
"""

# torch and transformers come with the extra `local`; the type check also has to pass without it.
# pyright: reportMissingImports=false

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from engine.local.growing_cache import is_plain, roomy_cache
from workflow.completion import FinishReason, Sampling


@dataclass(slots=True)
class Row:
    """One request of a wave: what to continue and, as it grows, the continuation."""

    prompt: list[int]
    sampling: Sampling
    max_tokens: int
    """At most `sampling.max_tokens`; less where the model's context ends before."""
    is_stopped: Callable[[list[int]], bool]
    """Whether the tokens so far end the completion (stop strings)."""
    is_abandoned: Callable[[], bool]
    """Whether nobody waits for this row any more."""
    on_token: Callable[[list[int]], None] | None = None
    """Called with the tokens so far after each new one."""
    on_finish: Callable[[Row], None] = lambda _: None
    """Called once, when `finish` is set; the other rows go on."""
    known: int = 0
    """Tokens of the prompt that were not read for this row, but for another."""
    tokens: list[int] = field(default_factory=list)
    """Includes the end token, if one was drawn."""
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None

    def add(self, token: int, logprob: float, ends: frozenset[int]) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if self.on_token is not None:
            self.on_token(self.tokens)
        if token in ends or self.is_stopped(self.tokens):
            self.finish = "stop"
        elif len(self.tokens) >= self.max_tokens:
            self.finish = "length"
        elif self.is_abandoned():
            self.finish = "abort"
        if self.finish is not None:
            self.on_finish(self)


JOIN_EVERY = 8
"""Tokens after which those who wait may join: to join costs about as much as a token."""


@dataclass(slots=True)
class _Batch:
    """Rows that run together. All end in the same column of the cache; what is not a row's own there is masked."""

    rows: list[Row]
    dice: list[random.Random]
    cache: Any
    mask: torch.Tensor
    """[rows, columns], 1 where a row has a token."""
    logits: torch.Tensor
    """Of each row's next token, float32 [rows, vocabulary]."""
    first: torch.Tensor
    """Of each row's first token, likewise: who comes with the same prompt begins with it."""

    def keep(self, which: list[int]) -> None:
        """Let go of the other rows, and of columns that were theirs alone, wherever these are."""
        index = torch.tensor(which, device=self.mask.device)
        self.rows, self.dice = [self.rows[at] for at in which], [self.dice[at] for at in which]
        self.cache.batch_select_indices(index)
        self.mask, self.logits, self.first = self.mask[index], self.logits[index], self.first[index]
        columns = self.mask.any(0).nonzero()[:, 0]
        if len(columns) < self.mask.shape[1] and is_plain(self.cache):
            self.mask = self.mask[:, columns]
            for layer in self.cache.layers:
                layer.keys, layer.values = layer.keys[:, :, columns], layer.values[:, :, columns]

    def repeat(self, which: list[int], rows: Sequence[Row]) -> None:
        """Take rows in that have the prompts of those at `which`: what these have read is theirs too."""
        index = torch.tensor([*range(len(self.rows)), *which], device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask, self.logits, self.first = self.mask[index], self.logits[index], self.first[index]
        before = len(self.rows)
        prompts = torch.tensor([[len(row.prompt)] for row in rows], device=self.mask.device)
        self.mask[before:] *= self.mask[before:].cumsum(-1) <= prompts  # not what was generated behind it
        self.logits[before:] = self.first[before:]
        for row in rows:
            row.known = len(row.prompt)
        self.rows, self.dice = [*self.rows, *rows], self.dice + _dice(rows)

    def join(self, other: _Batch) -> None:
        """Take the other's rows in."""
        columns = max(self.mask.shape[1], other.mask.shape[1])

        def both(one: torch.Tensor, another: torch.Tensor, dim: int) -> torch.Tensor:
            """Padded on the left of dimension `dim`, counted from the end."""
            sides = ((0, 0) * (-dim - 1) + (columns - each.shape[dim], 0) for each in (one, another))
            return torch.cat([F.pad(each, side) for each, side in zip((one, another), sides, strict=True)])

        for mine, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
            mine.keys, mine.values = both(mine.keys, theirs.keys, -2), both(mine.values, theirs.values, -2)
        self.rows, self.dice = self.rows + other.rows, self.dice + other.dice
        self.mask, self.logits = both(self.mask, other.mask, -1), torch.cat([self.logits, other.logits])
        self.first = torch.cat([self.first, other.first])


@torch.inference_mode()
def generate(
    model: Any,
    rows: Sequence[Row],
    ends: frozenset[int],
    joining: Callable[[int], Sequence[Row]] = lambda _: (),
) -> None:
    """Continue all rows until each has finished. Raises FloatingPointError where the model gives NaN.

    `joining` is asked now and then which rows come in beside those that are under way, whose number it is told; it ends
    when it has none and nothing is under way. Equal prompts, such as those of several executions of one design, are
    read once, also where some come while others are under way. Rows that have finished leave the batch when they are an
    eighth of it.
    """
    batch = _read(model, rows)
    step = 0
    while True:
        points = [0.0 if row.finish else die.random() for row, die in zip(batch.rows, batch.dice, strict=True)]
        drawn, logprobs = draw(batch.logits, [row.sampling for row in batch.rows], points)
        for row, token, logprob in zip(batch.rows, drawn.tolist(), logprobs.tolist(), strict=True):
            if row.finish is None:
                if not math.isfinite(logprob):
                    raise FloatingPointError("the model gave logits that are not finite")
                row.add(token, logprob, ends)
        left = [index for index, row in enumerate(batch.rows) if row.finish is None]
        step += 1
        comes_in: Sequence[Row] = ()
        if not left or (step % JOIN_EVERY == 0 and is_plain(batch.cache)):
            comes_in = joining(len(left))
        if not left:
            if not comes_in:
                return
            batch = _read(model, comes_in)
            continue
        finished = len(batch.rows) - len(left)
        if finished and (comes_in or finished >= len(batch.rows) // 8):
            batch.keep(left)
            drawn = drawn[left]
        batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(batch.mask), 1)], dim=-1)
        batch.logits = _logits(model, batch.cache, drawn[:, None], batch.mask, batch.mask.sum(-1, keepdim=True) - 1)
        if comes_in:
            _take_in(model, batch, comes_in)


def _take_in(model: Any, batch: _Batch, rows: Sequence[Row]) -> None:
    """More rows for a batch under way, where no prompt is read that one of its rows has read."""
    places = {tuple(row.prompt): at for at, row in enumerate(batch.rows)}
    which = [places.get(tuple(row.prompt)) for row in rows]
    new = [row for row, at in zip(rows, which, strict=True) if at is None]
    if len(new) < len(rows):
        batch.repeat(
            [at for at in which if at is not None],
            [row for row, at in zip(rows, which, strict=True) if at is not None],
        )
    if new:
        batch.join(_read(model, new))


def _read(model: Any, rows: Sequence[Row]) -> _Batch:
    """Rows whose prompts have been read."""
    cache = roomy_cache(model.config)
    prompts = {prompt: number for number, prompt in enumerate(dict.fromkeys(tuple(row.prompt) for row in rows))}
    width = max(map(len, prompts))
    # What the pad token is does not matter, being masked.
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    ids = torch.tensor([[0] * (width - len(prompt)) + [*prompt] for prompt in prompts], device=model.device)
    logits = _logits(model, cache, ids, mask, (mask.cumsum(-1) - 1).clamp(min=0))
    of = [prompts[tuple(row.prompt)] for row in rows]
    for at, row in enumerate(rows):
        row.known = len(row.prompt) if of[at] in of[:at] else 0
    index = torch.tensor(of, device=model.device)
    cache.batch_select_indices(index)
    return _Batch(list(rows), _dice(rows), cache, mask[index], logits[index], logits[index])


def _dice(rows: Sequence[Row]) -> list[random.Random]:
    return [random.Random(row.sampling.seed) for row in rows]


def _logits(model: Any, cache: Any, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """For the last column, float32 [batch, vocabulary]."""
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1].float()


def draw(
    logits: torch.Tensor, samplings: Sequence[Sampling], points: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token per row and its log-probability under the distribution that it was drawn from.

    `logits` is float32 [rows, vocabulary]. `points` in [0, 1) pick the token by inverting the row's cumulative
    distribution over the vocabulary in its own order. Temperature first, then top-k (equals of the last one stay), then
    top-p over what is left (the smallest set of tokens whose probability reaches `top_p`). Temperature 0 takes the
    likeliest token and gives the log-probability that the model itself (temperature 1) puts on it.
    """

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, device=logits.device)[:, None]

    greedy = column([float(s.temperature == 0) for s in samplings]) > 0
    temperature = column([s.temperature or 1.0 for s in samplings])
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
    size = logits.shape[-1]
    top_k = [min(s.top_k, size) if s.temperature else 0 for s in samplings]
    top_p = [s.top_p if s.temperature else 1.0 for s in samplings]
    if any(top_k):
        likeliest = scaled.topk(max(top_k)).values
        last = likeliest.gather(-1, column([float(max(k - 1, 0)) for k in top_k]).long())
        least = last.masked_fill(column([float(k == 0) for k in top_k]) > 0, -math.inf)
        scaled = scaled.masked_fill(scaled < least, -math.inf)
    if any(p < 1 for p in top_p):
        # Sorting a whole vocabulary is slow; what top-k has left over need not be sorted.
        width = max(k or size for k, p in zip(top_k, top_p, strict=True) if p < 1)
        falling, order = scaled.topk(width) if width < size else scaled.sort(dim=-1, descending=True, stable=True)
        probability = falling.softmax(-1)
        better = probability.cumsum(-1) - probability
        out = (better >= column(top_p)) & (torch.arange(width, device=logits.device) > 0)
        kept = torch.full_like(scaled, -math.inf).scatter_(-1, order, falling.masked_fill(out, -math.inf))
        # Rows that ask for no filter keep all, whatever rounding does.
        scaled = torch.where(column(top_p) < 1, kept, scaled)
    logprobs = scaled.log_softmax(-1)
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    target = column(list(points)).double() * cumulative[:, -1:]
    sampled = torch.searchsorted(cumulative, target, right=True).clamp(max=size - 1)
    chosen = torch.where(greedy, logits.argmax(-1, keepdim=True), sampled) if greedy.any() else sampled
    return chosen[:, 0], logprobs.gather(-1, chosen)[:, 0]
