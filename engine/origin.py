"""Which agent a run's answer comes from: an answer that stands in no agent's reply was made by the program itself.

Pure functions over text. Whether an answer is right is for `tasks`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from workflow.text import delivery, fences, last_boxed, solution_block, vote_key

Part = tuple[Literal["box", "code"], str]


def origin(answer: str, replies: Sequence[tuple[str, str]]) -> str | None:
    """The agent in whose reply this answer stands, the latest first: its whole text, all its lines (nodes drop lines
    that echo a prompt), or what would be graded of it, its box and its code. Agents may have said these in several
    replies; one that nobody said makes the whole answer nobody's. Where there is neither, its delivery counts.

    `replies` are (agent, text) in their order, without what they repeat from instructions.
    """
    text = _whole(answer.strip())
    lines = _lines(answer)
    given = _graded(answer)
    handed_on = delivery(answer)
    said = [(agent, reply, _said(reply)) for agent, reply in replies]
    founded = given <= set[Part]().union(*(parts for _, _, parts in said))
    for agent, reply, parts in reversed(said):
        if text and (text.search(reply) or lines <= _lines(reply)):
            return agent
        if founded and given & parts:
            return agent
        if not given and handed_on[1] == "delivery" and handed_on == delivery(reply):
            return agent
    return None


def _graded(text: str) -> set[Part]:
    """What a grader may read out of an answer (`tasks.answers`): its last box, and its last solution or else fence."""
    box, block = last_boxed(text), solution_block(text)
    code = block if block is not None else next((body for _, body in reversed(fences(text))), None)
    return _parts(box, [] if code is None else [code])


def _said(reply: str) -> set[Part]:
    block = solution_block(reply)
    return _parts(last_boxed(reply), [*([] if block is None else [block]), *(body for _, body in fences(reply))])


def _parts(box: str | None, codes: Sequence[str]) -> set[Part]:
    found: set[Part] = {("code", code.strip()) for code in codes}
    if box is not None:
        found.add(("box", vote_key(box)))
    return found


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


def _whole(text: str) -> re.Pattern[str] | None:
    """Finds `text` as it stands, not as part of a longer word or number: 5 is not in 15, -5 or 5.2."""
    if not text:
        return None
    before = (r"(?<![\w-])(?<!\d[.,])" if text[0].isdigit() else r"(?<!\w)") if text[0].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if text[-1].isalnum() else ""
    return re.compile(before + re.escape(text) + after)
