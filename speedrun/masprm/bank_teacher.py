r"""The teacher of three programs of the bank on sums: an ensemble with a judge, a reflection loop, a tool.

Replies begin with a line of one word, whichever, as the relay's do with a word. A solver works along the whole chain in
one reply, with the relay's mistakes. The judge believes one of the solutions,
more often a right one. The critic misses what is wrong at times, and objects to what is right. Who has the tool leaves
numbers out of the program.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from speedrun.masprm.chains import WORDS, Chain, RelayTeacher, read_chain, wrong_step
from workflow.completion import ChatMessage, Completion, CompletionRequest
from workflow.failures import EngineFailed

_STEP = re.compile(r"\d+\+\d+=(?:\d+|\\boxed\{(\d+)\})")
_OMITTED = 8
"""The number that is left out of programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankTeacher:
    """Satisfies `engine.protocol.Engine`."""

    relay: RelayTeacher = field(default_factory=RelayTeacher)
    believes: float = 0.6
    """The judge takes a right solution where there is one; else any."""
    misses: float = 0.35
    alarms: float = 0.15
    """The critic's: what is wrong is called correct, what is right incorrect."""
    omits: float = 0.65
    name: str = "teacher"

    async def complete(self, request: CompletionRequest) -> Completion:
        messages = request.messages or []
        question = next(message["content"] for message in messages if message["role"] == "user")
        chain, dice = read_chain(question), random.Random(request.sampling.seed)
        if chain is None or not request.agent.endswith(("Solver", "Judge", "Critic")):
            raise EngineFailed(self.name, f"agent {request.agent} asks nothing of the bank's. Fix: ask another engine")
        said = self.reply(request.agent, chain, question, messages, dice)
        return Completion(text=f"{dice.choice(WORDS)}\n{said}")

    async def close(self) -> None:
        pass

    def reply(
        self, agent: str, chain: Chain, question: str, messages: Sequence[ChatMessage], dice: random.Random
    ) -> str:
        if agent.endswith("Judge"):
            return f"\\boxed{{{self._believed(question, dice)}}}"
        if agent.endswith("Critic"):
            shown = _solutions(question)
            right = bool(shown) and wrong_step(question, shown[-1][0]) is None
            says = right != (dice.random() < (self.alarms if right else self.misses))
            return f"Verdict: {'CORRECT' if says else 'INCORRECT'}"
        if agent == "ProgramSolver":
            return self._program(chain, messages[-1], dice)
        return f"<delivery>{self._work(chain, dice)}</delivery>"

    def _work(self, chain: Chain, dice: random.Random) -> str:
        lines, before = [], chain.start
        for step in range(len(chain.numbers)):
            lines.append(self.relay.reply(chain, step, before, dice))
            before = int(re.findall(r"\d+", lines[-1])[-1])
        return "\n".join(lines)

    def _believed(self, question: str, dice: random.Random) -> str:
        shown = _solutions(question)
        right = [each for each in shown if wrong_step(question, each[0]) is None]
        among = right if right and dice.random() < self.believes else shown
        return dice.choice(among)[1] if among else "0"

    def _program(self, chain: Chain, last: ChatMessage, dice: random.Random) -> str:
        if last["role"] == "tool":
            said = re.findall(r"\d+", last["content"])
            return f"\\boxed{{{said[0] if said else 0}}}"
        kept = [number for number in chain.numbers if number != _OMITTED or dice.random() >= self.omits]
        call = {"name": "execute_code", "arguments": {"code": f"print({'+'.join(map(str, [chain.start, *kept]))})"}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def _solutions(text: str) -> list[tuple[list[str], str]]:
    """The steps and the answer of each that is shown, a step on a line."""
    found, steps = list[tuple[list[str], str]](), list[str]()
    for line in text.splitlines():
        step = _STEP.fullmatch(line)
        steps = [*steps, line] if step else []
        if step and step[1]:
            found, steps = [*found, (steps, step[1])], []
    return found
