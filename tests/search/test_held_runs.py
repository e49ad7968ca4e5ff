"""Limits, clocks and bad ends of runs that are held: each as in a run without branches, whether the run that was held
goes on or one that was made anew."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sandbox import ProcessSandbox
from search import Branching, Decision, Ended, OpenRuns, jailed
from search.branching import Position
from search.paths import AgentStep
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.failures import EngineFailed, Failure, SandboxUnavailable
from workflow.limits import Limits

BESIDE = """
import subprocess, time
from workflow import AgentNode, EnsembleNode, Workflow
from workflow.nodes import WorkflowNode
def run(code):
    return subprocess.run(["python", "-c", code], capture_output=True, text=True).stdout
class First(WorkflowNode):
    def process(self, context):
        said = a.process(context)
        {then}
        return a.process(context)
a, b = AgentNode("A", "Say.", max_turns=1), AgentNode("B", "Say.", max_turns=1)
workflow = Workflow("w").add_node(EnsembleNode("E", [First("First"), b]))
"""
SPENT = Completion(text="\\boxed{1}", usage=Usage(prompt_tokens=10, completion_tokens=5))


class Always:
    name = "always"

    def __init__(self, said: Completion | BaseException = SPENT) -> None:
        self.said = said

    async def complete(self, request: CompletionRequest) -> Completion:
        if request.agent == "B":
            await asyncio.sleep(0.3)  # so that it is under way while the other one's limit strikes
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said

    async def close(self) -> None: ...


def in_jails(work: Callable[[ProcessSandbox], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def go() -> Any:
        async with ProcessSandbox(**options) as sandbox:
            return await work(sandbox)

    return asyncio.run(asyncio.wait_for(go(), 90))


async def to_the_end(branching: Branching, position: Position | None = None) -> Ended:
    position = await branching.start() if position is None else position
    while isinstance(position, Decision):
        position = await branching.go_on(position, SPENT)
    await branching.close()
    return position


@pytest.mark.thorough
@pytest.mark.parametrize("most", [1, 64])
@pytest.mark.parametrize(
    ("then", "limits"),
    [
        ("pass", Limits(agent_calls=2)),
        ("pass", Limits(tokens=20)),
        ("print('x' * 9000)", Limits(output_bytes=2000)),
        ("sum(range(10**9))", Limits(cpu_s=1)),
        ("raise KeyboardInterrupt", Limits()),
    ],
    ids=["calls", "tokens", "output", "cpu", "interrupt"],
)
def test_what_ends_a_run_while_another_call_is_held_is_how_it_ends(then: str, limits: Limits, most: int) -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        source = BESIDE.format(then=then)
        plain = await sandbox.run_program(source, "What?", engine=Always(), limits=limits)
        branching = Branching(jailed(sandbox, source, "What?", limits=limits), open_runs=OpenRuns(most))
        ended = await to_the_end(branching)
        assert plain.failure is not None
        assert ended.run.failure is not None
        assert (ended.run.failure.kind, ended.run.failure.fields.get("limit_kind")) == (
            plain.failure.kind,
            plain.failure.fields.get("limit_kind"),
        )

    in_jails(go)


IN_ORDER = """
import subprocess
from workflow import AgentNode, Workflow
def run(code):
    return subprocess.run(["python", "-c", code], capture_output=True, text=True).stdout
one, two = AgentNode("One", "Say.", max_turns=1), AgentNode("Two", "Say.", max_turns=1)
run("import time; time.sleep({first})")
Workflow("A").add_node(one).run("a")
run("import time; time.sleep({second})")
answer = Workflow("B").add_node(two).run("b").content
"""


@pytest.mark.thorough
def test_code_takes_as_much_of_a_run_that_was_made_anew() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        program = jailed(sandbox, IN_ORDER.format(first=2.0, second=2.0), "What?", limits=Limits(wall_s=3.6))
        branching = Branching(program)
        start = await branching.start()
        assert isinstance(start, Decision)
        ends = [await branching.go_on(start, SPENT) for _ in range(3)]
        limits = [end.run.failure and end.run.failure.fields["limit_kind"] for end in ends if isinstance(end, Ended)]
        assert limits == ["wall_s"] * 3
        enough = Branching(jailed(sandbox, IN_ORDER.format(first=0.4, second=0.4), "What?", limits=Limits(wall_s=3)))
        position = await enough.start()
        assert isinstance(position, Decision)
        assert [type(await enough.go_on(position, SPENT)) for _ in range(3)] == [Decision] * 3
        await enough.close()

    in_jails(go)


def test_code_stops_where_the_runs_time_is_over() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        program = jailed(sandbox, IN_ORDER.format(first=0, second=25), "What?", limits=Limits(wall_s=1))
        began = time.monotonic()
        ended = await to_the_end(Branching(program))
        assert ended.run.failure is not None
        assert ended.run.failure.fields["limit_kind"] == "wall_s"
        assert time.monotonic() - began < 15

    in_jails(go)


SIDE_BY_SIDE = """
import subprocess
from workflow import AgentNode, EnsembleNode, Workflow
from workflow.nodes import WorkflowNode
class Runs(WorkflowNode):
    def process(self, context):
        subprocess.run(["python", "-c", "import time; time.sleep(0.8)"])
        return a.process(context)
a = AgentNode("A", "Say.", max_turns=1)
workflow = Workflow("w").add_node(EnsembleNode("E", [Runs(f"R{n}") for n in range(4)]))
"""


def test_code_that_runs_side_by_side_counts_once() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        program = jailed(sandbox, SIDE_BY_SIDE, "What?", limits=Limits(wall_s=2.4))
        ended = await to_the_end(Branching(program))
        assert ended.run.failure is None, "four times 0.8 s would be too long"
        again = await Branching(program).at(ended.path)
        assert isinstance(again, Ended)
        assert again.run.failure is None

    in_jails(go)


def test_what_the_program_computes_counts_while_a_call_is_held() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        source = BESIDE.format(then="sum(range(10**8))")
        ended = await to_the_end(Branching(jailed(sandbox, source, "What?", limits=Limits(wall_s=0.5))))
        assert ended.run.failure is not None
        assert ended.run.failure.fields["limit_kind"] == "wall_s"

    in_jails(go)


def test_a_sandbox_that_is_closed_is_no_path_that_does_not_fit() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        branching = Branching(jailed(sandbox, IN_ORDER.format(first=0, second=0), "What?"), open_runs=OpenRuns(1))
        start = await branching.start()
        assert isinstance(start, Decision)
        after = await branching.go_on(start, SPENT)
        assert isinstance(after, Decision)
        await sandbox.close()
        for again in (branching.at(after.path), branching.go_on(start, SPENT), branching.go_on(after, SPENT)):
            with pytest.raises(SandboxUnavailable, match="closed"):
                await again

    in_jails(go)


def test_a_held_jail_that_is_killed_is_made_anew() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        pool = OpenRuns(2)
        branching = Branching(jailed(sandbox, IN_ORDER.format(first=0, second=0), "What?"), open_runs=pool)
        start = await branching.start()
        assert isinstance(start, Decision)
        after = await branching.go_on(start, SPENT)
        killed = grandchildren()
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.5)
        assert isinstance(after, Decision)
        end = await branching.go_on(after, SPENT)
        assert isinstance(end, Ended)
        assert end.run.failure is None
        others = await asyncio.gather(*(branching.go_on(start, SPENT) for _ in range(4)))
        assert [type(other) for other in others] == [Decision] * 4
        await branching.close()
        assert pool._permits._value == 2

    in_jails(go)


def grandchildren() -> list[int]:
    """Jails, and what waits to become one: all that zygotes, which are children of this process, have forked."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    children = {pid for pid, parent in parents.items() if parent == os.getpid()}
    forked = {pid for pid, parent in parents.items() if parent in children}
    return sorted(forked | {pid for pid, parent in parents.items() if parent in forked})


def test_more_open_runs_than_jails_are_refused() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        program = jailed(sandbox, IN_ORDER, "What?")
        with pytest.raises(ValueError, match=r"8 runs may be open, and the sandbox has 3 jails.*Fix: "):
            Branching(program, open_runs=OpenRuns(8))

    in_jails(go, max_jails=3)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (RuntimeError("defect"), "RuntimeError: defect"),
        (TimeoutError("socket"), "TimeoutError: socket"),
        (asyncio.CancelledError(), "it cancelled a call itself"),
    ],
)
def test_an_engines_own_defect_is_its_failure(raised: BaseException, said: str) -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        branching = Branching(jailed(sandbox, IN_ORDER.format(first=0, second=0), "What?"))
        start = await branching.start()
        assert isinstance(start, Decision)
        with pytest.raises(EngineFailed, match=said):
            await branching.candidate(start, Always(raised), 0)
        impossible = Completion(text="x", token_ids=[1], logprobs=[0.0, 0.0], prompt_token_ids=[1])
        with pytest.raises(EngineFailed, match="a completion that cannot be"):
            await branching.candidate(start, Always(impossible), 0)
        await branching.close()

    in_jails(go)


def test_replies_that_a_limit_tells_apart_are_two_paths() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        branching = Branching(jailed(sandbox, IN_ORDER.format(first=0, second=0), "What?"))
        start = await branching.start()
        assert isinstance(start, Decision)
        others = [
            Completion(text="same", usage=Usage(completion_tokens=count), reasoning=reasoning)
            for count in (5, 80)
            for reasoning in (None, "thought")
        ]
        positions = [await branching.go_on(start, other) for other in others]
        assert len({position.path.digest for position in positions}) == 4
        await branching.close()

    in_jails(go)


def test_only_a_limit_is_a_reply_that_failed() -> None:
    failed = Failure(kind="engine_failed", message="gone")
    with pytest.raises(ValueError, match="a reply that failed with engine_failed is none"):
        AgentStep(key="k", agent="A", messages=[], reply=failed)
