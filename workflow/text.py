"""Reading what agents wrote: boxes, solutions, deliveries, verdicts, votes.

Pure functions over text. They look only at what an agent wrote; `strip_echo` removes instructions that a reply
merely repeats from its prompt. Nothing here grades an answer (see `tasks`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

DELIVERY_EXCERPT = 2000
"""Longest excerpt, in characters, that is handed on when an agent marked nothing as its delivery."""

_BOX_TOKEN = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*)(?:(?P<open>\{)|(?P<plain>[^\s{}\\$]+))?|\\.|\{|\}", re.DOTALL)
_FINAL = re.compile(r"^[\W_]*(?:the )?final answer\b[*_]*(?: is)?[\s:*_]*(?=\S)", re.IGNORECASE | re.MULTILINE)
_FENCED = re.compile(r"\A\s*```[\w+-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_WORD = r"(?P<not>\bNOT\s+)?\b(?P<word>INCORRECT|CORRECT)\b"
_VERDICT_LINE = re.compile(r"verdict\W*(?:is\W*)?" + _WORD, re.IGNORECASE)
_VERDICT_WORD = re.compile(_WORD)
_MARKED = re.compile(r"\\boxed|\\fbox|</?(?:delivery|solution|tool_call)>|verdict", re.IGNORECASE)


def blocks(tag: str, text: str) -> list[str]:
    """Contents of all complete `<tag>...</tag>` blocks, in order; an opening tag without its end is skipped."""
    found = []
    start = None
    for match in re.finditer(rf"<(/?){re.escape(tag)}>", text, re.IGNORECASE):
        if not match[1]:
            start = match.end()
        elif start is not None:
            found.append(text[start : match.start()])
            start = None
    return found


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}` (or `\fbox{...}`) with balanced braces, or None.

    `\boxed 5` counts as `5`; of nested boxes the outer one counts; a box that is never closed does not.
    """
    found = None
    opened: list[int | None] = []  # one entry per open brace: where the box's content starts, None for others
    for token in _BOX_TOKEN.finditer(text):
        if token["open"]:
            opened.append(token.end())
        elif token["plain"]:
            found = token["plain"].rstrip(".,;")
        elif token.group() == "{":
            opened.append(None)
        elif token.group() == "}" and opened:
            start = opened.pop()
            if start is not None:
                found = text[start : token.start()].strip()
    return found


def solution_block(text: str) -> str | None:
    """Content of the last complete `<solution>` block, without a surrounding code fence, or None."""
    found = blocks("solution", text)
    if not found:
        return None
    fenced = _FENCED.match(found[-1])
    return fenced.group(1) if fenced else found[-1].strip("\n")


def delivery(text: str) -> tuple[str, Literal["delivery", "final_answer", "solution", "excerpt"]]:
    """What an agent hands on, and how it was found.

    The last `<delivery>` block; else the text after the last final-answer marker; else the `<solution>` block;
    else an excerpt of at most `DELIVERY_EXCERPT` characters, taken from the end, where conclusions stand.
    """
    marked = blocks("delivery", text)
    if marked and marked[-1].strip():
        return marked[-1].strip(), "delivery"
    markers = list(_FINAL.finditer(text))
    if markers:
        return text[markers[-1].end() :].strip()[:DELIVERY_EXCERPT], "final_answer"
    block = solution_block(text)
    if block:
        return f"<solution>\n{block}\n</solution>", "solution"
    text = text.strip()
    if len(text) > DELIVERY_EXCERPT:
        text = "[...] " + text[-DELIVERY_EXCERPT:]
    return text, "excerpt"


def strip_echo(reply: str, prompt: Sequence[str]) -> str:
    r"""`reply` without the marked lines that it repeats word for word from its prompt.

    A line is dropped when it carries a mark (a box, a delivery or solution tag, a tool call, a verdict), has
    words beside it, and stands in the prompt too: `Example: The answer is \boxed{42}` echoed is nobody's answer.
    A bare `\boxed{42}` is kept, since an agent may well answer what the prompt mentions.
    """
    if not _MARKED.search(reply):
        return reply
    told = {line.strip() for text in prompt for line in text.splitlines() if _MARKED.search(line)}
    if not told:
        return reply
    kept = [line for line in reply.splitlines() if line.strip() not in told or _is_bare(line)]
    return "\n".join(kept) if len(kept) < len(reply.splitlines()) else reply


def _is_bare(line: str) -> bool:
    rest = re.sub(r"</?(?:delivery|solution)>", "", line.strip(), flags=re.IGNORECASE)
    return not rest or rest.startswith(("\\boxed", "\\fbox", "$\\boxed", "$$\\boxed"))


def verdict(text: str) -> bool | None:
    """True for an explicit CORRECT, False for INCORRECT or NOT CORRECT, None where there is no verdict.

    A line with the word "verdict" decides before any other; among several, the last one. Without such a line
    only the words in capitals count, so that "partially correct" is no verdict. A line that offers both
    ("CORRECT or INCORRECT") decides nothing.
    """
    lines = [line for line in text.splitlines() if not _offers_both(line)]
    for pattern in (_VERDICT_LINE, _VERDICT_WORD):
        matches = [match for line in lines for match in pattern.finditer(line)]
        if matches:
            last = matches[-1]
            return last["word"].upper() == "CORRECT" and not last["not"]
    return None


def _offers_both(line: str) -> bool:
    return re.search(r"\bcorrect\s*(?:or|/|\|)\s*incorrect\b", line, re.IGNORECASE) is not None


def vote_key(answer: str) -> str:
    """Form in which two written answers are compared for a vote: spacing and LaTeX dressing do not count."""
    key = re.sub(r"\\(?:left|right|,|!|;|displaystyle)(?![a-zA-Z])|[$\s]|\\text\s*(?=\{)", "", answer)
    key = key.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".").lower()
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", key):
        key = key.replace(",", "")
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
    return first[max(totals, key=lambda key: (totals[key], -first[key]))]
