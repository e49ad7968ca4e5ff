"""The miniature's program without a jail: it is ours, and jails were four fifths of what an arm took.

A sandbox for it alone. Programs that somebody else has written belong into a real one, and so does code that agents
write, which this program has none of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from engine import run_workflow
from engine.protocol import Engine
from engine.session import Run
from sandbox.protocol import Sandbox
from speedrun.at_grpo.levels import PLANNER, TOOL, program
from workflow.agent import WorkflowNode
from workflow.completion import Sampling
from workflow.environment import Environment
from workflow.game import Game
from workflow.limits import Limits
from workflow.messages import Context, Message
from workflow.trace import AgentTurn, Event

_OWN = frozenset(program(tools, acts) for tools in range(8) for acts in (PLANNER, TOOL))


class _OwnProgram(WorkflowNode):
    """Runs the program's text as it is. Its agents stand one level deeper than in a jail, below this node."""

    def __init__(self, source: str) -> None:
        super().__init__("team")
        self.code = compile(source, "team.py", "exec")

    def process(self, context: Context) -> Message:
        names: dict[str, Any] = {"question": context.question, "environment": Environment()}
        exec(self.code, names)
        return Message(names["answer"], sender=self.name)


def without_jails(behind: Sandbox) -> Sandbox:
    """A sandbox that runs our own program in this process. All else is the business of the one behind it."""
    return cast(Sandbox, _OwnPrograms(behind))


class _OwnPrograms:
    def __init__(self, behind: Sandbox) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def run_program(
        self,
        source: str,
        question: str,
        *,
        engine: Engine,
        limits: Limits | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        sink: Callable[[Event], None] | None = None,
        asking: Callable[[AgentTurn], None] | None = None,
        own_sampling: bool = False,
        game: Game | None = None,
    ) -> Run:
        if source not in _OWN or asking is not None:
            return await self._behind.run_program(
                source,
                question,
                engine=engine,
                limits=limits,
                sampling=sampling,
                seed=seed,
                sink=sink,
                asking=asking,
                own_sampling=own_sampling,
                game=game,
            )
        return await run_workflow(
            _own(source), question, engine, limits=limits, sampling=sampling, seed=seed, sink=sink, game=game
        )


@cache
def _own(source: str) -> _OwnProgram:
    return _OwnProgram(source)
