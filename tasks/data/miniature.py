r"""A family of small problems with one right answer each, for policies of a few million weights.

How agents work together matters by the nature of the kinds:

    sum      "What is 47 + 38?"                           one agent is enough
    chain    "Add up 4, 8, 6, 2."                         many easy steps: errors add up, and differ from try to try
    product  "What is 48 * 77?"                           more than can be done in the head: needs a tool
    pair     "Which two of 13, 18, 21, 24 add up to 39?"  hard to find, easy to check

Problems are drawn from a seed; which split one belongs to follows from its kind and its numbers in any order, so splits
are disjoint whatever the seeds, and 8 + 3 is no test for who has learned 3 + 8. Answers are graded as any math answer
is. Nothing here solves a problem step by step or writes files.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from tasks.problems import Problem
from tasks.splits import Split, split_of_identity

Kind = Literal["sum", "chain", "product", "pair"]
KINDS: tuple[Kind, ...] = get_args(Kind)

PAIR_SMALLEST = 10
_TRIES = 1000
"""Draws per problem before a difficulty is called too narrow."""
_NUMBERS = r"\d+(?:, \d+)+"
_FORMS: dict[Kind, re.Pattern[str]] = {
    "sum": re.compile(r"What is (\d+) \+ (\d+)\?"),
    "chain": re.compile(rf"Add up ({_NUMBERS})\."),
    "product": re.compile(r"What is (\d+) \* (\d+)\?"),
    "pair": re.compile(rf"Which two of ({_NUMBERS}) add up to (\d+)\?"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """How large the problems are. Digits are what each number has, terms and numbers are how many there are."""

    sum_digits: int = 2
    chain_digits: int = 1
    chain_terms: int = 4
    product_digits: int = 2
    pair_numbers: int = 4
    pair_largest: int = 25

    def __post_init__(self) -> None:
        least = {"chain_terms": 3, "pair_numbers": 3, "pair_largest": PAIR_SMALLEST + self.pair_numbers - 1}
        for name in self.__slots__:
            if getattr(self, name) < least.get(name, 1):
                raise ValueError(f"{name}={getattr(self, name)}: at least {least.get(name, 1)} is needed")

    def covers(self, reading: Reading) -> bool:
        """Whether a question could have been drawn at this difficulty."""
        if reading.kind == "pair":
            allowed = range(PAIR_SMALLEST, self.pair_largest + 1)
            return len(reading.numbers) == self.pair_numbers and all(number in allowed for number in reading.numbers)
        digits = {"sum": self.sum_digits, "chain": self.chain_digits, "product": self.product_digits}[reading.kind]
        terms = self.chain_terms if reading.kind == "chain" else 2
        return len(reading.numbers) == terms and all(len(str(number)) == digits for number in reading.numbers)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a question of the family asks."""

    kind: Kind
    numbers: tuple[int, ...]
    target: int | None = None
    """What a pair adds up to."""

    @property
    def answer(self) -> str:
        """The gold answer, as agents are to write it."""
        if self.kind == "product":
            return str(self.numbers[0] * self.numbers[1])
        if self.kind == "pair":
            return ", ".join(map(str, self.pairs[0]))
        return str(sum(self.numbers))

    @property
    def pairs(self) -> list[tuple[int, ...]]:
        """The twos of numbers that add up to the target."""
        return [each for each in itertools.combinations(self.numbers, 2) if sum(each) == self.target]


def read(text: str) -> Reading | None:
    """The first question of the family that a text holds, or None."""
    found: list[tuple[int, Kind, re.Match[str]]] = [
        (match.start(), kind, match) for kind, form in _FORMS.items() if (match := form.search(text))
    ]
    if not found:
        return None
    _, kind, match = min(found, key=lambda entry: entry[0])
    if kind in ("sum", "product"):
        return Reading(kind, (int(match[1]), int(match[2])))
    numbers = tuple(map(int, match[1].split(", ")))
    return Reading(kind, numbers, int(match[2]) if kind == "pair" else None)


def is_question(text: str) -> bool:
    """Whether a text is one question of the family and nothing else."""
    return any(form.fullmatch(text.strip()) for form in _FORMS.values())


def split_of(question: str) -> Split:
    """Which split a question of the family belongs to: 70 % train, 10 % validation, 20 % test."""
    reading = read(question)
    assert reading is not None, question
    return split_of_identity(f"{reading.kind} {sorted(reading.numbers)}")


def problems(
    kind: Kind, count: int, *, seed: int, split: Split = "train", difficulty: Difficulty | None = None
) -> list[Problem]:
    """`count` different problems of one kind and split, in the order in which the seed draws them.

    Raises ValueError where the difficulty leaves too few to draw from.
    """
    dice = random.Random(f"{kind} {seed}")
    draw = _DRAW[kind]
    drawn: dict[str, Problem] = {}
    failed = 0
    while len(drawn) < count:
        question = draw(dice, difficulty or Difficulty())
        if question is None or question in drawn or split_of(question) != split:
            failed += 1
            if failed > _TRIES:
                raise ValueError(
                    f"only {len(drawn)} {kind} problems of split {split} were found, {count} are wanted. "
                    "Fix: ask for fewer, or for larger ones (Difficulty)"
                )
            continue
        failed = 0
        reading = read(question)
        assert reading is not None, question
        drawn[question] = Problem(
            id=f"{kind}-{hashlib.blake2b(question.encode(), digest_size=6).hexdigest()}",
            question=question,
            domain="math",
            gold=reading.answer,
        )
    return list(drawn.values())


def mixed(count: int, *, seed: int, split: Split = "train", difficulty: Difficulty | None = None) -> list[Problem]:
    """As many problems of each kind, shuffled; the first kinds get one more where `count` does not divide."""
    each = [count // len(KINDS) + (place < count % len(KINDS)) for place in range(len(KINDS))]
    drawn = [
        problem
        for kind, share in zip(KINDS, each, strict=True)
        for problem in problems(kind, share, seed=seed, split=split, difficulty=difficulty)
    ]
    random.Random(f"mixed {seed}").shuffle(drawn)
    return drawn


def kind_of(problem: Problem) -> Kind:
    """The kind of a problem of the family; ValueError for any other."""
    reading = read(problem.question)
    if reading is None:
        raise ValueError(f"problem {problem.id} is not of the family: {problem.question[:80]!r}")
    return reading.kind


def _number(dice: random.Random, digits: int) -> int:
    return dice.randrange(10 ** (digits - 1), 10**digits)


def _sum(dice: random.Random, difficulty: Difficulty) -> str:
    return "What is {} + {}?".format(*(_number(dice, difficulty.sum_digits) for _ in range(2)))


def _chain(dice: random.Random, difficulty: Difficulty) -> str:
    terms = [_number(dice, difficulty.chain_digits) for _ in range(difficulty.chain_terms)]
    return f"Add up {', '.join(map(str, terms))}."


def _product(dice: random.Random, difficulty: Difficulty) -> str:
    return "What is {} * {}?".format(*(_number(dice, difficulty.product_digits) for _ in range(2)))


def _pair(dice: random.Random, difficulty: Difficulty) -> str | None:
    """None where more than one pair adds up."""
    numbers = sorted(dice.sample(range(PAIR_SMALLEST, difficulty.pair_largest + 1), difficulty.pair_numbers))
    target = sum(dice.sample(numbers, 2))
    if len(Reading("pair", tuple(numbers), target).pairs) != 1:
        return None
    return f"Which two of {', '.join(map(str, numbers))} add up to {target}?"


_DRAW: dict[Kind, Callable[[random.Random, Difficulty], str | None]] = {
    "sum": _sum,
    "chain": _chain,
    "product": _product,
    "pair": _pair,
}
