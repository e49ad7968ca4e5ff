"""Step-level beam search over agents' replies (MASPRM, Alg. 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from search.methods.budget import BudgetSpent
from search.methods.guides import Guide
from search.methods.mcts import as_far
from search.methods.nodes import Node, SearchRefused
from search.methods.states import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSettings:
    """B1/B2 in the paper's tables is `beam`/`samples`."""

    beam: int = 3
    """B1: states that stay, of all that were drawn."""
    samples: int = 5
    """B2: replies drawn at each of them."""
    first: bool = False
    """Whether the search ends with the first run that does; otherwise with the last of the beam."""

    def __post_init__(self) -> None:
        for name in ("beam", "samples"):
            if getattr(self, name) < 1:
                raise SearchRefused(f"{name}={getattr(self, name)}: at least 1")


async def beam(tree: Tree, guide: Guide, settings: BeamSettings) -> tuple[Node, str]:
    """The terminal state of the highest value, and which budget ended the search, if one did.

    All replies are pooled, whatever their depth, and the best stay. Runs that have ended stay in the pool with their
    value. Replies of equal text at one state are one. Ties: higher psi, then drawn first. Where a budget ended
    the search before any run had, the best of the beam goes on alone as far as it may (`as_far`).
    """
    kept = [tree.root]
    spent = ""
    try:
        await tree.start()
        while open_ := [node for node in kept if node.end is None]:
            if settings.first and len(open_) < len(kept):
                break
            grown = await tree.expand(open_, settings.samples, merge=True, guide=guide)
            pool = [node for node in kept if node.end is not None] + [node for each in grown for node in each]
            kept = sorted(pool, key=_worst_last)[: settings.beam]
            await tree.ends(kept)
    except BudgetSpent as error:
        spent = error.kind
    ended = [node for node in kept if node.end is not None] or [node for node in tree.nodes if node.end is not None]
    if not ended:  # the budget has something left, or nothing
        return await as_far(tree, kept[0], guide), spent
    return min(ended, key=_worst_last), spent


def _worst_last(node: Node) -> tuple[float, float, int]:
    """What was not scored in time is behind all that was."""
    return math.inf if node.value is None else -node.value, math.inf if node.psi is None else -node.psi, node.id
