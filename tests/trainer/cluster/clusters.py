"""Runs on a real Ray for tests: one Ray per session, configurations for two cores, and what a run is disturbed by."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training import configured, metrics

from trainer.cluster.runtime import ClusterRuntime
from trainer.cluster.seats import Seat
from trainer.config import TrainConfig
from trainer.run.loop import train
from trainer.run.runtime import Phase, Watch

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # as in the runs in one process that are compared; sums depend on it
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_memory_monitor_refresh_ms": "0",  # others' memory on this machine is no business of these tests
    "RAY_raylet_start_wait_time_s": "180",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
for _name, _value in ENVIRONMENT.items():  # before Ray is imported, which reads some of it then
    os.environ.setdefault(_name, _value)


@contextmanager
def ray_of_its_own(cpus: int = 4) -> Iterator[str]:
    """A head node in a session of its own; its address."""
    port = 20_000 + os.getpid() % 20_000
    words = [Path(sys.executable).parent / "ray", "start", "--head", "--block", "--port", port, "--num-cpus", cpus]
    words += ["--include-dashboard", "false", "--disable-usage-stats", "--node-ip-address", "127.0.0.1"]
    words += ["--dashboard-agent-listen-port", port + 1]
    with head_node(list(map(str, words)), f"/tmp/ray-{os.getpid()}"):
        yield f"127.0.0.1:{port}"


@contextmanager
def head_node(words: list[str], folder: str, **options: Any) -> Iterator[None]:
    """A `ray start --block`, and all that is in its process group, until the end. No `ray stop`, which would end the
    Rays of others, too; no SIGTERM, after which a node waits half a minute for whoever may drain it."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    head = subprocess.Popen([*words, "--temp-dir", folder], start_new_session=True, **quiet)
    try:
        yield
    finally:
        os.killpg(head.pid, signal.SIGKILL)
        head.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def clustered(model: Path, problems: Path, address: str, *, engines: int = 1, ranks: int = 0, **changes: Any) -> Any:
    """As `training.configured`, spread: `ranks` of DeepSpeed at stage 3, or one of plain torch, and float64 engines."""
    cluster = {
        "layout": "disaggregated",
        "address": address,
        "gpus_per_node": 0,
        "run_workers_per_node": 2,
        "heartbeat_s": 3.0,
        "start_timeout_s": 300.0,
        "call_timeout_s": 120.0,
        "collective_timeout_s": 30.0,
        "restarts_per_hour": 20,
        **changes.pop("cluster", {}),
    }
    config = configured(model, problems, **changes).model_dump(mode="json")
    for policy in config["policies"].values():
        policy["engine"]["replicas"] = engines
        if ranks:
            policy["update"] = {"backend": "deepspeed", "ranks": ranks, "zero_stage": 3}
    return TrainConfig.model_validate({**config, "cluster": cluster})


def alone(config: TrainConfig) -> TrainConfig:
    """The same run for one process."""
    values = config.model_dump(mode="json")
    values["cluster"] = {}
    for policy in values["policies"].values():
        policy["engine"]["replicas"] = 1
        policy["update"] = {}
    return TrainConfig.model_validate(values)


def run(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    disturb: Callable[[ClusterRuntime, object], None] = lambda *_: None,
    watch: Watch = lambda _: None,
    limit_s: float = 600,
    make: Callable[[TrainConfig], ClusterRuntime] = ClusterRuntime,
) -> list[str]:
    """Train to the end; `disturb` sees every event before the run goes on. Returns the names of the phases."""
    runtime = make(config)
    phases: list[str] = []

    def seen(event: Any) -> None:
        if isinstance(event, Phase):
            phases.append(event.name)
        watch(event)
        disturb(runtime, event)

    async def work() -> None:
        async with asyncio.timeout(limit_s):
            await train(runtime, out, resume=resume, watch=seen)

    asyncio.run(work())
    return phases


def seats(runtime: ClusterRuntime, kind: str) -> list[Seat]:
    """Those of a kind of process, such as `rank`."""
    return [seat for seat in runtime._assembly.seats.seated if seat.process.kind == kind]


def hit(seat: Seat, how: signal.Signals) -> None:
    """Send a signal to the process that sits there."""
    assert seat.identity is not None
    os.kill(seat.identity.pid, how)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], within_s: float) -> bool:
    ends = time.monotonic() + within_s
    while any(map(is_there, pids)):
        if time.monotonic() > ends:
            return False
        time.sleep(0.1)
    return True


def steps_of(out: Path) -> list[dict[str, Any]]:
    """The lines of a run that a run elsewhere must repeat: all but how weights went, and what rounding decides."""
    return [{name: value for name, value in line.items() if name != "syncs"} for line in metrics(out)]


def traces_of(out: Path) -> dict[str, int]:
    """By name, how many lines each trace has."""
    return {
        str(path.relative_to(out)): path.read_text(encoding="utf-8").count("\n")
        for path in sorted((out / "traces").rglob("*.jsonl"))
    }
