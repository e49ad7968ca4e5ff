r"""The relay: agents work along a chain of numbers, one step each, and the last one answers.

    sum   "Add up 47, 38, 26, 18, 29."          four agents: 47+38=85, 85+26=111, 111+18=129, 129+29=\boxed{158}
    long  a sum of seven numbers                six agents
    rest  "Take 26, 38, 19, 47 away from 260."  four agents

Its teacher is scripted and errs at set rates, mostly in one way that depends on the numbers: where a carry or a borrow
is due and the number ends in 6, 7 or 8, it forgets that more often than not. So its pupil errs greedily as well as by
chance, likelihood does not tell, and whoever works it out does. Which step went wrong can be read off the replies.
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
SMALLEST, LARGEST = 11, 49
"""Of the numbers; what is taken away from is 200 to 299."""
_NUMBERS = r"\d+(?:, \d+)+"
_SUM, _REST = re.compile(rf"Add up ({_NUMBERS})\."), re.compile(rf"Take ({_NUMBERS}) away from (\d+)\.")
_REPLY = re.compile(r"(\d+)([+-])(\d+)=(?:\\boxed\{)?(\d+)\}?")
_FORGETTABLE = (6, 7, 8)
"""Last digits of the numbers where the teacher forgets a carry."""


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
    """Different ones; which split a problem belongs to follows from its numbers in any order."""
    dice, drawn = random.Random(f"{kind} {seed}"), dict[str, Problem]()
    while len(drawn) < count:
        numbers = [dice.randint(SMALLEST, LARGEST) for _ in range(AGENTS[kind])]
        start = dice.randint(200, 299) if kind == "rest" else dice.randint(SMALLEST, LARGEST)
        apart = [start] if kind == "rest" else []
        everything = numbers if kind == "rest" else [start, *numbers]
        if split_of_identity(f"{kind} {apart} {sorted(everything)}") != split:
            continue
        listed = ", ".join(map(str, everything))
        question = f"Take {listed} away from {start}." if kind == "rest" else f"Add up {listed}."
        chain = read_chain(question)
        assert chain is not None
        name = f"{kind}-{hashlib.blake2b(question.encode(), digest_size=6).hexdigest()}"
        drawn[question] = Problem(id=name, question=question, domain="math", gold=str(chain.partials[-1]))
    return list(drawn.values())


def relay_program(agents: int) -> str:
    """An ordinary program: agents one after another, each shown the question and what those before it have said."""
    return f'''from workflow import AgentNode, Workflow

workflow = Workflow("relay")
for step in range(1, {agents}):
    workflow.add_node(AgentNode(f"Agent{{step}}", f"Do step {{step}}.", max_turns=1))
workflow.add_node(AgentNode("Agent{agents}", "Do step {agents} and answer in \\\\boxed{{}}.", max_turns=1))
'''


@cache
def relay_workflow(agents: int) -> WorkflowNode:
    """The same as an object of this process."""
    names: dict[str, WorkflowNode] = {}
    exec(relay_program(agents), names)  # our own text
    return names["workflow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTeacher:
    """Satisfies `engine.protocol.Engine`."""

    forgets: float = 0.65
    """A carry or a borrow, where the number ends in 6, 7 or 8."""
    slips: float = 0.04
    """Any step is wrong by 1."""
    name: str = "teacher"

    async def complete(self, request: CompletionRequest) -> Completion:
        asked = (request.messages or [])[-1]["content"]
        chain, step = read_chain(asked), int(re.sub(r"\D", "", request.agent) or 0) - 1
        if chain is None or not 0 <= step < len(chain.numbers):
            raise EngineFailed(self.name, f"agent {request.agent} asks nothing of the relay. Fix: ask another engine")
        before = [int(found[4]) for found in _REPLY.finditer(asked)]
        dice = random.Random(request.sampling.seed)
        return Completion(text=self.reply(chain, step, before[-1] if before else chain.start, dice))

    async def close(self) -> None:
        pass

    def reply(self, chain: Chain, step: int, before: int, dice: random.Random) -> str:
        number, sign = chain.numbers[step], chain.sign
        result = before + sign * number
        carries = not 0 <= before % 10 + sign * (number % 10) < 10
        if carries and number % 10 in _FORGETTABLE and dice.random() < self.forgets:
            result -= 10 * sign
        elif dice.random() < self.slips:
            result += dice.choice((-1, 1))
        last = step == len(chain.numbers) - 1
        written = f"\\boxed{{{result}}}" if last else str(result)
        return f"{before}{'+' if sign > 0 else '-'}{number}={written}"
