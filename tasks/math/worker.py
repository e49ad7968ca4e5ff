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
from fractions import Fraction
from typing import Any, Literal

import sympy
from pydantic import JsonValue

from tasks.math import claims, equations, remarks, units, values
from tasks.math.formulas import TEXT, split_top, tidy, untext

Verdict = Literal["correct", "wrong", "gold_unparseable"]

LONGEST = 2000
"""Characters of an answer beyond which it is wrong unread: such answers are runaway text, and parsing takes seconds."""

DELTA = Fraction(1, 10**6)
"""By which numbers may differ in `equal_numbers`."""

_PERCENT = re.compile(r"(?<!\s) ?\\?%")


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


def equal_numbers(payload: JsonValue) -> JsonValue:
    """`[gold, answer]` in; out whether both are numbers that differ by at most `DELTA`, absolutely or relative to the
    gold where that is above 1 (NumEq of Stronger-MAS, Appendix B.1), and None where the gold is no number.

    With a third text, a tolerance, they differ by at most that."""
    if not isinstance(payload, list) or not all(isinstance(each, str) for each in payload):
        raise TypeError(f"expected a gold and an answer, got {type(payload).__name__}")
    gold, answer = (_number(str(each)) for each in payload[:2])
    if gold is None:
        return None
    allowed = Fraction(str(payload[2])) if len(payload) > 2 else DELTA * max(Fraction(1), abs(gold))
    return answer is not None and abs(answer - gold) <= allowed


def _number(text: str) -> Fraction | None:
    """The real number that the text says, with or without a name before it or a unit behind; None for all else."""
    try:
        return None if len(text) > LONGEST else _value(remarks.without_domain(tidy(text)))
    except MemoryError:  # the fork has hit its limit, and says so
        raise
    except Exception:  # what sympy cannot tell
        return None


def _value(formula: str) -> Fraction | None:
    sides = claims.equal_sides(claims.without_lead(formula))
    named = len(sides) == 2 and equations.is_name(sides[0])
    formula = sides[-1]
    odd = any(sign.isdecimal() and not sign.isascii() for sign in formula)
    if odd or len(sides) - named != 1 or len(claims.colon_sides(formula)) != 1:
        return None
    percent = _PERCENT.search(formula)
    if percent is not None and percent.end() == len(formula):
        formula = formula[: percent.start()]
    value = values.read(units.split_unit(formula, letters=False)[0])
    parts = None if value is None else values.number(value.expression)
    if parts is None or parts[1] != 0:
        return None
    exact = Fraction(str(parts[0]))
    return exact / 100 if percent is not None else exact


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
    gold = remarks.without_domain(tidy(gold))
    if not is_readable(gold):
        return "gold_unparseable"
    if len(answer) > LONGEST:
        return "wrong"
    answer = remarks.without_domain(tidy(answer))
    if any(sign.isdecimal() and not sign.isascii() for sign in answer):
        return "wrong"
    same = bool(answer) and (gold == answer or _same(gold, answer, percent))
    return "correct" if same else "wrong"


def compare_values(gold: str, answer: str) -> Verdict:
    """`compare` without its shortcut for equal text: does the comparison that the gold calls for say so, too?"""
    gold, answer = remarks.without_domain(tidy(gold)), remarks.without_domain(tidy(answer))
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
        sides = [claims.equal_sides(gold)[-1]] if equations.is_name(claims.equal_sides(gold)[0]) else [gold]
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
    answer = _without_rejected(remarks.with_decimal(answer))
    if claims.denies(_connected(gold), _connected(answer)):
        return False
    if chosen is not None and chosen[1] and chosen[0] not in re.findall("[A-Za-z]+", gold):
        answer = chosen[1]
    gold, answer = claims.without_lead(gold), claims.without_lead(answer)
    if claims.based(gold) or claims.based(answer):
        return _same_numeral(gold, answer)
    return _same_sides(gold, answer, percent)


def _without_rejected(answer: str) -> str:
    """Without the remark that another value is rejected, where a single value is left."""
    head, other = remarks.rejected(answer)
    *names, kept = claims.equal_sides(head)
    settled = bool(other) and all(map(equations.is_name, names)) and values.agree(kept, other) is False
    return head if settled else answer


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
        return equations.is_name(name) and _same_numeral(gold, rest[-1])
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
    gold, answer = equations.without_list_name(gold), equations.without_list_name(answer)
    if len(split_top(gold, (",", ";"))) == 1:
        answer = equations.last_claim(answer)
    golds, answers = claims.equal_sides(gold), claims.equal_sides(answer)
    if any(equations.contradicts(part) for part in split_top(answer, (",", ";"))):
        return False
    if len(golds) == 1 and "=" not in gold and equations.has_unsolved(answer):
        return False
    by_name = _same_by_name(gold, answer)
    if by_name is not None:
        return by_name
    named = equations.components(answer)
    if named and re.fullmatch(r"(?:\\left ?)?\(.*\)", gold):
        return _same_quantity(gold, f"({', '.join(named)})", False)
    if len(answers) == 1:
        return _same_quantity(golds[-1] if len(golds) > 1 and equations.is_name(golds[0]) else gold, answer, percent)
    if len(golds) == 1:
        is_equation = answers[-1] == "0" and not equations.is_name(answers[0])
        if is_equation and equations.constant(answers[0]) is None:
            return False
        return any(_same_quantity(gold, side, percent) for side in equations.ends(answers))
    if equations.is_name(golds[0]) and equations.is_name(answers[0]):
        if equations.bare(golds[0]) == equations.bare(answers[0]):
            return any(_same_quantity(golds[-1], side, percent) for side in equations.ends(answers))
        if len(golds) == len(answers) == 2 and equations.is_name(golds[1]) != equations.is_name(answers[1]):
            return False
    return _same_quantity(f"{golds[0]}={golds[-1]}", f"{answers[0]}={answers[-1]}", percent)


def _same_by_name(gold: str, answer: str) -> bool | None:
    """A gold that gives values to letters (`p = 2, q = 3`), against the same, a point or a set; None for all else."""
    golden, found = equations.assignments(gold), equations.assignments(answer)
    form = equations.shape(answer)
    if not golden or not (found or form):
        return None
    if not found:
        return form == "point" and _same_quantity(f"({', '.join(golden.values())})", answer, False)
    golden, found = ({name.lower(): value for name, value in each.items()} for each in (golden, found))
    return golden.keys() == found.keys() and all(_same_quantity(golden[name], found[name], False) for name in golden)


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
    if {equations.shape(gold), equations.shape(answer)} == {"point", "set"}:
        return False
    size: Any = sympy.sympify(units.multiple(answer_unit))
    ours_many: Any = sympy.sympify(units.multiple(gold_unit))
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
    sizes = {size / ours_many, size} if size == 1 else {size / ours_many}
    return any(values.same(golden, values.scaled(found, each)) for each in sizes)
