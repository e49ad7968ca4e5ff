"""The runs that `benchmarks.soak` mixes: some behave, the others flood, bomb, sleep, fork or are cancelled half way.

Each says how its run has to end, and raises `Wrong` when it ends otherwise. Nothing here looks at what is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from pydantic import JsonValue

from benchmarks.overhead import FixedEngine
from designer.bank import design_from_bank
from designer.check import check_reply
from sandbox import Sandbox
from sandbox.conformance import HOSTILE_TEXTS as TEXTS
from tasks import CallTest, CallTests, StdinTest, StdinTests, grade_code
from workflow.answers import final_answer
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.failures import LimitExceeded
from workflow.limits import CodeLimits, Limits

PRELOAD = "statistics"
PRELOADED = (PRELOAD, "designer.check")
FEW = CodeLimits(wall_s=5, cpu_s=2, memory_mb=64, disk_mb=4, output_bytes=20_000)
GOOD = """
from workflow import AgentNode, EnsembleNode, Workflow
members = [AgentNode(f"m{n}", "Solve.") for n in range(3)]
workflow = Workflow("w").add_node(EnsembleNode("e", members, strategy="majority_vote"))
"""
TOOLS = """
import subprocess, sys
from workflow import AgentNode, Workflow
answer = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout
workflow = Workflow("w").add_node(AgentNode("a", "Solve."))
"""
PARSED = "from workflow import A  # &lt;\n#<code>\nfrom workflow import B # &lt;\n" + "a+b;" * 22_000 + "1 1\n#</code>"
"""A reply in which several long candidates for a program fail at their ends."""
ONE = StdinTests(tests=[StdinTest(stdin="", stdout="123456.5 9\n")])
CALL = CallTests(fn_name="f", tests=[CallTest(args=[], expected=[1, 2.5])])
PROGRAM_LIMITS = Limits(wall_s=5, cpu_s=1, memory_mb=64, output_bytes=50_000)

Case = Callable[[Sandbox], Awaitable[None]]


class Wrong(Exception):
    """A run ended otherwise than it has to."""


def expect(holds: bool, what: object) -> None:
    if not holds:
        raise Wrong(str(what)[:500])


async def good_code(sandbox: Sandbox) -> None:
    result = await sandbox.run_code("import sys; print(sys.stdin.read() * 2)", stdin="ab")
    expect(result.ok and result.stdout == "abab\n", result)


async def good_program(sandbox: Sandbox) -> None:
    run = await sandbox.run_program(GOOD, "q", engine=FixedEngine())
    expect(run.failure is None and "4" in (run.answer or ""), run.failure)


async def program_with_code(sandbox: Sandbox) -> None:
    run = await sandbox.run_program(TOOLS, "q", engine=FixedEngine())
    expect(run.answer == "42\n", (run.answer, run.failure))


async def good_call(sandbox: Sandbox) -> None:
    expect(await sandbox.call(f"{PRELOAD}:fmean", [1, 2, 3]) == 2.0, "the mean of 1, 2, 3")


async def shared_folder(sandbox: Sandbox) -> None:
    async with sandbox.workspace() as folder:
        await folder.write("a", b"one")
        result = await sandbox.run_code("open('b', 'w').write(open('a').read() + ' two')", workspace=folder)
        expect(result.ok and await folder.read("b") == b"one two", result)


async def conversation_left(sandbox: Sandbox) -> None:
    process = await sandbox.start_code("while True: print(input())", limits=FEW)
    await process.write(b"hello\n")
    expect(await process.readline() == b"hello\n", "an echo")
    await process.kill()


def code_that_hits(limit: str, code: str, limits: CodeLimits = FEW) -> Case:
    async def run(sandbox: Sandbox) -> None:
        result = await sandbox.run_code(code, limits=limits)
        expect(result.limit == limit, (limit, result))

    return run


def code_that_fails(code: str) -> Case:
    async def run(sandbox: Sandbox) -> None:
        result = await sandbox.run_code(code, limits=FEW)
        expect(not result.ok and "escaped" not in result.stdout, result)

    return run


def program_that_fails(source: str) -> Case:
    async def run(sandbox: Sandbox) -> None:
        result = await sandbox.run_program(source, "q", engine=FixedEngine(), limits=PROGRAM_LIMITS)
        failure = result.failure
        expect(failure is not None and failure.kind in ("program_failed", "limit_exceeded"), failure)

    return run


def cancelled(start: Callable[[Sandbox], Awaitable[object]]) -> Case:
    async def run(sandbox: Sandbox) -> None:
        task = asyncio.ensure_future(start(sandbox))
        await asyncio.sleep(random.random() * 0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return run


async def call_out_of_time(sandbox: Sandbox) -> None:
    numbers: list[JsonValue] = [1] * 1000
    with contextlib.suppress(LimitExceeded):
        await sandbox.call(f"{PRELOAD}:fmean", numbers, wall_s=0.001)


async def hostile_solution(sandbox: Sandbox) -> None:
    """A solution that prints what a careless comparison would read for days."""
    text = random.choice(list(TEXTS.values()))
    graded = await grade_code(sandbox, f"print({text})", ONE, limits=FEW.model_copy(update={"output_bytes": 1 << 20}))
    expect(not graded.correct and graded.total == 1, graded)


async def hostile_value(sandbox: Sandbox) -> None:
    value = random.choice(
        ["[[]] * 10**5", "'1' * 10**6", "1 << 10**6", "{n: {} for n in range(10**4)}", "float('nan')"]
    )
    graded = await grade_code(
        sandbox, f"def f(): return {value}", CALL, limits=FEW.model_copy(update={"memory_mb": 256})
    )
    expect(not graded.correct and graded.total == 1, graded)


class Echo(FixedEngine):
    """Agents that say a hostile text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    async def complete(self, request: CompletionRequest) -> Completion:
        return Completion(text=self.text, usage=Usage(prompt_tokens=20, completion_tokens=8))


async def hostile_reply(sandbox: Sandbox) -> None:
    text = eval(random.choice(list(TEXTS.values())))
    run = await sandbox.run_program(GOOD, text[:2_000], engine=Echo(text))
    expect(run.failure is None or not run.failure.is_infrastructure, run.failure)
    for domain in ("math", "code"):
        final_answer(run.answer or "", domain)


async def hostile_answer(sandbox: Sandbox) -> None:
    run = await sandbox.run_program(
        f"answer = {random.choice(list(TEXTS.values()))}\n{GOOD}", "q", engine=FixedEngine()
    )
    expect(run.failure is None, run.failure)


async def hostile_problem(sandbox: Sandbox) -> None:
    """What the Designer reads of a problem, and of a reply that should hold a program."""
    text = eval(random.choice(list(TEXTS.values())))
    design_from_bank(text)
    source, report = await check_reply(text, sandbox)
    expect(source is None or not report.ok, source)
    _, report = await check_reply(PARSED, sandbox)
    expect(not report.ok, report)


CASES: dict[str, Case] = {
    "hostile solution": hostile_solution,
    "hostile value": hostile_value,
    "hostile reply": hostile_reply,
    "hostile answer": hostile_answer,
    "hostile problem": hostile_problem,
    "good code": good_code,
    "good program": good_program,
    "program with code": program_with_code,
    "good call": good_call,
    "workspace": shared_folder,
    "conversation left": conversation_left,
    "output flood": code_that_hits("output_bytes", "while True: print('x' * 1000)"),
    "memory bomb": code_that_hits("memory_mb", "x = ' ' * 10**12"),
    "sleeper": code_that_hits("wall_s", "import time; time.sleep(60)", CodeLimits(wall_s=0.3)),
    "fork bomb": code_that_fails("import os\nwhile True: os.fork(); print('escaped')"),
    "thread bomb": code_that_fails(
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    ),
    "descriptor bomb": code_that_fails("import os\nwhile True: os.dup(1)"),
    "disk flood": code_that_fails("f = open('f', 'wb')\nwhile True: f.write(b'x' * 10**6)"),
    "files left": code_that_fails("for n in range(200): open(f'f{n}', 'w')\nraise SystemExit(3)"),
    "program that floods": program_that_fails("while True: print('x' * 1000)"),
    "program that raises": program_that_fails("raise ValueError('no')"),
    "program bomb": program_that_fails("x = ' ' * 10**12"),
    "cancelled code": cancelled(lambda sandbox: sandbox.run_code("import time; time.sleep(5)")),
    "cancelled program": cancelled(lambda sandbox: sandbox.run_program(GOOD, "q", engine=FixedEngine(latency_s=5))),
    "call out of time": call_out_of_time,
}
