r"""The teacher of the cold start: an engine that plays the agents of the templates on problems of the family.

It stands where Appendix A has a strong model: it works step by step, and errs as such a model would: it slips in some
chains and products and finds only some pairs at the first try. What it says is kept only where the run's answer is
right. It knows the family's questions (`tasks.data.miniature.read`) and no gold answers. Its pupil is smaller: the
products that it works out without a tool the pupil cannot, which is for RL to find.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.data import Reading, read
from workflow.agent import DELIVERY_REQUEST
from workflow.completion import ChatMessage, Completion, CompletionRequest
from workflow.failures import EngineFailed

_ASKED = DELIVERY_REQUEST.rpartition("{reader}")[2]
_SHOWN = re.compile(r"### From Solver\n(.*)")
_CRITIC = "Is it right?"


@dataclass
class Teacher:
    """`slips` is the chance that a chain goes wrong somewhere, `fumbles` that a product without a tool does, `misses`
    that a pair is only guessed."""

    slips: float = 0.3
    misses: float = 0.5
    fumbles: float = 0.6
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
            call = {"name": "multiply", "arguments": dict(zip("ab", reading.numbers, strict=True))}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        shown = _SHOWN.findall(last["content"])
        if _CRITIC in last["content"] and shown:
            return _review(reading, shown[-1])
        steps, answer = self.solve(reading, dice)
        boxed = f"\\boxed{{{answer}}}"
        return steps + (f"<delivery>{boxed}</delivery>" if last["content"].endswith(_ASKED) else boxed)

    def solve(self, reading: Reading, dice: random.Random) -> tuple[str, str]:
        """Written steps, each on a line of its own, and the answer."""
        if reading.kind == "pair":
            guess = dice.choice(reading.pairs)
            if dice.random() < self.misses:
                guess = tuple(sorted(dice.sample(reading.numbers, 2)))
            return "".join(additions(guess)), ", ".join(map(str, guess))
        lines, terms = [], list(reading.numbers)
        if reading.kind == "product":
            lines, terms = multiplications(*reading.numbers)
        wrong = dice.random() < {"chain": self.slips, "product": self.fumbles}.get(reading.kind, 0)
        lines += additions(terms, dice.randrange(len(terms) - 1) if wrong else None, dice)
        return "".join(lines), lines[-1].split()[-1]


def multiplications(a: int, b: int) -> tuple[list[str], list[int]]:
    """A line for each digit of `b` (of two at least), and what is left to add up."""
    digits = f"{b:02}"
    parts = [int(digit) * 10 ** (len(digits) - place) for place, digit in enumerate(digits, 1)]
    return [f"{a} * {part} = {a * part}\n" for part in parts], [a * part for part in parts]


def additions(numbers: Sequence[int], slip: int | None = None, dice: random.Random | None = None) -> list[str]:
    """Running sums, a line for each addition; the one with number `slip` is wrong by 1 or by 10."""
    lines, total = [], numbers[0]
    for place, number in enumerate(numbers[1:]):
        wrong = dice.choice((-10, -1, 1, 10)) if dice is not None and place == slip else 0
        lines.append(f"{total} + {number} = {total + number + wrong}\n")
        total += number + wrong
    return lines


def _review(reading: Reading, shown: str) -> str:
    """The additions done again, what they come to against what was wanted or said, and the verdict."""
    said = [int(number) for number in re.findall(r"\d+", shown)]
    if reading.kind == "product" or not said:
        return f"<delivery>{shown}</delivery>\nVerdict: CORRECT"
    if reading.kind == "pair":
        right = reading.target == sum(said) and set(said) <= set(reading.numbers) and len(said) == 2
        lines, other = additions(said), reading.target
    else:
        right = said[-1] == sum(reading.numbers)
        lines, other = additions(reading.numbers), said[-1]
    compared = f"{lines[-1].split()[-1]} against {other}"
    return f"{''.join(lines)}<delivery>{compared}</delivery>\nVerdict: {'CORRECT' if right else 'INCORRECT'}"
