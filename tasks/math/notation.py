r"""Signs of keyboards and print in the LaTeX that is read: `2**10`, `½`, `3√13`, `ln 2`, `{10 \choose 2}`, `0.1666...`.

Pure functions over text. Not here: blanks, wraps and numbers with separators (`tasks.math.formulas`).
"""

from __future__ import annotations

import re

_FRACTIONS = {"½": "12", "⅓": "13", "⅔": "23", "¼": "14", "¾": "34", "⅕": "15", "⅖": "25", "⅗": "35", "⅘": "45"}
_FRACTIONS |= {"⅙": "16", "⅚": "56", "⅐": "17", "⅛": "18", "⅜": "38", "⅝": "58", "⅞": "78", "⅑": "19"}
_FRACTION = re.compile(rf"(?:(?<=\d) )?([{''.join(_FRACTIONS)}])")
_ROOT = re.compile(r"([√∛]) ?(?:(\d++(?:\.\d++)?)|\(([^()]{1,80})\)|([A-Za-z](?![A-Za-z])))")
_POWER = re.compile(
    r"(?:(?<=[\d)\]}]) ?|(?<=[A-Za-z]))\*\* ?(?:\( ?([^()]{1,40}) ?\)|(-?\d++(?:\.\d++)?|[A-Za-z](?![A-Za-z]))|(?=\{))"
)
_CHOOSE = re.compile(
    r"\{ ?([^{}\\]{1,40})\\choose(?![A-Za-z]) ?([^{}\\]{1,40})\}|^([^{}\\]{1,40})\\choose ?([^{}\\]{1,40})$"
)
_FUNCTION = re.compile(
    r"(?<![\\A-Za-z])(?<!text\{)(?<!mathrm\{)(?<!operatorname\{)"
    r"(ln|log|sin|cos|tan|cot|(?<!\d )sec|csc|arcsin|arccos|arctan)(?= ?[\d(\\{^_]| [A-Za-z](?![A-Za-z]))"
)
_COLON = re.compile(r"(?:\\(?:text|math(?:rm|bin|punct|rel|ord)) ?|(?<!\\))\{ ?: ?\}")
_GROUPS = re.compile(r"(?<=\d),\\! ?(?=\d{3}(?!\d))")
_DOTS = re.compile(r"(?<![\d.])(\d{0,20})\.(\d{3,40}) ?(?:\.\.\.|…|\\(?:ldots|dots|cdots)(?![A-Za-z]))(?!\d)")
_BLANK_TEXT = re.compile(r"\\(?:text|mbox) ?\{ *\}")
_COINS = {"€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee", "EUR": "euro", "GBP": "sterling", "JPY": "yen"}
_AMOUNT = r"(-?\d++(?:[.,]\d++)*+(?: (?:hundred|thousand|million|billion|trillion)\b)?)"
_COIN_BEFORE = re.compile(rf"(?:([€£¥₹])|(?:\\text ?\{{ ?)?\b(USD|EUR|GBP|JPY|US ?\\?\$)(?: ?\}})?) ?{_AMOUNT}")
_COIN_BEHIND = re.compile(rf"(?<![\d.,]){_AMOUNT} ?([€£¥₹])")
_WORDS_BEHIND = re.compile(r"\$([^$]{1,200})\$ ?([A-Za-z][A-Za-z ]{0,80})\.?")
_WORDS_BEFORE = re.compile(r"([A-Za-z][A-Za-z ]{0,80}:?) \$([^$]{1,200})\$\.?")


def rewritten(formula: str) -> str:
    """The formula in LaTeX, with the same meaning; `formula` has single blanks."""
    formula = _around_mathematics(formula)
    formula = _FRACTION.sub(lambda match: rf"\frac{{{_FRACTIONS[match[1]][0]}}}{{{_FRACTIONS[match[1]][1]}}}", formula)
    formula = _ROOT.sub(_root, formula)
    formula = _POWER.sub(lambda match: "^{" + (match[1] or match[2]) + "}" if match[1] or match[2] else "^", formula)
    formula = _CHOOSE.sub(_binomial, formula)
    formula = _FUNCTION.sub(r"\\\1", formula)
    formula = re.sub(r"\\not ?=", r"\\neq ", re.sub(r"\\not ?\\in(?![A-Za-z])", r"\\notin ", formula))
    formula = _GROUPS.sub(",", _COLON.sub(":", _BLANK_TEXT.sub(" ", formula)))
    formula = _COIN_BEFORE.sub(lambda m: rf"{m[3]} \text{{ {_COINS.get(m[1] or m[2], 'dollar')}}}", formula)
    formula = _COIN_BEHIND.sub(lambda m: rf"{m[1]} \text{{ {_COINS[m[2]]}}}", formula)
    return _DOTS.sub(_repeating, formula)


def _around_mathematics(formula: str) -> str:
    """`$13$ inches` and `The total is $13$.` without their signs; other mixtures stay as they are."""
    behind = _WORDS_BEHIND.fullmatch(formula)
    if behind:
        return rf"{behind[1]} \text{{ {behind[2]}}}"
    before = _WORDS_BEFORE.fullmatch(formula)
    return f"{before[1]} {before[2]}" if before else formula


def _root(match: re.Match[str]) -> str:
    return (r"\sqrt[3]{" if match[1] == "∛" else r"\sqrt{") + (match[2] or match[3] or match[4]) + "}"


def _binomial(match: re.Match[str]) -> str:
    above, below = (match[1], match[2]) if match[1] else (match[3], match[4])
    return rf"{{\binom{{{above.strip()}}}{{{below.strip()}}}}}"


def _repeating(match: re.Match[str]) -> str:
    r"""A decimal that goes on, as one with `\overline` where its last digits show what repeats."""
    whole, digits = match[1], match[2]
    for length in range(1, len(digits) // 2 + 1):
        again = digits[-length:]
        if digits.endswith(again * (3 if length == 1 else 2)):
            while digits.endswith(again):
                digits = digits[:-length]
            return rf"{whole or 0}.{digits}\overline{{{again}}}"
    return match[0]
