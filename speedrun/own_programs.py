"""The miniatures' own programs without jails, which would take up to four fifths of an arm's time.

A sandbox for texts that are known word for word. Every other program is run by the real one, and so is any in which
what an agent has written becomes code.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any, cast

from engine import run_workflow
from engine.protocol import Engine
from engine.session import Run
from sandbox.protocol import Description, Sandbox
from workflow.agent import WorkflowNode
from workflow.environment import Environment
from workflow.messages import Context, Message

_WORKFLOW = re.compile(r"^workflow = ", re.MULTILINE)


def without_jails(behind: Sandbox, sources: Collection[str]) -> Sandbox:
    """A sandbox that runs these programs in this process. All else is the business of the one behind it."""
    return cast(Sandbox, _OwnPrograms(behind, frozenset(sources)))


class _OwnPrograms:
    def __init__(self, behind: Sandbox, sources: frozenset[str]) -> None:
        self._behind, self._sources = behind, sources
        self._described: dict[str, Description] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def describe(self, source: str, question: str = "") -> Description:
        """None of our own programs is built otherwise for another question."""
        if source not in self._sources:
            return await self._behind.describe(source, question)
        if source not in self._described:
            self._described[source] = await self._behind.describe(source, question)
        return self._described[source]

    async def run_program(self, source: str, question: str, *, engine: Engine, **told: Any) -> Run:
        """As `Sandbox.run_program`."""
        if source not in self._sources or told.get("asking") is not None:
            return await self._behind.run_program(source, question, engine=engine, **told)
        own = {name: value for name, value in told.items() if name not in ("asking", "own_sampling")}
        return await run_workflow(_own(source), question, engine, **own)


class _Script(WorkflowNode):
    """Runs a program's text as it is. Its agents stand one level deeper than in a jail, below this node."""

    def __init__(self, source: str) -> None:
        super().__init__("script")
        self.code = compile(source, "script.py", "exec")

    def process(self, context: Context) -> Message:
        names: dict[str, Any] = {"question": context.question, "environment": Environment()}
        exec(self.code, names)
        return Message(names["answer"], sender=self.name)


@cache
def _own(source: str) -> WorkflowNode:
    if not _WORKFLOW.search(source):
        return _Script(source)
    names: dict[str, Any] = {}
    exec(compile(source, "program.py", "exec"), names)
    return names["workflow"]
