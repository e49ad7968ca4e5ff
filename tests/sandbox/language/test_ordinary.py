"""Ordinary Python runs in a program as it runs anywhere; docs/python.md says what does not, and why.

Every probe runs in a jail and in plain Python, and must print the same. With METAAGENT_WRITE_PAGE=1 the page is written
from what was seen; else it must be what was seen. Agents asked side by side may reply in any order.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import ordinary
import pytest
from jails import Scripted

from engine.session import Run
from sandbox import ProcessSandbox
from sandbox.jail.walls import Mode
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.trace import AgentTurn

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
INSIDE = {
    "Syntax": ordinary.SYNTAX,
    "Side by side": ordinary.ASYNC,
    "Classes and functions": ordinary.CLASSES,
    "Builtins": ordinary.BUILTINS,
    "The standard library": ordinary.MODULES,
    "The contract": ordinary.CONTRACT,
}
OUTSIDE = {"What lies outside": ordinary.OUTSIDE}
HEAD = """# Ordinary Python

Programs are plain Python: what touches nothing outside of the program is allowed, but for the lines below that say
why not. `asyncio`, threads and pools run side by side what they start, under the program's own scheduler, the same in
every run: they change places where an agent, a tool or code is asked, and nowhere else. Time is virtual, so that the
time-outs of `asyncio.wait_for`, `asyncio.timeout`, `Future.result` and `Thread.join` never fire. Warnings that nothing
collects are not shown; log records and exceptions do not know file, line or function. An import that nothing uses
is dropped with a warning, whatever it imports. Each line is a small program in
`tests/sandbox/language/ordinary.py`; a test runs them in a jail and in plain Python, compares what they print and
writes this page. How programs are held in is on the page [Sandbox](sandbox.md).

"""
END = """
from workflow import Message as _M, WorkflowNode as _W
class _N(_W):
    def process(self, context): return _M("over")
_node = _N("n")
"""


def plain(source: str) -> str:
    """What plain Python prints."""
    out = io.StringIO()
    root, paths, argv, depth = logging.getLogger(), list(sys.path), sys.argv, sys.getrecursionlimit()
    handlers, level = list(root.handlers), root.level
    sys.argv = ["program.py"]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
            warnings.catch_warnings(),
        ):
            exec(compile(source, "<plain>", "exec", dont_inherit=True), {"__name__": "__main__"})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sys.path[:], sys.argv = paths, argv
        sys.setrecursionlimit(depth)
        root.handlers[:] = handlers
        root.setLevel(level)
    return out.getvalue()


def jailed(mode: Mode, sources: dict[str, str]) -> dict[str, Run]:
    async def main() -> dict[str, Run]:
        slots = asyncio.Semaphore(4)

        async def one(sandbox: ProcessSandbox, source: str) -> Run:
            async with slots:
                return await sandbox.run_program(source, "6 * 7?", engine=Scripted())

        async with ProcessSandbox(mode=mode) as sandbox:
            runs = await asyncio.gather(*(one(sandbox, source) for source in sources.values()))
        return dict(zip(sources, runs, strict=True))

    return asyncio.run(main())


@pytest.fixture(scope="module")
def runs(any_mode: Mode) -> dict[str, Run]:
    probes = {name: source for group in (*INSIDE.values(), *OUTSIDE.values()) for name, source in group.items()}
    return jailed(any_mode, {name: f"{source}\n{END}" for name, source in probes.items()})


def refused(run: Run) -> bool:
    """`exit` ends a program before it has built a workflow."""
    return run.failure is not None and "defines no workflow" not in str(run.failure)


def reason(name: str) -> str:
    return ordinary.REASONS[name]


@pytest.mark.thorough
def test_what_is_allowed_prints_what_plain_python_prints(runs: dict[str, Run]) -> None:
    probes = {name: source for group in INSIDE.values() for name, source in group.items()}
    allowed = {name for name in probes if not refused(runs[name])}
    assert len(probes) >= 200
    assert len(allowed) >= 0.95 * len(probes)
    assert {name for name in probes if name not in allowed} == set(ordinary.REASONS) - set(ordinary.OUTSIDE)
    for name in sorted(allowed):
        assert runs[name].output == ordinary.PRINTS.get(name, plain(probes[name])), name


@pytest.mark.thorough
def test_what_lies_outside_is_refused(runs: dict[str, Run]) -> None:
    assert [name for name in ordinary.OUTSIDE if not refused(runs[name]) or runs[name].output] == []


@pytest.mark.thorough
def test_the_page_says_what_was_seen(runs: dict[str, Run]) -> None:
    page = HEAD
    inside = [name for group in INSIDE.values() for name in group]
    count = sum(not refused(runs[name]) for name in inside)
    page += f"Of {len(inside)} features that touch nothing outside, {count} are allowed.\n"
    for title, group in {**INSIDE, **OUTSIDE}.items():
        page += f"\n## {title}\n\n| feature | in programs | why not |\n|---|---|---|\n"
        for name in group:
            no = refused(runs[name])
            page += f"| {_code(name)} | {'refused' if no else 'allowed'} | {_code(reason(name)) if no else ''} |\n"
    if os.environ.get("METAAGENT_WRITE_PAGE"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "write it anew: METAAGENT_WRITE_PAGE=1 pytest this file"


def _code(text: str) -> str:
    return text.replace("|", "\\|").replace("__", "\\_\\_").replace("*", "\\*")


# Agents side by side

ASKING = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from workflow import AgentNode, Context, Workflow
agents = [AgentNode(name, f"You are {name}. Put it in \\\\boxed{{}}.") for name in ("A", "B", "C")]
def ask(agent): return agent.process(Context.for_question(question)).content
async def asked(agent): return ask(agent)
"""
AGENTS = {
    "asyncio.gather": "async def main(): return await asyncio.gather(*map(asked, agents))\nsaid = asyncio.run(main())",
    "create_task": """
async def main():
    tasks = [asyncio.create_task(asked(agent)) for agent in agents]
    return [await task for task in tasks]
said = asyncio.run(main())
""",
    "TaskGroup": """
async def main():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asked(agent)) for agent in agents]
    return [task.result() for task in tasks]
said = asyncio.run(main())
""",
    "to_thread": """
async def main(): return await asyncio.gather(*(asyncio.to_thread(ask, agent) for agent in agents))
said = asyncio.run(main())
""",
    "ThreadPoolExecutor.map": "with ThreadPoolExecutor(3) as pool: said = list(pool.map(ask, agents))",
    "as_completed": """
with ThreadPoolExecutor() as pool:
    said = [future.result() for future in as_completed([pool.submit(ask, agent) for agent in agents])]
""",
    "threads": """
said = [None] * 3
def work(index): said[index] = ask(agents[index])
threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    "workflows side by side": """
async def run(agent): return Workflow(f"of {agent.name}").add_node(agent).run(question).content
async def main(): return await asyncio.gather(*map(run, agents))
said = asyncio.run(main())
""",
    "one after the other, in each of two": """
async def twice(first, second): return await asked(first), await asked(second)
async def main(): return await asyncio.gather(twice(agents[0], agents[1]), twice(agents[2], agents[0]))
said = asyncio.run(main())
""",
}
DELAYS = ({"A": 0.06, "B": 0.03, "C": 0.0}, {"A": 0.0, "B": 0.03, "C": 0.06}, {"A": 0.03, "B": 0.06, "C": 0.0})


class Late:
    """Answers with the agent's name, later for some than for others."""

    name = "late"

    def __init__(self, delays: dict[str, float]) -> None:
        self._delays = delays
        self.now = self.most_at_once = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        said = next(name for name in self._delays if f"You are {name}." in str(request.messages))
        await asyncio.sleep(self._delays[said])
        self.now -= 1
        return Completion(text=f"\\boxed{{{said}}}", usage=Usage(prompt_tokens=1, completion_tokens=1))

    async def close(self) -> None: ...


def test_agents_are_asked_side_by_side_and_the_run_does_not_depend_on_who_is_first(any_mode: Mode) -> None:
    async def main() -> dict[str, list[tuple[Run, Late]]]:
        found: dict[str, list[tuple[Run, Late]]] = {name: [] for name in AGENTS}

        async def one(sandbox: ProcessSandbox, name: str, delays: dict[str, float]) -> None:
            late = Late(delays)
            source = f"{ASKING}{AGENTS[name]}\nprint(said)\nanswer = str(said)\n"
            found[name].append((await sandbox.run_program(source, "Who?", engine=late), late))

        async with ProcessSandbox(mode=any_mode) as sandbox:
            for delays in DELAYS:
                await asyncio.gather(*(one(sandbox, name, delays) for name in AGENTS))
        return found

    for name, tried in asyncio.run(main()).items():
        assert [run.failure for run, _ in tried] == [None] * len(DELAYS), name
        assert min(late.most_at_once for _, late in tried) > 1, name
        assert len({(run.output, run.answer) for run, _ in tried}) == 1, name
        assert "A" in tried[0][0].output, name
        turns: list[Any] = [
            {(event.key, event.agent) for event in run.trace.events if isinstance(event, AgentTurn)} for run, _ in tried
        ]
        assert turns[0] == turns[1] == turns[2], name
