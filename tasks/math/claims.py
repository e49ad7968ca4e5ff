r"""What an answer claims, apart from its value: what is said before it, options with their text, lists of letters,
numerals with a base, words that deny or hedge.

Pure functions over tidied text (`tasks.math.formulas`).
"""

from __future__ import annotations

import re

from tasks.math.formulas import TEXT, split_top, untext

_WORDS = re.compile(r"\(? ?([A-Za-z](?:[A-Za-z '’-]*[A-Za-z'’-])?) ?\)?")
_SHORT_WORDS = {
    "no",
    "yes",
    "odd",
    "even",
    "red",
    "one",
    "two",
    "six",
    "ten",
    "none",
    "true",
    "dne",
    "sum",
    "and",
    "not",
}
_ASKED = (
    "answer|result|value|solution|total|sum|probability|area|number|number of ways|remainder|quotient|product|"
    "difference|price|(?:total )?cost|amount|distance|speed|length|width|height|perimeter|volume|radius|angle|"
    "total (?:price|amount|number|distance|area|length|time)|count|average|mean|median|ratio|minimum|maximum"
)
_LEAD = re.compile(
    r"(?:\\text ?\{)? ?"
    r"(?:(?:so|thus|hence|therefore|answer|final answer|(?:the )?(?:final |correct |exact |required )?"
    rf"(?:{_ASKED})(?: is| ?:|(?= ?\}}? ?[=:]))|there (?:are|is)|"
    r"it is|(?:is )?equal(?:s| to)|ans|is|about|approximately|roughly|exactly|approx)(?:\b|(?<=:))"
    r"[.,:]? ?)+[:,]? ?\}? ?[:=]? ?",
    re.IGNORECASE,
)
_LEAD_SIGN = re.compile(r"(?:=|\\(?:approx|simeq|sim|doteq|therefore)(?![A-Za-z])|:) ?")
_AROUND = re.compile(r" ?\(? ?\\?(?:text ?\{)? ?\(? ?(?:approximately|approx\.?|exactly|rounded|exact) ?\)? ?\}? ?\)?$")
_DENY = re.compile(
    r"\b(?:not|no|wrong|incorrect|cannot|can['’]?t|never|false|nor|neither|impossible|invalid|n['’]t|isn['’]?t|"
    r"don['’]?t|doesn['’]?t|won['’]?t|fails?|failed|unless|except|maybe|perhaps|possibly|probably|unsure|guess|unknown|"
    r"or|at least|at most|(?<!\d )(?:more|less|fewer)|(?:more|less|fewer)(?! (?!than\b)[a-z]{3})|between|rejected|"
    r"extraneous|mistake|error|instead|should)\b",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"(?:option|choice|answer|alternative)? ?:? ?"
    r"(?:\( ?([A-J]) ?\) ?[.:]?|([A-J]) ?(?:[.):]|\)|(?=$))) ?(.*)",
    re.DOTALL | re.IGNORECASE,
)
_LETTER = re.compile(r"\(?([A-Z])\)?")
_BASED = re.compile(
    r"\(? ?(\d[0-9A-Fa-f]*) ?\)? ?_ ?(?:\{ ?(?:\\text ?\{)? ?([A-Za-z0-9]+(?: [A-Za-z0-9]+)?) ?\}? ?\}|(\d+))"
)
_IN_BASE = re.compile(r"(\d[0-9A-Fa-f]*) ?\(? ?(?:in |to )?base[ -]?(\d+|[a-z]+) ?\)?")
_MODULUS = re.compile(
    r" ?(?:\\pmod|\\bmod|\\mod|\\text ?\{ ?\(?mod(?: ?\})?|\(?(?:\\text ?\{ ?)?\\?mod\b ?\}?)"
    r" ?\{? ?([\w\d]+) ?\}?(?:[)} ]|\\text ?\{ ?\) ?\})*+$"
)
_NUMERALS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_HALF_DAY = re.compile(r" ?(?:\\(?:text|mathrm) ?\{)? ?\b([ap])\.?\s?m\b\.? ?\}?$", re.IGNORECASE)


def plain(formula: str) -> str:
    """As people would read it aloud: without text commands, case and parentheses around a word."""
    text = " ".join(untext(formula).split()).lower().rstrip(" .")
    text = re.sub(r"^(no [a-z ]*[a-z])s$", r"\1", text)
    text = re.sub(r"^(?:an?|the) (?=[a-z])", "", text)
    word = _WORDS.fullmatch(text)
    return word[1] if word else text


def is_words(formula: str) -> bool:
    r"""Words that are to be compared as words: in `\text`, or plain English rather than variables in a row."""
    if TEXT.fullmatch(formula):
        return _WORDS.fullmatch(plain(formula)) is not None
    if not _WORDS.fullmatch(formula):
        return False
    words = re.findall(r"[A-Za-z]+", formula)
    return any(
        word.lower() in _SHORT_WORDS or (len(word) > 3 and not word.isupper() and re.search("[aeiouy]", word.lower()))
        for word in words
    )


def without_lead(answer: str) -> str:
    r"""Without `The answer is`, `=` or `\approx` before the value, and `(approximately)` behind it."""
    for _ in range(3):
        lead = _LEAD.match(answer)
        if lead and lead.end() < len(answer):
            rest = answer[lead.end() :]
            if lead[0].count("{") > lead[0].count("}"):  # the value stands in the same \text
                head, closing, tail = rest.partition("}")
                rest = head + " " + tail if closing else rest
            answer = rest.strip()
        answer = _LEAD_SIGN.sub("", answer, count=1).strip() if _LEAD_SIGN.match(answer) else answer
    return _AROUND.sub("", answer)


def denies(gold: str, answer: str) -> bool:
    """Does a word take back or soften what the answer says, that the gold does not have, too?"""
    said = {match[0].lower() for match in _DENY.finditer(untext(answer))}
    return bool(said - {match[0].lower() for match in _DENY.finditer(untext(gold))})


def option(formula: str) -> tuple[str, str] | None:
    """The letter of an option and its text: `(B) 12` is `("B", "12")`. None where no letter stands first."""
    formula = re.sub(r"\\(?:quad|qquad)(?![A-Za-z])|\\[ ,;:!]", " ", formula).strip()
    text = " ".join(re.sub(r"^" + TEXT.pattern, r" \1 ", formula).split())
    found = _OPTION.fullmatch(text)
    if found is None:
        return None
    letter, rest = found[1] or found[2], found[3].strip()
    if not letter.isupper() or re.match(r"[,;&]|(?:\\text ?\{ ?)?(?:or|and)\b", rest):
        return None
    return letter, rest


def letters(formula: str, alone: bool = False) -> tuple[list[str], str] | None:
    r"""Capital letters in a row, and how they stand: `run` (`BADC`), `list` (`B, A` or `A \text{ and } C`), `set`.

    None where anything else is there, or one letter alone unless `alone`.
    """
    text = " ".join(untext(formula).replace("$", " ").split())
    inner = re.fullmatch(r"(?:\\left ?)?\\\{(.*?)(?:\\right ?)?\\\}", text, re.DOTALL)
    text = (inner[1] if inner else text).strip()
    if re.fullmatch(r"[A-Z](?: ?[A-Z])*", text):
        found, form = re.findall("[A-Z]", text), "run"
    else:
        parts = [part for part in re.split(r" ?(?:,|;|&|\band\b) ?", text) if part]
        matches = [_LETTER.fullmatch(part) for part in parts]
        if not parts or not all(matches):
            return None
        found, form = [match[1] for match in matches if match], "list"
    return (found, "set" if inner else form) if len(found) > 1 or alone or inner else None


def same_letters(gold: tuple[list[str], str], answer: tuple[list[str], str]) -> bool:
    """Lists are sets where the gold is one, or is written in the order of the alphabet; else their order counts."""
    if gold[1] == "set" or (gold[1] == "list" and gold[0] == sorted(gold[0])):
        return sorted(gold[0]) == sorted(answer[0])
    return gold[0] == answer[0]


def words_in_list(formula: str) -> list[str] | None:
    r"""`red, blue \text{ and } green`: the words, or None where it is no list of words."""
    parts = [part.strip() for part in re.split(r" ?(?:,|;|\band\b) ?", untext(formula)) if part.strip()]
    return sorted(map(plain, parts)) if len(parts) > 1 and all(map(is_words, parts)) else None


def based(formula: str) -> tuple[str, int] | None:
    r"""Digits and base of a numeral that names its base: `2013_{\text{four}}` is `("2013", 4)`."""
    found = _BASED.fullmatch(formula) or _IN_BASE.fullmatch(untext(formula))
    if found is None:
        return None
    name = (found[2] or found[3] if found.re is _BASED else found[2]).strip().lower().removeprefix("base").strip()
    base = int(name) if name.isdecimal() else _NUMERALS.index(name) + 2 if name in _NUMERALS else 0
    return (found[1].lstrip("0").upper() or "0", base) if base else None


def modulus(formula: str) -> tuple[str, str]:
    r"""What is said to hold modulo a number, and that number: `n \equiv 1 \pmod 3` is `("n = 1", "3")`."""
    found = _MODULUS.search(formula)
    if found is None or not found.start():
        return formula, ""
    return formula[: found.start()].replace(r"\equiv", "=").strip(), found[1]


def half_day(formula: str) -> tuple[str, str]:
    """A time of day without its `a.m.` or `p.m.`, and which of them stood there, `a`, `p` or nothing."""
    found = _HALF_DAY.search(formula)
    return (formula[: found.start()], found[1].lower()) if found and ":" in formula else (formula, "")


def colon_sides(formula: str) -> list[str]:
    """What stands on both sides of the colons of a ratio or a time; the whole formula where a colon means something
    else, as in a set."""
    sides = [re.sub(r"\\[!,;]|\s", "", side) for side in formula.split(":")]
    is_ratio = "\\{" not in formula and "|" not in formula and all(re.search("[0-9]", side) for side in sides)
    return sides if is_ratio else [formula]


def equal_sides(formula: str) -> list[str]:
    """The sides of a chain of equalities, the whole formula where there is none or where it is a list or a set."""
    if len(split_top(formula, (",", ";", r"\cup", r"\text"))) > 1 and "=" in formula and _is_list(formula):
        return [formula]
    return split_top(formula, ("=", r"\approx", r"\simeq"))


def _is_list(formula: str) -> bool:
    return len(split_top(formula, (",", ";"))) > 1 or re.search(r"\b(?:or|and)\b", formula) is not None
