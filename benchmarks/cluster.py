"""Training on a cluster beside training in one process, on the same work: seconds per step, runs per second of the
sandbox in a run worker, what new weights cost by transport and megabyte, how long it takes until a run goes on after a
kill, and steps predicted from a run of another size.

    python -m benchmarks.cluster [--write] [--only steps,sandbox,syncs,kills,predicted]

Needs the environment of `make .venv-cluster/ready`, and starts its own Ray. Figures are of this machine's CPUs, which
all processes share. It measures no GPU (`benchmarks/gpu`) and no network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.sandbox import code, measured, program
from benchmarks.tiny_models import make_model
from sandbox import ProcessSandbox, Sandbox
from tasks import MATH_WORKER
from trainer.cluster import Bundle, ClusterRuntime, Limit, RunWorker, Session, Work
from trainer.config import ClusterConfig, RolloutConfig, TrainConfig
from trainer.credit import paper_reward
from trainer.predict import CPU_CORE, costs_of, fit, read_run, simulate
from trainer.run import OneProcess, Phase, StepReport, known_sizes, train

RESULTS = Path(__file__).parent / "results" / "cluster.json"
STEPS = 5
"""Of which the first warms up."""
WIDTH = 512
"""Of the model whose steps are compared."""
SANDBOX_S = 4.0
"""For each figure of the sandbox."""
SANDBOX_PAIRS = 7


def configured(model: Path, problems: Path, *, vllm: bool = False, questions: int = 4, **cluster: Any) -> TrainConfig:
    """4 runs of one program for each question, the same for one process and for a cluster."""
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
            "questions": questions,
            "designs": 1,
            "executions": 4,
            "max_tokens": 48,
            "max_prompt_tokens": 512,
        },
        "cluster": cluster,
    }
    return TrainConfig.model_validate(settings)


PROGRAM = """from workflow import AgentNode, LoopWorkflow
workflow = LoopWorkflow("loop", max_iterations=6)
workflow.add_node(AgentNode("Solver", "Reply with the number."))
workflow.set_loop_condition(lambda context: sum(map(ord, context.get_latest_message().content)) % 3 > 0)
"""
"""A random model's replies are all of one length: what differs from run to run is how many there are."""


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


class Measuring(RunWorker):
    """A run worker that says how many runs per second its sandbox makes."""

    async def rate(self, what: str) -> float:
        return await _rate(self.sandbox, what)


async def _rate(sandbox: Sandbox, what: str) -> float:
    run = {"programs": program, "code": code}[what](sandbox)
    return (await measured(what, run, clients=2, seconds=SANDBOX_S)).runs_per_s


def _rate_alone(what: str) -> float:
    """In a process of its own, without Ray."""

    async def work() -> float:
        async with ProcessSandbox(preload=("designer.check", MATH_WORKER)) as sandbox:
            return await _rate(sandbox, what)

    return asyncio.run(work())


def sandbox_rates(folder: Path) -> dict[str, Any]:
    """Runs per second in a run worker and in a process without Ray, by turns, and the median of each pair's ratio:
    neighbours of a virtual machine come and go within minutes."""
    told = Work(RolloutConfig(), paper_reward, None, None, False, "p0", "p0", {}, at_once=4, wait_s=10)
    limit = Limit("a limit of this benchmark", 120.0)
    found: dict[str, list[tuple[float, float]]] = {"programs": [], "code": []}

    async def work(pool: ProcessPoolExecutor) -> None:
        async with Session(ClusterConfig.model_validate(CLUSTER)).opened() as session:
            [node] = session.nodes()
            group = await session.reserve([Bundle(node.id, 1.0)])
            worker = session.start(Measuring, "a worker", told, group=group, bundle=0, cpus=1.0, concurrency=100)
            await worker.call("start", limit=limit)
            for _ in range(SANDBOX_PAIRS):
                for what, pairs in found.items():
                    alone = await asyncio.wrap_future(pool.submit(_rate_alone, what))
                    pairs.append((alone, await worker.call("rate", what, limit=limit)))
            await worker.call("close", limit=limit)

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        asyncio.run(work(pool))
    return {
        what: {
            "without Ray": statistics.median(alone for alone, _ in pairs),
            "in a run worker": statistics.median(within for _, within in pairs),
            "ratio": round(statistics.median(within / alone for alone, within in pairs), 3),
        }
        for what, pairs in found.items()
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


def predicted(folder: Path) -> dict[str, Any]:
    """Seconds per step at three sizes, in the mean over 12, and what `metaagent simulate` says of them, fitted to the
    middle one."""
    model, problems = prepared(folder, WIDTH // 2)
    rows: dict[str, Any] = {}
    for layout, cluster in (("one process", {}), ("cluster", CLUSTER)):
        configs, lines = {}, {}
        for questions in (2, 4, 8):
            out = folder / f"{layout}-{questions}"
            config = configured(model, problems, questions=questions, **cluster)
            timed(config.model_copy(update={"steps": 13, "checkpoint_every": 13}), out)
            configs[questions], lines[questions] = read_run(out)
        sizes = known_sizes(configs[4])
        seen = fit(configs[4], lines[4], sizes, CPU_CORE)
        for questions, config in configs.items():
            costs = costs_of(config, sizes, CPU_CORE, seen.workload, seen.seen)
            took = statistics.fmean(seconds(report) for report in lines[questions][1:])
            said = simulate(config, costs, seen.workload).step_s
            rows[f"{layout}, {questions} questions"] = {
                "measured_s": round(took, 3),
                "predicted_s": round(said, 3),
                "ratio": round(said / took, 3),
            }
    return {"fitted to": "4 questions of each", **rows}


PARTS = {
    "steps": steps,
    "sandbox": sandbox_rates,
    "syncs": syncs,
    "kills": kills,
    "predicted": predicted,
}


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
            result[name] = PARTS[name](Path(folder))
        print(name, json.dumps(result[name], indent=1), flush=True)
    if options.write:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
