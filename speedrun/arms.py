"""Runs of the comparisons: for each seed a policy taught on a cold start of its own, and arms that train it by RL.

    OUT/seed-S/start/...           a speedrun up to its fine-tuned policy, and the problems of this seed
    OUT/seed-S/start/policy/...    what all arms of this seed begin from; kept, too (`speedrun.starts`)
    OUT/seed-S/ARM/rl/...          an arm's run
    OUT/seed-S/ARM/attempts/...    at the held-out problems, sampled as in training; `greedy/` at temperature 0
    OUT/seed-S/ARM/fixed/...       at the validation problems, with each program of the bank
    OUT/tuning/seed-S/ARM at F/... an arm with F times the recipe's learning rates, at the validation problems only

What is done is not done again. Compares nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from metaagent.opening import open_sandbox
from sandbox.protocol import Sandbox
from speedrun import kept as keeping
from speedrun import phases, starts
from speedrun.dealt import Shuffled, ValidOnly
from speedrun.kept import ATTEMPTS, FIXED, GREEDY, RL
from speedrun.own_programs import without_jails
from speedrun.settings import SpeedrunSettings, written
from speedrun.side_by_side import in_order, run_in_process
from speedrun.tiny_policy import Architecture
from speedrun.variants import ALONE, ARMS, HALVED, START, STARTS, WITH_FIXED, Arm
from speedrun.versions import code_of_instrument, learning_code
from tasks import Problem, read_task
from trainer.config import PolicyConfig, RolloutConfig, TrainConfig
from trainer.disk import agree, only_writer
from trainer.distill import ROWS
from trainer.run import OneProcess
from trainer.sft import MODEL

TUNING = "tuning"
SAME_RESULTS = {
    "af9234194708291fd36468800020c1baf4e918eaa52fbbe72d6136d1da15326e": "digests leave out what code does not do",
    "7c6f57f29322110c17582f06adf61caa30921b84bbe04a06934e88a35bad6c65": (
        "these are of more modules, too. Rewards read turns in the program's order: 2x8 of seed 6 made again had "
        "equal rewards in each step and equal attempts. Then code that a clock ended while it was graded was left "
        "out, and math is no code: made again once more, rewards were equal for 23 steps, until rounding turned one "
        "token of 13,266; stages of seeds 6 and 8, made again after that, had equal rewards in each of 40 steps, and "
        "equal attempts, of seed 7 for 19 steps"
    ),
}
"""Earlier versions of the instrument's code (`code_of_instrument`) and of what is learned by (`learning_code`), and
what was changed since, which changed no result under the settings that they had. A change that does empties this."""
_CONTROLS = "speedrun/dealt.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One arm of one seed, or what it starts from."""

    name: str
    seed: int
    factor: float = 1.0
    """Of the recipe's learning rates."""
    tuning: bool = False
    """Whether it is only to be attempted at the validation problems."""

    def seed_folder(self, out: Path) -> Path:
        return (out / TUNING if self.tuning else out) / f"seed-{self.seed}"

    def folder(self, out: Path) -> Path:
        tried = self.tuning and self.name not in STARTS
        return self.seed_folder(out) / (f"{self.name} at {self.factor:g}" if tried else self.name)

    @property
    def start(self) -> Job:
        name = self.name if self.name in STARTS else ARMS[self.name].start if self.name in ARMS else START
        return replace(self, name=name, factor=1.0)


def arm_settings(settings: SpeedrunSettings, arm: Arm, factor: float = 1.0) -> SpeedrunSettings:
    """A seed's settings with an arm's changes on top, and `factor` times the recipe's learning rates where the arm
    names none."""
    recipe = phases.like_rl(settings)
    rates = (f"policies.{name}.learning_rate={of.learning_rate * factor:g}" for name, of in recipe.policies.items())
    steps = (f"steps={max(recipe.steps // 2, 1)}",) * arm.half
    changes = {
        "architecture": architecture(settings, arm.start),
        "shared": arm.shared,
        "kl_roles": arm.kl_roles,
        "overrides": (*settings.overrides, *(rates if factor != 1 else ()), *steps, *arm.overrides),
    }
    return settings.model_copy(update=changes)


def made_by(job: Job, settings: SpeedrunSettings) -> dict[str, Any]:
    """All that a job is asked for, beside what it starts from: its results are not taken for those of another one."""
    settings = settings.model_copy(update={"seed": job.seed})
    found: dict[str, Any] = {"job": asdict(job), "code": code_of_instrument()}
    found["settings"] = settings.model_dump(mode="json", exclude_none=True)
    found["play"] = _play(phases.like_rl(settings))
    found["fixed"] = job.name in WITH_FIXED and not job.tuning
    if job.name in ALONE:
        found["program"] = ALONE[job.name]
    if job.name in ARMS:
        arm = ARMS[job.name]
        found["arm"] = {"start": arm.start, "shuffled": arm.shuffled, "valid_only": arm.valid_only}
        found["rl"] = arm_settings(settings, arm, job.factor).recipe()
        found["learning"] = learning_code(_CONTROLS)
    return json.loads(json.dumps(found))


def _play(rl: TrainConfig) -> dict[str, Any]:
    """What of a recipe cold starts, fine-tuning and evaluations have, too."""
    policy = rl.policies[rl.roles.executor]
    return {"rollout": _dumped(rl.rollout, "questions", "designs", "executions"), "policy": _dumped(policy, *_ITS_OWN)}


_ITS_OWN = ("model", "learning_rate")


def _dumped(section: BaseModel, *without: str) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude_none=True, exclude=set(without))


def in_todays_terms(made: Any) -> Any:
    """What `made_by` wrote once, with the keys that settings and recipes have got since: their defaults are what was
    done before. What cannot be read any more stays as it is."""
    try:
        found = dict(made)
        if found["code"] in SAME_RESULTS:
            found["code"] = code_of_instrument()
        if found.get("learning") in SAME_RESULTS:
            found["learning"] = learning_code(_CONTROLS)
        found["settings"] = _dumped(SpeedrunSettings.model_validate(found["settings"]))
        rollout, policy = RolloutConfig(**found["play"]["rollout"]), PolicyConfig(model="", **found["play"]["policy"])
        found["play"] = {
            "rollout": _dumped(rollout, "questions", "designs", "executions"),
            "policy": _dumped(policy, *_ITS_OWN),
        }
        if "rl" in found:
            data = [{"path": "problems.jsonl", "format": "problems"}]
            found["rl"] = written(TrainConfig.model_validate({**found["rl"], "data": data}))
        return found
    except (TypeError, KeyError, ValueError):
        return made


def bank_texts() -> frozenset[str]:
    """The texts of the bank's programs."""
    return frozenset(template.program for template in phases.programs().values())


async def run(job: Job, settings: SpeedrunSettings, out: Path) -> None:
    """Train one arm, or what arms start from, and attempt its seed's problems with it."""
    own, first = job.folder(out), job.seed_folder(out) / START
    tuned = (job.start.folder(out) / starts.POLICY).resolve()
    settings = settings.model_copy(update={"seed": job.seed})
    with only_writer(own):
        await _run(job, settings, own, first, tuned)


async def _run(job: Job, settings: SpeedrunSettings, own: Path, first: Path, tuned: Path) -> None:
    async with open_sandbox("process", grading=True) as jails:
        sandbox = without_jails(jails, bank_texts())
        if not tuned.exists():
            await taught(settings, job.name, own, first, sandbox)
            starts.halved(own / phases.SFT / MODEL, tuned)
        designer = executor = tuned
        if job.name in ARMS:
            data = (first / phases.PROBLEMS / "train.jsonl").resolve()
            config = arm_settings(settings, ARMS[job.name], job.factor).rl(tuned, data)
            arm = ARMS[job.name]
            process = Shuffled if arm.shuffled else ValidOnly if arm.valid_only else OneProcess
            runtime = process(config, sandbox)
            models = await phases.reinforce(runtime, own / RL, lambda _: None)
            designer, executor = models[config.roles.designer], models[config.roles.executor]

        async def measure(problems: Sequence[Problem], where: str, program: str | None, greedy: bool = False) -> None:
            await phases.measure(
                settings,
                problems,
                executor,
                sandbox,
                own / where,
                lambda _: None,
                designer=None if program is not None else designer,
                program=program,
                seed=job.seed,
                greedy=greedy,
            )

        bank = phases.programs()
        validation = read_task(f"problems:{first / phases.PROBLEMS / 'validation.jsonl'}")
        if job.tuning:
            await measure(validation, ATTEMPTS, None)
            return
        alone = bank[ALONE[job.name]].program if job.name in ALONE else None
        test = read_task(f"problems:{first / phases.PROBLEMS / 'test.jsonl'}")
        await measure(test, ATTEMPTS, alone)
        await measure(test[: len(test) // 2], GREEDY, alone, greedy=True)
        if job.name in WITH_FIXED:
            for program in bank.values():
                await measure(validation, f"{FIXED}/{program.name}", program.program)


async def taught(settings: SpeedrunSettings, name: str, out: Path, first: Path, sandbox: Sandbox) -> None:
    """A speedrun up to its fine-tuned policy; problems and cold start are those of the seed's `first` one."""
    cold, _ = phases.write_all_problems(settings, first / phases.PROBLEMS)
    await phases.cold_start(settings, cold, sandbox, first / phases.COLD, lambda _: None)
    rows = phases.lessons(settings, first / phases.COLD / ROWS)
    settings = settings.model_copy(update={"architecture": architecture(settings, name)})
    model = phases.untrained(settings, rows, out / "untrained")
    phases.fine_tune(settings, model, rows, out / phases.SFT, lambda *_: None)


def architecture(settings: SpeedrunSettings, start: str) -> Architecture:
    """Of the policy that `start` teaches: the settings', or half of it."""
    return settings.architecture if start == START else HALVED


def kept_at(job: Job, kept: Path) -> Path:
    """Where a job's results are kept."""
    return kept / f"{job.folder(Path())}.json.gz"


def kept_start(job: Job, settings: SpeedrunSettings, kept: Path) -> str:
    """Which policy is kept for a job to start from (`speedrun.starts.kept_digest`)."""
    return starts.kept_digest(job.start.folder(kept), made_by(job.start, settings), in_todays_terms)


def left(jobs: Iterable[Job], settings: SpeedrunSettings, kept: Path) -> list[Job]:
    """Those whose results are not kept. What was made otherwise, or from another policy, is made again. Raises
    ValueError for a file that holds something else."""
    found = {job: keeping.read(kept_at(job, kept)) for job in jobs}
    began = {start: kept_start(start, settings, kept) for start in {job.start for job in found}}
    missing: list[Job] = []
    for job, run in found.items():
        if run is None or not starts.answers(run, made_by(job, settings), in_todays_terms, began[job.start]):
            missing.append(job)
        elif wrong := _lacking(job, run, settings):
            raise ValueError(f"{kept_at(job, kept)} holds {wrong}. Fix: remove it")
    return missing


def _lacking(job: Job, run: keeping.KeptRun, settings: SpeedrunSettings) -> str:
    """What a run that was made as asked holds too little or too much of; empty where it is whole."""
    validation, test = settings.validation_problems, settings.test_problems
    counts = {
        "attempts": (run.sampled, validation if job.tuning else test),
        "greedy attempts": (run.greedy, 0 if job.tuning else test // 2),
    }
    if job.name in WITH_FIXED and not job.tuning:
        counts |= {f"attempts with {name}": (run.fixed.get(name, []), validation) for name in phases.programs()}
    for name, (results, wanted) in counts.items():
        if len(problems := {each.problem for each in results}) != wanted or len(results) != wanted:
            return f"{len(results)} {name} at {len(problems)} problems, not one at each of {wanted}"
    steps = phases.like_rl(arm_settings(settings, ARMS[job.name])).steps if job.name in ARMS else 0
    return "" if len(run.steps) == steps else f"{len(run.steps)} steps of {steps}"


def run_all(jobs: Iterable[Job], settings: SpeedrunSettings, out: Path, workers: int, kept: Path) -> None:
    """What the jobs start from, then they, `workers` at a time, each in a process of one thread. What is done is not
    done again, and what is kept is not done at all, a policy that jobs start from is fetched then; in the end all is
    kept.

    Raises ValueError, before anything is run, where a folder holds results that were made otherwise, and RuntimeError
    where a job fails.
    """
    jobs = left(jobs, settings, kept)
    begun = dict.fromkeys(job.start for job in jobs)
    firsts = dict.fromkeys(replace(start, name=START) for start in begun)
    for job in (*firsts, *begun, *jobs):
        folder = job.folder(out)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / starts.MADE_BY
        agree(path, made_by(job, settings), begun=path.exists(), today=in_todays_terms)
    for job in {**firsts, **begun}:
        if kept_start(job, settings, kept):
            starts.fetch(job.folder(kept), job.folder(out))
            phases.write_all_problems(
                settings.model_copy(update={"seed": job.seed}), job.seed_folder(out) / START / phases.PROBLEMS
            )

    def once(job: Job) -> None:
        folder, asked = job.folder(out), made_by(job, settings)
        told = json.dumps(asdict(job))
        command = [sys.executable, "-m", "speedrun.compare", "--one", told, "--out", str(out)]
        run_in_process(folder, f"seed {job.seed}: {folder.name}", command)
        if job.name in STARTS:
            starts.keep(folder, job.folder(kept), asked)
        began = starts.digest(job.start.folder(kept))
        keeping.write(kept_at(job, kept), keeping.kept_of(folder, asked, began))

    # Starts stand first: what begins from them waits for them alone, so no core is idle while the last one is taught.
    taught_first = left({**firsts, **begun}, settings, kept)
    missing = dict.fromkeys([*taught_first, *jobs])
    in_order(
        {job: {job.start, replace(job.start, name=START)} & missing.keys() - {job} for job in missing}, once, workers
    )
