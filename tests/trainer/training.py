"""Small training runs for tests: a policy that was taught for some seconds, configurations, and runs in a process of
their own that can be killed."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import toy

from sandbox import ProcessSandbox
from trainer.config import TrainConfig
from trainer.credit.reward import RewardFunction
from trainer.run.loop import train
from trainer.run.one_process import OneProcess
from trainer.run.runtime import Watch

TIMED = ("timings",)
"""Parts of a metrics line that two equal runs need not share."""


def teach(folder: Path, *, right: float, designer: bool = True, steps: int = 60, seed: int = 0) -> Path:
    """A policy's model folder: a tiny model that has been shown `right` right answers in all and, as a designer, both
    programs equally often."""
    import torch

    from trainer.update.backend import ImitationObjective
    from trainer.update.torch_backend import TorchBackend

    torch.set_num_threads(1)
    toy.make_model(folder / "start", designer=designer, seed=seed)
    chat = toy.chat_of(folder / "start")
    backend = TorchBackend(folder / "start", learning_rate=5e-3, device="cpu")
    problems, _ = toy.problems()
    dice = random.Random(seed)
    for step in range(steps):
        backend.learning_rate = 5e-3 * min(1, (step + 1) / 10) * (1 - 0.9 * step / steps)
        lessons = [toy.executor_talk(p, toy.taught(p, right, dice)) for p in dice.sample(problems, 64)]
        if designer:
            lessons += [
                toy.designer_talk(p, (toy.SINGLE, toy.VOTE)[n % 2]) for n, p in enumerate(dice.sample(problems, 4))
            ]
        backend.update([toy.lesson(chat, talk) for talk in lessons], ImitationObjective())
    backend.save(folder / "taught")
    backend.close()
    return folder / "taught" / "model"


def write_problems(path: Path) -> Path:
    path.write_text("".join(problem.model_dump_json() + "\n" for problem in toy.problems()[0]), encoding="utf-8")
    return path


def configured(model: Path, problems: Path, **changes: Any) -> TrainConfig:
    """A shared policy, 2 questions x 2 designs x 2 executions, stages of 2 steps; `changes` go on top of it."""
    policy = {
        "model": str(model),
        "learning_rate": 1e-3,
        "dtype": "float32",
        "device": "cpu",
        "gradient_checkpointing": False,
        "engine": {"kind": "transformers", "dtype": "float64", "max_batch": 256},
    }
    roles = changes.get("roles") or {}
    names = {"p0", *(name for role, name in roles.items() if role != "agents"), *roles.get("agents", {}).values()}
    rollout = {"questions": 2, "designs": 2, "executions": 2, "max_tokens": 40, "max_prompt_tokens": 512}
    settings = {
        "policies": dict.fromkeys(sorted(names), policy),
        "data": [{"format": "problems", "path": str(problems)}],
        "stage_length": 2,
        "steps": 6,
        "checkpoint_every": 1,
        **changes,
        "rollout": rollout | changes.get("rollout", {}),
    }
    return TrainConfig.model_validate(settings)


def run(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    watch: Watch = lambda _: None,
    reward: RewardFunction | None = None,
    runtime: type[OneProcess] | None = None,
) -> None:
    """Train to the end, in this process."""
    import torch

    torch.set_num_threads(1)

    async def work() -> None:
        async with ProcessSandbox(preload=("designer.check", "tasks.math.worker")) as sandbox:
            await train((runtime or OneProcess)(config, sandbox, reward=reward), out, resume=resume, watch=watch)

    asyncio.run(work())


def metrics(out: Path) -> list[dict[str, Any]]:
    """The lines of a run, without what is timed."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        for name in TIMED:
            del line[name]
        for update in line["updates"].values():
            del update["duration_s"]
        for sync in line["syncs"].values():
            del sync["seconds"]
    return lines


def final_weights(out: Path, policy: str = "p0") -> bytes:
    """The bytes of a run's last model."""
    newest = max((out / "checkpoints").glob("step-*"))
    return (newest / policy / "model" / "model.safetensors").read_bytes()


def optimizer_state(out: Path, policy: str = "p0") -> dict[str, bytes]:
    newest = max((out / "checkpoints").glob("step-*")) / policy / "optimizer"
    return {path.name: path.read_bytes() for path in sorted(newest.iterdir())}
