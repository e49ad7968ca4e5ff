r"""Values of formulas, read and compared by math-verify, and by numbers where it would be wrong alone.

What is added to math-verify 0.9: `i` is the imaginary unit, in polar form too; numbers below 1e-15 are told apart;
lists that hold a value twice are compared with how often they hold it; conditions (`x > 2`, `\{x \mid x > 2\}`) equal
the sets that they describe. Imports sympy; for jailed forks.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify

from tasks.math.formulas import is_balanced, split_top

PLACES = 6
"""Decimal places (significant digits, below 1) to which numbers are compared where one is a decimal fraction."""

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own timeouts are off

_READING = LatexExtractionConfig(
    try_extract_without_anchor=False,
    boxed_match_priority=0,
    normalization_config=NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="last"),
)
_BUILDER = re.compile(
    r"(?:\\left ?)?\\\{ ?([A-Za-z]) ?(?:\\in ?(\\mathbb ?\{? ?[RZNC] ?\}?(?:\^\+|_\+)?) ?)?"
    r"(?:\\middle ?)?(?:\\mid(?![A-Za-z])|\\vert(?![A-Za-z])|\||:) ?(.*?) ?(?:\\right ?)?\\\}",
    re.DOTALL,
)
_ELEMENT = re.compile(
    r"^(?:[A-Za-z]|(?:\\left ?)?\( ?[A-Za-z](?: ?, ?[A-Za-z]){1,5} ?(?:\\right ?)?\)) ?\\in(?![A-Za-z]) ?"
)
_DECIMAL = re.compile(r"\d?\.\d")
_EXACT = 25
"""Digits to which numbers are compared that are neither fractions nor decimal."""


@dataclass(frozen=True)
class Value:
    """A formula as read: the expression, and whether it holds decimal fractions, which may be rounded."""

    expression: Any
    decimal: bool


@lru_cache(256)
def read(formula: str) -> Value | None:
    """None where math-verify cannot read the whole formula."""
    decimal = _DECIMAL.search(formula) is not None
    formula = _both_signs(_ELEMENT.sub("", formula))
    conditions = _conditions(formula)
    if conditions is not None:
        return Value(conditions, decimal)
    if not is_balanced(formula):
        return None
    forms = parse(
        rf"\boxed{{{formula}}}", extraction_config=[_READING], extraction_mode="first_match", parsing_timeout=0
    )
    if not forms or isinstance(forms[0], str):
        return None
    return Value(_normal(forms[0]), decimal)


def _both_signs(formula: str) -> str:
    r"""Members with one `\pm` as two members."""
    if r"\pm" not in formula or "=" in formula:
        return formula
    braces = re.fullmatch(r"((?:\\left ?)?\\\{)(.*?)((?:\\right ?)?\\\})", formula, re.DOTALL)
    opening, inner, closing = braces.groups() if braces else ("", formula, "")
    members = []
    for member in split_top(inner, (",",)):
        once = member.count(r"\pm") == 1
        members += (
            [member.replace(r"\pm", sign).replace(r"\mp", "+-"[sign == "+"]) for sign in "+-"] if once else [member]
        )
    return opening + ", ".join(members) + closing


def _conditions(formula: str) -> Any | None:
    r"""The set of a set-builder (`\{x \mid x > 2\}`) or of alternatives (`x < 1 \text{ or } x > 3`)."""
    builder = _BUILDER.fullmatch(formula.strip())
    if builder:
        return _condition_set(builder[3], builder[2] or "")
    if _alternatives(formula):
        return _condition_set(formula, "")
    return None


def _alternatives(condition: str) -> list[str]:
    condition = re.sub(r"\\text ?\{ ?,? ?(or|and) ?\}", r" \\\1 ", condition)
    condition = re.sub(r"(?<![\\A-Za-z])(or|and)(?![A-Za-z])", r" \\\1 ", condition)
    parts = split_top(condition, (r"\or", r"\lor", r"\vee"))
    both = [split_top(part, (r"\and", r"\land", r"\wedge", ",")) for part in parts]
    relation = re.compile(r"[<>]|\\(?:le|ge|lt|gt|leq|geq|leqslant|geqslant|neq?)(?![A-Za-z])")
    if not all(relation.search(piece) for pieces in both for piece in pieces):
        return []
    return [condition] if len(parts) > 1 or len(both[0]) > 1 else []


def _condition_set(condition: str, domain: str) -> Any | None:
    marked = _alternatives(condition)
    condition = marked[0] if marked else condition
    union: Any = sympy.S.EmptySet
    for part in split_top(condition, (r"\or", r"\lor", r"\vee")):
        meet: Any = sympy.S.Reals
        for piece in split_top(part, (r"\and", r"\land", r"\wedge", ",")):
            read_piece = read(piece) if piece and not _BUILDER.match(piece) else None
            found = _set_of(read_piece.expression) if read_piece else None
            if found is None:
                return None
            meet = sympy.Intersection(meet, found)
        union = sympy.Union(union, meet)
    if "Z" in domain or "N" in domain:
        union = sympy.Intersection(union, sympy.S.Integers if "Z" in domain else sympy.S.Naturals)
    return union


def _set_of(expression: Any) -> Any | None:
    """The set that a condition on one variable describes, or a set itself."""
    if isinstance(expression, sympy.Set):
        return expression
    if not isinstance(expression, sympy.logic.boolalg.Boolean) or len(expression.free_symbols) != 1:
        return None
    try:
        return expression.as_set()
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None


def _normal(expression: Any) -> Any:
    """With `i` and `I` as the imaginary unit, and all other symbols of one kind; lists keep what they hold twice."""
    if _is_bag(expression):
        return expression
    try:
        symbols = expression.free_symbols
    except AttributeError:
        return expression
    has_i = any(symbol.name == "i" for symbol in symbols)
    unit = {"i"} if has_i else set()
    changes = {s: sympy.I if s.name in unit else sympy.Symbol(s.name, real=True) for s in symbols}
    try:
        return expression.xreplace(changes) if changes else expression
    except Exception:  # a relation of complex numbers
        return expression


def _is_bag(expression: Any) -> bool:
    return isinstance(expression, sympy.FiniteSet)


def _members(expression: Any) -> list[Any]:
    held = getattr(expression, "_unsorted_args", None)
    return [_normal(member) for member in (held if held is not None else expression.args)]


def scaled(value: Value, factor: Any) -> Value:
    return value if factor == 1 else Value(value.expression * factor, decimal=True)


def same(gold: Value, answer: Value) -> bool:
    return _same(gold.expression, answer.expression, gold.decimal or answer.decimal)


def _same(a: Any, b: Any, decimal: bool) -> bool:
    def both(one: Any, other: Any) -> bool:
        return _same(one, other, decimal)

    numbers = number(a), number(b)
    if numbers[0] is not None and numbers[1] is not None:
        return _same_number(numbers[0], numbers[1], decimal)
    if _is_bag(a) and _is_bag(b):
        return _same_bag(_members(a), _members(b), both)
    if _is_bag(a) and numbers[1] is not None:
        return _same_bag(_members(a), [b], both)
    if isinstance(a, sympy.Tuple) and isinstance(b, sympy.Tuple):
        return len(a) == len(b) and all(both(one, other) for one, other in zip(a, b, strict=True))
    if isinstance(a, sympy.MatrixBase) and isinstance(b, sympy.MatrixBase):
        return a.shape == b.shape and all(both(one, other) for one, other in zip(a.flat(), b.flat(), strict=True))
    if isinstance(a, sympy.Interval) and isinstance(b, sympy.Interval):
        open_alike = (a.left_open, a.right_open) == (b.left_open, b.right_open)
        return open_alike and both(a.start, b.start) and both(a.end, b.end)
    if isinstance(a, sympy.Set) != isinstance(b, sympy.Set) or (isinstance(a, sympy.Set) and isinstance(b, sympy.Set)):
        sets = _set_of(a), _set_of(b)
        if sets[0] is not None and sets[1] is not None:
            return _same_set(*sets, both)
    if _are_inequalities(a, b):
        sets = _set_of(a), _set_of(b)
        if sets[0] is not None and sets[1] is not None:
            return _same_set(*sets, both)
    if _is_far(a, b):
        return False
    places = _places(numbers[0]) if numbers[0] is not None else PLACES
    return bool(verify([a], [b], float_rounding=places, timeout_seconds=0))


def _are_inequalities(a: Any, b: Any) -> bool:
    """Two conditions on the same one variable that are no equations."""
    conditions = all(
        isinstance(each, sympy.logic.boolalg.Boolean) and not isinstance(each, sympy.Eq) for each in (a, b)
    )
    return conditions and len(a.free_symbols) == 1 and a.free_symbols == b.free_symbols


def _same_bag(golds: list[Any], answers: list[Any], both: Any) -> bool:
    """The same members, as often where the gold holds one twice; else once is enough."""
    if len(set(golds)) == len(golds):
        answers = list(dict.fromkeys(answers))
    if len(golds) != len(answers):
        return False
    left = list(answers)
    for gold in golds:
        match = next((place for place, answer in enumerate(left) if both(gold, answer)), None)
        if match is None:
            return False
        del left[match]
    return True


def _same_set(a: Any, b: Any, both: Any) -> bool:
    if a == b:
        return True
    if isinstance(a, sympy.Interval) and isinstance(b, sympy.Interval):
        return both(a, b)
    if isinstance(a, sympy.Union) and isinstance(b, sympy.Union) and len(a.args) == len(b.args):
        left, right = (sorted(s.args, key=_start) for s in (a, b))
        return all(both(one, other) for one, other in zip(left, right, strict=True))
    return a.symmetric_difference(b).is_empty is True


def _start(part: Any) -> float:
    return float(part.inf)


def number(expression: Any) -> Any | None:
    """The value of a finite constant, real or complex, as a pair of exact or 40-digit numbers; None for all else."""
    if not isinstance(expression, sympy.Expr) or expression.free_symbols or expression.has(sympy.UnevaluatedExpr):
        return None
    floats = expression.atoms(sympy.Float)
    try:
        exact: Any = expression.xreplace({value: sympy.Rational(str(value)) for value in floats}).doit()
        parts = exact.evalf(40, chop=False).as_real_imag()
    except Exception:  # what sympy cannot evaluate is left to math-verify
        return None
    if not all(part.is_number and part.is_finite for part in parts):
        return None
    return (exact, sympy.S.Zero) if exact.is_Rational else parts


def _same_number(a: Any, b: Any, decimal: bool) -> bool:
    size = max(abs(part) for part in (*a, *b))
    for one, other in zip(a, b, strict=True):
        exact = one.is_Rational and other.is_Rational
        if one == other or (not exact and abs(one - other) <= size * sympy.Float(10) ** -_EXACT):
            continue
        if not decimal:
            return False
        places = _places(one)
        if round(sympy.Rational(one), places) != round(sympy.Rational(other), places) and (
            abs(one - other) > size * sympy.Float(10) ** -12
        ):
            return False
    return True


def agree(one: str, other: str) -> bool | None:
    """Are two constants the same to the places to which each is written? None where one is no real constant."""
    values = read(one), read(other)
    if values[0] is None or values[1] is None:
        return None
    numbers = number(values[0].expression), number(values[1].expression)
    if numbers[0] is None or numbers[1] is None:
        return None
    half = sum(0.5 * 10.0 ** -len(found[1]) for text in (one, other) if (found := re.search(r"\.(\d+)", text)))
    scale = re.search(r"10 ?\^ ?\{? ?(-?\d{1,3})", one + other)
    half *= 10.0 ** int(scale[1]) if scale and half else 1
    return all(
        abs(a - b) <= max(half * 1.02, 1e-20 * max(abs(a), abs(b))) for a, b in zip(numbers[0], numbers[1], strict=True)
    )


def _places(gold: Any) -> int:
    value = gold[0] if isinstance(gold, tuple) else gold
    if not value.is_finite or not 0 < abs(value) < 1:
        return PLACES
    return PLACES - 1 + math.ceil(-math.log10(abs(float(value))))


def _is_far(a: Any, b: Any) -> bool:
    """Do two expressions differ where their variables have some values? Cheaper than to simplify their difference, and
    tells apart tiny coefficients, which math-verify rounds to 0."""
    if not isinstance(a, sympy.Expr) or not isinstance(b, sympy.Expr) or a.is_Symbol or b.is_Symbol:
        return False
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    if not symbols:
        return False
    for shift in (0, 1):
        point = {symbol: sympy.Rational(17 + 3 * n, 11 + n + 4 * shift) for n, symbol in enumerate(symbols)}
        try:
            one, other = (complex(sympy.N(side.xreplace(point))) for side in (a, b))
        except (TypeError, ValueError, OverflowError, ZeroDivisionError, AttributeError):
            return False
        if not abs(one - other) > 1e-3 * abs(one):
            return False
    return True
