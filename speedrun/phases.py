"""The steps of a speedrun, each in a folder of its own: problems, cold start, untrained policy, SFT, RL, evaluation.

Every step goes on where it was broken off, and costs nothing where it is done. Nothing here prints or compares; see
`speedrun.__main__` for the command and `speedrun.report` for what comes out.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, closing
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from engine.protocol import Engine
from sandbox.protocol import Sandbox
from speedrun.settings import SpeedrunSettings
from speedrun.teacher import AT_ONCE, FAULTLESS, STEPS, Teacher
from speedrun.tiny_policy import make_policy
from tasks import Problem, read_task
from tasks.data import Difficulty, Split, kind_of, mixed, read
from templates import Template, parse_template
from trainer.config import TrainConfig
from trainer.disk import checkpoint
from trainer.distill import DistillReport, DistillSettings, distill
from trainer.evaluate import Attempt, EvalSettings, evaluate
from trainer.run import CHECKPOINTS, OneProcess, local_engine, train
from trainer.run import Watch as TrainWatch
from trainer.sft import MODEL, ChatRow, SFTResult, Watch, read_rows
from trainer.sft import train as fine_tune_backend
from workflow.agent import FROM
from workflow.completion import Sampling

SETTINGS = "settings.json"
PROBLEMS, COLD, SFT = "problems", "cold", "sft"
"""In a speedrun's folder."""
SINGLE = "single, step by step"
_SHOWN = FROM.partition("{")[0]


def like_rl(settings: SpeedrunSettings) -> TrainConfig:
    """The recipe, whose limits, lengths, temperatures and devices the cold start and evaluations have, too."""
    return settings.rl(Path("model"), Path("problems.jsonl"))


@cache
def programs() -> dict[str, Template]:
    """The speedrun's own bank, by name: each way of working together, with its agents told to work step by step, at
    once, or, where they are several, some in either way."""
    files = [file for file in resources.files("speedrun.templates").iterdir() if file.name.endswith(".py")]
    found = {}
    for file in files:
        source, name = file.read_text(encoding="utf-8"), file.name[:-3]
        solvers = source.count(STEPS)
        if name.startswith("_"):
            continue
        for at_once, how in {solvers // 2: "mixed", 0: STEPS, solvers: AT_ONCE}.items():
            told = AT_ONCE.join(source.rsplit(STEPS, at_once))
            found[f"{name}, {how}"] = parse_template(f"{name}, {how}", told)
    return dict(sorted(found.items()))


def write_problems(path: Path, count: int, seed: int, split: Split, difficulty: Difficulty) -> list[Problem]:
    """The problems that are in the file; drawn and written if there is none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = mixed(count, seed=seed, split=split, difficulty=difficulty)
        beside = path.with_suffix(".tmp")
        beside.write_text("".join(problem.model_dump_json() + "\n" for problem in drawn), encoding="utf-8")
        beside.rename(path)
    return read_task(f"problems:{path}")


def write_all_problems(settings: SpeedrunSettings, folder: Path) -> tuple[list[Problem], list[Problem]]:
    """Write cold.jsonl, train.jsonl (for RL), validation.jsonl and test.jsonl; returns the first and the last. Another
    seed draws others."""

    def write(name: str, count: int, split: Split, place: int) -> list[Problem]:
        return write_problems(folder / f"{name}.jsonl", count, 4 * settings.seed + place, split, settings.difficulty)

    cold = write("cold", settings.cold_problems, "train", 0)
    write("train", settings.train_problems, "train", 1)
    write("validation", settings.validation_problems, "validation", 2)
    return cold, write("test", settings.test_problems, "test", 3)


async def cold_start(
    settings: SpeedrunSettings,
    problems: Sequence[Problem],
    sandbox: Sandbox,
    out: Path,
    watch: Callable[[DistillReport], None],
) -> DistillReport:
    """Appendix A in small: templates at random, played by the teacher. Wrong answers are kept: the Executor is to begin
    with the teacher's mistakes, and the Designer with little preference (see `lessons`)."""
    return await distill(
        problems,
        executor=Teacher() if settings.mistakes else FAULTLESS,
        templates=list(programs().values()),
        sandbox=sandbox,
        settings=DistillSettings(
            designs=settings.cold_designs,
            seed=settings.seed,
            keep_wrong=True,
            limits=like_rl(settings).rollout.limits,
            max_concurrent=64,
        ),
        folder=out,
        resume=True,
        watch=watch,
    )


def lessons(settings: SpeedrunSettings, rows: Path) -> list[ChatRow]:
    """The rows that are learned from, the first of each kind of problem: of the Designer's so many of each program, but
    of those whose answer was wrong every fourth, so that it begins with little preference; of the Executor's so many of
    each way of being asked."""
    taken: Counter[Any] = Counter()
    wrong: Counter[Any] = Counter()
    found = []
    with rows.open(encoding="utf-8") as file:
        rights = [json.loads(line)["right"] for line in file]
    for row, right in zip(read_rows(rows), rights, strict=True):
        designs = row.role == "designer"
        asked = read(row.messages[1]["content"])
        what = row.messages[-1]["content"] if designs else _asked(row)
        of = row.role, asked and asked.kind, what
        taken[of] += 1
        wrong[of] += not right
        if taken[of] > (settings.designer_rows if designs else settings.executor_rows):
            continue
        if right or not designs or wrong[of] % 4 == 1:
            found.append(row)
    return found


def _asked(row: ChatRow) -> Any:
    """The agent's task, whether it has tools, and whether it is shown what another one said."""
    return row.messages[0]["content"], bool(row.tools), _SHOWN in row.messages[1]["content"]


def untrained(settings: SpeedrunSettings, rows: Sequence[ChatRow], out: Path) -> Path:
    """The folder of the policy with random weights, or of the language model that is there."""
    if settings.pretrained is not None:
        return settings.pretrained
    if not (out / "config.json").exists():
        beside = out.with_name(f".tmp-{out.name}")
        shutil.rmtree(beside, ignore_errors=True)
        make_policy(beside, rows, settings.architecture, settings.seed)
        beside.rename(out)
    return out


def fine_tune(settings: SpeedrunSettings, model: Path, rows: Sequence[ChatRow], out: Path, watch: Watch) -> SFTResult:
    """One shared policy learns both roles' conversations, with all of torch's threads.

    For what comes then torch keeps one: jails need the cores too, and threads that wait for one another are slower.
    """
    import torch

    from engine.chat import ChatFormat
    from engine.pretrained import load_tokenizer
    from trainer.sft import samples_of_rows
    from trainer.update import TorchBackend

    tokenizer = load_tokenizer(model)
    samples = samples_of_rows(rows, ChatFormat(tokenizer, [tokenizer.eos_token_id])).rows
    config = like_rl(settings)
    policy = config.policies[config.roles.executor]
    backend = TorchBackend(
        str(model),
        learning_rate=settings.sft.learning_rate,
        device=policy.device,
        dtype=policy.dtype,
        lora=policy.lora,
        gradient_checkpointing=policy.gradient_checkpointing,
        max_tokens_per_micro_batch=policy.max_tokens_per_micro_batch,
        shared_prompts=False,
        seed=settings.seed,
    )
    with closing(backend):
        every = 200 if settings.pretrained is None else 40  # some minutes of a language model
        result = fine_tune_backend(
            backend, samples, settings.sft, out, resume=True, checkpoint_every=every, watch=watch
        )
    torch.set_num_threads(1)
    return result


async def reinforce(runtime: OneProcess, out: Path, watch: TrainWatch) -> dict[str, Path]:
    """RL as the runtime's configuration says; returns the model folder of each policy's newest checkpoint, by name."""
    await train(runtime, out, resume=True, watch=watch)
    return trained(out, runtime.config.policies)


def trained(out: Path, policies: Iterable[str]) -> dict[str, Path]:
    """The model folder of each policy in the newest checkpoint of an RL run."""
    newest = checkpoint.latest(out / CHECKPOINTS)
    if newest is None:
        raise ValueError(f"{out} has no checkpoint. Fix: train it first")
    return {name: newest.folder / name / MODEL for name in policies}


async def measure(
    settings: SpeedrunSettings,
    problems: Sequence[Problem],
    executor: Path,
    sandbox: Sandbox,
    out: Path,
    watch: Callable[[Attempt], None],
    *,
    designer: Path | None = None,
    program: str | None = None,
    seed: int = 0,
    greedy: bool = False,
) -> list[Attempt]:
    """An attempt at each problem by trained models, sampled as in training or greedily; the problems' kinds are the
    attempts' tasks."""
    config = like_rl(settings)
    rollout, policy = config.rollout, config.policies[config.roles.executor]
    async with AsyncExitStack() as stack:

        def engine(model: Path) -> Engine:
            of_model = policy.model_copy(update={"model": str(model)})
            made = local_engine(of_model, None, rollout.limits.reply_s)
            stack.push_async_callback(made.close)
            return made

        plays = engine(executor)
        designs = None if designer is None else plays if designer == executor else engine(designer)
        return await evaluate(
            problems,
            executor=plays,
            sandbox=sandbox,
            designer=designs,
            program=program,
            settings=EvalSettings(
                k=1,
                seed=seed,
                sampling=Sampling(
                    temperature=0 if greedy else rollout.executor_temperature, max_tokens=rollout.max_tokens
                ),
                designer_sampling=Sampling(
                    temperature=0 if greedy else rollout.designer_temperature, max_tokens=rollout.max_tokens
                ),
                style=rollout.style,
                repair=rollout.repair,
                limits=rollout.limits,
                max_concurrent=rollout.max_concurrent,
            ),
            tasks={problem.id: kind_of(problem) for problem in problems},
            folder=out,
            watch=watch,
        )
