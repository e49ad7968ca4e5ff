r"""Changed and redressed golds, to measure whether the math grader refuses the first and accepts the second.

`mutants` changes a gold's value; `redressed` writes the same value differently. Pure functions over LaTeX text; both
are careful rather than complete: what they cannot surely change, or keep, they leave alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_UNIT = re.compile(r"\s*\\(?:text|mbox)\s*\{[^{}]*\}(?:\^\{?\d\}?)?$")
_WORD = re.compile(r"\\text\s*\{(\(?)([A-Za-z]+)(\)?)\}")
_BINARY = re.compile(r"(?<=[\w})\]])(\s*)([+-])(?=\s*[\w\\(])")
_INTEGER = re.compile(r"-?\d+")
_POWER_OF_TEN = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:\\times|\\cdot)\s*10\^\{?(-?\d+)\}?")
_E_NOTATION = re.compile(r"(-?\d+(?:\.\d+)?)[eE]([+-]?\d+)")
_COMPLEX = re.compile(r"(-?\d+)\s*([+-])\s*(\d*)i")
_OPTION = re.compile(r"(?:\\text\{)?\(?([A-E])\)?\}?")
_BASED = re.compile(r"(\d+)_\{?(\d)\}?")
_BOUNDED = re.compile(r"([(\[])\s*(-?\d+)\s*,\s*(-?\d+)\s*([)\]])")
_TEXT_UNIT = re.compile(r"(.*?)\s*\\(?:text|mbox)\s*\{\s*([a-z]+)\s*\}(?:\^2)?")
_OTHER_UNIT = {"cm": "km", "m": "cm", "inches": "feet", "feet": "inches", "degrees": "radians", "cents": "dollars"}
_OTHER_UNIT |= {"km": "m", "hours": "minutes", "minutes": "hours", "seconds": "minutes"}


def mutants(gold: str) -> list[str]:
    """Formulas near `gold` in writing and different from it in value, without repetition."""
    return sorted({*_mutants(gold), *_wrong_claims(gold)} - {gold})


def _wrong_claims(gold: str) -> Iterator[str]:
    """What holds the gold's text, and says something else: denials, equalities that are false, other options."""
    yield rf"{gold} \text{{ is not right}}"
    yield rf"\text{{not }} {gold}"
    if _INTEGER.fullmatch(gold):
        yield f"{int(gold) + 1} = {gold}"
        yield rf"x = {abs(int(gold)) + 2} \cdot 1 = {gold}"
        yield rf"{gold} \text{{ or }} {int(gold) + 1}"
        if len(gold.lstrip("-")) > 1 and int(gold) > 0:
            yield f"{gold}_{{{max(map(int, gold)) + 1}}}" if "9" not in gold else f"{gold}_{{12}}"
    option = _OPTION.fullmatch(gold)
    if option and ("(" in gold or len(gold) == 1):
        other = chr(ord("A") + (ord(option[1]) - ord("A") + 1) % 5)
        yield rf"\textbf{{({other})}}\ 7"
        yield f"{other}. {option[1]}"
    unit = _TEXT_UNIT.fullmatch(gold)
    if unit and unit[2] in _OTHER_UNIT:
        yield rf"{unit[1]} \text{{ {_OTHER_UNIT[unit[2]]}}}"
    scaled = _POWER_OF_TEN.fullmatch(gold) or _E_NOTATION.fullmatch(gold)
    if scaled:
        yield scaled[1]
        yield f"{scaled[1]}e{int(scaled[2]) + 1}"
        yield rf"{scaled[1]} \times 10^{{{int(scaled[2]) - 1}}}"
        yield rf"{scaled[1]} \times {scaled[2]}"
    number = _COMPLEX.fullmatch(gold)
    if number:
        yield rf"{number[1]} {'-' if number[2] == '+' else '+'} {number[3]} \cdot i"
        yield rf"{number[3] or 1} {number[2]} {number[1].lstrip('-')}i"
    bounded = _BOUNDED.fullmatch(gold)
    if bounded and (bounded[1] == "[" or bounded[4] == "]"):
        yield rf"\{{x \mid {bounded[2]} < x < {bounded[3]}\}}"
    members = [member.strip() for member in gold.split(",")]
    if len(members) > 2 and len(set(members)) < len(members) and all(map(_INTEGER.fullmatch, members)):
        yield ", ".join(dict.fromkeys(members))


def _mutants(gold: str) -> Iterator[str]:
    word = _WORD.fullmatch(gold.strip())
    if word:
        yield from _other_words(*word.groups())
        return
    unit = _UNIT.search(gold)
    value, unit_text = (gold[: unit.start()], gold[unit.start() :]) if unit and unit.start() else (gold, "")
    for changed in _other_values(value):
        yield changed + unit_text


def _other_words(opening: str, word: str, closing: str) -> Iterator[str]:
    other = chr(ord("A") + (ord(word) - ord("A") + 1) % 5) if len(word) == 1 else word[::-1]
    if other.lower() != word.lower():
        yield rf"\text{{{opening}{other}{closing}}}"
    yield rf"\text{{{opening}{word}s{closing}}}"
    yield "7"


def _other_values(value: str) -> Iterator[str]:
    # Another last digit for each run of digits: 0.15 -> 0.16 and 1.15, x^9 -> x^0, 52_8 -> 53_8 and 52_9.
    for run in re.finditer(r"\d+", value):
        last = run.end() - 1
        yield value[:last] + str((int(value[last]) + 1) % 10) + value[last + 1 :]
    # Plus for minus and back, between two operands.
    for sign in _BINARY.finditer(value):
        yield value[: sign.start(2)] + ("-" if sign[2] == "+" else "+") + value[sign.end(2) :]
    # The whole negated, where it is one quantity other than zero.
    single = not re.search(r"[,=\[\]]|\\pm|\\in|\\cup|matrix", value)
    if single and value.strip("0."):
        yield value[1:] if value.startswith("-") else "-" + value
    # Ten times an integer.
    if _INTEGER.fullmatch(value) and int(value):
        yield value + "0"
    # The point of a decimal fraction moved.
    if re.fullmatch(r"-?\d*\.\d+", value):
        yield value.replace(".", "")
    # Numerator and denominator exchanged.
    fraction = re.fullmatch(r"(-?)\\[dt]?frac\{(\w+)\}\{(\w+)\}", value)
    if fraction and fraction[2] != fraction[3]:
        yield rf"{fraction[1]}\frac{{{fraction[3]}}}{{{fraction[2]}}}"
    # Another function or constant.
    yield value.replace(r"\sqrt{", r"\sqrt[3]{")
    yield value.replace(r"\pi", r"e")
    yield value.replace(r"\cot", r"\tan")
    if re.search(r"[\[\]]|\\infty|\\cup", value):
        yield from _other_intervals(value)
    elif re.fullmatch(r"(\\left)?\(.*,.*\)", value):
        yield from _other_tuples(value)
    elif "," in value and re.fullmatch(r"-?\d+(,\s*-?\d+)+", value) and not re.fullmatch(r"\d+(,\d{3})+", value):
        yield value.rpartition(",")[0]  # a list less its last element


def _other_intervals(value: str) -> Iterator[str]:
    """A closed end opened, or an open finite end closed."""
    swap = {"(": "[", "[": "(", ")": "]", "]": ")"}
    for bracket in re.finditer(r"(?:(?<=^)|(?<=\\left)|(?<=\\cup )|(?<=\\in ))\s*([(\[])\s*(?!-\\infty)", value):
        yield value[: bracket.start(1)] + swap[bracket[1]] + value[bracket.end(1) :]
    for bracket in re.finditer(r"(?<!\\infty)(?:\s|\\right)*([)\]])(?=$|\s*\\cup)", value):
        if not value[: bracket.start(1)].rstrip().endswith(r"\infty"):
            yield value[: bracket.start(1)] + swap[bracket[1]] + value[bracket.end(1) :]


def _other_tuples(value: str) -> Iterator[str]:
    """The first two components exchanged, where they differ; a component more."""
    whole = re.fullmatch(r"((?:\\left)?\()(.*?)((?:\\right)?\))", value)
    if whole is None:
        return
    parts = [part.strip() for part in whole[2].split(",")]
    if len(parts) > 1 and parts[0] != parts[1]:
        yield whole[1] + ", ".join([parts[1], parts[0], *parts[2:]]) + whole[3]
    yield whole[1] + ", ".join([*parts, "1"]) + whole[3]


def redressed(gold: str) -> list[str]:
    """Other ways to write the value of `gold`, as agents do, without repetition."""
    return sorted(set(_redressed(gold)) - {gold})


def _redressed(gold: str) -> Iterator[str]:
    yield f"${gold}$"
    yield f" {gold}."
    yield re.sub(r"\\frac(?=\{)", r"\\dfrac", gold)
    yield re.sub(r"\\left|\\right", "", gold)
    if not re.search(r"\\(?:text|mbox|begin)", gold):
        yield re.sub(r"(?<=[\w})])\s*([+-])\s*(?=[\w\\(])", r" \1 ", gold)
        yield re.sub(r"(?<=\d) (?=\\)", "", gold)
    word = _WORD.fullmatch(gold.strip())
    if word:
        yield word[2]
        yield rf"\textbf{{{word[2]}}}"
    if _INTEGER.fullmatch(gold):
        number = int(gold)
        yield f"{number:,}"
        yield f"{number:,}".replace(",", r"{,}")
        yield f"{number}.0"
        yield rf"{number} \text{{ units}}"
        yield rf"x = {number}"
        yield rf"\approx {number}"
        yield rf"= {number}"
        yield rf"\text{{The answer is }} {number}"
        yield rf"{number}_{{10}}"
        yield rf"\boxed{{{number}}}"
        yield rf"{number - 1} + 1 = {number}"
        yield rf"\textbf{{(B)}}\ {number}"
        yield f"{number * 2}/2"
    yield from _redressed_forms(gold)


def _redressed_forms(gold: str) -> Iterator[str]:
    """Forms of numbers, options, sets and quantities that agents like to exchange."""
    option = _OPTION.fullmatch(gold)
    if option and ("(" in gold or len(gold) == 1):
        yield rf"\textbf{{({option[1]})}}\ 7"
        yield f"{option[1]}. 7"
    scaled = _POWER_OF_TEN.fullmatch(gold) or _E_NOTATION.fullmatch(gold)
    if scaled:
        yield f"{scaled[1]}e{int(scaled[2])}"
        yield f"{scaled[1]}E{int(scaled[2])}"
        yield rf"{scaled[1]} \cdot 10^{{{int(scaled[2])}}}"
        yield rf"{scaled[1]}\times10^{{{int(scaled[2]) - 1}}} \times 10"
    number = _COMPLEX.fullmatch(gold)
    if number:
        yield rf"{number[1]} {number[2]} {number[3]} \cdot i" if number[3] else f"{number[1]}{number[2]}i"
        yield rf"z = {number[1]}{number[2]}{number[3]}\,i"
        yield f"{number[2].replace('+', '')}{number[3]}i + ({number[1]})"
    bounded = _BOUNDED.fullmatch(gold)
    if bounded and (bounded[1] == "[" or bounded[4] == "]"):
        left, right = "<" if bounded[1] == "(" else r"\le", "<" if bounded[4] == ")" else r"\le"
        yield rf"\{{x \mid {bounded[2]} {left} x {right} {bounded[3]}\}}"
        yield rf"{bounded[2]} {left} x {right} {bounded[3]}"
    members = [member.strip() for member in gold.split(",")]
    if len(members) > 2 and all(map(_INTEGER.fullmatch, members)) and not re.fullmatch(r"\d+(,\d{3})+", gold):
        yield ", ".join(reversed(members))
        yield rf"\{{{', '.join(members)}\}}"
    unit = _TEXT_UNIT.fullmatch(gold)
    if unit and not gold.endswith("2"):
        yield rf"{unit[1]}\,\mathrm{{{unit[2]}}}"
    based = _BASED.fullmatch(gold)
    if based:
        yield rf"({based[1]})_{{{based[2]}}}"
        yield rf"{based[1]} \text{{ in base }} {based[2]}"
