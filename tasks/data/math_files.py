r"""MATH (Hendrycks et al.) as its authors published it, by its own train and test, and what of it stands in MATH-500.

Not here: MATH-500 itself, a file of another form (`tasks.data.benchmarks`).
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pydantic import BaseModel, Field

from tasks.data.rows import LONGEST_LINE, DatasetError, checked, json_of, placed_rows, rows
from tasks.problems import Problem
from workflow.answers import math_answer

DIGESTS = Path(__file__).with_name("math500.txt")
"""A digest of each question of MATH-500. It was made by
`python -c "from tasks.data.math_files import write_digests; write_digests('math500.json')"`."""


class _MathRow(BaseModel):
    problem: str = Field(min_length=1)
    solution: str


class _Math500Row(BaseModel):
    prompt: str


def read_math(path: Path) -> list[Problem]:
    """A split's folder with a folder per subject (`MATH/train`), a JSON object in each file; or JSON lines. Both have
    `problem` and `solution`, whose last box is the answer. Ids are the places of files, or line numbers."""
    if not path.is_dir():
        return [_problem(path, place, place.removeprefix("line "), row) for place, row in placed_rows(path, _MathRow)]
    if (path / "train").is_dir() or (path / "test").is_dir():
        raise DatasetError(f"{path} holds both splits. Fix: name {path / 'train'} or {path / 'test'}")
    problems = []
    for file in sorted(path.glob("*/*.json"), key=lambda file: (file.parent.name, len(file.name), file.name)):
        with file.open("rb") as opened:
            data = opened.read(LONGEST_LINE + 1)
        if len(data) > LONGEST_LINE:
            raise DatasetError(f"{file}: longer than {LONGEST_LINE:,} bytes")
        row = checked(json_of(data, str(file)), _MathRow, str(file))
        problems.append(_problem(file, "", f"{path.name}/{file.parent.name}/{file.name}", row))
    return problems


def _problem(path: Path, place: str, name: str, row: _MathRow) -> Problem:
    gold = math_answer(row.solution)
    if gold is None:
        raise DatasetError(f"{path}{place and f', {place}'}, field solution: no \\boxed{{}} with an answer")
    return Problem(id=f"math/{name}", question=row.problem, domain="math", gold=gold)


MOST_SENTENCES = 400
"""Of a question that are looked at."""
LONGEST = 15
"""Sentences of a question of MATH-500, which has none with more."""
_SENTENCES = re.compile(
    r"""(?:(?<=[.?!:;])|(?<=[.?!:;][$)\]"'])|(?<=[.?!:;]\$\$)|(?<=[.?!:;]\\[\])])|(?<=\[/asy\]))\s+|\n+"""
)
_FIGURE = re.compile(r"\[asy\](?:(?!\[asy\]).)*?\[/asy\]", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(
    r"""</?(?:a|abbr|b|blockquote|br|code|div|em|font|h[1-6]|hr|i|li|mark|ol|p|pre|q|s|small|span|strong|sub|sup|table
    |tbody|td|th|tr|tt|u|ul)(?:\s++[\w-]++(?:\s*+=\s*+(?:"[^"<>]*+"|'[^'<>]*+'|[\w#%-]++))?+)*+\s*+/?>""",
    re.IGNORECASE | re.VERBOSE,
)
_MARKS = re.compile(r"\*{2,}+|(?<![^\s(])\*(?=[^\s*])|(?<=[^\s*])\*(?![^\s).,;:?!])")
"""Markdown's bold and italics; a star within what has no spaces stays."""
_BEFORE = re.compile(r"\s*+(?:[>#*•-]++\s++)*+(?:(?:\(\w{1,3}+\)|(?:\d{1,3}+|[ivx]{1,4}+|[a-z]|q\d{0,3}+)[.):])\s++)?")
"""How an item of a list or a heading begins."""
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"
_FRAC = re.compile(rf"\\[dt]?frac(?![a-z])\s*+({_GROUP}|[^\s{{}}\\])\s*+(?=(?:{_GROUP}|[^\s{{}}]))")
"""Up to what stands below."""
_NESTED = 4
"""Fractions within fractions that are read."""
_SETTING = (
    "left right big bigl bigr bigg biggl biggr quad qquad displaystyle textstyle limits text textbf textit mbox mathrm "
    "mathbf mathit rm bf it"
)
_MEANS = dict.fromkeys(_SETTING.split(), "") | {
    "dfrac": "frac", "tfrac": "frac", "leq": "le", "leqslant": "le", "geq": "ge", "geqslant": "ge", "neq": "ne",
    "over": "/", "lt": "<", "gt": ">", "degree": "circ", "lvert": "|", "rvert": "|", "vert": "|", "cdotp": "cdot",
}  # fmt: skip
"""Commands that only set what is said, and those that say what another one does."""
_SIGNS = {
    "≤": "le", "≥": "ge", "≠": "ne", "×": "times", "÷": "div", "·": "cdot", "⋅": "cdot", "√": "sqrt", "∞": "infty",
    "°": "circ", "−": "-", "–": "-", "‐": "-", "‒": "-", "∠": "angle", "△": "triangle",
}  # fmt: skip
_POWERS = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+|(?<=[\w)\]}])\*\*(?=[\w({\\+-])|<sup\b[^<>]*+>", re.IGNORECASE)
"""What is above something: it is not set beside it. Two stars between what has no spaces are a power, no bold word."""
_PRIMES = re.compile(r"\^\s*+\{?\s*+((?:\\prime\s*+)++)\}?|[’′]")
_OF_WORDS = re.compile(r"(?:(?<=[^\W\d_]{2})|(?<![\w)}\]!'])(?<!\\))[!']+")
"""Apostrophes, quotation marks and exclamation marks; what is behind a number, a bracket or a single letter is a prime
or a factorial."""


def in_math500(problems: Iterable[Problem]) -> list[Problem]:
    """Those whose question is in MATH-500 (`asked_in_math500`)."""
    return [problem for problem in problems if problem.domain == "math" and asked_in_math500(problem.question)]


def asked_in_math500(question: str) -> bool:
    """Whether a question stands in MATH-500, or holds one of its questions beside other sentences, however it is spaced
    and marked up. Other words are another question, and so is a sentence that begins or ends with words of others."""
    known = _digests()
    if digest(question) in known:
        return True
    whole = _FIGURE.sub(lambda figure: "".join(figure[0].split()), _unmarked(question))
    sentences = [_said(sentence) for sentence in _SENTENCES.split(whole)[:MOST_SENTENCES]]
    signs = [_signs(sentence) for sentence in sentences]  # once each: most of the time goes into them
    for start, sentence in enumerate(sentences):
        said = _signs(_numberless(sentence))
        for end in range(start + 1, min(start + LONGEST, len(sentences)) + 1):
            if _hashed(_unpointed(said)) in known:
                return True
            said += "".join(signs[end : end + 1])
    return False


def digest(question: str) -> str:
    """8 bytes of the normal form, as hexadecimal."""
    return _hashed(normal_form(question))


def _hashed(said: str) -> str:
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=8).hexdigest()


def normal_form(question: str) -> str:
    """Letters, digits and signs of a math question, equal for two that are the same however they are spaced and marked
    up: commands that only set them, tags, stars, a number before the question do not count, nor how a fraction or a
    power is written."""
    return _unpointed(_signs(_numberless(_said(question))))


def _said(text: str) -> str:
    """In small letters, without markup and what only marks words."""
    text = _unmarked(text).casefold().strip()
    return _OF_WORDS.sub("", _PRIMES.sub(lambda prime: "'" * (prime[0].count("prime") or 1), text))


def _numberless(text: str) -> str:
    begins = _BEFORE.match(text)
    return text[begins.end() :] if begins else text


def _signs(text: str) -> str:
    """Letters, digits and signs alone."""
    text = re.sub(r"\\[hv]space\*?\{[^{}]*+\}|\\[()\[\],:;! ]", "", text)
    for _ in range(_NESTED):
        text, found = _FRAC.subn(r"\1/", text)
        if not found:
            break
    text = re.sub(r"\\([a-z]+)", lambda command: _MEANS.get(command[1], command[1]), text)
    if not text.isascii():
        text = "".join(_SIGNS.get(sign) or _greek(sign) for sign in text)
    return re.sub(r"[^\w+*/^=<>|().,!'-]|_", "", text)


def _unpointed(signs: str) -> str:
    """Without the points and commas that are not a number's."""
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))|(?<!\d)[.,]|[.,](?!\d)", "", signs)


def _unmarked(question: str) -> str:
    """Without tags and Markdown, its signs as most write them."""
    text = _POWERS.sub(lambda power: "^" + power[0].strip("*") * (power[0][0] != "<"), html.unescape(question))
    return _MARKS.sub("", _TAG.sub(" ", unicodedata.normalize("NFKC", text)))


def _greek(sign: str) -> str:
    """A Greek letter as its command is called."""
    if sign.isascii():
        return sign
    name = unicodedata.name(sign, "")
    return name.rpartition(" ")[2].lower() if name.startswith("GREEK SMALL LETTER ") else sign


@cache
def _digests() -> frozenset[str]:
    lines = DIGESTS.read_text(encoding="ascii").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def write_digests(math500: Path) -> None:
    """Make `DIGESTS` of the file."""
    lines = sorted({digest(row.prompt) for row in rows(math500, _Math500Row)})
    DIGESTS.write_text("\n".join(["# Of MATH-500's questions; see tasks.data.math_files", *lines]) + "\n", "ascii")
