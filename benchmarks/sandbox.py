"""How many runs per second each sandbox makes, and how long one takes, next to other ways to start a jailed Python.

Everything is measured in one run on one machine, and held against one reference row, since milliseconds do not last
but ratios do; with several rounds over all rows their medians count, since neighbours of a virtual machine come and go
in minutes. A peer that is missing is named. Measures no model and no program's own work.

    python -m benchmarks.sandbox [--seconds 3] [--rounds 1] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.overhead import FixedEngine
from sandbox import ProcessSandbox, Sandbox
from workflow.failures import MetaAgentError

CLIENTS = (2, 8)
WARM_UP_S = 5.0
PYTHON = [sys.executable, "-c", "print(1)"]
REFERENCE = "plain subprocess, python -c"
BARE = "bare mechanism of "
RESULTS = Path(__file__).parent / "results" / "sandbox.json"
PROGRAM = """
from workflow import AgentNode, Workflow
workflow = Workflow("one").add_node(AgentNode("Solver", "Solve the problem."))
"""
HARDENED = [
    *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--pids-limit", "64", "--memory", "512m", "--user", "65534:65534", "--log-driver", "none"),
]

Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Row:
    name: str
    clients: int
    p50_ms: float
    p99_ms: float
    runs_per_s: float


def row(name: str, clients: int, took: list[float], wall_s: float) -> Row:
    ordered = sorted(took)
    p50, p99 = (ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1e3 for share in (0.5, 0.99))
    return Row(name, clients, round(p50, 2), round(p99, 2), round(len(took) / wall_s, 1))


async def measured(name: str, run: Run, clients: int, seconds: float) -> Row:
    """One row, after a warm-up under the same load, in which a pool may grow."""

    async def load(duration_s: float) -> tuple[list[float], float]:
        took: list[float] = []
        began = time.perf_counter()

        async def client() -> None:
            while (started := time.perf_counter()) < began + duration_s:
                await run()
                took.append(time.perf_counter() - started)

        await asyncio.gather(*(client() for _ in range(clients)))
        return took, time.perf_counter() - began

    await load(WARM_UP_S)
    return row(name, clients, *await load(seconds))


def command(words: list[str]) -> Run:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, complaint = await asyncio.wait_for(process.communicate(), 60)
        if said != b"1\n":
            raise OSError(f"{words[0]} said {said[:100]!r} instead of 1: {complaint[-300:].decode(errors='replace')}")

    return run


def code(sandbox: Sandbox) -> Run:
    async def run() -> None:
        result = await sandbox.run_code("print(1)")
        if result.stdout != "1\n":
            raise OSError(f"print(1) ended as {result!r}")

    return run


def program(sandbox: Sandbox) -> Run:
    engine = FixedEngine()

    async def run() -> None:
        result = await sandbox.run_program(PROGRAM, "What is 2 + 2?", engine=engine)
        if result.failure is not None:
            raise OSError(f"the program failed: {result.failure.message}")

    return run


async def bare(name: str, clients: int, seconds: float) -> Row:
    """As many loops side by side as there are clients; each of them waits for its own run."""
    backend, _, mode = name.partition("/")
    count = str(int(seconds * 200) + 10)

    async def loop() -> list[float]:
        folder = tempfile.mkdtemp()
        words = [sys.executable, "-m", "benchmarks.bare_container", count]
        if backend == "process":
            words[2:] = ["benchmarks.bare_jail", mode, count, folder]
        try:
            process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            said, complaint = await asyncio.wait_for(process.communicate(), 120)
            if process.returncode:
                raise OSError(complaint[-500:].decode(errors="replace"))
            return json.loads(said)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    ended = await asyncio.gather(*(loop() for _ in range(clients)), return_exceptions=True)
    for failure in ended:  # none is left running when another has failed
        if isinstance(failure, BaseException):
            raise failure
    loops = [times for times in ended if not isinstance(times, BaseException)]
    took = [each for times in loops for each in times]
    return row(f"{BARE}{name}", clients, took, max(map(sum, loops)))


@contextlib.asynccontextmanager
async def docker_exec(image: str) -> AsyncIterator[Run]:
    """docker-py's `exec` in one warm container, in threads as an application on an event loop would."""
    import docker

    client = await asyncio.to_thread(docker.from_env)
    container = await asyncio.to_thread(
        client.containers.run, image, ["-c", "import time; time.sleep(600)"], entrypoint="python",
        detach=True, network_mode="none", read_only=True, cap_drop=["ALL"], labels=["metaagent.benchmark"],
    )  # fmt: skip

    async def run() -> None:
        said = await asyncio.to_thread(container.exec_run, ["python", "-c", "print(1)"])
        if said.output != b"1\n":
            raise OSError(f"docker exec said {said.output!r}")

    try:
        yield run
    finally:
        await asyncio.to_thread(container.remove, force=True)
        client.close()


class Benchmark:
    def __init__(self, seconds: float, console: Console) -> None:
        self.seconds, self.console = seconds, console
        self.rows: list[Row] = []
        self.missing: dict[str, str] = {}

    async def add(
        self, name: str, measure: Callable[[int], Awaitable[Row]], numbers: tuple[int, ...] = CLIENTS
    ) -> None:
        for clients in numbers:
            self.console.print(f"[dim]{name}, {clients} clients[/dim]")
            try:
                self.rows.append(await measure(clients))
            except (MetaAgentError, OSError, TimeoutError) as error:
                self.missing[name] = str(error).strip().splitlines()[-1][:300] if str(error) else type(error).__name__
                return

    async def add_run(self, name: str, run: Run) -> None:
        await self.add(name, lambda clients: measured(name, run, clients, self.seconds))

    async def add_bare(self, name: str) -> None:
        # One loop per core of the machine that the goals name: more would only take time from each other.
        await self.add(BARE + name, lambda clients: bare(name, clients, self.seconds), CLIENTS[:1])

    async def add_sandbox(self, name: str, sandbox: Sandbox) -> None:
        try:
            await self.add_run(f"{name}, code", code(sandbox))
            await self.add_run(f"{name}, programs", program(sandbox))
        finally:
            await sandbox.close()

    async def measure(self) -> None:
        await self.add_run(REFERENCE, command(PYTHON))
        for mode in ("j0", "j"):
            await self.add_bare(f"process/{mode}")
            await self.add_sandbox(f"process/{mode}", ProcessSandbox(mode=mode))
        await self.measure_docker()
        if shutil.which("bwrap"):
            jailed = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *PYTHON]
            await self.add_run("bubblewrap --unshare-all, python -c", command(jailed))
        else:
            self.missing["bubblewrap"] = "no bwrap on the PATH"

    async def measure_docker(self) -> None:
        try:
            import docker
            from docker.errors import DockerException

            from sandbox.containers import DockerSandbox
            from sandbox.image import image_tag

            client = await asyncio.to_thread(docker.from_env)
            await asyncio.to_thread(client.ping)
            client.close()
        except Exception as error:  # of a library that may be absent, or of an engine that is not there
            self.missing["docker"] = f"{type(error).__name__}: {error}"[:300]
            return
        await self.add_bare("docker/warm")
        for tier in ("warm", "strict", "gvisor"):
            await self.add_sandbox(f"docker/{tier}", DockerSandbox(tier=tier))
        try:
            async with docker_exec(image_tag()) as run:
                await self.add_run("docker-py exec, warm container", run)
        except DockerException as error:
            self.missing["docker-py exec"] = str(error)[:300]
        words = ["docker", "run", "--rm", *HARDENED, "--entrypoint", "python", image_tag(), *PYTHON[1:]]
        await self.add_run("docker run --rm, hardened", command(words))

    def take_medians(self) -> None:
        """Of several rounds: one row of each kind, each figure of it a median."""
        rounds: dict[tuple[str, int], list[Row]] = {}
        for each in self.rows:
            rounds.setdefault((each.name, each.clients), []).append(each)
        self.rows = []
        for (name, clients), rows in rounds.items():
            figures = zip(*((one.p50_ms, one.p99_ms, one.runs_per_s) for one in rows), strict=True)
            self.rows.append(Row(name, clients, *(round(statistics.median(each), 2) for each in figures)))

    def table(self) -> Table:
        table = Table(title="Runs of print(1), or of a program with one agent")
        for heading in ("", "clients", "p50 ms", "p99 ms", "runs/s", f"times {REFERENCE}"):
            table.add_column(heading, justify="left" if not heading else "right")
        reference = {each.clients: each.runs_per_s for each in self.rows if each.name == REFERENCE}
        for each in self.rows:
            ratio = each.runs_per_s / reference[each.clients] if each.clients in reference else float("nan")
            values = (f"{each.p50_ms:.1f}", f"{each.p99_ms:.1f}", f"{each.runs_per_s:.0f}", f"{ratio:.2f}")
            table.add_row(each.name, str(each.clients), *values)
        return table

    def of_bare(self) -> list[str]:
        """The sandbox against its bare mechanism, which has a loop per core, with as many clients and with more."""
        lines = []
        for alone in (each for each in self.rows if each.name.startswith(BARE)):
            name = alone.name.removeprefix(BARE)
            ours = [each for each in self.rows if each.name == f"{name}, code"]
            shares = [f"{each.runs_per_s / alone.runs_per_s:.0%} with {each.clients} clients" for each in ours]
            if shares:  # else the sandbox is among what is missing
                lines.append(f"{name} makes of its bare mechanism's runs per second: {', '.join(shares)}")
        return lines


def machine() -> dict[str, str]:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return {"cpu": f"{model} x {os.cpu_count()}", "kernel": platform.release(), "python": platform.python_version()}
    return {"cpu": str(os.cpu_count()), "kernel": platform.release(), "python": platform.python_version()}


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each row")
    parser.add_argument("--rounds", type=int, default=1, help="how often to measure all rows")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    options = parser.parse_args()
    console = Console()
    benchmark = Benchmark(options.seconds, console)
    for _ in range(options.rounds):
        await benchmark.measure()
    benchmark.take_medians()
    console.print(benchmark.table())
    for line in [*benchmark.of_bare(), *(f"missing: {name}: {why}" for name, why in benchmark.missing.items())]:
        console.print(line, soft_wrap=True)
    load = os.getloadavg()[0]
    console.print(f"{machine()}, load average {load:.1f}")
    if options.write:
        kept = {
            "command": f".ci/docker-engine .venv/bin/python -m benchmarks.sandbox --rounds {options.rounds} --write",
            "machine": machine(),
            "load average": round(load, 1),
            "rows": [asdict(each) for each in benchmark.rows],
            "of the bare mechanism": benchmark.of_bare(),
            "missing": benchmark.missing,
        }
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        console.print(f"written to {RESULTS}")


if __name__ == "__main__":
    asyncio.run(main())
