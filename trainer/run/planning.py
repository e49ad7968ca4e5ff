"""The dry run: what a training run will do and what it will need, worked out before anything is loaded.

A policy's memory is that of `trainer.update.torch_backend`, which keeps all of it on one device, beside its engine;
what each GPU of a cluster holds is worked out in `trainer.run.needs`. Figures are bounds or estimates, as each says.
Nothing here needs torch or a GPU.
"""

from __future__ import annotations

import itertools

from pydantic import BaseModel

from tasks.data import in_math500, read_as
from trainer.config import DataConfig, PolicyConfig, TrainConfig
from trainer.credit import active_roles
from trainer.rollout import apportioned
from trainer.run.cast import check_has_program, fixed_program
from trainer.run.memory import Memory, checkpoint_bytes, engine_number_bytes, trained_parameters, whole_policy
from trainer.run.needs import ClusterNeeds, cluster_needs
from trainer.run.sizes import UnknownSize, model_folder, model_size
from trainer.values import SCORER, scorer_folder
from workflow.usage import PolicyRole

PROMPT_TOKEN_BYTES, CHOSEN_TOKEN_BYTES = 12, 34
"""Of a trace, with a vocabulary of six digits."""


class PolicyPlan(BaseModel):
    """One policy's size. Where the model is not here, `unknown` says why, and there are no figures."""

    name: str
    model: str
    roles: list[PolicyRole]
    agents: list[str] = []
    """That it plays by name."""
    unknown: str | None = None
    missing: bool = False
    """Whether that is because there is no model, here or in Hugging Face's cache."""
    parameters: int | None = None
    trained: int | None = None
    """Parameters that learn: all, or the adapters'."""
    memory: Memory | None = None
    """Of the whole policy on one device."""
    cache_bytes_per_token: int | None = None
    cache_bytes_per_request: int | None = None
    """Of full length. The transformers engine holds up to `engine.max_batch` requests, vLLM as many as its
    `gpu_memory_utilization` leaves room for."""
    checkpoint_bytes: int | None = None


class TokenPlan(BaseModel):
    """Tokens of one step, prompts and completions together."""

    designer_at_most: int
    executor_at_most: int
    """With every limit reached."""
    executor_single_turn: int
    """With one agent call per run, of full length."""
    generated_single_turn: int
    """Completions alone, of designers and single-turn runs, of full length."""


class SamplePlan(BaseModel):
    """Samples of one step where runs part: the candidates of agents' turns, each of which is learned from."""

    agents: int | None
    """N of the fixed program; None where not all are named, and only a sandbox would tell."""
    turns: int
    """T, of each agent."""
    candidates: int
    """K."""
    at_most: int
    """E runs x N x T x K; without N, of one agent."""


class Stage(BaseModel):
    """Consecutive steps at which the same roles learn."""

    roles: list[PolicyRole]
    first: int
    steps: int


class SourcePlan(BaseModel):
    """One source of problems. `problems` and `epochs` are None where the file is not here, and `unknown` says so."""

    name: str
    per_step: int
    problems: int | None = None
    epochs: float | None = None
    math500: int = 0
    """Problems that stand in MATH-500."""
    unknown: str | None = None


class Plan(BaseModel):
    """Everything that `metaagent train --dry-run` shows."""

    policies: list[PolicyPlan]
    designs_per_step: int
    runs_per_step: int
    tokens: TokenPlan
    samples: SamplePlan | None
    """None where whole runs are learned from."""
    stages: list[Stage]
    generated_tokens: int | None = None
    """After which the steps end, if not before."""
    sources: list[SourcePlan]
    checkpoints: int
    """That are on disk at once, the one being written included."""
    disk_bytes: int | None
    """Of those checkpoints; None where a policy's size is unknown."""
    traces: int
    """Steps whose traces are on disk at once, at most: those that are kept, the one that is rolled out, and those that
    are rolled out ahead."""
    trace_bytes: int
    """Of those, with one agent call per run, of full length."""
    device_bytes: int | None
    """What all policies hold on the one device that a run uses, without the engines' caches; None as above, and on a
    cluster."""
    cluster: list[ClusterNeeds] = []
    """Of a cluster layout, one for each kind of GPU; none where a policy's size is unknown."""


def plan(config: TrainConfig) -> Plan:
    """Work out a run. Reads the data files and the models' `config.json` where they are here, in a folder or in Hugging
    Face's cache; raises `DatasetError` for a data file that is not as its format says, and ValueError for a source that
    gets no place in a batch, and for a fixed program or a model of values that is not here."""
    rollout = config.rollout
    fixed_program(config)
    prm = config.reward.prm
    if prm is not None and not (scorer_folder(prm) / SCORER).is_file():
        raise ValueError(f"reward.prm {prm}: there is no {SCORER}. Fix: name the model/ of a metaagent prm run")
    designs = rollout.questions * rollout.designs
    runs = designs * rollout.executions
    policies = [_policy(name, policy, config) for name, policy in config.policies.items()]
    sizes = [each.checkpoint_bytes for each in policies if each.checkpoint_bytes is not None]
    memories = [each.memory.total for each in policies if each.memory is not None]
    alone = config.cluster.layout == "one-process"
    written = -(-config.steps // config.checkpoint_every)
    at_once = min(config.checkpoints_kept + 1, written)
    kept = config.steps if config.traces_kept is None else min(config.traces_kept + 1, config.steps)
    traces = kept + config.cluster.staleness
    return Plan(
        policies=policies,
        designs_per_step=designs,
        runs_per_step=runs,
        tokens=_tokens(config, designs, runs),
        samples=_samples(config, runs),
        stages=_stages(config),
        generated_tokens=config.generated_tokens,
        sources=_sources(config),
        checkpoints=at_once,
        disk_bytes=at_once * sum(sizes) if len(sizes) == len(policies) else None,
        traces=traces,
        trace_bytes=traces * _trace_bytes(config, designs, runs),
        device_bytes=sum(memories) if alone and len(memories) == len(policies) else None,
        cluster=[] if alone else cluster_needs(config),
    )


def _tokens(config: TrainConfig, designs: int, runs: int) -> TokenPlan:
    """A turn has at most max_prompt_tokens + max_tokens tokens. Designers have one turn per design, two with repair,
    none for a fixed program; a run has at most agent_calls turns, and limits.tokens in all of them. Where runs part,
    each turn has K replies, and where these are scored at the end, all but the first are run on to one of their own."""
    rollout = config.rollout
    turn = _turn(config)
    designed = 0 if rollout.program is not None else designs
    drawn = 1 if rollout.branching is None else rollout.branching.candidates
    to_the_end = rollout.branching is not None and rollout.branching.score == "end"
    ends = 1 + (drawn - 1) * rollout.limits.agent_calls if to_the_end else drawn
    return TokenPlan(
        designer_at_most=designed * (2 if rollout.repair else 1) * turn,
        executor_at_most=runs * ends * min(rollout.limits.tokens, rollout.limits.agent_calls * turn),
        executor_single_turn=runs * drawn * min(rollout.limits.tokens, turn),
        generated_single_turn=(designed + runs * drawn) * rollout.max_tokens,
    )


def _samples(config: TrainConfig, runs: int) -> SamplePlan | None:
    branching, roles = config.rollout.branching, config.roles
    if branching is None:
        return None
    turns, candidates = branching.turns, branching.candidates
    agents = len(roles.agents) if roles.agents and not roles.has_others else None
    at_most = runs * (agents or 1) * turns * candidates
    return SamplePlan(agents=agents, turns=turns, candidates=candidates, at_most=at_most)


def _trace_bytes(config: TrainConfig, designs: int, runs: int) -> int:
    """Of one step. The JSON of a token is its id and four letters of text; a chosen one has its log-probability too.
    What else a run leaves, such as its program, is little."""
    rollout = config.rollout
    drawn = 0 if rollout.branching is None else rollout.branching.candidates
    turns = runs * (1 + drawn) + (0 if rollout.program is not None else designs * (2 if rollout.repair else 1))
    return turns * (PROMPT_TOKEN_BYTES * rollout.max_prompt_tokens + CHOSEN_TOKEN_BYTES * rollout.max_tokens)


def _turn(config: TrainConfig) -> int:
    """Tokens of one prompt and its completion, at most."""
    return config.rollout.max_prompt_tokens + config.rollout.max_tokens


def _stages(config: TrainConfig) -> list[Stage]:
    """Eq. 9 over all steps, the last stage cut where they end."""
    active = (sorted(active_roles(step, config.schedule, config.stage_length)) for step in range(config.steps))
    stages: list[Stage] = []
    for roles, steps in itertools.groupby(active):
        first = stages[-1].first + stages[-1].steps if stages else 0
        stages.append(Stage(roles=list(roles), first=first, steps=len(list(steps))))
    return stages


def _sources(config: TrainConfig) -> list[SourcePlan]:
    """Each source gives the same number at every step. An epoch has as many steps as whole batches fit into it."""
    counts = apportioned([source.share for source in config.data], config.rollout.questions)
    return [_source(source, count, config) for source, count in zip(config.data, counts, strict=True)]


def _source(source: DataConfig, per_step: int, config: TrainConfig) -> SourcePlan:
    name = f"{source.format}:{source.path.name}"
    if per_step == 0:
        raise ValueError(f"{name}: share {source.share:g} is no place in a batch. Fix: raise it, or rollout.questions")
    if not source.path.exists():
        return SourcePlan(name=name, per_step=per_step, unknown=f"there is no {source.path}. Fix: name a file")
    read = read_as(source.format, source.path)
    check_has_program(config, read)
    problems = len(read)
    if problems < per_step:
        raise ValueError(f"{name}: {problems} problems do not fill {per_step} places. Fix: use smaller batches")
    return SourcePlan(
        name=name,
        per_step=per_step,
        problems=problems,
        epochs=config.steps / (problems // per_step),
        math500=len(in_math500(read)),
    )


def _policy(name: str, policy: PolicyConfig, config: TrainConfig) -> PolicyPlan:
    roles: list[PolicyRole] = [role for role, played_by in config.role_policies.items() if played_by == name]
    agents = [agent for agent, played_by in config.roles.agents.items() if played_by == name]
    folder = model_folder(policy.model)
    if folder is None:
        reason = (
            f"{policy.model} is no folder here, and not in Hugging Face's cache. Fix: a model's folder, or "
            f"`hf download {policy.model} config.json` (a kilobyte; hf comes with huggingface_hub)"
        )
        return PolicyPlan(name=name, model=policy.model, roles=roles, agents=agents, unknown=reason, missing=True)
    try:
        size = model_size(folder)
    except UnknownSize as error:
        return PolicyPlan(name=name, model=policy.model, roles=roles, agents=agents, unknown=str(error))
    engine_bytes = engine_number_bytes(size, policy)
    return PolicyPlan(
        name=name,
        model=policy.model,
        roles=roles,
        agents=agents,
        parameters=size.parameters,
        trained=trained_parameters(size, policy),
        memory=whole_policy(size, policy, config),
        cache_bytes_per_token=size.cache_bytes(engine_bytes),
        cache_bytes_per_request=size.cache_bytes(engine_bytes) * _turn(config),
        checkpoint_bytes=checkpoint_bytes(size, policy),
    )
