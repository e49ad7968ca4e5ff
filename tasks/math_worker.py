r"""Compare final math answers with golds by math-verify. Runs only inside killable jailed forks (`tasks.math`).

math-verify's own timeouts use SIGALRM and are switched off: the fork is killed from outside. Each side is given to
it as one LaTeX formula in `\boxed{}`, read whole or not at all, so that it never picks a number out of prose.

What this file adds, where math-verify 0.9 alone would be wrong:

- a gold that is a word (`\text{east}`) is compared as a word, not as a product of variables;
- the base of a numeral (`52_8`), which math-verify drops, must agree where both name one;
- `10\%` is 0.1, and equals gold 10 only where the question asks for percent;
- units are dropped where they are written as text or as words (`5 \text{ cm}^2`, `5 dollars`, `5 cm`); a single bare
  letter is a variable, so that gold `2m` is not 2 and gold 3 is not `3t`, unless the gold has a unit in text;
- below 1, decimals are compared to six significant digits, not to six places (`.0000672` is not `.0000673`);
- `5.`, `5 000` and Unicode signs are read as people mean them.

What remains: gold `x=5` accepts `5`, gold 1 accepts `9=1` (the last side counts); case does not distinguish
variables; `3 \text{ cm}` equals `3 \text{ m}`; gold `10\%` accepts 10 and 0.1; any equal form is accepted, simplified
or not; `1e5` is read as a product; 0.333333 equals 1/3 and 0.333 does not.
"""

from __future__ import annotations

import logging
import math
import re
from typing import Any, Literal

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from pydantic import JsonValue

Verdict = Literal["correct", "wrong", "gold_unparseable"]

PLACES = 6
"""Decimal places (significant digits, below 1) to which numbers are compared where one is a decimal fraction."""

LONGEST = 2000
"""Characters of an answer beyond which it is wrong unread: such answers are runaway text, and parsing takes seconds."""

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own timeouts are off

_READING = LatexExtractionConfig(
    try_extract_without_anchor=False,
    boxed_match_priority=0,
    normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="last"),
)
_SIGNS = str.maketrans(
    {"−": "-", "–": "-", "π": r"\pi ", "°": r"^\circ ", "∞": r"\infty ", "×": r"\times ", "·": r"\cdot ", "÷": "/"}
    | {"≤": r"\le ", "≥": r"\ge ", "√": r"\sqrt ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm "}
)
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mbox|mathrm|mathbf)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"\(?\s*([A-Za-z][A-Za-z '’-]*?)\s*\)?")
_SPACED_DIGITS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:[ ~]|\\[,;:! ])+\d{3})+(?![\d.])")
_TEXT_UNIT = re.compile(r"(?<=[^\s])\s*" + _TEXT.pattern + r"(?:\^\{?\d\}?)?$")
_NUMBER = r"(?:\\?\$)?\s*-?\d[\d,]*(?:\.\d+)?"
_SHORT_UNITS = "cm|mm|km|kg|mg|ml|ft|in|mi|lb|lbs|oz|hr|hrs|sq"
_WORD_UNIT = re.compile(rf"({_NUMBER})\s*(?:(?:\b[A-Za-z]{{3,}}|{_SHORT_UNITS})\b[\s/-]*)+(?:\^\{{?\d\}}?)?$")
_LETTER_UNIT = re.compile(rf"({_NUMBER})\s*[A-Za-z]$")
_PERCENT = re.compile(r"\s*(?:\\?%|\bpercent\b)")
_BASED = re.compile(r"(\d[0-9A-Fa-f]*)\s*_\s*\{?\s*(\d+)\s*\}?")
_MAGNITUDE = re.compile(r"(?:hundred|thousand|million|billion|trillion|dozen)", re.IGNORECASE)


def verify_batch(payload: JsonValue) -> JsonValue:
    """`[{"gold": str, "answer": str, "percent": bool}, ...]` in, `[verdict, detail]` for each out.

    A pair on which the comparison itself raises gives `failed` and what was raised; the others are not touched.
    """
    if not isinstance(payload, list):
        raise TypeError(f"expected a list of pairs, got {type(payload).__name__}")
    return [_compare_pair(pair) for pair in payload]


def _compare_pair(pair: Any) -> JsonValue:
    try:
        return [compare(pair["gold"], pair["answer"], percent=pair["percent"]), ""]
    except MemoryError:  # the fork has hit its limit, and says so
        raise
    except Exception as error:
        return ["failed", f"{type(error).__name__}: {error}"[:300]]


def warm() -> None:
    """Fill the parser's caches, before the process is forked."""
    for sample in (r"\frac{1}{2}", r"\left(3, \frac{\pi}{2}\right)", "x=5", "[1,2)", r"2\sqrt{13}", "1,2", "0.5"):
        compare_values(sample, sample)
        compare_values(sample, "7")


def compare(gold: str, answer: str, percent: bool = False) -> Verdict:
    """Is `answer` what `gold` says? `percent` tells that the question asks for a number of percent."""
    if len(answer) > LONGEST and answer != gold:
        return "wrong"
    gold, answer = _tidy(gold), _tidy(answer)
    if gold and _plain(gold) == _plain(answer):
        return "correct"
    if _TEXT.fullmatch(gold) and _WORDS.fullmatch(_plain(gold)):
        return "wrong"
    return compare_values(gold, answer, percent)


def compare_values(gold: str, answer: str, percent: bool = False) -> Verdict:
    """`compare` without its textual shortcuts: both sides are read as formulas by math-verify."""
    if _MAGNITUDE.search(answer) and not _MAGNITUDE.search(gold):
        return "wrong"
    gold_base, answer_base = _BASED.fullmatch(gold), _BASED.fullmatch(answer)
    if gold_base and answer_base and int(gold_base[2]) != int(answer_base[2]):
        return "wrong"
    if _PERCENT.search(answer) and not _PERCENT.search(gold):
        answer = _PERCENT.sub("", answer)
        answer = answer if percent else rf"\frac{{{answer}}}{{100}}"
    letters_are_units = _TEXT_UNIT.search(gold) is not None
    read_gold = _read(_drop_units(gold, letters=False))
    if all(isinstance(form, str) for form in read_gold):
        return "gold_unparseable"
    read_answer = _read(_drop_units(answer, letters=letters_are_units))
    same = verify(read_gold, read_answer, float_rounding=_places(read_gold[0]), timeout_seconds=0)
    return "correct" if same else "wrong"


def _read(formula: str) -> list[Any]:
    """math-verify's reading: `[expression, normalized text]`, or `[text]` or `[]` where it cannot parse."""
    if not _balanced(formula):
        return []
    return parse(
        rf"\boxed{{{formula}}}", extraction_config=[_READING], extraction_mode="first_match", parsing_timeout=0
    )


def _balanced(formula: str) -> bool:
    depth = 0
    for sign in re.findall(r"\\.|[{}]", formula, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            return False
    return depth == 0


def _tidy(formula: str) -> str:
    formula = re.sub(r"^\$+(.*?)\$+$", r"\1", formula.translate(_SIGNS).strip(), flags=re.DOTALL).strip()
    while formula.startswith("{") and formula.endswith("}") and _balanced(formula[1:-1]):
        formula = formula[1:-1].strip()
    formula = re.sub(r"(?<=[\w})\]])\s*\.$", "", formula)
    formula = re.sub(r"^(-?\d+)\s+(\d+)\s*/\s*(\d+)$", r"\1\\frac{\2}{\3}", formula)
    formula = re.sub(r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi", formula)
    return _SPACED_DIGITS.sub(lambda match: re.sub(r"\D", "", match[0]), formula)


def _plain(formula: str) -> str:
    """As people would read it aloud: without text commands, case and parentheses around a word."""
    plain = " ".join(_TEXT.sub(r"\1", formula).split()).lower().rstrip(" .")
    word = _WORDS.fullmatch(plain)
    return word[1] if word else plain


def _drop_units(formula: str, letters: bool) -> str:
    formula = _TEXT_UNIT.sub("", formula)
    if not _PERCENT.search(formula):
        formula = _WORD_UNIT.sub(r"\1", formula)
    return _LETTER_UNIT.sub(r"\1", formula) if letters else formula


def _places(gold: Any) -> int:
    if not isinstance(gold, sympy.Number) or not gold.is_finite or not 0 < abs(gold) < 1:
        return PLACES
    return PLACES - 1 + math.ceil(-math.log10(abs(float(gold))))
