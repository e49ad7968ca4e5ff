r"""What equations in an answer say: `x = 5` names a value, `7 \cdot 8 = 56` leads to one, `x - 1 = 6` has to be solved.

Which comparison a gold calls for is `tasks.math.worker`'s to decide. Imports sympy; for jailed forks.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import sympy

from tasks.math import claims, units, values
from tasks.math.formulas import split_top

_NAME = re.compile(r"(?:\\(?!frac|dfrac|tfrac|sqrt|pi)|[A-Za-z|'^_{}(),. ]|(?<=[_{(,])-?\d++)*+")
_PROBABILITY = re.compile(r"(?<![A-Za-z\\])P ?(?:\\left ?)?\(")
_LETTER = re.compile(r"[A-Za-z](?:_\d)?")
_POINT = re.compile(r"(?:\\left ?)?\((.*?)(?:\\right ?)?\)", re.DOTALL)
_VARIABLES = re.compile(r"[A-Za-z](?:_\d)?|(?:\\left ?)?\( ?[A-Za-z](?: ?, ?[A-Za-z]){1,5} ?(?:\\right ?)?\)")


def without_list_name(formula: str) -> str:
    """`x = 2, -3` without the name, which stands for each of them."""
    first, *others = split_top(formula, (",",))
    sides = split_top(first, ("=",))
    named = len(sides) == 2 and _VARIABLES.fullmatch(sides[0])
    if not others or not named or any("=" in each for each in others):
        return formula
    return ", ".join([sides[1], *others])


def components(answer: str) -> list[str]:
    """The values of `x = 7, y = 21`, which give a point, in the order of their names; empty for all else."""
    held = _listed(answer)
    return [held[name] for name in sorted(held)] if all(name[0].islower() for name in held) else []


def ends(sides: list[str]) -> list[str]:
    """What a chain says in the end: its last side, and constants that lead to it."""
    if constant(sides[-1]) is None:
        return sides[-1:]
    return [side for side in sides if not is_name(side) and constant(side) is not None]


def contradicts(equality: str) -> bool:
    """Are two neighbours in a chain constants that differ?"""
    sides = claims.equal_sides(equality)
    sides = [units.split_unit(side, letters=True)[0] for side in sides if not is_name(side)]
    return any(values.agree(one, other) is False for one, other in pairwise(sides))


def constant(side: str) -> Any | None:
    value = values.read(units.split_unit(side, letters=True)[0])
    return values.number(value.expression) if value else None


def is_name(side: str) -> bool:
    return side != "" and _NAME.fullmatch(side) is not None


def bare(name: str) -> str:
    return re.sub(r"[\s{}]|\\(?:left|right)", "", name)


def has_unsolved(answer: str) -> bool:
    """Is one of the equations in `answer` of the kind `x - 1 = 6`?"""
    chains = [split_top(part, ("=", r"\approx", r"\simeq")) for part in split_top(answer, (",", ";", r"\text"))]
    return any(len(sides) > 1 and is_unsolved(sides[0]) and constant(sides[-1]) is not None for sides in chains)


def is_unsolved(side: str) -> bool:
    r"""Does `side = 6` ask for a variable: is it one unknown with arithmetic of numbers around it (`x - 1`, `2^n`)?

    A name (`AB`, `f(2)`), a function of the unknown (`\sin x`, `\sqrt{x}`), a probability (`1 - P(A)`) and what holds
    several variables (`m + n`) are quantities that may have been asked for.
    """
    if is_name(side) or _PROBABILITY.search(side):
        return False
    value = values.read(side)
    expression = value.expression if value else None
    if not isinstance(expression, sympy.Expr) or len(expression.free_symbols) != 1:
        return False
    return _has_arithmetic(expression)


def _has_arithmetic(expression: sympy.Expr) -> bool:
    if isinstance(expression, sympy.Add):
        return any(term.is_Number for term in expression.args)
    if isinstance(expression, sympy.Mul):
        return any(part.is_Rational or _has_arithmetic(part) for part in expression.args)
    if isinstance(expression, sympy.Pow):
        base, exponent = expression.args
        return not base.free_symbols or exponent.is_negative is True or _has_arithmetic(base)
    return False


def assignments(formula: str) -> dict[str, str]:
    """The values of `p = 2, q = 3` or of `(p, q) = (2, 3)` by name; empty for all else."""
    sides = split_top(formula, ("=",))
    names = _POINT.fullmatch(sides[0]) if len(sides) == 2 else None
    point = _POINT.fullmatch(sides[1]) if names else None
    if names and point:
        keys, held = ([bare(part) for part in split_top(each[1], (",",))] for each in (names, point))
        if len(keys) != len(held) or len(set(keys)) < len(keys) or not all(map(_LETTER.fullmatch, keys)):
            return {}
        return dict(zip(keys, split_top(point[1], (",",)), strict=True))
    return _listed(formula)


def _listed(formula: str) -> dict[str, str]:
    joined = re.sub(r"\\text ?\{ ?,? ?and ?\}|\band\b", ",", formula)
    pairs = [split_top(part, ("=",)) for part in split_top(joined, (",", ";")) if part]
    keys = [bare(pair[0]) for pair in pairs]
    if len(pairs) < 2 or any(len(pair) != 2 for pair in pairs) or len(set(keys)) < len(keys):
        return {}
    return {key: pair[1] for key, pair in zip(keys, pairs, strict=True)} if all(map(_LETTER.fullmatch, keys)) else {}


def last_claim(formula: str) -> str:
    """The last side of `m = 104, n = 100, m + n = 204`, where all before are values of the letters in it and it is true
    of them; the formula itself for all else."""
    *given, last = split_top(
        re.sub(r"(?<!\\)\\ |\\text ?\{ ?(?:,? ?so|and|thus|then|hence)? ?\}", " ", formula), (",", ";")
    )
    sides = split_top(last, ("=",))
    known = assignments(", ".join(given)) if len(given) > 1 and len(sides) > 1 else {}
    claim = values.read(sides[0]) if known else None
    held = {name: constant(value) for name, value in known.items()}
    if claim is None or not isinstance(claim.expression, sympy.Expr) or None in held.values():
        return formula
    unknown = {symbol: held.get(str(symbol)) for symbol in claim.expression.free_symbols}
    if len(unknown) < 2 or None in unknown.values():
        return formula
    total = values.number(claim.expression.subs({symbol: value[0] for symbol, value in unknown.items() if value}))
    said = constant(sides[-1])
    is_true = (
        total is not None and said is not None and all(abs(a - b) < 1e-9 for a, b in zip(total, said, strict=True))
    )
    return sides[-1] if is_true and not contradicts(last) else formula


def shape(formula: str) -> str:
    r"""`point` for `(1, 2)`, `set` for `\{1, 2\}`, where one pair of brackets is around two or more members."""
    text = re.sub(r"\\(?:left|right) ?|^[^{}]{0,40}\\in(?![A-Za-z])", "", formula).strip()
    if re.search(r"[|:<>]|\\(?:mid|le|ge|leq|geq|lt|gt|in|neq?)(?![A-Za-z])", text):  # described, not listed
        return ""
    for kind, opening, closing in (("point", "(", ")"), ("set", r"\{", r"\}")):
        inner = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and len(split_top(text, (",",))) == 1:
            return kind if len(split_top(inner, (",",))) > 1 else ""
    return ""
