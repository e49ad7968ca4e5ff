r"""The relay: agents work along a chain of numbers, one step each, and the last one answers.

    sum   "Add up 47, 8, 6, 3, 9."          four agents: So 47+8=55, Now 55+6=61, Well 61+3=64, So 64+9=\boxed{73}
    long  a sum of seven numbers            six agents
    rest  "Take 6, 8, 9, 4 away from 60."   four agents

Its teacher is scripted and errs at set rates, mostly in one way that depends on the numbers: where 7 or 8 makes a carry
or a borrow, it forgets that more often than not. So its pupil errs greedily as well as by chance, likelihood does not
tell, and whoever works it out does. Which step went wrong can be read off the replies.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from tasks import Problem
from tasks.splits import Split, split_of_identity
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed
from workflow.nodes import WorkflowNode

Kind = Literal["sum", "long", "rest"]
KINDS: tuple[Kind, ...] = get_args(Kind)
AGENTS: Mapping[Kind, int] = {"sum": 4, "long": 6, "rest": 4}
NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Fay")
SMALLEST, LARGEST = 3, 9
"""Of the numbers, but for the first."""
STARTS: Mapping[Kind, tuple[int, int]] = {"sum": (11, 49), "long": (11, 49), "rest": (50, 89)}
_NUMBERS = r"\d+(?:, \d+)+"
_SUM, _REST = re.compile(rf"Add up ({_NUMBERS})\."), re.compile(rf"Take ({_NUMBERS}) away from (\d+)\.")
WORDS = ("So", "Then", "Now", "Next", "Here", "Well")
"""A reply begins with one of them, whichever: replies of one sense differ in their text, as those of large models do,
and are not all one child of a search."""
_REPLY = re.compile(r"(?:[A-Z][a-z]+ )?(?<!\d)(\d++)([+-])(\d++)=(?:\\boxed\{)?(\d++)\}?")
_FORGETTABLE = (7, 8)
"""Numbers with which the teacher forgets a carry."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What a question asks."""

    start: int
    numbers: tuple[int, ...]
    sign: Literal[1, -1]

    @property
    def partials(self) -> list[int]:
        """What is right after each step."""
        return [self.start + self.sign * sum(self.numbers[: step + 1]) for step in range(len(self.numbers))]


def read_chain(text: str) -> Chain | None:
    """The first question of the relay that a text holds."""
    if found := _SUM.search(text):
        first, *others = map(int, found[1].split(", "))
        return Chain(first, tuple(others), 1)
    if found := _REST.search(text):
        return Chain(int(found[2]), tuple(map(int, found[1].split(", "))), -1)
    return None


def result_of(reply: str) -> int | None:
    """What a step came to, by its reply."""
    found = _REPLY.fullmatch(reply.strip())
    return int(found[4]) if found else None


def wrong_step(question: str, replies: Sequence[str]) -> int | None:
    """The first step, from 0, that does not come to what is right by then; None where none went wrong."""
    chain = read_chain(question)
    assert chain is not None, question
    right = chain.partials
    return next((step for step, reply in enumerate(replies) if result_of(reply) != right[step]), None)


def chain_problems(kind: Kind, count: int, seed: int, split: Split) -> list[Problem]:
    """Different ones; which split one belongs to follows from its first number and the others in any order."""
    dice, drawn = random.Random(f"{kind} {seed}"), dict[str, Problem]()
    while len(drawn) < count:
        numbers = [dice.randint(SMALLEST, LARGEST) for _ in range(AGENTS[kind])]
        start = dice.randint(*STARTS[kind])
        if split_of_identity(f"{kind} {start} {sorted(numbers)}") != split:
            continue
        listed = ", ".join(map(str, numbers if kind == "rest" else [start, *numbers]))
        question = f"Take {listed} away from {start}." if kind == "rest" else f"Add up {listed}."
        chain = read_chain(question)
        assert chain is not None
        name = f"{kind}-{hashlib.blake2b(question.encode(), digest_size=6).hexdigest()}"
        drawn[question] = Problem(id=name, question=question, domain="math", gold=str(chain.partials[-1]))
    return list(drawn.values())


def relay_program(agents: int) -> str:
    """An ordinary program: agents one after another, each shown the question and what those before it have said."""
    return f"""from workflow import AgentNode, Workflow

workflow = Workflow("relay")
for step, name in enumerate({NAMES[:agents]!r}, 1):
    told = f"Do step {{step}}." if step < {agents} else f"Do step {{step}} and answer in \\\\boxed{{{{}}}}."
    workflow.add_node(AgentNode(name, told, max_turns=1))
"""


@cache
def workflow_of(program: str) -> WorkflowNode:
    """A program of our own as an object of this process."""
    names: dict[str, WorkflowNode] = {}
    exec(program, names)
    return names["workflow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTeacher:
    """Satisfies `engine.protocol.Engine`."""

    forgets: float = 0.7
    """A carry or a borrow with 7 or 8."""
    slips: float = 0.06
    """Any step is wrong by 1."""
    name: str = "teacher"

    async def complete(self, request: CompletionRequest) -> Completion:
        asked = (request.messages or [])[-1]["content"]
        chain = read_chain(asked)
        step = NAMES.index(request.agent) if request.agent in NAMES else len(NAMES)
        if chain is None or step >= len(chain.numbers):
            raise EngineFailed(self.name, f"agent {request.agent} asks nothing of the relay. Fix: ask another engine")
        before = [int(found[4]) for found in _REPLY.finditer(asked)]
        dice = random.Random(request.sampling.seed)
        said = self.reply(chain, step, before[-1] if before else chain.start, dice)
        return Completion(text=f"{dice.choice(WORDS)} {said}")

    async def close(self) -> None:
        pass

    def reply(self, chain: Chain, step: int, before: int, dice: random.Random) -> str:
        number, sign = chain.numbers[step], chain.sign
        result = before + sign * number
        carries = not 0 <= before % 10 + sign * number < 10
        if carries and number in _FORGETTABLE and dice.random() < self.forgets:
            result -= 10 * sign
        elif dice.random() < self.slips:
            result += dice.choice((-1, 1))
        last = step == len(chain.numbers) - 1
        written = f"\\boxed{{{result}}}" if last else str(result)
        return f"{before}{'+' if sign > 0 else '-'}{number}={written}"
