"""Which agent a run's answer comes from: an answer that stands in no agent's reply was made by the program itself.

Pure functions over text. Whether an answer is right is for `tasks`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workflow.text import delivery, last_boxed, solution_block, vote_key


def origin(answer: str, replies: Sequence[tuple[str, str]]) -> str | None:
    """The agent in whose reply this answer stands, the latest first: its whole text, all its lines (nodes drop lines
    that echo a prompt), its box, its solution or its delivery. `replies` are (agent, text) in their order."""
    text = _whole(answer.strip())
    box, block = last_boxed(answer), solution_block(answer)
    handed_on, source = delivery(answer)
    lines = _lines(answer)
    for agent, reply in reversed(replies):
        if text and (text.search(reply) or lines <= _lines(reply)):
            return agent
        said = last_boxed(reply)
        if box is not None and said is not None and vote_key(said) == vote_key(box):
            return agent
        if block is not None and block == solution_block(reply):
            return agent
        if source == "delivery" and (handed_on, source) == delivery(reply):
            return agent
    return None


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


def _whole(text: str) -> re.Pattern[str] | None:
    """Finds `text` as it stands, not as part of a longer word or number: 5 is not in 15, -5 or 5.2."""
    if not text:
        return None
    before = (r"(?<![\w-])(?<!\d[.,])" if text[0].isdigit() else r"(?<!\w)") if text[0].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if text[-1].isalnum() else ""
    return re.compile(before + re.escape(text) + after)
