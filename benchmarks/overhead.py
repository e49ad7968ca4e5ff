"""What the machinery costs: the driver per agent call, a thousand programs at once, the start of a jail.

Prints ratios measured side by side in one run. Needs `pip install "metaagent[bench]"` for LangGraph, and bubblewrap
on the PATH for its row; a missing peer is named, not skipped in silence. Measures no model.

    python -m benchmarks.overhead
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import operator
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Annotated, TypedDict

from rich.console import Console
from rich.table import Table

from engine import Session, drive, run_workflow
from engine.drivers import root_steps
from sandbox import ProcessSandbox
from workflow import AgentNode, Context, EnsembleNode, Workflow, create_simple_chain
from workflow.completion import ChatMessage, Completion, CompletionRequest, Usage
from workflow.limits import Limits
from workflow.nodes import WorkflowNode
from workflow.place import Place
from workflow.requests import AgentCall, AgentReply, Leaf, NodeCall, Report
from workflow.scheduler import Scheduler

MEMBERS = 3
CALLS = MEMBERS + 1
QUESTION = "What is 2 + 2?"
REPLY = r"The answer is \boxed{4}."
PROGRAMS, DEPTH, LATENCY_S = 1000, 5, 0.05
ROUNDS = 5
BARE = "asyncio alone"


class FixedEngine:
    """Answers every request with the same text after `latency_s` seconds."""

    def __init__(self, latency_s: float = 0.0) -> None:
        self.name = "fixed"
        self.latency_s = latency_s
        self.first_request = 0.0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.first_request = self.first_request or time.perf_counter()
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return Completion(text=REPLY, usage=Usage(prompt_tokens=20, completion_tokens=8))

    async def close(self) -> None:
        return None


def ensemble_with_judge() -> Workflow:
    members: list[WorkflowNode] = [AgentNode(f"Solver{i}", "Solve the problem.") for i in range(MEMBERS)]
    judge = AgentNode("Judge", "Pick the best answer.")
    node = EnsembleNode("Ensemble", members, strategy="consensus", consensus_agent=judge)
    return Workflow("ensemble_judge").add_node(node)


async def ask(engine: FixedEngine, system: str, user: str) -> str:
    messages = [ChatMessage(role="system", content=system), ChatMessage(role="user", content=user)]
    return (await engine.complete(CompletionRequest(messages=messages))).text


async def bare_run() -> str:
    """The same four calls with nothing around them but asyncio."""
    engine = FixedEngine()
    answers = await asyncio.gather(*(ask(engine, "Solve the problem.", QUESTION) for _ in range(MEMBERS)))
    return await ask(engine, "Pick the best answer.", "\n".join([QUESTION, *answers]))


def langgraph_run() -> Callable[[], Awaitable[object]]:
    """The same ensemble and judge as a LangGraph, calling the same engine with the same messages."""
    from langgraph.graph import END, START, StateGraph

    engine = FixedEngine()

    class State(TypedDict):
        question: str
        answers: Annotated[list[str], operator.add]
        final: str

    async def solve(state: State) -> dict[str, list[str]]:
        return {"answers": [await ask(engine, "Solve the problem.", state["question"])]}

    async def judge(state: State) -> dict[str, str]:
        return {"final": await ask(engine, "Pick the best answer.", "\n".join([state["question"], *state["answers"]]))}

    graph = StateGraph(State)
    graph.add_node("judge", judge)
    for i in range(MEMBERS):
        graph.add_node(f"solver{i}", solve)
        graph.add_edge(START, f"solver{i}")
        graph.add_edge(f"solver{i}", "judge")
    graph.add_edge("judge", END)
    compiled = graph.compile()
    start: State = {"question": QUESTION, "answers": [], "final": ""}
    return lambda: compiled.ainvoke(start)


async def per_call_us(run: Callable[[], Awaitable[object]], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        await run()
    return (time.perf_counter() - started) / repeats / CALLS * 1e6


class Untraced(Session):
    """Passes requests on to the engine: no trace, no limits, no seeds. What is left is nodes and driver."""

    def __init__(self, engine: FixedEngine) -> None:
        self.engine = engine

    def admit(self, path: str, request: Leaf) -> None:
        pass

    def report(self, path: str, report: Report) -> None:
        pass

    async def serve(self, key: str, path: str, request: Leaf, place: Place = ()) -> AgentReply:
        assert isinstance(request, AgentCall)
        completion = await self.engine.complete(CompletionRequest(messages=request.messages, tools=request.tools))
        return AgentReply(completion.text, completion.finish_reason)


async def driver_overhead(rounds: int = 9, repeats: int = 60) -> dict[str, float]:
    """Median microseconds per agent call of each way to run the same calls, measured in turns."""
    workflow, engine = ensemble_with_judge(), FixedEngine()

    async def driver_alone() -> object:
        return await drive(Scheduler(root_steps(NodeCall(workflow, Context.for_question(QUESTION)))), Untraced(engine))

    async def whole_run() -> object:
        return await run_workflow(workflow, QUESTION, engine)

    runs = {
        BARE: bare_run,
        "metaagent, nodes and driver": driver_alone,
        "metaagent, with trace and limits": whole_run,
        f"LangGraph {version('langgraph')}, without a trace": langgraph_run(),
    }
    for run in runs.values():
        await per_call_us(run, 10)
    samples = [[await per_call_us(run, repeats) for run in runs.values()] for _ in range(rounds)]
    return dict(zip(runs, map(statistics.median, zip(*samples, strict=True)), strict=True))


async def chains_wall_s(programs: int, ready: Callable[[], object] = lambda: None) -> list[float]:
    """Wall seconds of some rounds of many chains at once; `ready` is called before each."""
    engine = FixedEngine(LATENCY_S)
    chain = create_simple_chain([AgentNode(f"Agent{i}", "Do your step.") for i in range(DEPTH)])
    walls = []
    for _ in range(ROUNDS):
        ready()
        started = time.perf_counter()
        runs = await asyncio.gather(*(run_workflow(chain, QUESTION, engine) for _ in range(programs)))
        walls.append(time.perf_counter() - started)
        assert all(run.failure is None for run in runs)
        del runs  # freeing them is not part of the next round
    return walls


def _worker(programs: int, barrier: Barrier, results: Connection) -> None:
    gc.freeze()
    results.send(asyncio.run(chains_wall_s(programs, lambda: barrier.wait(60))))


def two_processes_wall_s() -> float:
    """The same load on both cores: half of the programs in each of two processes, started together."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    workers = [context.Process(target=_worker, args=(PROGRAMS // 2, barrier, theirs)) for _, theirs in pipes]
    for worker in workers:
        worker.start()
    walls = [ours.recv() for ours, _ in pipes]
    for worker in workers:
        worker.join(60)
    return statistics.median(map(max, zip(*walls, strict=True)))


async def bare_wall_s() -> float:
    """The same calls with nothing around them but asyncio."""
    engine = FixedEngine(LATENCY_S)

    async def chain() -> None:
        text = QUESTION
        for _ in range(DEPTH):
            text = f"{QUESTION} {await ask(engine, 'Do your step.', text)}"

    walls = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await asyncio.gather(*(chain() for _ in range(PROGRAMS)))
        walls.append(time.perf_counter() - started)
    return statistics.median(walls)


PROGRAM = """
from workflow import AgentNode, Workflow
workflow = Workflow("one").add_node(AgentNode("Solver", "Solve the problem."))
"""


async def first_request_ms(count: int = 300) -> tuple[str, list[float]]:
    """Milliseconds from asking for a run to its program's first agent call, one after another."""
    async with ProcessSandbox() as sandbox:
        times = []
        for _ in range(count):
            engine = FixedEngine()
            started = time.perf_counter()
            await sandbox.run_program(PROGRAM, QUESTION, engine=engine, limits=Limits(wall_s=30))
            times.append((engine.first_request - started) * 1e3)
        return (await sandbox.strength()).mode, times[20:]


def command_ms(command: list[str], count: int = 40) -> list[float]:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        subprocess.run(command, check=True, timeout=30)
        times.append((time.perf_counter() - started) * 1e3)
    return times


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def main() -> None:
    console = Console()
    gc.freeze()  # as a server would: what the imports made is not looked at again by the collector
    console.print(f"Python {platform.python_version()}, {platform.machine()}")

    times_us = await driver_overhead()
    bare = times_us.pop(BARE)
    unit = min(times_us.values()) - bare
    table = Table("", "us per agent call", "added", "ratio", title="Ensemble of 3 and a judge, zero-latency engine")
    table.add_row(BARE, f"{bare:.0f}", "", "")
    for name, time_us in times_us.items():
        table.add_row(name, f"{time_us:.0f}", f"{time_us - bare:.0f}", f"{(time_us - bare) / unit:.1f}")
    console.print(table)

    title = f"{PROGRAMS} programs of {DEPTH} agent calls at once, {LATENCY_S * 1e3:.0f} ms engine"
    table = Table("", "wall s", "engine share", title=title)
    rows = [(BARE, await bare_wall_s())]
    rows.append(("metaagent, trace included, one process", statistics.median(await chains_wall_s(PROGRAMS))))
    thresholds = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    rows.append(("the same, garbage collector's threshold 50,000", statistics.median(await chains_wall_s(PROGRAMS))))
    gc.set_threshold(*thresholds)
    rows.append(("metaagent, two processes", two_processes_wall_s()))
    for name, wall in rows:
        table.add_row(name, f"{wall:.3f}", f"{DEPTH * LATENCY_S / wall:.0%}")
    console.print(table)

    mode, jailed = await first_request_ms()
    starts = [(f"jailed program (mode {mode}), start to first request", jailed)]
    starts.append(("python -c pass", command_ms([sys.executable, "-c", "pass"])))
    if shutil.which("bwrap"):
        bwrap = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", sys.executable, "-c", "pass"]
        starts.append(("bubblewrap --unshare-all, python -c pass", command_ms(bwrap)))
    else:
        console.print("bubblewrap is not installed (apt-get install bubblewrap): no row for it")
    table = Table("", "p50 ms", "p99 ms", "p50 ratio", title="Start")
    for name, times in starts:
        p50 = percentile(times, 0.5)
        ratio = p50 / percentile(jailed, 0.5)
        table.add_row(name, f"{p50:.1f}", f"{percentile(times, 0.99):.1f}", f"{ratio:.1f}")
    console.print(table)


if __name__ == "__main__":
    asyncio.run(main())
