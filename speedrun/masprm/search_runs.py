"""Runs of MASPRM's comparisons: for each seed a policy taught on a cold start, trees of labels, models of values, arms.

    OUT/seed-S/PROBLEMS.jsonl            of this seed: train and test of each kind
    OUT/seed-S/start/TAUGHT/...          a policy: of the relay, or of the programs of the bank; its `policy/` is kept
    OUT/seed-S/labels/PLAY, N = .../...  trees (`metaagent label`)
    OUT/seed-S/model/NAME/...            a model of values (`metaagent prm`); `values/` of those that arms share is kept
    OUT/seed-S/arm/PLAY/NAME/...         held-out problems, searched
    OUT/seed-S/states/...                states and what 200 runs on from each came to
    OUT/seed-S/reading/NAME/...          what a model says of them
    OUT/seed-S/wall/...                  what calls, values and jails take

Each has `kept.json.gz`, which pages are made of. Runs nothing (`speedrun.masprm.search_jobs`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.protocol import Engine
from search.scoring import Scorer
from speedrun.masprm.chains import Kind, chain_problems
from speedrun.masprm.guided_arms import (
    ARMS,
    LIMITS,
    MODELS,
    PERFECT,
    PLAYS,
    READ,
    SHARED,
    Model,
    Play,
    model_of,
)
from speedrun.masprm.relay_scorer import RelayScorer
from speedrun.starts import POLICY
from speedrun.tiny_policy import Architecture
from speedrun.versions import code_of
from tasks import Problem, read_task
from trainer.evaluate import LabelSettings
from trainer.sft import SFTSettings
from trainer.values import ValueSettings
from workflow.completion import Sampling

KEPT, MADE_BY, SEPARATOR = "kept.json.gz", "made_by.json", "<|value|>"
VALUES = "values"
"""Folder of a model of values that searches read, in half precision as a policy's."""
Task = Literal["start", "labels", "model", "states", "arm", "reading", "wall"]


class Settings(BaseModel):
    """All that runs depend on but their job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: Architecture = Architecture(layers=4, width=128, inner=384, heads=4, vocabulary=600, context=512)
    bank: Architecture = Architecture(layers=4, width=128, inner=384, heads=4, vocabulary=2048, context=512)
    """Of the policy that plays the bank's programs, whose prompts are long: with more words they take fewer tokens."""
    cold: int = Field(default=1500, ge=1)
    """Sums of the cold start, and long ones; two thirds as many of the rest. A third as many for each of the bank's
    programs."""
    forgets: float = Field(default=0.7, ge=0, le=1)
    slips: float = Field(default=0.06, ge=0, le=1)
    """Of the teacher (`speedrun.masprm.chains`)."""
    sft: SFTSettings = SFTSettings(epochs=3, batch=32, learning_rate=3e-3, held_out=0.02)
    check: int = Field(default=200, ge=1)
    """Validation problems that say how often the policy is right."""
    train: int = Field(default=400, ge=1)
    """Problems with labels."""
    test: int = Field(default=300, ge=1)
    """Held out."""
    values: ValueSettings = ValueSettings(epochs=2, batch=64, learning_rate=1e-3)
    temperature: float = Field(default=0.7, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    max_concurrent: int = Field(default=64, ge=1)
    """Problems at once."""
    max_batch: int = Field(default=256, ge=1)
    """Of the policy's engine."""
    states: int = Field(default=100, ge=1)
    """That `values` looks at."""
    runs: int = Field(default=200, ge=1)
    """On from each of them."""

    def architecture_of(self, taught: str) -> Architecture:
        return self.bank if taught == "bank" else self.architecture

    def sampling(self, play: Play, logprobs: bool = False) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=play.max_tokens, logprobs=logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    task: Task
    seed: int
    name: str = ""
    """Of the start, the labels, the model or the arm."""
    play: str = ""
    """Of an arm: what is searched."""

    def folder(self, out: Path) -> Path:
        return out.joinpath(f"seed-{self.seed}", *(part for part in (self.task, self.play, self.name) if part))

    @property
    def title(self) -> str:
        return f"seed {self.seed}: {' '.join(part for part in (self.task, self.play, self.name) if part)}"

    @property
    def taken(self) -> list[Job]:
        """Whose results it needs."""
        match self.task:
            case "start":
                return []
            case "labels":
                return [self._start(next(model.play for model in MODELS.values() if model.labels == self.name))]
            case "model":
                model = MODELS[self.name]
                labels = replace(self, task="labels", name=model.labels)
                return [self._start(model.play), labels]
            case "states":
                return [self._start("sum")]
            case "arm":
                return [self._start(self.play), *map(self._model, ARMS[self.name].models(self.play))]
            case "reading":
                states = Job(task="states", seed=self.seed)
                return [states, self._start("sum"), *([self._model(self.name)] if self.name in MODELS else [])]
            case "wall":
                return [self._start("sum"), self._model("V")]

    def _start(self, play: str) -> Job:
        return Job(task="start", seed=self.seed, name=PLAYS[play].taught)

    def _model(self, name: str) -> Job:
        return Job(task="model", seed=self.seed, name=name)

    @property
    def taught(self) -> str:
        """Whose cold start the policy had."""
        return next(each.name for each in self.everything if each.task == "start")

    @property
    def weights(self) -> str | None:
        """The folder, in its own, of weights that are kept in the repository."""
        return POLICY if self.task == "start" else VALUES if self.task == "model" and self.name in SHARED else None

    @property
    def everything(self) -> list[Job]:
        """All that has to be there before, and itself."""
        before = [each for job in self.taken for each in job.everything]
        return list(dict.fromkeys([*before, self]))


class Searched(BaseModel):
    """One problem, searched: EM, AC, MC and tokens of the paper's tables."""

    problem: str
    correct: bool
    calls: int
    scored: int
    generated: int
    prompt: int
    read: int
    """Tokens that models of values read."""


class KeptRun(BaseModel):
    """What pages need of a job, small enough to stay in the repository."""

    made_by: dict[str, Any]
    """All that it was asked for (`made_by`)."""
    start: str = ""
    """Which of the weights that are kept it goes back to (`speedrun.masprm.kept_runs.began`)."""
    code: str = ""
    """Of which version of the project it is (`speedrun.versions.ran_with`)."""
    searched: list[Searched] = []
    figures: dict[str, float] = {}
    series: dict[str, list[float]] = {}


def made_by(job: Job, settings: Settings) -> dict[str, Any]:
    """All that a job's results depend on."""
    found: dict[str, Any] = {"job": asdict(job), "code": code_of_instrument()}
    found["settings"] = settings.model_dump(mode="json", exclude=_without(job))
    if job.task == "start":
        found["programs"] = {name: play.program for name, play in PLAYS.items() if play.taught == job.name}
    if job.task == "labels":
        play, labels = label_settings(job, settings)
        found["labels"] = labels.model_dump(mode="json", exclude={"max_concurrent", "retries"})
        found["program"] = play.program
    if job.task == "model":
        found["model"] = asdict(MODELS[job.name])
    if job.task == "arm":
        arm = ARMS[job.name]
        found["arm"] = {"search": arm.search.model_dump(mode="json"), "prm": arm.prm, "orm": arm.orm}
        found["program"] = PLAYS[job.play].program
        found["limits"] = LIMITS.model_dump(mode="json")
    found["taken"] = [made_by(each, settings) for each in job.taken]
    return json.loads(json.dumps(found))


def label_settings(job: Job, settings: Settings) -> tuple[Play, LabelSettings]:
    """Of a job that grows trees: what is searched, and how."""
    name, _, simulations = job.name.partition(", N = ")
    made = LabelSettings(
        simulations=int(simulations),
        sampling=settings.sampling(PLAYS[name], logprobs=True),
        limits=LIMITS,
        seed=job.seed,
        max_concurrent=settings.max_concurrent,
    )
    return PLAYS[name], made


def _without(job: Job) -> set[str]:
    """Settings that a job does not depend on."""
    of = {"values": ("model",), "train": ("labels",), "test": ("arm", "states", "wall"), "states": ("states",)}
    of["runs"] = ("states",)
    other = "architecture" if job.taught == "bank" else "bank"
    return {"max_concurrent", "max_batch", other, *(name for name, tasks in of.items() if job.task not in tasks)}


def kept_run(job: Job, settings: Settings) -> KeptRun:
    """Without results yet."""
    return KeptRun(made_by=made_by(job, settings))


@cache
def code_of_instrument() -> str:
    """SHA-256 of the code that makes problems, lessons and programs."""
    own = (f"speedrun/masprm/{name}.py" for name in ("chains", "relay_scorer", "bank_teacher"))
    return code_of(*own, "search/methods", "search/problem", "trainer/evaluate", "trainer/values")


def problems_of(job: Job, settings: Settings, out: Path, kind: Kind, name: Literal["train", "test"]) -> list[Problem]:
    """Those that are in the file; drawn and written if there is none."""
    path = out / f"seed-{job.seed}" / f"{kind}-{name}.jsonl"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        count = settings.train if name == "train" else settings.test
        drawn = chain_problems(kind, count, 3 * job.seed + 1 + (name == "test"), name)
        beside = path.with_name(f".{path.name}.{hashlib.sha256(str(job).encode()).hexdigest()[:8]}")
        beside.write_text("".join(problem.model_dump_json() + "\n" for problem in drawn), encoding="utf-8")
        beside.rename(path)
    return read_task(f"problems:{path}")


def policy_of(job: Job, play: Play, out: Path) -> Path:
    """The model that plays the agents."""
    return Job(task="start", seed=job.seed, name=play.taught).folder(out).resolve() / POLICY


async def engine_of(stack: AsyncExitStack, job: Job, settings: Settings, play: Play, out: Path) -> Engine:
    from engine.local import TransformersEngine

    engine = TransformersEngine(str(policy_of(job, play, out)), "cpu", "float32", max_batch=settings.max_batch)
    stack.push_async_callback(engine.close)
    return engine


async def scorer_of(stack: AsyncExitStack, name: str, job: Job, out: Path) -> Scorer:
    """A model of values."""
    found = model_of(name, job.play)
    if found == PERFECT:
        return RelayScorer()
    from trainer.values import TorchScorer

    folder = Job(task="model", seed=job.seed, name=found).folder(out).resolve() / VALUES
    scorer = TorchScorer.load(folder, device="cpu")
    stack.push_async_callback(scorer.close)
    return scorer


def readings(seed: int) -> Mapping[str, Job]:
    return {name: Job(task="reading", seed=seed, name=name) for name in (*READ, PERFECT)}


def model_folder(job: Job, out: Path) -> tuple[Model, Path]:
    """What a model learns from: its trees' folder."""
    model = MODELS[job.name]
    return model, replace(job, task="labels", name=model.labels).folder(out)
