r"""What stands beside an answer and does not change it: for which `x` it holds, its decimal value, a rejected root.

A remark is taken off only where it takes nothing back. Pure functions over tidied text (`tasks.math.formulas`).
"""

from __future__ import annotations

import re
from decimal import Decimal

from tasks.math.formulas import untext

_LETTERS = r"[A-Za-z](?: ?, ?[A-Za-z]){0,3}"
_COUNTERS = r"[ijkmn](?: ?, ?[ijkmn]){0,3}"
_FOR_ALL = re.compile(
    r"[,;]? ?\(? ?(?:\bfor (?:all|any|every|each)|\\forall(?![A-Za-z])) ?(?:"
    rf"(?:(?:real|arbitrary|constant) )*(?:numbers?|reals?|values? of|constants?)? ?{_LETTERS}"
    r"(?: ?\\in ?\\mathbb ?\{? ?[RC] ?\}?)?"
    rf"|(?:(?:positive|non-?negative) )?(?:integers?|natural numbers?) {_COUNTERS}"
    rf"|{_COUNTERS} ?\\in ?\\mathbb ?\{{? ?[NZ] ?\}}?) ?\)?$"
)
_CONSTANT = re.compile(
    r"[,;]? ?\(? ?\b(?:where|with|for) (?:some |any )?(?:"
    rf"{_LETTERS} (?:is|are|being) (?:an? |any )?(?:(?:real|arbitrary) )*(?:constants?|real numbers?|reals?)"
    r"|(?:(?:real|arbitrary) )*(?:constants?|real numbers?) [A-Za-z]"
    r"|[A-Za-z] ?\\in ?\\mathbb ?\{? ?R ?\}?) ?\)?$"
)
_DECIMAL = re.compile(
    r"^(.*[^\s(,;=]) ?(?:\\text ?\{ ?)?\( ?(?:\\approx|(?:\\text ?\{ ?)?(?:approximately|approx\.?|about)(?: ?\})?)"
    r" ?(-?\d++(?:\.\d++)?(?: ?\\?%)?) ?(?:\\text ?\{ ?)?\) ?\}?$"
)
_REJECTED = re.compile(
    r"[,;]? ?\(? ?\b(?:rejecting|discarding|rejected|discarded)\b:? ?(?:[A-Za-z] ?= ?)?([-+\d\\][^()=,]*+) ?\)?$"
)


def without_domain(formula: str) -> str:
    r"""Without `\text{ for all } x` and `\text{ where } c \text{ is a constant}`; what restricts (`x > 3`) stays."""
    if "=" not in formula:
        return formula
    text = untext(formula)
    found = _FOR_ALL.search(text) or _CONSTANT.search(text)
    return text[: found.start()].rstrip("\\ ") if found and "=" in text[: found.start()] else formula


def with_decimal(formula: str) -> str:
    r"""`\frac{2}{3} (\approx 0.667)` as a chain of two sides, which have to agree."""
    found = _DECIMAL.fullmatch(formula)
    if not found:
        return formula
    number, is_percent = found[2].rstrip("\\% "), found[2].endswith("%")
    return rf"{found[1]} \approx {Decimal(number).scaleb(-2) if is_percent else number}"


def rejected(formula: str) -> tuple[str, str]:
    r"""`x = 7 \text{ (rejecting } x = -2)` without the remark, and what is rejected."""
    text = untext(formula)
    found = _REJECTED.search(text)
    return (text[: found.start()].strip(), found[1].strip()) if found and found.start() else (formula, "")
