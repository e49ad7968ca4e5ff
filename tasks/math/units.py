r"""Units of measure at the end of a quantity: `15 \text{ km}`, `9.8 \frac{\text{m}}{\text{s}^2}`, `\$5`, `72^\circ`.

`split_unit` takes the unit off; units that are known are compared by what they measure and how large they are. Words
that are not known (`apples`) are taken off, too, and mean nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tasks.math.formulas import TEXT

Dimension = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Unit:
    """What is measured, as powers of what is not made of anything else, and the size. Angles are in degrees."""

    dimension: Dimension
    size: Fraction


def _unit(size: str, **powers: int) -> Unit:
    return Unit(tuple(sorted(powers.items())), Fraction(size))


_JOULE = {"kg": 1, "m": 2, "s": -2}
_NAMES: dict[str, Unit] = {
    names: unit
    for group, unit in {
        "m meter metre": _unit("1", m=1),
        "in inch inche": _unit("0.0254", m=1),
        "ft foot feet": _unit("0.3048", m=1),
        "yd yard": _unit("0.9144", m=1),
        "mi mile": _unit("1609.344", m=1),
        "s sec second": _unit("1", s=1),
        "min minute": _unit("60", s=1),
        "h hr hour": _unit("3600", s=1),
        "day": _unit("86400", s=1),
        "week": _unit("604800", s=1),
        "month": _unit("2629800", s=1),
        "yr year": _unit("31557600", s=1),
        "g gram": _unit("0.001", kg=1),
        "lb pound": _unit("0.45359237", kg=1),
        "oz ounce": _unit("0.028349523125", kg=1),
        "l L liter litre": _unit("0.001", m=3),
        "gal gallon": _unit("0.003785411784", m=3),
        "acre": _unit("4046.8564224", m=2),
        "mph": _unit("0.44704", m=1, s=-1),
        "N newton": _unit("1", kg=1, m=1, s=-2),
        "J joule": _unit("1", **_JOULE),
        "eV": _unit("1.602176634e-19", **_JOULE),
        "erg": _unit("1e-7", **_JOULE),
        "cal calorie": _unit("4.184", **_JOULE),
        "W watt": _unit("1", kg=1, m=2, s=-3),
        "Pa pascal": _unit("1", kg=1, m=-1, s=-2),
        "Hz hertz": _unit("1", s=-1),
        "K kelvin": _unit("1", K=1),
        "mol mole": _unit("1", mol=1),
        "A amp ampere": _unit("1", A=1),
        "C coulomb": _unit("1", A=1, s=1),
        "V volt": _unit("1", kg=1, m=2, s=-3, A=-1),
        "ohm": _unit("1", kg=1, m=2, s=-3, A=-2),
        "dollar USD usd": _unit("1", dollar=1),
        "cent": _unit("0.01", dollar=1),
        "euro": _unit("1", euro=1),
        "sterling": _unit("1", sterling=1),
        "yen": _unit("1", yen=1),
        "rupee": _unit("1", rupee=1),
        "deg degree": _unit("1", angle=1),
        "arcmin arcminute": _unit("1/60", angle=1),
        "arcsec arcsecond": _unit("1/3600", angle=1),
        "AU au": _unit("149597870700", m=1),
        "pc parsec": _unit("3.0856775814913673e16", m=1),
        "ly lightyear": _unit("9460730472580800", m=1),
        "solarmass": _unit("1.98841e30", kg=1),
        "solarluminosity": _unit("3.828e26", kg=1, m=2, s=-3),
        "solarradius": _unit("6.957e8", m=1),
        "Jy jansky": _unit("1e-26", kg=1, s=-2),
        "dyn dyne": _unit("1e-5", kg=1, m=1, s=-2),
        "T tesla": _unit("1", kg=1, s=-2, A=-1),
        "gauss": _unit("1e-4", kg=1, s=-2, A=-1),
        "Wb weber": _unit("1", kg=1, m=2, s=-2, A=-1),
        "atm": _unit("101325", kg=1, m=-1, s=-2),
        "rad radian": _unit("1", radian=1),
        "celsius": _unit("1", celsius=1),
        "fahrenheit": _unit("1", fahrenheit=1),
    }.items()
    for names in group.split()
}
_PREFIXES = {"k": "1e3", "M": "1e6", "G": "1e9", "c": "0.01", "d": "0.1", "m": "1e-3", "μ": "1e-6", "u": "1e-6"}
_PREFIXES |= {"n": "1e-9", "p": "1e-12", "kilo": "1e3", "mega": "1e6", "giga": "1e9", "centi": "0.01", "deci": "0.1"}
_PREFIXES |= {"milli": "1e-3", "micro": "1e-6", "nano": "1e-9", "f": "1e-15", "T": "1e12"}
_SHORT_PREFIXED = {"m", "s", "g", "l", "L", "N", "J", "eV", "cal", "W", "Pa", "Hz", "mol", "A", "V"}
_SHORT_PREFIXED |= {"pc", "Jy", "T", "C", "K"}
_LONG_PREFIXED = {"meter", "metre", "second", "gram", "liter", "litre", "newton", "joule", "watt", "pascal", "hertz"}
_LONG_PREFIXED |= {"calorie", "volt", "parsec"}
_SHORT_BARE = {"cm", "mm", "km", "kg", "mg", "ml", "mL", "ft", "in", "mi", "lb", "lbs", "oz", "hr", "hrs", "sq", "of"}
_MULTIPLES = {"dozen": "12", "hundred": "100", "thousand": "1000", "million": "10**6", "billion": "10**9"}
_MULTIPLES |= {"tenth": "1/10", "hundredth": "1/100", "thousandth": "1/1000"}
_NEVER_LETTERS = {"Hz", "eV"}
_SOLAR = re.compile(
    r"(?<=[\d}) ])(?:\\(?:text|mathrm|rm) ?\{? ?)?([LMR]) ?\}? ?_ ?\{? ?(?:\\odot|\\(?:text|mathrm) ?\{ ?sun ?\}) ?\}?"
)
_SOLAR_NAMES = {"L": "luminosity", "M": "mass", "R": "radius"}
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}

_FRACTION = re.compile(
    r"\\[dt]?frac ?\{ ?((?:\\(?:text|mathrm|mbox) ?\{[^{}]*\} ?)+)\} ?"
    r"\{ ?((?:\\(?:text|mathrm|mbox) ?\{[^{}]*\} ?(?:\^ ?\{? ?-?\d ?\}?)? ?)+)\}$"
)
_TOKEN = re.compile(
    r"(?P<text>\\(?:text(?:bf|it|rm|tt|sf|normal)?|mbox|mathrm|mathbf) ?"
    r"\{(?:[^{}0-9$%^]|\^(?!\{?\d))*+(?:\^\{?\d\}?[^{}0-9$%]*+)?\})"
    r"|(?P<degree>\^ ?(?:\\circ|\{ ?\\circ ?\}))|(?P<power>\^ ?(?:\{ ?-?\d ?\}|-?\d))"
    r"|(?P<dot>\\cdot(?![A-Za-z])|\*)|(?P<slash>/)|(?P<blank> |\\[ ,;:!]|~)|(?P<command>\\(?:[A-Za-z]+|.))"
    r"|(?P<word>[A-Za-zμ]+)|(?P<other>.)",
    re.DOTALL,
)
_PARTS = re.compile(r"[A-Za-zμ]+|\^ ?\{? ?(-?\d) ?\}?|/|-(?=\d)")
_NUMBER_BEFORE = re.compile(r"(?:\d|\\pi|\}|\))$")


_SHORT = re.compile(r"(?:(?<=[\d})]) |(?<=\d)(?=(?:Hz|Pa|eV|k[JNVW]|m[AJVW])$))([A-Za-zμ]{2})$")


def split_unit(formula: str, letters: bool, short: bool = False) -> tuple[str, str]:
    """The value and the unit, as text. `letters`: single letters that are not in `\\text` are units, not variables.
    `short`: known units of two letters (`13 nm`) are units behind a blank, which may else be variables."""
    if "_" in formula:
        formula = _SOLAR.sub(lambda match: rf" \text{{solar{_SOLAR_NAMES[match[1]]}}}", formula)
    if not letters:
        formula = _short_units(formula, short)
    fraction = _FRACTION.search(formula) if formula.endswith("}") else None
    if fraction and fraction.start():
        formula = rf"{formula[: fraction.start()]}{fraction[1]}/{fraction[2]}"
    dollar = re.match(r"(-?) ?\\?\$ ?", formula)
    value = formula[: dollar.end(1)] + formula[dollar.end() :] if dollar else formula
    value, unit = _tail(value, letters)
    return value, unit or ("dollar" if dollar else "")


def _short_units(formula: str, short: bool) -> str:
    """Two letters behind a number in `\\text` where they are a unit; with `short`, all that are known."""
    found = _SHORT.search(formula)
    if not found or not (found[1] in _NEVER_LETTERS or (short and _named(found[1]))):
        return formula
    return rf"{formula[: found.start()].rstrip()} \text{{{found[1]}}}"


def _tail(formula: str, letters: bool) -> tuple[str, str]:
    tokens = list(_TOKEN.finditer(formula))
    start = len(tokens)
    seen_slash = any(token.lastgroup == "slash" for token in tokens)
    while start and _is_part(tokens[start - 1], letters or seen_slash):
        start -= 1
    # What stands first in a unit is a word.
    while start < len(tokens) and tokens[start].lastgroup not in ("text", "word", "degree"):
        start += 1
    if start == len(tokens):
        return formula, ""
    said = letters or not seen_slash or any(token.lastgroup == "text" for token in tokens[start:])
    if not said and unit_of(formula[tokens[start].start() :]) is None:  # `m/s` is a unit, `x/y` is none
        return _tail_words(formula, tokens)
    value = formula[: tokens[start].start()].rstrip()
    value = value.rstrip("~ ").removesuffix(r"\cdot").removesuffix("\\").rstrip()
    return (value, formula[tokens[start].start() :]) if _NUMBER_BEFORE.search(value) else (formula, "")


def _tail_words(formula: str, tokens: list[re.Match[str]]) -> tuple[str, str]:
    start = len(tokens)
    while start and _is_part(tokens[start - 1], False) and tokens[start - 1].lastgroup != "slash":
        start -= 1
    while start < len(tokens) and tokens[start].lastgroup not in ("text", "word", "degree"):
        start += 1
    value = formula[: tokens[start].start()].rstrip() if start < len(tokens) else formula
    return (value, formula[len(value) :]) if start < len(tokens) and re.search(r"\d$", value) else (formula, "")


def _is_part(token: re.Match[str], letters: bool) -> bool:
    kind, text = token.lastgroup, token[0]
    if kind == "text":
        content = TEXT.sub(r"\1", text).strip()
        return content not in ("i", "e", "d", "j") and not content.startswith(("and ", "plus ", "minus "))
    if kind == "word":
        return len(text) > 2 or text in _SHORT_BARE or (letters and text not in ("i", "e"))
    return kind in ("degree", "power", "dot", "slash", "blank")


def unit_of(text: str) -> Unit | None:
    """The unit that `text` names, or None where a word in it is not known."""
    text = re.sub(r"\^ ?(?:\\circ|\{ ?\\circ ?\})", " degree ", text)
    text = re.sub(r"\bper\b", "/", TEXT.sub(r" \1 ", text))
    dimension: dict[str, int] = {}
    size, sign, power = Fraction(1), 1, 1
    last: Unit | None = None
    for part in _PARTS.finditer(text):
        token = part[0]
        if token == "/":
            sign, last = -1, None
        elif part[1] or token in ("squared", "cubed"):
            if last is None:
                return None
            extra = (int(part[1]) if part[1] else _POWERS[token]) - 1
            size *= last.size ** (sign * extra)
            for name, exponent in last.dimension:
                dimension[name] = dimension.get(name, 0) + sign * exponent * extra
        elif token in _POWERS:
            power = _POWERS[token]
        else:
            found = _named(token)
            if found is None:
                return None
            size *= found.size ** (sign * power)
            for name, exponent in found.dimension:
                dimension[name] = dimension.get(name, 0) + sign * power * exponent
            last, power = found, 1
    if last is None:
        return None
    return Unit(tuple(sorted((name, exponent) for name, exponent in dimension.items() if exponent)), size)


def _named(word: str) -> Unit | None:
    for name in dict.fromkeys((word, word.lower() if len(word) > 3 else word)):
        for singular in (name, name[:-1] if name.endswith("s") and len(name) > 2 else name):
            if singular in _NAMES:
                return _NAMES[singular]
            for prefix, factor in _PREFIXES.items():
                rest = singular.removeprefix(prefix)
                if rest != singular and rest in (_LONG_PREFIXED if len(prefix) > 2 else _SHORT_PREFIXED):
                    base = _NAMES[rest]
                    return Unit(base.dimension, base.size * Fraction(factor))
    return None


def multiple(unit: str) -> str:
    r"""How many one `\text{ dozen eggs}` or `\text{ tenths}` is, as an expression; 1 for what is no such number."""
    first = re.match(r"[A-Za-z]+", TEXT.sub(r"\1", unit).strip())
    return _MULTIPLES.get(first[0].lower().removesuffix("s"), "1") if first else "1"


def conversion(unit: Unit, other: Unit) -> str | None:
    """How many `other` one `unit` is, as an expression; None where they measure different things."""
    if unit.dimension == other.dimension:
        return str(unit.size / other.size)
    if {unit, other} == {_NAMES["pound"], _NAMES["sterling"]}:
        return "1"
    turn: dict[Dimension, str] = {(("angle", 1),): "180/pi", (("radian", 1),): "pi/180"}
    if unit.dimension in turn and other.dimension in turn:
        return turn[other.dimension]
    return None
