r"""Compare final math answers with golds. Runs only inside killable jailed forks (`tasks.math.math_grader`).

Each side is read whole or not at all, so that no number is picked out of prose; math-verify does the reading and most
of the comparing (`tasks.math.values`). In this file stands which comparison a gold calls for:

- a gold that cannot be read is `gold_unparseable`, whatever the answer is, its own text included;
- words (`\text{east}`) are compared as words, option letters as letters, with or without the option's text (`(B) 12`);
- letters in a row (`BADC`) have an order, letters in a list or in braces have none;
- numerals with a base (`52_8`) have the gold's digits and, where both name one, its base; else base 10 is meant;
- units that are known on both sides must measure the same and are converted; others are dropped, and a single bare
  letter is a variable;
- `10\%` is 0.1, and equals gold 10 only where the question asks for percent;
- the sides of a colon are compared one by one;
- sides of an equality that are constants must agree (`7 \cdot 9 = 56` is no answer); a name before it is no value;
- an answer with words that deny or hedge (`not 7`, `3 or 4`) is wrong.

What remains: gold `x=5` accepts `5`; case does not distinguish variables; gold `10\%` accepts 10 and 0.1; any equal
form is accepted, simplified or not; 0.333333 equals 1/3 and 0.333 does not; a base that only the question names is not
known here.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Literal

import sympy
from pydantic import JsonValue

from tasks.math import claims, units, values
from tasks.math.formulas import TEXT, split_top, tidy, untext

Verdict = Literal["correct", "wrong", "gold_unparseable"]

LONGEST = 2000
"""Characters of an answer beyond which it is wrong unread: such answers are runaway text, and parsing takes seconds."""

_PERCENT = re.compile(r"(?<!\s) ?\\?%")
_NAME = re.compile(r"(?:\\(?!frac|dfrac|tfrac|sqrt|pi)|[A-Za-z|'^_{}(),. ]|(?<=[_{(,])-?\d++)*+")


_VARIABLES = re.compile(r"[A-Za-z](?:_\d)?|(?:\\left ?)?\( ?[A-Za-z](?: ?, ?[A-Za-z]){1,5} ?(?:\\right ?)?\)")


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
    for sample in (
        r"\frac{1}{2}",
        r"\left(3, \frac{\pi}{2}\right)",
        "x=5",
        "[1,2)",
        r"2\sqrt{13}",
        "1,2",
        "0.5",
        "1+i",
    ):
        compare(sample, sample)
        compare(sample, "7")


def compare(gold: str, answer: str, percent: bool = False) -> Verdict:
    """Is `answer` what `gold` says? `percent` tells that the question asks for a number of percent."""
    if len(gold) > LONGEST:
        return "gold_unparseable"
    gold = tidy(gold)
    if not is_readable(gold):
        return "gold_unparseable"
    if len(answer) > LONGEST:
        return "wrong"
    answer = tidy(answer)
    if any(sign.isdecimal() and not sign.isascii() for sign in answer):
        return "wrong"
    same = bool(answer) and (gold == answer or _same(gold, answer, percent))
    return "correct" if same else "wrong"


def compare_values(gold: str, answer: str) -> Verdict:
    """`compare` without its shortcut for equal text: does the comparison that the gold calls for say so, too?"""
    gold, answer = tidy(gold), tidy(answer)
    if not is_readable(gold):
        return "gold_unparseable"
    return "correct" if _same(gold, answer, False, by_text=False) else "wrong"


def is_readable(gold: str) -> bool:
    """Can answers be compared with this (tidied) gold, or with its own text only?"""
    if not gold:
        return False
    if claims.is_words(gold) or claims.words_in_list(gold) or claims.letters(gold, alone=True) or claims.based(gold):
        return True
    parts = claims.option(gold)
    if parts is not None:
        return not parts[1] or is_readable(parts[1])
    gold = claims.modulus(claims.without_lead(claims.half_day(gold)[0]))[0]
    sides = claims.colon_sides(gold)
    if len(sides) == 1:
        sides = [claims.equal_sides(gold)[-1]] if _is_name(claims.equal_sides(gold)[0]) else [gold]
    return all(_is_formula(side) for side in sides)


def _is_formula(formula: str) -> bool:
    value = units.split_unit(formula, letters=False)[0]
    prose = re.sub(r"\b(?:or|and)\b", " ", " ".join(TEXT.findall(value)))
    return re.search(r"[A-Za-z]{2}", prose) is None and values.read(value) is not None


def _same(gold: str, answer: str, percent: bool, by_text: bool = True) -> bool:
    if by_text and claims.plain(gold) == claims.plain(answer):
        return True
    listed = claims.letters(gold, alone=True)
    if listed and (len(listed[0]) > 1 or listed[1] == "set"):
        found = claims.letters(answer, alone=True)
        return found is not None and claims.same_letters(listed, found)
    golden, chosen = claims.option(gold), claims.option(answer)
    if golden is not None:
        return _same_option(golden, chosen, claims.without_lead(answer), percent)
    if claims.is_words(gold):
        return claims.plain(gold) == claims.plain(claims.without_lead(answer))
    words = claims.words_in_list(gold)
    if words is not None:
        return words == claims.words_in_list(answer)
    if claims.denies(_connected(gold), _connected(answer)):
        return False
    if chosen is not None and chosen[1] and chosen[0] not in re.findall("[A-Za-z]+", gold):
        answer = chosen[1]
    gold, answer = claims.without_lead(gold), claims.without_lead(answer)
    if claims.based(gold) or claims.based(answer):
        return _same_numeral(gold, answer)
    return _same_sides(gold, answer, percent)


def _connected(formula: str) -> str:
    """Without the words that join two values."""
    text = untext(formula)
    return re.sub(r"(?<=[\d\w})\]]) ?,? ?\b(?:or|and)\b(?= ?[-\\\dA-Za-z(])", " , ", text)


def _same_option(gold: tuple[str, str], chosen: tuple[str, str] | None, answer: str, percent: bool) -> bool:
    if chosen is None:
        chosen = claims.option(answer)
    if chosen is None:
        return bool(gold[1]) and compare(gold[1], answer, percent) == "correct"
    taken_back = claims.denies(gold[1], chosen[1]) and not chosen[1].lower().endswith("these")  # none of these
    if chosen[0] != gold[0] or taken_back:
        return False
    return not gold[1] or not chosen[1] or compare(gold[1], chosen[1], percent) == "correct"


def _same_numeral(gold: str, answer: str) -> bool:
    golden, found = claims.based(gold), claims.based(answer)
    if golden is None:
        return found is not None and found[1] == 10 and _same_sides(gold, found[0], False)
    if found is not None:
        return golden == found
    name, *rest = claims.equal_sides(answer)
    if rest:
        return _is_name(name) and _same_numeral(gold, rest[-1])
    return re.sub(r"[\s,]", "", answer).lstrip("0").upper() == golden[0]


def _same_sides(gold: str, answer: str, percent: bool) -> bool:
    """Ratios and times side by side, all else as one formula."""
    (gold, gold_half), (answer, answer_half) = claims.half_day(gold), claims.half_day(answer)
    if gold_half and answer_half and gold_half != answer_half:
        return False
    golds = claims.colon_sides(gold)
    if len(golds) > 1:
        answer = re.sub(r" ?(?:\\text ?\{ ?to ?\}|\bto\b) ?", ":", answer)
    answers = claims.colon_sides(answer)
    if len(golds) > 1 or len(answers) > 1:
        pairs = zip(golds, answers, strict=False)
        return len(golds) == len(answers) and all(_same_formula(one, other, False) for one, other in pairs)
    return _same_formula(gold, answer, percent)


def _same_formula(gold: str, answer: str, percent: bool) -> bool:
    """Equations and chains of them, each side a quantity. A modulus need not be repeated, but must not be another."""
    (gold, modulus), (answer, other) = claims.modulus(gold), claims.modulus(answer)
    if modulus and other not in ("", modulus):
        return False
    gold, answer = _without_list_name(gold), _without_list_name(answer)
    golds, answers = claims.equal_sides(gold), claims.equal_sides(answer)
    if any(_contradicts(part) for part in split_top(answer, (",", ";"))):
        return False
    named = _components(answer)
    if named and re.fullmatch(r"(?:\\left ?)?\(.*\)", gold):
        return _same_quantity(gold, f"({', '.join(named)})", False)
    if len(answers) == 1:
        return _same_quantity(golds[-1] if len(golds) > 1 and _is_name(golds[0]) else gold, answer, percent)
    if len(golds) == 1:
        is_equation = answers[-1] == "0" and not _is_name(answers[0]) and _constant(answers[0]) is None
        return not is_equation and any(_same_quantity(gold, side, percent) for side in _ends(answers))
    if _is_name(golds[0]) and _is_name(answers[0]):
        if _bare(golds[0]) == _bare(answers[0]):
            return any(_same_quantity(golds[-1], side, percent) for side in _ends(answers))
        if len(golds) == len(answers) == 2 and _is_name(golds[1]) != _is_name(answers[1]):
            return False
    return _same_quantity(f"{golds[0]}={golds[-1]}", f"{answers[0]}={answers[-1]}", percent)


def _without_list_name(formula: str) -> str:
    """`x = 2, -3` without the name, which stands for each of them."""
    first, *others = split_top(formula, (",",))
    sides = split_top(first, ("=",))
    named = len(sides) == 2 and _VARIABLES.fullmatch(sides[0])
    if not others or not named or any("=" in each for each in others):
        return formula
    return ", ".join([sides[1], *others])


def _components(answer: str) -> list[str]:
    """The values of `x = 7, y = 21`, which give a point, in the order of their names; empty for all else."""
    joined = re.sub(r"\\text ?\{ ?,? ?and ?\}|\band\b", ",", answer)
    sides = [split_top(part, ("=",)) for part in split_top(joined, (",", ";")) if part]
    names = [_bare(pair[0]) for pair in sides]
    if len(sides) < 2 or any(len(pair) != 2 for pair in sides) or len(set(names)) < len(names):
        return []
    if not all(re.fullmatch(r"[a-z](?:_\d)?", name) for name in names):
        return []
    return [value for _, value in sorted((name, pair[1]) for name, pair in zip(names, sides, strict=True))]


def _ends(sides: list[str]) -> list[str]:
    """What a chain says in the end: its last side, and constants that lead to it."""
    if _constant(sides[-1]) is None:
        return sides[-1:]
    return [side for side in sides if not _is_name(side) and _constant(side) is not None]


def _contradicts(equality: str) -> bool:
    """Are two neighbours in a chain constants that differ?"""
    sides = claims.equal_sides(equality)
    sides = [units.split_unit(side, letters=True)[0] for side in sides if not _is_name(side)]
    return any(values.agree(one, other) is False for one, other in pairwise(sides))


def _constant(side: str) -> Any | None:
    value = values.read(units.split_unit(side, letters=True)[0])
    return values.number(value.expression) if value else None


def _is_name(side: str) -> bool:
    return side != "" and _NAME.fullmatch(side) is not None


def _bare(name: str) -> str:
    return re.sub(r"[\s{}]|\\(?:left|right)", "", name)


def _has_letters(formula: str) -> bool:
    return re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", formula)) is not None


def _same_quantity(gold: str, answer: str, percent: bool) -> bool:
    """Two sides without `=` between them, or two whole equations: units, percent, then values."""
    if _PERCENT.search(answer) and not _PERCENT.search(gold):
        answer = _PERCENT.sub("", answer)
        answer = answer if percent else rf"\frac{{{answer}}}{{100}}"
    gold, gold_unit = units.split_unit(gold, letters=False)
    letters = any(command in gold_unit for command in ("text", "mathrm", "mbox"))
    answer, answer_unit = units.split_unit(answer, letters=letters, short=not _has_letters(gold))
    size = sympy.Integer(1)
    if gold_unit and answer_unit:
        ours, theirs = units.unit_of(gold_unit), units.unit_of(answer_unit)
        if ours is not None and theirs is not None:
            ratio = units.conversion(theirs, ours)
            if ratio is None:
                return False
            size = sympy.sympify(ratio)
    golden, found = values.read(gold), values.read(answer)
    if golden is None or found is None:
        return False
    if size != 1:
        found = values.Value(found.expression * size, decimal=True)
    return values.same(golden, found)
