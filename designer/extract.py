"""Finds the program in what a Designer wrote: in `<code>`, in a Markdown fence, or bare.

Text in, text out, in time linear in the reply; but several candidates may be parsed, and Python's parser takes a tenth
of a second for each: what a policy wrote is read in a jail (`designer.check.check_reply`). It judges a candidate only
by whether it parses and imports the contract; whether the program is any good is `designer.check`'s business.
"""

from __future__ import annotations

import ast
import html
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

MAX_SOURCE_BYTES = 100_000
"""Programs beyond this size, in bytes of UTF-8, are neither parsed here nor accepted by the check."""

NOTHING = "the reply holds no program; write it between <code> and </code>"
UNCLOSED_TAG = "<code> is never closed: the reply was cut off, or </code> was forgotten"
UNCLOSED_FENCE = "the code fence is never closed: the reply was cut off"
UNCLOSED_THOUGHT = "the reply was cut off while thinking: <think> is never closed, and no program stands outside it"

_TOKEN = re.compile(
    r"<(?P<close>/)?(?P<tag>code|think|thinking)(?:\s[^<>\n]{0,80})?>"
    r"|^[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]{0,80})$",
    re.IGNORECASE | re.MULTILINE,
)
_IMPORTS_CONTRACT = re.compile(r"^[ \t]*(?:from|import)[ \t]+workflow\b", re.MULTILINE)
_FIRST_IMPORT = re.compile(
    r"^(?:from[ \t]++[\w.]++[ \t]++import[ \t]|import[ \t]++[\w.]++[ \t]*+(?:$|[,;#]|as[ \t]))", re.MULTILINE
)
_ESCAPED = re.compile(r"&(?:lt|gt|quot|amp|#39|#x27);")
_PYTHON = frozenset({"", "python", "python3", "py", "py3"})

Token = re.Match[str]
How = Literal["code_tag", "fence", "bare"]


@dataclass(frozen=True)
class Extraction:
    """`source` ends in one newline. `problem` says why there is none, or what is doubtful about it."""

    source: str | None
    how: How | None = None
    problem: str | None = None


def extract_program(reply: str) -> Extraction:
    """The program in a reply; never raises.

    The last complete `<code>` block, else a Python fence (the last that imports the contract, else the longest),
    else the whole text if it is a program, or what is one between two paragraphs of prose. Code inside `<think>` does
    not count.
    """
    whole = reply.replace("\r\n", "\n").replace("\r", "\n")
    text, thinking = _without_thoughts(whole)
    candidates = []
    for candidate in _candidates(text):
        if _is_program(candidate):
            return candidate
        candidates.append(candidate)
    if not thinking and "</think" in whole:
        # Perhaps what looked like the end of a thought stands in a prompt of the program.
        for candidate in _candidates(whole):
            if "</think" in (candidate.source or "") and _is_program(candidate):
                return candidate
    for candidate in candidates:
        if candidate.problem is None and candidate.how != "bare" and (candidate.source or "").strip():
            return candidate
    problems = [candidate.problem for candidate in candidates if candidate.problem]
    return Extraction(None, None, (problems or [UNCLOSED_THOUGHT if thinking else NOTHING])[0])


def _candidates(text: str) -> Iterator[Extraction]:
    """What may be the program, best guess first: a bounded number of spans of `text`."""
    yield Extraction(_dedented(text), "bare")  # any text around a program would keep the whole from being one
    tokens = list(_TOKEN.finditer(text))
    tags = _tags_outside_fences(tokens)
    marked = list(_from_tags(text, tags))
    yield from marked
    complete = [candidate for candidate in marked if candidate.problem is None]
    if any(_begins_line(text, tag) for tag in tags) and any(_imports_contract(item) for item in complete[:1]):
        return  # a program was clearly marked: nothing else counts, even if it does not parse
    yield from _from_fences(text, [token for token in tokens if token["fence"]])
    yield from _from_tags(text, [token for token in tokens if _kind(token) == "code"])
    if not any(token for token in tokens if _kind(token) != "think"):
        yield from _from_prose(text)


def _without_thoughts(text: str) -> tuple[str, bool]:
    """The text outside `<think>` blocks, and whether the last one is left open.

    A `</think>` without its beginning (some chat templates supply it) ends a thought that began with the reply.
    Tags that stand inside a code block are part of the program.
    """
    tokens = list(_TOKEN.finditer(text))
    ends_next = _ends_next(tokens)
    kept: list[str] = []
    start = 0
    thinking = False
    inside = ""
    """"code", or the fence that was opened, or nothing."""
    for token, block_ends in zip(tokens, ends_next, strict=True):
        kind, closes = _kind(token), bool(token["close"])
        if thinking:
            if kind == "think" and closes:
                thinking, start = False, token.end()
        elif kind == "think" and closes and not (inside and block_ends):
            kept, start, inside = [], token.end(), ""
        elif kind == "think" and not closes and not inside:
            kept.append(text[start : token.start()])
            thinking = True
        else:
            inside = _inside_after(inside, token)
    if not thinking:
        kept.append(text[start:])
    return "\n".join(kept), thinking


def _kind(token: Token) -> str:
    return token["tag"].lower().removesuffix("ing") if token["tag"] else "fence"


def _inside_after(inside: str, token: Token) -> str:
    """What kind of block ("code", a fence, or "") goes on after `token`, given what went on before it."""
    if inside and inside != "code":  # in a fence only a bare fence of its kind counts
        closes = token["fence"] and token["fence"][0] == inside[0] and not token["info"].strip()
        return "" if closes else inside
    if _kind(token) == "code":
        return "" if token["close"] else "code"
    return inside or token["fence"] or ""


def _ends_next(tokens: list[Token]) -> list[bool]:
    """For each token: whether the next code tag or fence after it is one that can end a block."""
    result = []
    ends = False
    for token in reversed(tokens):
        result.append(ends)
        if token["fence"]:
            ends = not token["info"].strip()
        elif _kind(token) == "code":
            ends = bool(token["close"])
    return result[::-1]


def _tags_outside_fences(tokens: list[Token]) -> list[Token]:
    tags = []
    inside = ""
    for token in tokens:
        if _kind(token) == "code" and inside in ("", "code"):
            tags.append(token)
        inside = _inside_after(inside, token)
    return tags


def _from_tags(text: str, tags: list[Token]) -> Iterator[Extraction]:
    """The last complete block that imports the contract, else the last; then, since a program may mention the tags
    in a prompt, spans to the last end."""
    opens = [tag for tag in tags if not tag["close"]]
    closes = [tag for tag in tags if tag["close"]]
    pairs = [(begin, end) for begin, end in pairwise(tags) if end["close"] and not begin["close"]]
    if pairs:
        using = [pair for pair in pairs if _IMPORTS_CONTRACT.search(text, pair[0].end(), pair[1].start())]
        marked = [tag for tag in opens if _begins_line(text, tag)]
        begins = [tag for tag in (*marked[-1:], *marked[:1], opens[0]) if tag.end() <= closes[-1].start()]
        for begin, end in dict.fromkeys([(using or pairs)[-1], *((begin, closes[-1]) for begin in begins)]):
            yield Extraction(_cleaned(text[begin.end() : end.start()]), "code_tag")
    elif opens:
        yield Extraction(_cleaned(text[opens[-1].end() :]), "code_tag", UNCLOSED_TAG)


def _from_fences(text: str, fences: list[Token]) -> Iterator[Extraction]:
    """The last Python block that imports the contract; its extension to the last fence, since a prompt may hold
    fences of its own; the longest Python block; what follows a fence that is never closed."""
    blocks: list[tuple[int, int]] = []
    begin: Token | None = None
    for fence in fences:
        if begin is None:
            begin = fence
        elif fence["fence"][0] == begin["fence"][0] and not fence["info"].strip():
            if _is_python(begin):
                blocks.append((begin.end(), fence.start()))
            begin = None
    using = [(start, end) for start, end in blocks if _IMPORTS_CONTRACT.search(text, start, end)]
    for start, end in using[-1:]:
        yield Extraction(_cleaned(text[start:end]), "fence")
        yield Extraction(_cleaned(text[start : fences[-1].start()]), "fence")
    if begin is not None and _is_python(begin):
        yield Extraction(_cleaned(text[begin.end() :]), "fence", UNCLOSED_FENCE)
    elif blocks:
        start, end = max(blocks, key=lambda block: block[1] - block[0])
        yield Extraction(_cleaned(text[start:end]), "fence")


def _from_prose(text: str) -> Iterator[Extraction]:
    """What stands between prose, unmarked: from the first import to the end, or to where it is no Python any more."""
    begin = _FIRST_IMPORT.search(text)
    if begin is None or not _IMPORTS_CONTRACT.search(text):
        return
    source = text[begin.start() :]
    yield Extraction(_dedented(source), "bare")
    if (line := _wrong_line(source)) > 1:
        yield Extraction(_dedented("\n".join(source.split("\n")[: line - 1])), "bare")


def _wrong_line(source: str) -> int:
    """The line at which a text is no Python any more, or 0: not where it ends too early, as a program that was cut
    off."""
    error = _parsed(source) if len(source.encode("utf-8", "replace")) <= MAX_SOURCE_BYTES else None
    if not isinstance(error, SyntaxError) or re.search("never closed|unterminated|EOF", error.msg):
        return 0
    return error.lineno or 0


def _is_python(fence: Token) -> bool:
    return fence["info"].strip().lower() in _PYTHON


def _begins_line(text: str, tag: Token) -> bool:
    before = text[max(0, tag.start() - 80) : tag.start()]  # a bounded look back keeps hostile replies linear
    return not before.rpartition("\n")[2].strip(" \t")


def _cleaned(block: str) -> str:
    """The block without a fence around it, and as `_dedented` makes it."""
    fences = [token for token in _TOKEN.finditer(block) if token["fence"]]
    if fences and not block[: fences[0].start()].strip():
        closing = [token for token in fences[1:] if not token["info"].strip()]
        block = block[fences[0].end() : closing[-1].start() if closing else len(block)]
    return _dedented(block)


def _dedented(block: str) -> str:
    """The block without the indentation of its first line, with one newline at its end, and with character
    references replaced where only that makes it Python.

    Lines inside triple-quoted strings often stand further left than the code; they are left alone.
    """
    lines = block.rstrip().split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip(" \t"))]
    source = "\n".join(line.removeprefix(indent) for line in lines[first:]) + "\n"
    if _ESCAPED.search(source) and not _parses(source):
        plain = html.unescape(source)
        source = plain if _parses(plain) else source
    return source


def _imports_contract(candidate: Extraction) -> bool:
    return _IMPORTS_CONTRACT.search(candidate.source or "") is not None


def _is_program(candidate: Extraction) -> bool:
    return _imports_contract(candidate) and _parses(candidate.source or "")


def _parses(source: str) -> bool:
    return len(source.encode("utf-8", "replace")) <= MAX_SOURCE_BYTES and _parsed(source) is None


def _parsed(source: str) -> Exception | None:
    """What was raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return error
    return None
