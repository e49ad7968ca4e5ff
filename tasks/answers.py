r"""The final answer in what an agent wrote: `\boxed{...}` for math, `<solution>...</solution>` for code.

Pure functions over text. Nothing here decides whether an answer is right, and nothing guesses an answer out of
prose: text without a box has no math answer.
"""

from __future__ import annotations

import re
from typing import Literal

from workflow.text import fences, last_boxed, solution_block

Domain = Literal["math", "code"]

_PYTHON = ("python", "python3", "py", "")


def final_answer(text: str, domain: Domain) -> str | None:
    """The answer that `text` gives to a problem of `domain`, or None if it gives none."""
    return math_answer(text) if domain == "math" else code_answer(text)


def math_answer(text: str) -> str | None:
    r"""Content of the last closed `\boxed{...}`, `\fbox{...}` or `\boxed 5`; None if there is none or it is empty.

    A box that the agent never closed (a reply cut short) does not count; an earlier closed one then does.
    Boxes within the box are peeled: `\boxed{\boxed{5}}` is `5`.
    """
    found = last_boxed(text)
    while found is not None and re.match(r"\\(boxed|fbox)\b", found):
        inner = last_boxed(found)
        if inner is None:
            break
        found = inner
    return found or None


def code_answer(text: str) -> str | None:
    """The code in the last complete `<solution>` block; without one, in the last complete Python fence.

    A fence inside the block is stripped, with any prose around it. Fences of other languages do not count, and
    neither does a block or fence that was never closed or holds only blanks.
    """
    block = solution_block(text)
    if block is None:
        code = _last_fence(text)
    else:
        code = _last_fence(block) if "```" in block else None
        code = block if code is None else code
    return code if code and code.strip() else None


def _last_fence(text: str) -> str | None:
    bodies = [body for language, body in fences(text) if language in _PYTHON]
    return bodies[-1] if bodies else None
