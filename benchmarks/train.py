"""Seconds per training step and tokens per second beside TRL's GRPOTrainer, on the same model and prompts.

Both train in float32 on a CPU, in one process and thread pool, a step of one and a step of the other in turn, so that
whatever else the machine does meets both. Ours is `trainer.run.loop.train` with everything it does: jails, Traces on
disk, `engine.local.transformers`, the update of `trainer.update.torch_backend`, and the weights copied into the engine
and proven there. TRL's is `GRPOTrainer` with `transformers.generate`, whose model is trained in place. A step is from
its first prompt to its new weights; checkpoints are left out on both sides. Learning rates are too small to change what
the model says.

All draw from the same weights at temperature 1, with the same prompts, generations per prompt, rewards and limits:

- equal: every completion has 64 tokens, as the end token is never drawn;
- mixed: completions end after each token with the same probability, 64 tokens on average, and are cut at 256;
- multi-turn: a reply has 32 tokens on average; half of all replies call a tool, whose result comes back as the agent's
  next turn, three times at most. Ours serves the tool inside the program's jail; TRL calls it through its `tools`.

The model is made for it (`benchmarks.geometric_model`): lengths and calls come from its weights and depend on nothing
else, so neither side knows them beforehand. Nothing is tuned for either: ours has its default micro-batches, TRL 16
completions in one (`--trl-batch`), without gradient checkpointing, reference model or reports.

    pip install "metaagent[train]" trl==1.16.0
    python -m benchmarks.train [--write | --only equal] [--rounds 10] [--layers 4] [--width 128]
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from greenlet import getcurrent, greenlet

from engine.session import Run
from sandbox import ProcessSandbox
from sandbox.protocol import Sandbox
from tasks import Problem
from trainer.config import TrainConfig
from trainer.run import OneProcess, Phase, StepReport, train
from workflow.trace import Rewarded, RewardTerm

QUESTIONS, GENERATIONS = 8, 8
CONTEXT = 2048
SYSTEM = "Find what is hidden in the garden."
SINGLE = f"""from workflow import AgentNode, Workflow
workflow = Workflow("single").add_node(AgentNode("Solver", {SYSTEM!r}))
"""
TOOLS = f"""from workflow import AgentNode, ToolRegistry, Workflow
tools = ToolRegistry()
place = {{"type": "integer", "description": "Where to look."}}
schema = {{"type": "object", "properties": {{"place": place}}, "required": ["place"]}}
tools.register("look", lambda place: f"There is a stone at {{place}}.", "Look at one place.", schema)
workflow = Workflow("look").add_node(AgentNode("Solver", {SYSTEM!r}, tools, max_turns=4))
"""
RESULTS = Path(__file__).parent / "results" / "train.json"


@dataclass(frozen=True)
class Workload:
    program: str
    ends: float
    """Probability, after each token, that the reply ends; `calls` that it calls the tool and ends."""
    max_tokens: int
    """Of one completion."""
    calls: float = 0.0


WORKLOADS = {
    "equal": Workload(SINGLE, ends=0, max_tokens=64),
    "mixed": Workload(SINGLE, ends=1 / 64, max_tokens=256),
    "multi-turn": Workload(TOOLS, ends=1 / 64, max_tokens=512, calls=1 / 64),
}


@dataclass(frozen=True)
class Step:
    seconds: float
    cpu_seconds: float
    """Of this process, without jails."""
    tokens: int
    """That the policy chose."""


class Clock:
    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def step(self, tokens: int = 0) -> Step:
        """What has passed."""
        return Step(time.perf_counter() - self.wall, time.process_time() - self.cpu, tokens)


def questions() -> list[str]:
    return [f"In which corner of garden {number} is it?" for number in range(QUESTIONS)]


def worth(text: str) -> float:
    """A reward that half of all replies earn."""
    return float(sum(text.encode()) % 2)


def look(place: int) -> str:
    """Look at one place.

    Args:
        place: Where to look.
    """
    return f"There is a stone at {place}."


class Peer:
    """TRL's training, one step at a time: it runs in a greenlet that is left when a step is about to begin."""

    def __init__(self, model: Path, load: Workload, steps: int, batch: int, out: Path) -> None:
        import datasets
        import transformers
        from trl.chat_template_utils import qwen3_template
        from trl.trainer.grpo_config import GRPOConfig
        from trl.trainer.grpo_trainer import GRPOTrainer

        self._began, self._step = Clock(), Step(0, 0, 0)
        peer = self

        class Paced(transformers.TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                parent = getcurrent().parent
                assert parent is not None, "the step runs in a greenlet of its own"
                parent.switch()
                peer._began = Clock()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                peer._step = peer._began.step()

        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        tokenizer.response_template = qwen3_template
        rows = [
            {"prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]}
            for question in questions()
        ]
        size = QUESTIONS * GENERATIONS
        options = GRPOConfig(
            output_dir=str(out),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_steps=steps,
            learning_rate=1e-7,
            lr_scheduler_type="constant",
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=size // batch,
            num_generations=GENERATIONS,
            # With tools this bounds the whole conversation after the prompt.
            max_completion_length=load.max_tokens * (4 if load.calls else 1),
            max_tool_calling_iterations=3,
            dataloader_pin_memory=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        self._trainer: Any = GRPOTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(model, dtype="float32", trust_remote_code=False),
            reward_funcs=lambda completions, **_: [worth(each[-1]["content"]) for each in completions],
            args=options,
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[Paced()],
            tools=[look] if load.calls else None,
        )
        self._trainer.remove_callback(transformers.PrinterCallback)
        self._run = greenlet(self._trainer.train)
        self._run.switch()  # up to the first step

    def step(self) -> Step:
        self._run.switch()
        logged = [line for line in self._trainer.state.log_history if "completions/mean_length" in line][-1]
        tokens = logged["completions/mean_length"] * QUESTIONS * GENERATIONS
        if logged.get("tools/failure_frequency"):
            raise RuntimeError("TRL could not call the tool: it does not do the same work")
        return replace(self._step, tokens=round(tokens))


def configured(model: Path, problems: Path, program: Path, load: Workload, steps: int) -> TrainConfig:
    policy = {
        "model": str(model),
        "learning_rate": 1e-7,
        "dtype": "float32",
        "device": "cpu",
        "gradient_checkpointing": False,
        "engine": {"kind": "transformers", "dtype": "float32", "max_batch": QUESTIONS * GENERATIONS},
    }
    return TrainConfig.model_validate(
        {
            "policies": {"p0": policy},
            "data": [{"format": "problems", "path": str(problems)}],
            "rollout": {
                "questions": QUESTIONS,
                "designs": 1,
                "executions": GENERATIONS,
                "program": program,
                "max_tokens": load.max_tokens,
                "max_prompt_tokens": CONTEXT - load.max_tokens,
            },
            "schedule": "executor-only",
            "credit": "single-agent",
            "steps": steps,
            "checkpoint_every": steps,
        }
    )


async def reward(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
    if run.failure is not None:
        raise RuntimeError(f"a run of {problem.id} failed: {run.failure.message}")
    total = worth(run.answer or "")
    return Rewarded(
        t=run.duration_s, total=total, terms=[RewardTerm(name="correct", value=total, weight=1.0, reason="parity")]
    )


async def side_by_side(folder: Path, load: Workload, rounds: int, batch: int, shape: tuple[int, int]) -> list[Any]:
    """(Our step, TRL's) for each round, after a round to warm up, and our reports."""
    from benchmarks.geometric_model import make

    model, problems, program = folder / "model", folder / "problems.jsonl", folder / "program.py"
    make(model, layers=shape[0], width=shape[1], context=CONTEXT, ends=load.ends, calls=load.calls)
    given = [Problem(id=str(number), question=each, domain="math", gold="0") for number, each in enumerate(questions())]
    problems.write_text("".join(problem.model_dump_json() + "\n" for problem in given), encoding="utf-8")
    program.write_text(load.program, encoding="utf-8")
    steps = rounds + 1
    seen: list[Any] = []
    began = Clock()

    async with ProcessSandbox(preload=("designer.check", "tasks.math.worker")) as sandbox:
        peer = Peer(model, load, steps + 1, batch, folder / "trl")

        def watch(event: object) -> None:
            nonlocal began
            if isinstance(event, Phase) and event.name == "rollout":
                began = Clock()
            elif isinstance(event, StepReport):
                ours = began.step(sum(each.completion_tokens for each in event.usage.values()))
                seen.append((ours, peer.step(), event))

        config = configured(model, problems, program, load, steps)
        await train(OneProcess(config, sandbox, reward=reward), folder / "ours", watch=watch)
    return seen[1:]


def together(seen: list[Any]) -> dict[str, float]:
    """Of rounds as `side_by_side` returns them, all together."""

    def per(side: int, of: str, by: str) -> float:
        return sum(getattr(each[side], of) for each in seen) / sum(getattr(each[side], by) for each in seen)

    def mean(values: Iterable[float]) -> float:
        return statistics.fmean(values)

    found: dict[str, float] = {}
    for side, name in enumerate(("metaagent", "TRL")):
        found |= {
            f"seconds per step, {name}": mean(each[side].seconds for each in seen),
            f"CPU seconds per step, {name}": mean(each[side].cpu_seconds for each in seen),
            f"tokens per second, {name}": per(side, "tokens", "seconds"),
            f"tokens per step, {name}": mean(each[side].tokens for each in seen),
        }
    return found | {
        "ratio of seconds per step": found["seconds per step, TRL"] / found["seconds per step, metaagent"],
        "ratio of tokens per second": per(0, "tokens", "seconds") / per(1, "tokens", "seconds"),
        "ratio of tokens per CPU second": per(0, "tokens", "cpu_seconds") / per(1, "tokens", "cpu_seconds"),
        "of ours, rollout": mean(each[2].timings.rollout_s for each in seen),
        "of ours, update": mean(each[2].timings.update_s for each in seen),
        "of ours, new weights": mean(each[2].timings.sync_s for each in seen),
    }


def summary(seen: list[Any]) -> dict[str, list[float]]:
    """All rounds together, and the least and the most of one."""
    rounds = [together([each]) for each in seen]
    return {
        name: [round(each, 2) for each in (value, min(of[name] for of in rounds), max(of[name] for of in rounds))]
        for name, value in together(seen).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--only", choices=WORKLOADS)
    parser.add_argument("--trl-batch", type=int, default=16, help="completions in one of TRL's micro-batches")
    parser.add_argument("--write", action="store_true", help=f"into {RESULTS.name}, per model")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error(f"{RESULTS.name} holds all workloads of a model. Fix: leave out --only, or --write")
    os.environ.update({"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"})
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # two thread pools share the cores
    found: dict[str, Any] = {}
    for name in [arguments.only] if arguments.only else WORKLOADS:
        with tempfile.TemporaryDirectory(prefix="metaagent-train-") as place:
            work = side_by_side(
                Path(place),
                WORKLOADS[name],
                arguments.rounds,
                arguments.trl_batch,
                (arguments.layers, arguments.width),
            )
            found[name] = summary(asyncio.run(work))
        print(f"\n{name}: {arguments.rounds} rounds together (least to most of one)")
        for row, (whole, least, most) in found[name].items():
            print(f"  {row:34} {whole:10,.10g}  ({least:,.10g} to {most:,.10g})", flush=True)
    if arguments.write:
        said = {
            "machine": f"{os.cpu_count()} CPU cores, load {os.getloadavg()[0]:.1f} when it ended",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("torch", "transformers", "trl")},
            "model": f"random, {arguments.layers} layers of width {arguments.width}, float32",
            "step": f"{QUESTIONS} prompts x {GENERATIONS} generations, {arguments.rounds} rounds",
            "results": found,
        }
        others = [each for each in json.loads(RESULTS.read_text()) if each["model"] != said["model"]]
        RESULTS.write_text(json.dumps([*others, said], indent=1) + "\n")


if __name__ == "__main__":
    main()
