"""The miniatures' own programs without jails, which would take up to four fifths of an arm's time.

A sandbox for texts that are known word for word. Every other program is run by the real one, and so is all code that
they ask to have run, but for the product of two numbers, which is worked out here. For texts that draw, print and keep
nothing between runs, and leave sampling to the run: neither is looked after here. Not the same as in a jail: arguments
of a tool that no channel would carry (62 lists in one another, 131,072 values) end no run, and a text without a
`workflow` has other call seeds (`_Script`).
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Collection
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, cast

from pydantic import JsonValue

from designer.check import CHECK
from engine import run_workflow
from engine.protocol import Engine
from engine.session import Run
from sandbox.host import ProgramCode
from sandbox.language import standard_facades
from sandbox.protocol import Description, Sandbox
from workflow.agent import WorkflowNode
from workflow.bridge import perform
from workflow.environment import Environment
from workflow.messages import Context, Message
from workflow.requests import CodeReply, CodeRun

_WORKFLOW = re.compile(r"^workflow = ", re.MULTILINE)
_INTEGER = r"(-?(?:0|[1-9][0-9]{0,999}))"
_PRODUCT = re.compile(rf"print\({_INTEGER} \* {_INTEGER}\)")
_STANDARD = {
    name: values
    for name, values in standard_facades(seed=0, run_code=perform, write=print).items()
    if name in ("subprocess", "sys")
}
"""As in a jail: what they have run leaves the program as a request."""


def without_jails(behind: Sandbox, sources: Collection[str]) -> Sandbox:
    """A sandbox that runs these programs in this process. All else is the business of the one behind it."""
    return cast(Sandbox, _OwnPrograms(behind, frozenset(sources)))


class _OwnPrograms:
    def __init__(self, behind: Sandbox, sources: frozenset[str]) -> None:
        self._behind, self._sources = behind, sources
        self._described: dict[str, Description] = {}
        self._checked: dict[str, JsonValue] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def describe(self, source: str, question: str = "") -> Description:
        """None of our own programs is built otherwise for another question. A jail that failed is asked again."""
        if source not in self._sources:
            return await self._behind.describe(source, question)
        if source in self._described:
            return self._described[source]
        found = await self._behind.describe(source, question)
        if found.graph is not None:
            self._described[source] = found
        return found

    async def call(self, target: str, payload: JsonValue, **limits: Any) -> JsonValue:
        """A check of the same text always says the same, so it is made once: else each attempt would cost a jail."""
        if target != CHECK:
            return await self._behind.call(target, payload, **limits)
        text = json.dumps(payload)
        if text not in self._checked:
            self._checked[text] = await self._behind.call(target, payload, **limits)
        return self._checked[text]

    async def run_program(self, source: str, question: str, *, engine: Engine, **told: Any) -> Run:
        """As `Sandbox.run_program`."""
        if source not in self._sources or told.get("asking") is not None:
            return await self._behind.run_program(source, question, engine=engine, **told)
        own = {name: value for name, value in told.items() if name not in ("asking", "own_sampling")}
        async with AsyncExitStack() as stack:
            code = ProgramCode(self._behind, stack)

            async def ran(request: CodeRun) -> CodeReply:
                return _worked_out(request) or await code(request)

            return await run_workflow(_own(source), question, engine, code_runner=ran, **own)


def _worked_out(request: CodeRun) -> CodeReply | None:
    """What a jail would reply, where the code prints a product of two integers; None where it is anything else."""
    found = _PRODUCT.fullmatch(request.code)
    return CodeReply(0, f"{int(found[1]) * int(found[2])}\n", "") if found else None


class _Script(WorkflowNode):
    """Runs a program's text as it is. Its agents stand one level deeper than in a jail, below this node."""

    def __init__(self, source: str) -> None:
        super().__init__("script")
        self.code = compile(source, "script.py", "exec")

    def process(self, context: Context) -> Message:
        names = _names() | {"question": context.question, "environment": Environment()}
        exec(self.code, names)
        return Message(names["answer"], sender=self.name)


def _names() -> dict[str, Any]:
    """What a program begins with: it imports as in a jail where that is another module."""

    def imported(name: str, *where: Any) -> Any:
        return _STANDARD.get(name) or __import__(name, *where)

    return {"__builtins__": {**vars(builtins), "__import__": imported}}


@cache
def _own(source: str) -> WorkflowNode:
    if not _WORKFLOW.search(source):
        return _Script(source)
    names = _names()
    exec(compile(source, "program.py", "exec"), names)
    return names["workflow"]
