"""How likely each token of a reply was when it was drawn, as colours: a strip of cells, or the text itself.

The measure is surprisal, the negative log-probability in nats. Texts of tokens come from whoever has the tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from viewer.html import Markup, figure, percent, shown
from viewer.means import mean

Words = Callable[[list[int]], list[str]]
"""Texts of tokens by their ids, one for each."""

BOUNDS = (0.05, 0.3, 0.7, 1.4, 2.3, 4.6)
"""Surprisals at which the next colour begins: probabilities of 95 %, 74 %, 50 %, 25 %, 10 % and 1 %."""
MOST_CELLS = 400
MOST_WORDS = 3_000
CELL_PX = 9
UNKNOWN = len(BOUNDS) + 1
"""Of a token whose log-probability is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    tokens: int
    mean: float | None
    """Surprisal in nats; None where nothing is known."""
    least: float | None
    """Probability of the least likely token."""
    strip: Markup
    per_cell: int
    """Tokens that a cell stands for, by the least likely of them."""
    text: Markup | None
    """The reply in colours, where the texts of its tokens are known."""
    left_out: int
    """Tokens that are not in `text`."""


def level(logprob: float) -> int:
    """Colour of a token: 0 for what was nearly certain."""
    if math.isnan(logprob):
        return UNKNOWN
    return sum(-logprob >= bound for bound in BOUNDS)


def heat_of(logprobs: Sequence[float], token_ids: Sequence[int] | None = None, words: Words | None = None) -> Heat:
    known = [value for value in logprobs if math.isfinite(value)]
    per_cell = max(1, math.ceil(len(logprobs) / MOST_CELLS))
    levels = [level(value) for value in logprobs]
    cells = [max(levels[start : start + per_cell]) for start in range(0, len(levels), per_cell)]
    text = None
    if words is not None and token_ids is not None and len(token_ids) == len(logprobs):
        texts = words(list(token_ids[:MOST_WORDS]))
        if len(texts) == min(len(token_ids), MOST_WORDS):
            text = _coloured(texts, logprobs)
    return Heat(
        tokens=len(logprobs),
        mean=-mean(known) if known else None,
        least=math.exp(min(0.0, min(known))) if known else None,
        strip=_strip(cells),
        per_cell=per_cell,
        text=text,
        left_out=max(0, len(logprobs) - MOST_WORDS) if text is not None else 0,
    )


def summary(heat: Heat) -> str:
    if heat.mean is None or heat.least is None:
        return f"{heat.tokens:,} tokens"
    cells = f"; a cell is {heat.per_cell:,} tokens, coloured by the least likely" if heat.per_cell > 1 else ""
    return (
        f"{heat.tokens:,} tokens, surprisal {figure(heat.mean)} nats in the mean, "
        f"the least likely with {percent(heat.least)}{cells}"
    )


def legend() -> Markup:
    """The colours and what they stand for."""
    edges = [1.0, *(math.exp(-bound) for bound in BOUNDS), 0.0]
    told = [f"{100 * low:.0f}–{100 * high:.0f} %" for high, low in pairwise(edges)]
    cells = (Markup('<span><i class="h{}"></i> {}</span> ').format(number, text) for number, text in enumerate(told))
    return Markup('<span class="legend">{}</span>').format(Markup("").join(cells))


def _strip(cells: Sequence[int]) -> Markup:
    """Cells of one colour that stand beside one another are one element."""
    runs = [(colour, len(list(group))) for colour, group in groupby(cells)]
    return Markup('<div class="heat" style="max-width:{}px">{}</div>').format(
        CELL_PX * len(cells),
        Markup("").join(Markup('<i class="h{}" style="flex:{}"></i>').format(*run) for run in runs),
    )


def _coloured(texts: Sequence[str], logprobs: Sequence[float]) -> Markup:
    parts: list[Markup] = []
    told = list(zip(texts, logprobs, strict=False))
    for certain, group in groupby(told, key=lambda token: level(token[1]) == 0):
        if certain:
            parts.append(Markup("{}").format(shown("".join(text for text, _ in group))))
        else:
            parts += [
                Markup('<span class="h{}" title="{}">{}</span>').format(level(value), _chance(value), shown(text))
                for text, value in group
            ]
    return Markup('<pre class="text tokens">{}</pre>').format(Markup("").join(parts))


def _chance(logprob: float) -> str:
    return percent(math.exp(min(0.0, logprob))) if not math.isnan(logprob) else "unknown"
