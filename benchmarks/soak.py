"""A long mix of good and hostile runs, and then a look at what they left behind: nothing, or a verdict that says what.

Several clients run programs, code, calls and workspaces that behave, and others that flood, bomb, sleep, fork or are
cancelled half way. Every outcome is checked. Meanwhile processes, descriptors, temporary files, containers and memory
of the host and its zygotes are sampled. The exit status is 0 when nothing leaked and memory stayed flat.

    python -m benchmarks.soak --minutes 10 --sandbox process/j0
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from benchmarks.overhead import FixedEngine
from metaagent.running import DOCKER_TIERS
from sandbox import ProcessSandbox, Sandbox
from sandbox.containers import DockerSandbox
from workflow.failures import LimitExceeded, SandboxUnavailable
from workflow.limits import CodeLimits, Limits

CLIENTS = 6
PRELOAD = "statistics"
COUNTED = ("processes", "descriptors", "files", "containers")
CONNECTIONS = 40  # descriptors that a pool of containers and its engine's client may come to hold
SLACK_MB = 12.0
"""Growth of one process's memory, between the first and the last third, that allocators cause without a leak."""
SLACK_SHARE = 0.10
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


CASES: dict[str, Case] = {
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


@dataclass
class Sample:
    """What there is at one moment."""

    at_s: float
    processes: int
    descriptors: int
    """Of the host and of all its processes."""
    files: int
    """Temporary files and folders of sandboxes, with what is in them."""
    containers: int
    memory_mb: dict[int, float] = field(default_factory=dict)
    """Resident memory by process id: the host and what it has started itself."""


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(child) for each in lists for child in each]
    return []


def descendants(pid: int) -> list[int]:
    return [each for child in children(pid) for each in (child, *descendants(child))]


def resident_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return 0.0


def open_descriptors(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def containers(name: str) -> int:
    if not name.startswith("docker"):
        return 0
    import docker

    client = docker.from_env()
    try:
        return len(client.containers.list(all=True, filters={"label": "metaagent.session"}))
    finally:
        client.close()


def sample(name: str, zygotes: list[int], began: float) -> Sample:
    """`zygotes` are the processes whose folders are looked into; another sandbox's files are not ours to count."""
    here = os.getpid()
    own = [here, *children(here)]
    folders = [path for path in Path(tempfile.gettempdir()).glob("metaagent-*") if used_by(path, zygotes)]
    files = sum(len(inside) + len(names) for folder in folders for _, inside, names in os.walk(folder))
    everything = [here, *descendants(here)]
    return Sample(
        time.monotonic() - began,
        len(everything),
        sum(map(open_descriptors, everything)),
        files,
        containers(name),
        {pid: resident_mb(pid) for pid in own},
    )


def used_by(folder: Path, zygotes: list[int]) -> bool:
    for pid in zygotes:
        with contextlib.suppress(OSError):
            if str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
    return False


def remains(before: Sample, after: Sample, counted: Sequence[str] = COUNTED) -> list[str]:
    """What there is more of."""
    pairs = [(what, getattr(before, what), getattr(after, what)) for what in counted]
    return [f"{what}: {was} before, {now} after" for what, was, now in pairs if now > was]


def verdict(before: Sample, after: Sample, samples: list[Sample]) -> list[str]:
    """What leaked; empty when nothing did. Of containers, and of connections to them and to their engine, there are now
    more and now fewer: whether all of them are given back shows when the sandbox is closed (`remains`)."""
    counted = COUNTED
    if before.containers or after.containers:
        beyond = after.descriptors > before.descriptors + CONNECTIONS
        counted = ("processes", "files", "descriptors") if beyond else ("processes", "files")
    found = remains(before, after, counted)
    third = len(samples) // 3
    if third:
        for pid in after.memory_mb:
            early = [each.memory_mb[pid] for each in samples[:third] if pid in each.memory_mb]
            late = [each.memory_mb[pid] for each in samples[-third:] if pid in each.memory_mb]
            if early and late:
                was, now = statistics.median(early), statistics.median(late)
                if now > was + max(SLACK_MB, SLACK_SHARE * was):
                    found.append(f"memory of process {pid}: {was:.1f} MB in the first third, {now:.1f} MB in the last")
    return found


@dataclass
class Report:
    ran: Counter[str]
    wrong: list[str]
    leaks: list[str]
    before: Sample
    after: Sample
    samples: list[Sample]


async def soak(
    sandbox: Sandbox,
    name: str,
    seconds: float,
    *,
    seed: int = 0,
    patience_s: float = 10.0,
    progress: Callable[[int, float], None] | None = None,
) -> Report:
    """Run the mix for so long (at least every case once), with the sandbox warm before and idle after.

    What is still there `patience_s` after the last run counts as left behind.
    """
    chance = random.Random(seed)
    ran: Counter[str] = Counter()
    wrong: list[str] = []

    async def one(case: str) -> None:
        try:
            await asyncio.wait_for(CASES[case](sandbox), 60)
        except Exception as error:
            wrong.append(f"{case}: {type(error).__name__}: {error}"[:600])
        ran[case] += 1

    for case in CASES:  # everything is started and cached before anything is counted
        await one(case)
    began = time.monotonic()
    zygotes = children(os.getpid())
    before = await settled(lambda: sample(name, zygotes, began), patience_s)
    samples: list[Sample] = []

    async def client() -> None:
        while time.monotonic() < began + seconds:
            await one(chance.choice(list(CASES)))

    async def watch() -> None:
        while True:
            samples.append(sample(name, zygotes, began))
            if progress is not None:
                progress(sum(ran.values()), samples[-1].memory_mb[os.getpid()])
            await asyncio.sleep(max(seconds / 60, 0.2))

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    after = await settled(lambda: sample(name, zygotes, began), patience_s, like=before)
    return Report(ran, wrong, verdict(before, after, samples), before, after, samples)


async def settled(look: Callable[[], Sample], patience_s: float, like: Sample | None = None) -> Sample:
    """A sample once nothing goes away any more: jails that were killed are reaped, their folders removed."""
    last = look()
    for _ in range(int(patience_s * 10)):
        await asyncio.sleep(0.1)
        now = look()
        same = (now.processes, now.descriptors, now.files) == (last.processes, last.descriptors, last.files)
        back = like is None or (now.processes <= like.processes and now.descriptors <= like.descriptors)
        if same and back:
            return now
        last = now
    return last


def sandbox_of(name: str) -> Sandbox:
    if name in ("process/j", "process/j0"):
        return ProcessSandbox(mode="j" if name == "process/j" else "j0", preload=(PRELOAD,))
    if name not in DOCKER_TIERS:
        raise SystemExit(f"--sandbox {name}: choose process/j, process/j0, {', '.join(DOCKER_TIERS)}")
    return DockerSandbox(tier=DOCKER_TIERS[name], preload=(PRELOAD,))


async def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sandbox", default="process/j0")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()
    containers(options.sandbox)  # what asking loads and opens for good is no leak
    cold = sample(options.sandbox, [], time.monotonic())
    sandbox = sandbox_of(options.sandbox)
    try:
        await sandbox.strength()
    except SandboxUnavailable as error:
        console.print(f"{options.sandbox} was not soaked, since this machine cannot run it: {error}", soft_wrap=True)
        await sandbox.close()
        return 0
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("warming up")
        report = await soak(
            sandbox,
            options.sandbox,
            options.minutes * 60,
            seed=options.seed,
            progress=lambda runs, mb: bar.update(task, description=f"{runs} runs, host {mb:.0f} MB"),
        )
    await sandbox.close()
    closed = await settled(lambda: sample(options.sandbox, [], time.monotonic()), 10, like=cold)
    report.leaks += [f"{leak}, once the sandbox was closed" for leak in remains(cold, closed)]
    minutes = report.after.at_s / 60
    console.print(f"{options.sandbox}: {sum(report.ran.values())} runs in {minutes:.1f} minutes, {CLIENTS} clients")
    for what in COUNTED:
        cold_warm_after = ", ".join(str(getattr(each, what)) for each in (cold, report.before, report.after, closed))
        console.print(f"{what} before the sandbox, warm, after the runs, once it is closed: {cold_warm_after}")
    for pid, now in report.after.memory_mb.items():
        who = "host" if pid == os.getpid() else f"process {pid}"
        console.print(f"memory of {who}: {report.before.memory_mb.get(pid, 0):.1f} MB before, {now:.1f} MB after")
    for line in [f"leak: {leak}" for leak in report.leaks] + [f"wrong: {each}" for each in report.wrong[:20]]:
        console.print(line, style="red", soft_wrap=True)
    if report.leaks or report.wrong:
        console.print(f"verdict: {len(report.leaks)} leaks, {len(report.wrong)} wrong outcomes")
        return 1
    console.print("verdict: nothing leaked, memory stayed flat, every outcome as it has to be")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
