"""Texts for one page, of which there is only so much: what no longer fits is cut, and the cut is told and counted.

How a text becomes HTML is `viewer.html`'s.
"""

from __future__ import annotations

from viewer.html import LONGEST, MOST, Markup, long_text

MOST_ON_A_PAGE = 3_000_000
"""Characters of HTML that texts of one page may take."""
_EXCERPT = 300
"""Characters of a text that are shown even where nothing more fits."""


class BoundedTexts:
    def __init__(self, most: int = MOST_ON_A_PAGE) -> None:
        self._left = most
        self.cut = 0
        """Characters that are not on the page."""

    @property
    def full(self) -> bool:
        return self._left <= 0

    def block(self, text: str, longest: int = LONGEST) -> Markup:
        """A text as a block: folded beyond `longest` characters, cut where the page is full."""
        shown = text[: max(min(len(text), self._left, MOST), _EXCERPT)]
        made = long_text(shown, longest)
        self._left -= len(made)
        left_out = len(text) - len(shown)
        if left_out <= 0:
            return made
        self.cut += left_out
        note = Markup('<p class="note">{:,} further characters are in the file alone.</p>').format(left_out)
        return Markup("{}{}").format(made, note)

    def fits(self, characters: int) -> bool:
        return characters <= self._left

    def spend(self, made: Markup) -> Markup:
        """Something else that takes room on the page."""
        self._left -= len(made)
        return made
