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


def mutants(gold: str) -> list[str]:
    """Formulas near `gold` in writing and different from it in value, without repetition."""
    return sorted(set(_mutants(gold)) - {gold})


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
        yield f"{number * 2}/2"
