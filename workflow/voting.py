"""Votes: when two written answers count as one, and which of them wins.

Pure functions over text; a vote knows nothing of what is right (see `tasks`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_DRESSING = re.compile(r"\\(?:left|right|[,:;! ]|displaystyle)(?![a-zA-Z])|\$|\\text\s*+(?=\{)")
_GROUPED = re.compile(r"(?<=\d)(?:\\[,;!]|,\\!)(?=\d{3}(?!\d))")
"""What stands between thousands, as LaTeX has it."""
_LETTERS = re.compile(r"\\[a-zA-Z]++|[^\W\d_]++")
_LONE = re.compile(r"[(\[{\s]*+[^\W\d_][)\]}\s.:]*+")
_SIGN = re.compile(r"[\d+*/^=<>|\\(,-]")
_BETWEEN_DIGITS = re.compile(r"(?<=[\d.])\s++(?=\.?\d)")
_WORD = 3
"""Letters from which on a run of them is a word, not a product."""


def vote_key(answer: str) -> str:
    r"""Form in which two written answers are compared for a vote.

    Of one line, spacing, LaTeX dressing, the case of words and how a decimal number is written (`1.0`, `+1`, `01`) do
    not count. A space between digits does (`3 1/2`, `31/2`), and so does the case of letters beside signs (`X + 1`) and
    of commands (`\Delta`). Of several lines, as code has them, only spaces at their ends and blank lines before and
    after do not count.
    """
    lines = [line.rstrip() for line in answer.splitlines()]
    filled = [number for number, line in enumerate(lines) if line]
    if len(filled) > 1:
        return "\n".join(lines[filled[0] : filled[-1] + 1])
    return _line_key(lines[filled[0]].strip() if filled else "")


def _line_key(line: str) -> str:
    key = _DRESSING.sub(" ", _GROUPED.sub("", line)).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    if _LONE.fullmatch(key) or not _SIGN.search(key):
        key = key.lower()
    else:
        key = _LETTERS.sub(lambda run: run[0].lower() if run[0][0] != "\\" and len(run[0]) >= _WORD else run[0], key)
    key = key.rstrip(" .").strip()
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d*+)?", key):
        key = key.replace(",", "")
    key = " ".join("".join(part.split()) for part in _BETWEEN_DIGITS.split(key))
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
