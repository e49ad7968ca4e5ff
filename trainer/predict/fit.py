"""What a run has shown of its own parts, from its `metrics.jsonl`, for the prediction of other runs.

The first step is left out, as processes warm up in it. Lengths and shares are means. Seconds of updates are fitted by a
line over tokens; those of rollouts by playing each step again (`trainer.predict.rollout_model`) with what it was like,
until the played seconds are the measured ones. Deviations count by their absolute value, so that a step that was held
up moves nothing. What a run does not show stays as it is assumed, and is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.config import ConfigError, TrainConfig, read_config
from trainer.predict.costs import PARAMETERS, Seen, costs_of
from trainer.predict.deviations import nonnegative_line, searched
from trainer.predict.observed import devices, observed, usage_of
from trainer.predict.rollout_model import NeverDone, rolled_out
from trainer.predict.workload import Workload, assumed_workload, drawn, sequences
from trainer.run import CONFIG, METRICS, Gpu, ModelSize, StepReport, needs_on
from workflow.usage import PolicyRole

WARM_UP = 1
MOST_STEPS = 12
"""That are played again."""
ROLLOUT = ("token_s", "request_token_s", "prompt_token_s", "run_s")
LENGTHS = "lengths of the executor's prompts and replies"
DESIGNS = ("lengths of designs", "designs that can run")
WORK = (LENGTHS, "agents per run", "trajectories learned from")


def work_of(config: TrainConfig) -> list[str]:
    """Words for what a step asks for: of designs nothing where the program is given."""
    return [*WORK, *(DESIGNS if config.rollout.program is None else ())]


class NotFittable(ValueError):
    """A folder without a run, or with too little of one."""


class Fit(BaseModel):
    model_config = ConfigDict(frozen=True)

    seen: Seen
    workload: Workload
    steps: int
    """That were used."""
    same_program: bool = True
    """Whether agents and designs are the run's, too: see `carried_over`."""
    fitted: list[str]
    """Of `trainer.predict.costs.PARAMETERS` and of the workload."""
    assumed: list[str]
    deviation: float
    """Median of |played / measured - 1| over the rollouts, with what was fitted."""


def read_run(folder: Path) -> tuple[TrainConfig, list[StepReport]]:
    """A run's configuration and its steps; a last line that a kill has cut short is none. Raises `NotFittable`."""
    fix = "Fix: the folder of a `metaagent train`"
    try:
        config = read_config(folder / CONFIG)
        *lines, _ = (folder / METRICS).read_bytes().split(b"\n")
    except (OSError, ConfigError) as error:
        raise NotFittable(f"{folder} holds no run: {error}. {fix}") from None
    reports = []
    for number, line in enumerate(lines, 1):
        try:
            reports.append(StepReport.model_validate_json(line))
        except ValidationError as error:
            wrong = error.errors()[0]["msg"]
            raise NotFittable(f"{folder / METRICS}, line {number}, is no step: {wrong}. {fix}") from None
    return config, reports


def on_gpus(config: TrainConfig, reports: Sequence[StepReport]) -> bool:
    """Whether a run was on GPUs. Raises `NotFittable` where nothing tells."""
    found = devices(config, reports)
    if "auto" in found:
        raise NotFittable(
            'neither its steps nor its configuration say what it was on: policies.*.device = "auto". Fix: "cpu" or '
            f'"cuda" there, in its {CONFIG}'
        )
    if len(found) > 1:
        raise NotFittable("it was partly on GPUs and partly on CPUs. Fix: a run on one kind")
    return found == {"cuda"}


def fit(
    config: TrainConfig,
    reports: Sequence[StepReport],
    sizes: Mapping[str, ModelSize],
    gpu: Gpu,
    *,
    warm_up: int = WARM_UP,
) -> Fit:
    """From a run with `config` on these GPUs, or CPU cores. Raises `NotFittable` for fewer than two steps."""
    used = list(reports[warm_up:])
    if len(used) < 2:
        raise NotFittable(f"{len(reports)} steps are too few: the first {warm_up} do not count. Fix: run more")
    for name in (name for report in used for name in report.updates if name not in config.policies):
        raise NotFittable(f"a step updates {name!r}, and the run's policies are {', '.join(config.policies)}")
    if not any(report.designs for report in used):
        raise NotFittable(f"the last {len(used)} steps have no designs. Fix: the folder of a run that has made some")
    try:
        return _fitted(config, used, sizes, gpu)
    except NeverDone as error:
        raise NotFittable(f"the run's seconds fit no costs: {error}") from None


def _fitted(config: TrainConfig, used: Sequence[StepReport], sizes: Mapping[str, ModelSize], gpu: Gpu) -> Fit:
    workload = observed(config, used)
    factors = _update_factors(config, used, sizes, gpu, workload)
    factors |= _sync_factors(config, used, sizes, gpu, workload)
    rollout, deviation = _rollout_factors(config, used, sizes, gpu)
    factors |= rollout
    return Fit(
        seen=Seen(factors=factors),
        workload=workload,
        steps=len(used),
        fitted=[*(name for name in PARAMETERS if name in factors), *work_of(config)],
        assumed=[name for name in PARAMETERS if name not in factors],
        deviation=deviation,
    )


def carried_over(found: Fit, ran: TrainConfig, config: TrainConfig) -> Fit:
    """What a fit to a run with `ran` says of one with `config`. Another program asks other agents, and has its work
    learned from otherwise: seconds and the lengths of what the executor reads and writes are all that is taken then."""
    if _program(ran) == _program(config):
        return found
    assumed, executor = assumed_workload(config), found.workload.executor
    lengths = assumed.executor.model_copy(update={"reply": executor.reply, "prompt": executor.prompt})
    return found.model_copy(
        update={
            "workload": assumed.model_copy(update={"executor": lengths}),
            "fitted": [name for name in found.fitted if name in (*PARAMETERS, LENGTHS)],
            "same_program": False,
        }
    )


def _program(config: TrainConfig) -> str | None:
    """Its text, or where it was; None where programs are designed."""
    path = config.rollout.program
    try:
        return path and path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return str(path)


# Updates and syncs


def _update_factors(
    config: TrainConfig, reports: Sequence[StepReport], sizes: Mapping[str, ModelSize], gpu: Gpu, workload: Workload
) -> dict[str, float]:
    """Over the policies' updates of all steps. What ranks send each other is taken as it is assumed."""
    costs = costs_of(config, sizes, gpu, workload)
    points: list[tuple[float, float, float]] = []
    """Of one update: how much of `update_s` and of `update_token_s` it holds, in assumed seconds, and its own."""
    for report in reports:
        for name, update in report.updates.items():
            policy, each = config.policies[name], costs.policies[name]
            mean = _sequence(config, report, name)
            if not mean or not update.computed_samples:
                continue
            share = mean * update.computed_samples / policy.update.ranks
            exchanged = math.ceil(share / policy.max_tokens_per_micro_batch) * each.micro_batch_s
            exchanged += update.steps * each.optimizer_step_s
            points.append((each.update_s, share * each.update_token_s, max(1e-6, update.duration_s - exchanged)))
    if not points:
        return {}
    fixed, sloped = nonnegative_line(points)
    return {"update_s": fixed, "update_token_s": sloped}


def _sequence(config: TrainConfig, report: StepReport, policy: str) -> float:
    """Mean tokens, prompt included, of what a policy learned from in a step; 0 for nothing."""
    roles: list[PolicyRole] = [role for role in report.active if config.role_policies[role] == policy]
    spreads = [report.lengths[role] for role in roles if role in report.lengths]
    tokens = sum(usage_of(report, role).prompt_tokens for role in roles)
    tokens += sum(each.mean * each.count for each in spreads)
    return tokens / max(1, sum(each.count for each in spreads))


def _sync_factors(
    config: TrainConfig, reports: Sequence[StepReport], sizes: Mapping[str, ModelSize], gpu: Gpu, workload: Workload
) -> dict[str, float]:
    """The same factor for what a sync takes in any case and for its bytes, as a run's syncs are all alike."""
    costs = costs_of(config, sizes, gpu, workload)
    together = sum if config.cluster.layout == "one-process" else max
    factors = [
        report.timings.sync_s / together(costs.policies[name].sync_total_s for name in report.updates)
        for report in reports
        if report.updates and report.timings.sync_s > 0
    ]
    return {"sync_s": median(factors), "sync_rate": 1 / median(factors)} if factors else {}


# Rollouts


def _rollout_factors(
    config: TrainConfig, reports: Sequence[StepReport], sizes: Mapping[str, ModelSize], gpu: Gpu
) -> tuple[dict[str, float], float]:
    """Factors that the rollouts show, and how far they are off with them."""
    stale = config.cluster.staleness
    # With staleness the seconds in a step's line are those of the rollout that ran beside its update.
    pairs = [(report, late.timings.rollout_s) for report, late in zip(reports[stale:], reports, strict=False)]
    pairs = [(report, seconds) for report, seconds in pairs if seconds > 0 and report.lengths and report.designs]
    pairs = pairs[:: -(-len(pairs) // MOST_STEPS) or 1]
    contents = [(observed(config, [report]), seconds) for report, seconds in pairs]
    plays = [(each, drawn(each, config.rollout, seed), seconds) for seed, (each, seconds) in enumerate(contents)]
    plays = [play for play in plays if any(sequences(*play[:2]).values())]  # of others nothing was asked of an engine
    if not plays:
        return {}, 0.0

    needed = needs_on(config, sizes, gpu.name, gpu.memory_bytes or None)

    def played(factors: Mapping[str, float]) -> list[float]:
        """ln(played / measured) of each step."""
        found = []
        for content, step, seconds in plays:
            costs = costs_of(config, sizes, gpu, content, Seen(factors=dict(factors)), needed)
            steady = costs.model_copy(update={"failures_per_hour": 0.0})
            found.append(math.log(rolled_out(config, steady, content, step).seconds / seconds))
        return found

    found, left = searched(ROLLOUT, played)
    return found, median(abs(math.exp(each) - 1) for each in left)
