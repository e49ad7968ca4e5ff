r"""The final answer in what an agent wrote: `\boxed{...}` for math, `<solution>...</solution>` for code, what stands
after the last `####` for games.

Pure functions over text, and the only reader of answers: what is graded (`tasks.grading`) and what an agent is
credited with (`engine.authorship`) is what these give. Nothing here decides whether an answer is right, and nothing
guesses an answer out of prose: text without a box has no math answer.
"""

from __future__ import annotations

import re
from typing import Literal

from workflow.text import blocks, boxes, fences, kept, solution_block

Domain = Literal["math", "code", "game"]

_BOX = re.compile(r"\s*+\\(?:boxed|fbox)\b")
_HASHES = re.compile(r"^[ \t]*+####(?=[\s\[{<`]|\Z)", re.MULTILINE)  # no row of a map, such as ####.#
_PYTHON = ("python", "python3", "py", "")


def final_answer(text: str, domain: Domain) -> str | None:
    """The answer that `text` gives to a problem of `domain`, or None if it gives none."""
    match domain:
        case "math":
            return math_answer(text)
        case "code":
            return code_answer(text)
        case "game":
            return game_answer(text)


def math_answer(text: str) -> str | None:
    r"""Content of the last closed `\boxed{...}`, `\fbox{...}` or `\boxed 5`; None if there is none or it is empty.

    A box that the agent never closed (a reply cut short) does not count; an earlier closed one then does.
    Boxes within the box are peeled: `\boxed{\boxed{5}}` is `5`.
    """
    found = [*boxes(text)]
    return _peeled(text, found, *found.pop()) or None if found else None


def code_answer(text: str) -> str | None:
    """The code in the last complete `<solution>` block; without one, in the last complete Python fence.

    A fence inside the block is stripped, with any prose around it. Fences of other languages do not count, and
    neither does a block or fence that was never closed or holds only blanks.
    """
    block = solution_block(text)
    code = _last_fence(text) if block is None else _code_of(block)
    return code if code and code.strip() else None


def game_answer(text: str) -> str | None:
    """What stands after the last `####` that begins a line; without one, the last delivery; without that, all the text.

    A delivery around or behind the `####` counts without its tags, and so does a code fence. None where nothing is
    left. Whether it is an action is for the game to say.
    """
    marks = list(_HASHES.finditer(text))
    rest = text[marks[-1].end() :] if marks else text
    delivered = blocks("delivery", rest)
    rest = (delivered[-1] if delivered else _before_closing_tag(rest)).strip()
    fenced = fences(rest) if rest.startswith("```") and rest.endswith("```") else []
    return (fenced[0][1].strip() if len(fenced) == 1 else rest) or None


@kept
def math_answers(text: str) -> tuple[tuple[str, int, int], ...]:
    """What each box would give if the text ended with it, and where its content starts and ends; the last is
    `math_answer`. Boxes within boxes are a part of these."""
    found = [*boxes(text)]
    answers: list[tuple[str, int, int]] = []
    while found:
        start, end = found.pop()
        answers.append((_peeled(text, found, start, end), start, end))
        while found and found[-1][0] > start:
            found.pop()
    return tuple(answers[::-1])


def code_answers(text: str) -> list[str]:
    """The code in each `<solution>` block, or, where there is none, in each Python fence; the last is `code_answer`."""
    given = [solution_block(f"<solution>{block}</solution>") for block in blocks("solution", text)]
    held = [block for block in given if block is not None]
    return [_code_of(block) for block in held] if held else _python_fences(text)


def _before_closing_tag(text: str) -> str:
    """A delivery that opens before the `####` closes behind it."""
    return re.split(r"</delivery>", text, maxsplit=1, flags=re.IGNORECASE)[0]


def _peeled(text: str, found: list[tuple[int, int]], start: int, end: int) -> str:
    """Content of the box there, or of the last one within it where it begins with one; takes boxes off `found`."""
    while found and found[-1][0] > start and _BOX.match(text, start, end):
        start, end = found.pop()
    return text[start:end].strip()


def _code_of(block: str) -> str:
    code = _last_fence(block) if "```" in block else None
    return block if code is None else code


def _last_fence(text: str) -> str | None:
    return next(reversed(_python_fences(text)), None)


def _python_fences(text: str) -> list[str]:
    return [body for language, body in fences(text) if language in _PYTHON]
