"""How an arm that goes on with the best of K replies plays without a tree: each checkpoint of its RL at the same
levels, one reply at a time. Curves are drawn of what it earns then, turn by turn. Trains nothing.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sandbox.protocol import Sandbox
from tasks import Problem
from trainer.config import TrainConfig
from trainer.disk import metrics_file, read_records
from trainer.run import METRICS, OneProcess, StepReport, Timings, step_report


async def watch(
    config: TrainConfig, checkpoints: Path, problems: Sequence[Problem], seed: int, out: Path, sandbox: Sandbox
) -> None:
    """A line in OUT/metrics.jsonl for what the run began with (step 0) and for each checkpoint, which has the number of
    steps before it. `config` is that of the run, with a single reply at each call."""
    path = out / METRICS
    done = {report.step for _, report in read_records(path, StepReport)} if path.exists() else set[int]()
    folders = {int(folder.name.removeprefix("step-")): folder for folder in sorted(checkpoints.glob("step-*"))}
    left = [step for step in (0, *folders) if step not in done]
    if not left:
        return
    out.mkdir(parents=True, exist_ok=True)
    runtime = OneProcess(config, sandbox)
    async with runtime.opened(lambda _: None, out):
        for step in left:
            if step:
                await runtime.load(folders[step])
            await runtime.sync(dict.fromkeys(config.policies, step))
            trees = await runtime.rollout(problems, seed, out / "traces" / f"step-{step}")
            metrics_file.append(path, step_report(step, ["executor"], trees, config.credit, {}, {}, Timings()))
