r"""The teacher of the cold start: an engine that plays the agents of the templates on problems of the family.

It makes mistakes on purpose, and its pupil learns from them: from its conversations as they are, right or wrong. So the
pupil begins with an Executor that RL can better, and what a design is worth depends on the kind of problem, on how its
agents are told to work, and on how good they are by then:

    sum      at once: wrong now and then, another way each time, so a vote helps; step by step: mostly ten too little
    chain    step by step: mostly leaves out the last number, so a vote makes it worse, and helps once this is
             unlearned; at once: hopeless
    product  only with the tool, whose arguments it mistypes at times
    pair     step by step: settles for a wrong pair too soon. A critic finds that, and at times rejects a right one:
             worth its while until the solver seldom errs

It knows the family's questions (`tasks.data.miniature.read`) and no gold answers.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tasks.data import Reading, read
from workflow.agent import DELIVERY_REQUEST
from workflow.completion import ChatMessage, Completion, CompletionRequest
from workflow.failures import EngineFailed

STEPS, AT_ONCE = "step by step", "at once"
"""How the templates tell an agent to work."""
_ASKED = DELIVERY_REQUEST.rpartition("{reader}")[2]
_SHOWN = re.compile(r"### From Solver\n(.*)")
_CRITIC, _AGAIN = "Is it right?", "Find a better answer."


@dataclass(kw_only=True)
class Teacher:
    """The chances of its mistakes."""

    strays: float = 0.35
    """A sum at once is wrong by 1 or by 10."""
    drops: float = 0.9
    """A sum step by step is ten too little."""
    stops: float = 0.75
    """A chain ends before the last number."""
    slips: float = 0.1
    """One addition of a chain is wrong by 1 or by 10."""
    guesses: float = 0.9
    """A chain at once is wrong by up to 5."""
    settles: float = 0.45
    """A pair is taken that does not add up, each time one is tried."""
    mistypes: float = 0.25
    """The tool gets a wrong last digit."""
    alarms: float = 0.4
    """A pair that adds up is called incorrect."""
    plain: bool = False
    """A sum is one step however it is asked for, as a language model does it: no chance, but a way of writing."""
    name: str = "teacher"

    async def complete(self, request: CompletionRequest) -> Completion:
        messages = request.messages or []
        reading = read(messages[1]["content"]) if len(messages) > 1 else None
        if reading is None:
            raise EngineFailed(self.name, f"agent {request.agent} asks nothing of the family. Fix: ask another engine")
        dice = random.Random(request.sampling.seed)
        return Completion(text=self.reply(reading, messages, request.tools, dice))

    async def close(self) -> None:
        pass

    def reply(
        self, reading: Reading, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]], dice: random.Random
    ) -> str:
        last = messages[-1]
        if last["role"] == "tool":
            return f"\\boxed{{{last['content'].strip()}}}"
        if reading.kind == "product" and tools:
            a, b = reading.numbers
            if dice.random() < self.mistypes:
                b = b // 10 * 10 + dice.choice([digit for digit in range(10) if digit != b % 10])
            call = {"name": "multiply", "arguments": {"a": a, "b": b}}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        shown = _SHOWN.findall(last["content"])
        if _CRITIC in last["content"] and shown:
            return self.review(reading, shown[-1], dice)
        at_once = AT_ONCE in messages[0]["content"]
        before = _pair_in(shown[-1]) if shown and _AGAIN in last["content"] else None
        lines, answer = self.solve(reading, at_once, before, dice)
        boxed = f"\\boxed{{{answer}}}"
        return "".join(lines) + (f"<delivery>{boxed}</delivery>" if last["content"].endswith(_ASKED) else boxed)

    def solve(
        self, reading: Reading, at_once: bool, before: tuple[int, ...] | None, dice: random.Random
    ) -> tuple[list[str], str]:
        """Written steps, each on a line of its own, and the answer. `before` is a pair that was not good enough."""
        if reading.kind == "pair":
            lines, pair = self.pair(reading, at_once, before, dice)
            return lines, ", ".join(map(str, pair))
        if reading.kind == "chain":
            lines, total = self.chain(reading, at_once, dice)
        elif reading.kind == "sum":
            lines, total = self.sum(reading, at_once, dice)
        else:
            lines, total = rounded_product(reading, at_once)
        return lines, str(total)

    def sum(self, reading: Reading, at_once: bool, dice: random.Random) -> tuple[list[str], int]:
        a, b = reading.numbers
        if self.plain:
            return additions([a, b]), a + b
        if at_once:
            total = a + b + (_error(dice) if dice.random() < self.strays else 0)
            first, last = dice.choice(((b // 10 * 10, b % 10), (b % 10, b // 10 * 10)))
            return [f"{a} + {b} = {a + first} + {last} = {total}\n"], total
        units, tens = a % 10 + b % 10, a // 10 * 10 + b // 10 * 10
        total = a + b - (10 if dice.random() < self.drops else 0)
        lines = [f"{a % 10} + {b % 10} = {units}\n", f"{a // 10 * 10} + {b // 10 * 10} = {tens}\n"]
        return [*lines, f"{tens} + {units} = {total}\n"], total

    def chain(self, reading: Reading, at_once: bool, dice: random.Random) -> tuple[list[str], int]:
        if at_once:
            total = sum(reading.numbers)
            total += dice.randint(1, 5) * dice.choice((-1, 1)) if dice.random() < self.guesses else 0
            return [f"{' + '.join(map(str, reading.numbers))} = {total}\n"], total
        terms = reading.numbers[: -1 if dice.random() < self.stops else None]
        lines = additions(terms, dice.randrange(len(terms) - 1) if dice.random() < self.slips else None, dice)
        return lines, int(lines[-1].split()[-1])

    def pair(
        self, reading: Reading, at_once: bool, before: tuple[int, ...] | None, dice: random.Random
    ) -> tuple[list[str], tuple[int, ...]]:
        """Tries pairs in their order, after the one `before`, if there are any."""
        tried: list[tuple[int, ...]] = list(combinations(reading.numbers, 2))
        if at_once:
            return [], dice.choice(tried)
        if before in tried[:-1]:
            tried = tried[tried.index(before) + 1 :]
        lines = []
        for pair in tried:
            lines += additions(pair)
            if sum(pair) == reading.target or dice.random() < self.settles:
                return lines, pair
        return lines, tried[-1]

    def review(self, reading: Reading, shown: str, dice: random.Random) -> str:
        """The critic's work, what it comes to against what was wanted or said, and the verdict."""
        said = [int(number) for number in re.findall(r"\d+", shown)]
        if reading.kind == "product" or not said:
            return f"<delivery>{shown}</delivery>\nVerdict: CORRECT"
        if reading.kind == "pair":
            lines, other = additions(said), reading.target
            right = other == sum(said) and set(said) <= set(reading.numbers) and len(said) == 2
            right = right and dice.random() >= self.alarms
        elif reading.kind == "chain":
            (lines, own), other = self.chain(reading, False, dice), said[-1]
            right = own == other
        else:
            (lines, own), other = self.sum(reading, True, dice), said[-1]
            right = own == other
        compared = f"{lines[-1].split()[-1]} against {other}"
        return f"{''.join(lines)}<delivery>{compared}</delivery>\nVerdict: {'CORRECT' if right else 'INCORRECT'}"


FAULTLESS = Teacher(strays=0, drops=0, stops=0, slips=0, guesses=0, settles=0, mistypes=0, alarms=0, plain=True)
"""A language model's teacher. Still wrong where nobody could be right: products in the head, and pairs at once."""


def rounded_product(reading: Reading, at_once: bool) -> tuple[list[str], int]:
    """As near as one comes in the head."""
    a, b = (round(number, -1) for number in reading.numbers)
    return [] if at_once else [f"{a} * {b} = {a * b}\n"], a * b


def additions(numbers: Sequence[int], slip: int | None = None, dice: random.Random | None = None) -> list[str]:
    """Running sums, a line for each addition; the one with number `slip` is wrong by 1 or by 10."""
    lines, total = [], numbers[0]
    for place, number in enumerate(numbers[1:]):
        wrong = _error(dice) if dice is not None and place == slip else 0
        lines.append(f"{total} + {number} = {total + number + wrong}\n")
        total += number + wrong
    return lines


def _error(dice: random.Random) -> int:
    return dice.choice((-10, -1, 1, 10))


def _pair_in(shown: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", shown))
