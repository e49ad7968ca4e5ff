"""Runs of AT-GRPO's comparisons: for each game and seed a policy taught on a cold start, and arms that train it by RL.

    OUT/GAME/seed-S/levels/...           of this seed
    OUT/GAME/seed-S/start/policy/...     what all arms begin from; kept, too (`speedrun.starts`)
    OUT/GAME/seed-S/start/played/...     attempts at validation levels with it, by teams of each size
    OUT/GAME/seed-S/ARM/rl/...           an arm's run
    OUT/GAME/seed-S/ARM/watched/...      its checkpoints at validation levels (`speedrun.at_grpo.watched_steps`)
    OUT/GAME/seed-S/ARM/played/SET/...   attempts at held-out levels: sampled, greedy, detours
    OUT/tuning/GAME/seed-S/ARM at F/...  an arm with F times the recipe's learning rate, at the validation levels only

What is done is not done again. Compares nothing; what is kept, and in which order runs are made, is in
`speedrun.at_grpo.kept_runs`.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.by_agent import ByAgent
from engine.protocol import Engine
from metaagent.opening import open_sandbox
from sandbox.protocol import Sandbox
from speedrun import phases, starts
from speedrun.at_grpo.levels import GAMES, PLANNER, PROGRAMS, GameName, direct_levels, levels, program
from speedrun.at_grpo.matchups import (
    ARMS,
    DETOURS,
    DIRECT,
    GREEDY,
    MISLEADING,
    SAMPLED,
    START,
    Arm,
    tools_in,
)
from speedrun.at_grpo.player import Teacher
from speedrun.at_grpo.watched_steps import watch
from speedrun.own_programs import without_jails
from speedrun.settings import RECIPES, SpeedrunSettings
from speedrun.tiny_policy import Architecture
from speedrun.versions import code_of, learning_code
from tasks import Problem
from tasks.environments import begins
from trainer.config import Roles, RolloutConfig, TrainConfig, read_config
from trainer.disk import only_writer
from trainer.evaluate import EvalSettings, evaluate
from trainer.rollout import derived_seed
from trainer.run import CHECKPOINTS, OneProcess, local_engine
from trainer.sft import MODEL, ChatRow, SFTSettings
from workflow.completion import Sampling

RL, PLAYED, TUNING, SEEN = "rl", "played", "tuning", "watched"
VALIDATION = "validation"
WATCHED_LEVELS = 100
"""Of the validation levels, that checkpoints play."""
AT_ONCE = 64
"""Games of the cold start."""


class Settings(BaseModel):
    """All that runs depend on but their arm."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, ge=0)
    architecture: Architecture = Architecture(
        layers=4, width=96, inner=288, heads=4, vocabulary=400, context=512, alone=".#@G*"
    )
    cold: int = Field(default=2500, ge=1)
    """Levels of the cold start, each played with a tool and without; a fifth also with more."""
    train: int = Field(default=2000, ge=1)
    """That RL draws from."""
    validation: int = Field(default=300, ge=1)
    """To choose learning rates on."""
    test: int = Field(default=300, ge=1)
    """Held out; as many of them have detours."""
    sft: SFTSettings = SFTSettings(epochs=2, batch=64, learning_rate=3e-3, held_out=0.02)
    overrides: tuple[str, ...] = ()
    """Changes to the RL recipe, as `metaagent train` takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One arm of one game and seed, or what it starts from."""

    name: str
    game: GameName
    seed: int
    factor: float = 1.0
    """Of the recipe's learning rate."""
    tuning: bool = False
    factors: tuple[tuple[str, float], ...] = ()
    """Of the arms whose policies play in this one."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Job:
        """From its JSON."""
        return cls(**{**told, "factors": tuple((name, factor) for name, factor in told["factors"])})

    @property
    def taken(self) -> list[Job]:
        """The jobs whose policies play in this one."""
        return [replace(self, name=name, factor=factor, factors=()) for name, factor in self.factors]

    def seed_folder(self, out: Path) -> Path:
        return (out / TUNING if self.tuning else out) / self.game / f"seed-{self.seed}"

    def folder(self, out: Path) -> Path:
        tried = self.tuning and self.name != START
        return self.seed_folder(out) / (f"{self.name} at {self.factor:g}" if tried else self.name)

    @property
    def start(self) -> Job:
        return replace(self, name=START, factor=1.0, factors=())


def rl_config(job: Job, settings: Settings, model: Path, data: Path, source: Path) -> TrainConfig:
    """An arm's RL: `source` is the file of its program, and the factor is of the rate that all else says."""
    arm, recipe = ARMS[job.name], RECIPES / "speedrun_at_grpo.toml"
    changes = [f"seed={job.seed}", *GAMES[job.game].overrides, *settings.overrides, *arm.overrides]
    before = read_config(recipe, changes)
    rate = before.policies["p0"].learning_rate * job.factor
    if before.generated_tokens is not None:
        changes.append(f"generated_tokens={round(before.generated_tokens * arm.share)}")
    paths = [f'policies.p0.model="{model}"', f'data.0.path="{data}"', f'rollout.program="{source}"']
    config = read_config(recipe, [*changes, f"policies.p0.learning_rate={rate:g}", *paths])
    if not arm.apart:
        return config
    policy = config.policies["p0"]
    agents = {f"Tool{number}": "tool" for number in range(1, arm.tools + 1)}
    apart = {"policies": {"tool": policy, "planner": policy}, "roles": Roles(agents={**agents, PLANNER: "planner"})}
    return TrainConfig.model_validate(config.model_copy(update=apart).model_dump(exclude_unset=True))


def made_by(job: Job, settings: Settings) -> dict[str, Any]:
    """All that a job's results depend on: they are not taken for those of another one."""
    settings = settings.model_copy(update={"seed": job.seed})
    found: dict[str, Any] = {"job": asdict(job), "code": code_of_instrument()}
    found["settings"] = settings.model_dump(mode="json", exclude_none=True)
    found["play"] = _recipe(settings).rollout.model_dump(mode="json", exclude_none=True, exclude={"program"})
    if job.name in ARMS:
        found["program"] = program(ARMS[job.name].tools, ARMS[job.name].acts)
        found["taken"] = [made_by(each, settings) for each in job.taken]
        found["levels"] = ARMS[job.name].levels
        found["played_by"] = dict(ARMS[job.name].played_by)
    if job.name in ARMS and ARMS[job.name].learns:
        found["rl"] = _written(rl_config(job, settings, Path("model"), Path("levels.jsonl"), Path("program.py")))
        found["learning"] = learning_code()
    return json.loads(json.dumps(found))


def in_todays_terms(written: Any) -> Any:
    """What `made_by` wrote once, with the keys that settings and recipe have got since: their defaults are what was
    done before. What cannot be read any more stays as it is."""
    try:
        found = dict(written)
        found["settings"] = Settings.model_validate(found["settings"]).model_dump(mode="json", exclude_none=True)
        if "play" in found:
            found["play"] = RolloutConfig.model_validate(found["play"]).model_dump(
                mode="json", exclude_none=True, exclude={"program"}
            )
        found["taken"] = [in_todays_terms(each) for each in found.get("taken", [])]
        if not found["taken"] and "taken" not in written:
            del found["taken"]
        if "rl" in found:
            rollout = {**found["rl"]["rollout"], "program": "program.py"}
            data = [{"path": "levels.jsonl", "format": "problems"}]
            found["rl"] = _written(TrainConfig.model_validate({**found["rl"], "rollout": rollout, "data": data}))
        return found
    except (TypeError, KeyError, ValueError):
        return written


def _written(rl: TrainConfig) -> dict[str, Any]:
    """Wherever its files are."""
    return rl.model_dump(mode="json", exclude_none=True, exclude={"data": True, "rollout": {"program"}})


@cache
def code_of_instrument() -> str:
    """SHA-256 of the code that makes levels, lessons and programs."""
    own = ("speedrun/at_grpo/levels.py", "speedrun/at_grpo/player.py")
    return code_of(*own, "recipes/programs/team.py", "tasks/environments", "trainer/evaluate", "trainer/sft")


async def run(job: Job, settings: Settings, out: Path) -> None:
    """Teach what a game's arms start from, or train one arm, and play the held-out levels with it."""
    settings = settings.model_copy(update={"seed": job.seed})
    own = job.folder(out)
    with only_writer(own):
        async with open_sandbox("process") as jails:
            sandbox = without_jails(jails, PROGRAMS)
            if job.name == START:
                await _taught(job, settings, out, sandbox)
                policy = {"": (own / starts.POLICY).resolve()}
                problems = levels_of(job, settings, out, VALIDATION)
                for tools in [] if job.tuning else tools_in(job.game):
                    where = own / PLAYED / team(tools + 1)
                    await _play(settings, Arm(tools=tools), policy, problems, False, job.seed, sandbox, where)
                return
            arm, policies = ARMS[job.name], await _policies(job, settings, out, sandbox)
            game = GAMES[job.game]
            sets = {VALIDATION: (levels_of(job, settings, out, VALIDATION), False)} if job.tuning else {
                SAMPLED: (levels_of(job, settings, out, "test"), False),
                GREEDY: (levels_of(job, settings, out, "test"), True),
                **{
                    name: (levels_of(job, settings, out, name), False) for name in (DETOURS, DIRECT) if game.detours
                },
            }  # fmt: skip
            for name, (problems, greedy) in sets.items():
                await _play(settings, arm, policies, problems, greedy, job.seed, sandbox, own / PLAYED / name)


def team(agents: int) -> str:
    """Of a start, the attempts at validation levels with so many agents."""
    return f"team of {agents}"


def levels_of(job: Job, settings: Settings, out: Path, name: str) -> list[Problem]:
    """Those of a job's game and seed: `cold`, `train`, `validation`, `test`; where distance misleads `detours` and, to
    learn from, `misleading`; `direct` ones of the same lengths as `detours`."""
    game, folder = GAMES[job.game], job.seed_folder(out) / "levels"
    if name == DIRECT:
        like = levels_of(job, settings, out, DETOURS)
        return direct_levels(folder / f"{name}.jsonl", like, game.knobs, job.seed, "test")
    count, split, place = {
        "cold": (settings.cold, "train", 0),
        "train": (settings.train, "train", 1),
        VALIDATION: (settings.validation, "validation", 2),
        "test": (settings.test, "test", 3),
        DETOURS: (settings.test, "test", 4),
        MISLEADING: (settings.train, "train", 4),
    }[name]
    knobs = game.detours if name in (DETOURS, MISLEADING) else game.knobs
    assert knobs is not None
    return levels(folder / f"{name}.jsonl", knobs, count, 5 * job.seed + place, split)  # pyright: ignore[reportArgumentType]


async def _taught(job: Job, settings: Settings, out: Path, sandbox: Sandbox) -> None:
    """Every program is played by the teacher; a policy learns what all its agents said."""
    own, game = job.folder(out), GAMES[job.game]
    if (own / starts.POLICY).exists():
        return
    cold = levels_of(job, settings, out, "cold")
    for name in ("train", VALIDATION, "test", *([DETOURS] if game.detours else [])):
        levels_of(job, settings, out, name)
    rows = [row for tools in (0, 1) for row in await _lessons(settings, cold, tools, Teacher(game.chances), sandbox)]
    for tools in tools_in(job.game)[2:]:
        told = await _lessons(settings, cold[: len(cold) // 5], tools, Teacher(game.chances), sandbox)
        rows += [row for row in told if row.messages[0]["content"] == "Act."]  # what tools are asked is no other
    random.Random(job.seed).shuffle(rows)
    taught = SpeedrunSettings(seed=job.seed, sft=settings.sft, architecture=settings.architecture)
    model = phases.untrained(taught, rows, own / "untrained")
    phases.fine_tune(taught, model, rows, own / phases.SFT, lambda *_: None)
    starts.halved(own / phases.SFT / MODEL, own / starts.POLICY)


async def _lessons(
    settings: Settings, problems: Sequence[Problem], tools: int, teacher: Teacher, sandbox: Sandbox
) -> list[ChatRow]:
    """What agents were asked and said, each reply once."""
    turns, source = asyncio.Semaphore(AT_ONCE), program(tools)

    async def one(problem: Problem) -> list[ChatRow]:
        async with turns:
            run = await sandbox.run_program(
                source,
                problem.question,
                engine=teacher,
                limits=_recipe(settings).rollout.limits,
                seed=derived_seed(settings.seed, problem.id, tools),
                game=begins(problem),
            )
        said = ((turn.messages, turn.completion) for turn in run.trace.agent_turns)
        return [
            ChatRow(role="executor", messages=[*asked, {"role": "assistant", "content": reply.text}])
            for asked, reply in said
            if reply is not None
        ]

    return [row for rows in await asyncio.gather(*map(one, problems)) for row in rows]


def _recipe(settings: Settings) -> TrainConfig:
    """As all arms change it; of its rollout games are played like that, too."""
    return read_config(RECIPES / "speedrun_at_grpo.toml", list(settings.overrides))


async def _policies(job: Job, settings: Settings, out: Path, sandbox: Sandbox) -> Mapping[str, Path]:
    """The model of each agent; `""` is that of all that are not named."""
    arm, tuned = ARMS[job.name], (job.start.folder(out) / starts.POLICY).resolve()
    if arm.played_by:
        of = {each.name: each.folder(out) / RL for each in job.taken}
        return {agent: phases.trained(of[name], [policy])[policy] for agent, (name, policy) in arm.played_by.items()}
    if not arm.learns:
        return {"": tuned}
    own = job.folder(out)
    source = own / "program.py"
    source.write_text(program(arm.tools, arm.acts), encoding="utf-8")
    levels_of(job, settings, out, arm.levels)
    data = (job.seed_folder(out) / "levels" / f"{arm.levels}.jsonl").resolve()
    config = rl_config(job, settings, tuned, data, source.resolve())
    models = await phases.reinforce(OneProcess(config, sandbox), own / RL, lambda _: None)
    if arm.watched and not job.tuning:
        problems = levels_of(job, settings, out, VALIDATION)[:WATCHED_LEVELS]
        alone = config.model_copy(
            update={
                "rollout": config.rollout.model_copy(update={"branching": None, "executions": 1}),
                "credit": "tree",
            }
        )
        await watch(alone, own / RL / CHECKPOINTS, problems, job.seed, own / SEEN, sandbox)
    return {agent: models[name] for agent, name in config.roles.agents.items()} or {"": models["p0"]}


async def _play(
    settings: Settings,
    arm: Arm,
    policies: Mapping[str, Path],
    problems: Sequence[Problem],
    greedy: bool,
    seed: int,
    sandbox: Sandbox,
    out: Path,
) -> None:
    config = _recipe(settings)
    rollout, policy = config.rollout, config.policies["p0"]
    async with AsyncExitStack() as stack:

        def engine(model: Path) -> Engine:
            made = local_engine(policy.model_copy(update={"model": str(model)}), None, rollout.limits.reply_s)
            stack.push_async_callback(made.close)
            return made

        engines = {model: engine(model) for model in dict.fromkeys(policies.values())}
        named = {agent: engines[model] for agent, model in policies.items() if agent}
        others = engines[policies.get("", next(iter(policies.values())))]
        temperature = 0.0 if greedy else rollout.executor_temperature
        await evaluate(
            problems,
            executor=ByAgent(named, others) if named else others,
            sandbox=sandbox,
            program=program(arm.tools, arm.acts),
            settings=EvalSettings(
                k=1,
                seed=seed,
                sampling=Sampling(temperature=temperature, max_tokens=rollout.max_tokens),
                limits=rollout.limits,
                max_concurrent=rollout.max_concurrent,
            ),
            folder=out,
        )
