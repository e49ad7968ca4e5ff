"""Training on a cluster beside training in one process, on the same work: seconds per step, what new weights cost by
transport and megabyte, and how long it takes until a run goes on after a kill.

    python -m benchmarks.cluster [--write] [--only steps,syncs,kills]

Needs the environment of `make .venv-cluster/ready`, and starts its own Ray. Figures are of this machine's CPUs, which
all processes share. It measures no GPU (`benchmarks/gpu`) and no network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.tiny_models import make_model
from trainer.cluster import ClusterRuntime
from trainer.config import TrainConfig
from trainer.run import OneProcess, Phase, StepReport, train

RESULTS = Path(__file__).parent / "results" / "cluster.json"
STEPS = 5
"""Of which the first warms up."""
WIDTH = 512
"""Of the model whose steps are compared."""
PARTS = ("steps", "syncs", "kills")


def configured(model: Path, problems: Path, *, vllm: bool = False, **cluster: Any) -> TrainConfig:
    """16 runs of one agent a step, the same for one process and for a cluster."""
    engine: dict[str, Any] = {"kind": "transformers", "dtype": "float32", "max_batch": 64}
    if vllm:
        options = {"enforce_eager": True, "kv_cache_memory_bytes": 256 << 20}
        engine = {"kind": "vllm", "dtype": "float32", "max_batch": 64, "options": options}
    settings = {
        "policies": {
            "p0": {
                "model": str(model),
                "learning_rate": 1e-5,
                "dtype": "float32",
                "device": "cpu",
                "gradient_checkpointing": False,
                "engine": engine,
            }
        },
        "data": [{"format": "problems", "path": str(problems)}],
        "schedule": "executor-only",
        "steps": STEPS,
        "checkpoint_every": STEPS,
        "rollout": {
            "program": str(problems.with_name("program.py")),
            "questions": 4,
            "designs": 1,
            "executions": 4,
            "max_tokens": 48,
            "max_prompt_tokens": 512,
        },
        "cluster": cluster,
    }
    return TrainConfig.model_validate(settings)


PROGRAM = """from workflow import AgentNode, Workflow
workflow = Workflow("single").add_node(AgentNode("Solver", "Reply with the number."))
"""


async def _rewarded(problem: Any, run: Any, sandbox: Any) -> Any:
    """By the reply's length, so that every step has something to learn; the same in both."""
    from workflow.trace import Rewarded

    return Rewarded(total=float(len(run.answer or "") % 7), terms=[])


def prepared(folder: Path, width: int) -> tuple[Path, Path]:
    """A random model of that width and some problems."""
    model = folder / f"model-{width}"
    make_model(model, width=width, layers=4, context=1024)
    problems = folder / "problems.jsonl"
    rows = [{"id": f"p{n}", "question": f"{n} + {n}?", "domain": "math", "gold": str(2 * n)} for n in range(64)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "program.py").write_text(PROGRAM)
    return model, problems


def timed(config: TrainConfig, out: Path, disturb: Callable[[Any, object], None] = lambda *_: None) -> list[StepReport]:
    """The reports of a run's steps."""
    reports: list[StepReport] = []

    async def work() -> None:
        def watch(event: object) -> None:
            if isinstance(event, StepReport):
                reports.append(event)
            disturb(runtime, event)

        if config.cluster.layout == "one-process":
            from sandbox import ProcessSandbox
            from tasks import MATH_WORKER

            async with ProcessSandbox(preload=("designer.check", MATH_WORKER)) as sandbox:
                runtime: Any = OneProcess(config, sandbox, reward=_rewarded)
                await train(runtime, out, watch=watch)
        else:
            runtime = ClusterRuntime(config, reward=_rewarded)
            await train(runtime, out, watch=watch)

    asyncio.run(work())
    return reports


def seconds(report: StepReport) -> float:
    timings = report.timings
    return timings.rollout_s + timings.update_s + timings.sync_s


CLUSTER = {
    "layout": "disaggregated",
    "gpus_per_node": 0,
    "run_workers_per_node": 2,
    "heartbeat_s": 3.0,
    "start_timeout_s": 600.0,
}


def steps(folder: Path) -> dict[str, Any]:
    """Seconds per step of both, in turns, without the first."""
    model, problems = prepared(folder, WIDTH)
    found: dict[str, list[float]] = {"one process": [], "cluster": []}
    for round_ in range(2):
        for name, cluster in (("one process", {}), ("cluster", CLUSTER)):
            reports = timed(configured(model, problems, **cluster), folder / f"{name}-{round_}")
            found[name] += [seconds(report) for report in reports[1:]]
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        "width": WIDTH,
        "seconds": {name: round(value, 3) for name, value in medians.items()},
        "ratio": round(medians["cluster"] / medians["one process"], 3),
    }


def syncs(folder: Path) -> dict[str, Any]:
    """Seconds and MB of new weights by transport, in the median over steps."""
    model, problems = prepared(folder, WIDTH)
    found = {}
    for name, vllm in (("store", False), ("gloo", True)):
        cluster = {**CLUSTER, "heartbeat_s": 60.0}
        reports = timed(configured(model, problems, vllm=vllm, **cluster), folder / f"sync-{name}")
        each = [report.syncs["p0"] for report in reports if report.syncs]
        middle = statistics.median(sync.seconds for sync in each)
        size = each[0].bytes / 2**20
        found[name] = {"MB": round(size, 1), "seconds": round(middle, 3), "MB/s": round(size / middle, 1)}
    return found


def kills(folder: Path) -> dict[str, Any]:
    """Seconds by which a step is longer whose process is killed, against the run's other steps."""
    model, problems = prepared(folder, 64)
    found = {}
    for kind in ("run_worker", "engine", "rank"):
        struck: list[float] = []

        def strike(runtime: Any, event: object, kind: str = kind, struck: list[float] = struck) -> None:
            phase = {"rank": "updating p0"}.get(kind, "rollout")
            if isinstance(event, Phase) and (event.step, event.name) == (3, phase) and not struck:
                seats = [seat for seat in runtime._assembly.seats.seated if seat.process.kind == kind]
                os.kill(seats[0].identity.pid, signal.SIGKILL)
                struck.append(time.perf_counter())
            if isinstance(event, StepReport) and event.step == 3:
                struck.append(time.perf_counter())

        config = configured(model, problems, **CLUSTER).model_copy(update={"checkpoint_every": 1})
        reports = timed(config, folder / f"kill-{kind}", strike)
        usual = statistics.median(seconds(report) for report in reports if report.step != 3)
        found[kind] = round(struck[1] - struck[0] - usual, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    options = parser.parse_args()
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    result = {
        **before,
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, Python {platform.python_version()}",
    }
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="cluster-benchmark-") as folder:
            result[name] = {"steps": steps, "syncs": syncs, "kills": kills}[name](Path(folder))
        print(name, json.dumps(result[name], indent=1), flush=True)
    if options.write:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
