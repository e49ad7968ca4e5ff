"""What checks are made of: an engine that answers from a script, a game, small programs, a patient `until`.

Nothing here knows a backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from workflow.completion import Completion, CompletionRequest, Usage
from workflow.environment import Observation
from workflow.game import Played
from workflow.limits import CodeLimits

SHORT = CodeLimits(wall_s=20, cpu_s=10, memory_mb=256)


class Scripted:
    """An engine that answers with a text, or with what a function makes of the request; records what it was asked."""

    name = "scripted"

    def __init__(self, reply: str | Callable[[CompletionRequest], str] = "It is \\boxed{42}.", delay_s: float = 0):
        self._reply, self.delay_s = reply, delay_s
        self.asked: list[CompletionRequest] = []
        self.now = 0
        self.most_at_once = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            await asyncio.sleep(self.delay_s)
            text = self._reply if isinstance(self._reply, str) else self._reply(request)
            return Completion(text=text, usage=Usage(prompt_tokens=10, completion_tokens=5))
        finally:
            self.now -= 1

    async def close(self) -> None:
        return None


@dataclass(frozen=True)
class Steps:
    """A game: three times `go`."""

    taken: int = 0

    @property
    def digest(self) -> str:
        return str(self.taken)

    @property
    def solved(self) -> bool:
        return self.taken == 3

    def observe(self, agent: str) -> Observation:
        return Observation(f"{agent} has taken {self.taken}", self.solved)

    def act(self, agent: str, text: str) -> Played:
        after = Steps(self.taken + (text == "go"))
        wrong = "" if text == "go" else "only go"
        return Played(after=after, seen=after.observe(agent), action=["go"], legal=not wrong, wrong=wrong)


async def until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    """Wait for something that another process does. Raises TimeoutError when it does not."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def workflow_of(*lines: str) -> str:
    """A program of one agent, after some lines of its own."""
    return "\n".join(
        [
            "from workflow import AgentNode, Workflow",
            *lines,
            "workflow = Workflow('w')",
            "workflow.add_node(AgentNode('solver', 'Solve it.'))",
        ]
    )


def tool(code: str, **options: object) -> str:
    """A program that runs `code` as a tool and prints status, stdout and stderr."""
    arguments = ", ".join(f"{name}={value}" for name, value in options.items())
    return workflow_of(
        "import subprocess, sys",
        f"done = subprocess.run([sys.executable, '-c', {code!r}], capture_output=True, text=True, {arguments})",
        "print(done.returncode, done.stdout, done.stderr)",
    )
