"""Votes: when two written answers count as one, and which of them wins.

Pure functions over text; a vote knows nothing of what is right (see `tasks`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def vote_key(answer: str) -> str:
    """Form in which two written answers are compared for a vote: spacing, LaTeX dressing and how a decimal number is
    written (`1.0`, `+1`, `01`) do not count."""
    key = re.sub(r"\\(?:left|right|,|!|;|displaystyle)(?![a-zA-Z])|[$\s]|\\text\s*(?=\{)", "", answer)
    key = key.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".").lower()
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", key):
        key = key.replace(",", "")
    number = re.fullmatch(r"([+-]?)(\d*+)(?:\.(\d*+))?", key, re.ASCII)
    if number and (number[2] or number[3]):
        fraction = (number[3] or "").rstrip("0")
        size = (number[2].lstrip("0") or "0") + (f".{fraction}" if fraction else "")
        key = f"-{size}" if number[1] == "-" and size != "0" else size
    return key


def winning_vote(answers: Sequence[str | None], weights: Sequence[float]) -> int | None:
    """Index of the first answer of the heaviest class, or None if nobody answered.

    `answers[i]` is None where member i gave none; it then has no vote, and nobody else's weight moves. Ties go
    to the class that was named first.
    """
    totals: dict[str, float] = {}
    first: dict[str, int] = {}
    for index, (answer, weight) in enumerate(zip(answers, weights, strict=True)):
        if answer is None:
            continue
        key = vote_key(answer)
        totals[key] = totals.get(key, 0.0) + weight
        first.setdefault(key, index)
    if not totals:
        return None
    # Rounded, so that weights 0.1 + 0.2 tie with 0.3.
    return first[max(totals, key=lambda key: (round(totals[key], 9), -first[key]))]
