"""Reading what agents wrote: boxes, solutions, fences, deliveries, verdicts.

Pure functions over text. They look only at what an agent wrote; `strip_echo` removes instructions that a reply
merely repeats from its prompt. Not here: which part is the answer (`workflow.answers`), how answers are compared for a
vote (`workflow.voting`), grades (`tasks`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

OCCURRENCES = 1000
"""Places in a text that are looked at for another one that is to stand there as it is."""
DELIVERY_EXCERPT = 2000
"""Longest excerpt, in characters, that is handed on when an agent marked nothing as its delivery."""

_BOX_NAME = re.compile(r"\\(?:boxed|fbox)")
_BOX_TOKEN = re.compile(
    r"\\(?:boxed|fbox)\s*+(?:(?P<open>\{)|(?P<plain>[^\s{}\\$]++))?|\\.|(?P<brace>\{)|(?P<end>\})", re.DOTALL
)
_FINAL = re.compile(
    r"^(?:_|[^\w\n])*+(?:the )?final answer\b[*_]*+(?: is)?[\s:*_]*+(?=\S)", re.IGNORECASE | re.MULTILINE
)
_FENCE = re.compile(r"[ \t]*+(?P<ticks>`{3,}+)[ \t]*+(?:(?P<language>[\w+-]++)|(?P<bare>\r?\Z))?")
_FENCED = re.compile(r"\A\s*```[\w+-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_WORD = r"(?P<not>(?i:\bnot|n['’]t)\s+(?:\w+\s+){0,2})?\b(?P<word>INCORRECT|CORRECT)\b"
_VERDICT_LINE = re.compile(r"verdict\W*(?:is\W*)?" + _WORD, re.IGNORECASE)
_VERDICT_WORD = re.compile(_WORD)
_BARE_VERDICT = re.compile(r"[\W_]*verdict\W*(?:is\W*)?(?:not\s+)?(?:in)?correct[\W_]*", re.IGNORECASE)
_BOTH = re.compile(r"\b(?:in)?correct(?:\W*+or|(?=[^\w/|]*+[/|]))\W*+(?:verdict\W*+)?(?:in)?correct\b", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"(?:[\s.…]|\\l?dots)*")
_MARKED = re.compile(r"\\boxed|\\fbox|</?(?:delivery|solution|tool_call)>|verdict", re.IGNORECASE)


_Read = TypeVar("_Read")
LONG, KEPT = 20_000, 512 << 10
"""Characters. One reply is read by many, and a long one takes a while: what is read of the latest two texts from `LONG`
up to `KEPT` is kept, and of the latest 64 shorter ones."""


def kept(read: Callable[[str], _Read]) -> Callable[[str], _Read]:
    """Keep what is read of the latest texts, which must not be changed."""
    known, of_long = functools.lru_cache(maxsize=64)(read), functools.lru_cache(maxsize=2)(read)

    @functools.wraps(read)
    def reading(text: str) -> _Read:
        if type(text) is not str or len(text) > KEPT:
            return read(text)
        return known(text) if len(text) < LONG else of_long(text)

    return reading


def blocks(tag: str, text: str) -> list[str]:
    """Contents of all complete `<tag>...</tag>` blocks, in order; an opening tag without its end is skipped."""
    return [text[start:stop] for _, start, stop, _ in _spans(tag, text)] if "<" in text else []


def without_blocks(tag: str, text: str, contents: Collection[str] | None = None) -> str:
    """The text around those blocks, or only around those with one of the given contents."""
    kept, end = [], 0
    for before, start, stop, after in _spans(tag, text):
        if contents is None or text[start:stop].strip() in contents:
            kept.append(text[end:before])
            end = after
    return "".join(kept) + text[end:]


@functools.cache
def _tags(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){re.escape(tag)}>", re.IGNORECASE)


def _spans(tag: str, text: str) -> Iterator[tuple[int, int, int, int]]:
    """Of each complete block: where its opening tag starts and ends, and where its closing tag does."""
    opening = None
    for match in _tags(tag).finditer(text):
        if not match[1]:
            opening = match
        elif opening is not None:
            yield opening.start(), opening.end(), match.start(), match.end()
            opening = None


@kept
def boxes(text: str) -> tuple[tuple[int, int], ...]:
    r"""Where the contents of all `\boxed{...}` and `\fbox{...}` with balanced braces start and end, in the order in
    which they end: a box stands behind those within it.

    `\boxed 5` counts as `5`. A box that is never closed does not count, nor does one that holds nothing but dots, as
    in "put your answer in \boxed{}".
    """
    found: list[tuple[int, int]] = []
    opened: list[int | None] = []  # one entry per open brace: where the box's content starts, None for others
    first = _BOX_NAME.search(text)
    for token in _BOX_TOKEN.finditer(text, first.start()) if first else ():
        kind = token.lastgroup
        if kind == "open":
            opened.append(token.end())
        elif kind == "plain":
            plain = token["plain"].rstrip(".,;")
            if len(plain) == 1 or any(character.isdigit() for character in plain):  # no word of a sentence
                found.append((token.start("plain"), token.start("plain") + len(plain)))
        elif kind == "brace":
            opened.append(None)
        elif kind == "end" and opened:
            start = opened.pop()
            if start is not None and not _PLACEHOLDER.fullmatch(text, start, token.start()):
                found.append((start, token.start()))
    return tuple(found)


def last_boxed(text: str) -> str | None:
    """Content of the last box (see `boxes`), or None; of nested boxes the outer one counts."""
    found = boxes(text)
    return text[slice(*found[-1])].strip() if found else None


def solution_block(text: str) -> str | None:
    """Content of the last complete `<solution>` block, without a surrounding code fence, or None.

    A block that holds nothing but dots, as in "inside <solution>...</solution>", is none.
    """
    block = _last_filled("solution", text)
    if block is None:
        return None
    fenced = _FENCED.match(block)
    return fenced.group(1) if fenced else block.strip("\n")


def fences(text: str) -> list[tuple[str, str]]:
    """Language (in small letters, maybe empty) and contents of all complete Markdown code fences, in order.

    A fence ends at a line of at least as many backticks and nothing else. One that is never closed holds nothing, nor
    does what follows it.
    """
    if "```" not in text:
        return []
    found: list[tuple[str, str]] = []
    opened: tuple[str, int, int] | None = None
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        mark = _FENCE.match(text, start, end)
        if mark is not None and opened is None and end < len(text):
            opened = (mark["language"] or "").lower(), end + 1, len(mark["ticks"])
        elif mark is not None and opened is not None and mark["bare"] is not None and len(mark["ticks"]) >= opened[2]:
            found.append((opened[0], text[opened[1] : start].rstrip("\r\n")))
            opened = None
        start = end + 1
    return found


def _last_filled(tag: str, text: str) -> str | None:
    return next((block for block in reversed(blocks(tag, text)) if not _PLACEHOLDER.fullmatch(block)), None)


@kept
def delivery(text: str) -> tuple[str, Literal["delivery", "final_answer", "solution", "excerpt"]]:
    """What an agent hands on, and how it was found.

    The last `<delivery>` block; else the text after the last final-answer marker; else the `<solution>` block;
    else an excerpt of at most `DELIVERY_EXCERPT` characters, taken from the end, where conclusions stand. Text after
    a marker is cut to that length too, unless there is a solution block, which is handed on whole.
    """
    marked = _last_filled("delivery", text)
    if marked is not None:
        return marked.strip(), "delivery"
    block = solution_block(text)
    markers = list(_FINAL.finditer(text))
    if markers:
        stated = text[markers[-1].end() :].strip()
        if len(stated) <= DELIVERY_EXCERPT or not block:
            return stated[:DELIVERY_EXCERPT], "final_answer"
    if block:
        return f"<solution>\n{block}\n</solution>", "solution"
    text = text.strip()
    if len(text) > DELIVERY_EXCERPT:
        text = "[...] " + text[-DELIVERY_EXCERPT:]
    return text, "excerpt"


def strip_echo(reply: str, instructions: Sequence[str]) -> str:
    r"""`reply` without the marked lines and blocks that it repeats word for word from its instructions.

    A line is dropped when it carries a mark (a box, a delivery or solution tag, a tool call, a verdict), has
    words beside it, and stands in the instructions too: `Example: The answer is \boxed{42}` echoed is nobody's
    answer. So is a whole delivery or solution block. A bare `\boxed{42}`, a bare `Verdict: CORRECT` and a tool call
    are kept, since an agent may well say just what the instructions mention. What other agents wrote is no
    instruction: whoever agrees with them repeats them.
    """
    if not _MARKED.search(reply):
        return reply
    reply = without_lines(reply, echoed_lines(reply, instructions))
    for tag in ("delivery", "solution") if "<" in reply else ():
        reply = without_blocks(tag, reply, {block.strip() for text in instructions for block in blocks(tag, text)})
    return reply


def echoed_lines(reply: str, instructions: Iterable[str]) -> set[str]:
    """The marked lines of a reply that are not bare and stand in the instructions, without the spaces around them."""
    echoes: set[str] = set()
    said = _said_lines(reply)
    for text in instructions if said else ():
        if any(line in text for line in said):
            echoes |= said.intersection(map(str.strip, text.splitlines()))
    return echoes


@kept
def _said_lines(text: str) -> frozenset[str]:
    """The marked lines that are not bare."""
    return frozenset(line for line in marked_lines(text) if not _is_bare(line))


def without_lines(text: str, lines: Collection[str]) -> str:
    """The text without these lines, whatever spaces stand around them."""
    if not lines:
        return text
    return "\n".join(line for line in text.splitlines() if line.strip() not in lines)


@kept
def marked_lines(text: str) -> frozenset[str]:
    """The lines that carry a mark: a box, a tag, a verdict."""
    found: set[str] = set()
    end = 0
    while mark := _MARKED.search(text, end):
        start = text.rfind("\n", end, mark.start()) + 1 or end
        end = text.find("\n", mark.end())
        end = len(text) if end < 0 else end
        found.update(line.strip() for line in text[start:end].splitlines() if _MARKED.search(line))
    return frozenset(found)


def _is_bare(line: str) -> bool:
    rest = re.sub(r"</?(?:delivery|solution|tool_call)>", "", line.strip(), flags=re.IGNORECASE)
    return (
        not rest
        or rest.startswith(("\\boxed", "\\fbox", "$\\boxed", "$$\\boxed"))
        or (rest.startswith("{") and rest.endswith("}"))
        or _BARE_VERDICT.fullmatch(rest) is not None
    )


def verdict(text: str) -> bool | None:
    """True for an explicit CORRECT, False for INCORRECT or NOT CORRECT, None where there is no verdict.

    A line with the word "verdict" decides before any other; among several, the last one. Without such a line
    only the words in capitals count, so that "partially correct" is no verdict. Offering both ("CORRECT or
    INCORRECT") decides nothing.
    """
    lines = [_BOTH.sub(" ", line) for line in text.splitlines()]
    for pattern in (_VERDICT_LINE, _VERDICT_WORD):
        matches = [match for line in lines for match in pattern.finditer(line)]
        if matches:
            last = matches[-1]
            return last["word"].upper() == "CORRECT" and not last["not"]
    return None


def stands_in(text: str, reply: str) -> bool:
    """Whether `text` stands there as it is, not as part of a longer word or number: 5 is not in 15, -5 or 5.2."""
    at = -len(text)
    for _ in range(OCCURRENCES):
        at = reply.find(text, at + len(text))
        if at < 0:
            return False
        before, after = reply[max(0, at - 2) : at], reply[at + len(text) : at + len(text) + 2]
        negative = text[0].isdigit() and before.endswith("-")
        if not negative and not _goes_on(text[0], before[::-1]) and not _goes_on(text[-1], after):
            return True
    return False


def _goes_on(edge: str, beyond: str) -> bool:
    """Whether the word or number that ends in `edge` has more of it in `beyond`, the characters next to it."""
    if not edge.isalnum() or not beyond:
        return False
    following = beyond[0]
    return following.isalnum() or following == "_" or (following in ".," and beyond[1:].isdigit())
