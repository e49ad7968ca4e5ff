"""A long mix of good and hostile runs, and then a look at what they left behind: nothing, or a verdict that says what.

Several clients run programs, code, calls and workspaces that behave, and others that flood, bomb, sleep, fork or are
cancelled half way. Every outcome is checked. Meanwhile processes, descriptors, temporary files, containers and memory
of the host, its zygotes and its containers are sampled. The exit status is 0 when nothing leaked and memory stayed
flat, and the event loop never stood still for half a second.

    python -m benchmarks.soak --minutes 10 --sandbox process/j0
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from benchmarks.soak_mix import CASES, PRELOADED
from engine.stall_watch import STALL_S, StallWatch
from sandbox import ProcessSandbox, Sandbox
from sandbox.containers import DockerSandbox
from sandbox.named import DOCKER_TIERS
from workflow.failures import SandboxUnavailable

CLIENTS = 6
COUNTED = ("processes", "descriptors", "files", "containers")
CONNECTIONS = 40  # descriptors that a pool of containers and its engine's client may come to hold
SLACK_MB = 12.0
"""Growth of one process's memory, between the first and the last third, that allocators cause without a leak."""
SLACK_SHARE = 0.10


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
    """Resident memory by process id: the host, what it has started itself, and the same in every container."""


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


def trim() -> None:
    """Give back what glibc keeps of memory that the host has freed: the largest texts, and no leak."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def open_descriptors(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def containers(name: str) -> list[int]:
    """The first process of each, as this machine numbers it (0 before it runs)."""
    if not name.startswith("docker"):
        return []
    import docker

    client = docker.from_env()
    try:
        found = client.containers.list(all=True, ignore_removed=True, filters={"label": "metaagent.session"})
        return [each.attrs["State"]["Pid"] for each in found]
    finally:
        client.close()


def sample(name: str, zygotes: list[int], began: float) -> Sample:
    """`zygotes` are the processes whose folders are looked into; another sandbox's files are not ours to count."""
    here = os.getpid()
    trim()
    inside = containers(name)
    own = [here, *children(here), *(pid for first in inside if first for pid in (first, *children(first)))]
    folders = [path for path in Path(tempfile.gettempdir()).glob("metaagent-*") if used_by(path, zygotes)]
    files = sum(len(below) + len(names) for folder in folders for _, below, names in os.walk(folder))
    everything = [here, *descendants(here)]
    return Sample(
        time.monotonic() - began,
        len(everything),
        sum(map(open_descriptors, everything)),
        files,
        len(inside),
        {pid: size for pid in own if (size := resident_mb(pid))},
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
    longest_stall_s: float = 0.0
    """In which the host's event loop stood still while the mix ran."""


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

    for case in CASES:  # everything is started and cached, and the largest texts have met, before anything is counted
        await asyncio.gather(*(one(case) for _ in range(CLIENTS)))
    zygotes = children(os.getpid())
    before = await settled(lambda: sample(name, zygotes, time.monotonic()), patience_s)
    began = time.monotonic()
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
    async with StallWatch() as stalls:
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    wrong += [f"the event loop stood still for {stall.seconds:.2f} s in:\n{stall.stack}" for stall in stalls.stalls]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    after = await settled(lambda: sample(name, zygotes, began), patience_s, like=before)
    return Report(ran, wrong, verdict(before, after, samples), before, after, samples, stalls.longest_s)


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
        return ProcessSandbox(mode="j" if name == "process/j" else "j0", preload=PRELOADED)
    if name not in DOCKER_TIERS:
        raise SystemExit(f"--sandbox {name}: choose process/j, process/j0, {', '.join(DOCKER_TIERS)}")
    return DockerSandbox(tier=DOCKER_TIERS[name], preload=PRELOADED)


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
    console.print(f"longest stall of the event loop: {report.longest_stall_s:.3f} s (at most {STALL_S:g} s)")
    for line in [f"leak: {leak}" for leak in report.leaks] + [f"wrong: {each}" for each in report.wrong[:20]]:
        console.print(line, style="red", soft_wrap=True)
    if report.leaks or report.wrong:
        console.print(f"verdict: {len(report.leaks)} leaks, {len(report.wrong)} wrong outcomes")
        return 1
    console.print("verdict: nothing leaked, memory stayed flat, every outcome as it has to be")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
