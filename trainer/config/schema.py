"""One typed configuration of a training run. Defaults are the setting of MetaAgent-X (section 4.1) and say so.

Read from TOML with dotted overrides (`trainer.config.toml_file`); nothing here opens files, models or engines.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from tasks.data import READERS
from trainer.credit import FORMAT_WEIGHT, STAGE_LENGTH, RuleName, Schedule, active_roles
from trainer.update import LoraSettings, PolicyObjective
from workflow.checks import nearest
from workflow.limits import Limits
from workflow.usage import PolicyRole


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


PolicyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""A part of overrides and of file names."""


Count = Annotated[int, Field(ge=1, le=1_000_000)]


class EngineConfig(_Section):
    """Where a policy's completions come from while it trains."""

    kind: Literal["transformers", "vllm"] = "vllm"
    dtype: str = "auto"
    """A torch dtype's name. With `float64` on a CPU a rollout's log-probabilities do not depend on what ran beside it
    (to the last bit of float32), which makes a resumed run equal to one that was never stopped."""
    thinking: bool = False
    """Whether the model reasons in a <think> block first; the paper trains in no-thinking mode (section 4.1)."""
    max_batch: Count = 64
    """Requests that run together (transformers) or at most at once (vllm)."""
    options: dict[str, bool | int | float | str] = {}
    """Passed on to vLLM."""
    replicas: Count = 1
    """Engines of the policy, which share its requests; more than one needs a cluster layout."""
    tensor_parallel: Count = 1
    """GPUs (vllm) of each engine, within one node."""


class UpdateConfig(_Section):
    """Who updates a policy's weights: one process, or the ranks of DeepSpeed. More than one needs a cluster layout."""

    backend: Literal["torch", "deepspeed"] = "torch"
    ranks: Count = 1
    """Processes that share the policy, one per GPU."""
    zero_stage: Literal[0, 1, 2, 3] = 3
    """What DeepSpeed's ranks divide between them (Rajbhandari et al., 2020): nothing, the optimizer, the gradients too,
    the weights too."""
    offload_optimizer: bool = False
    """Whether optimizer and float32 weights stay in the host's memory; not at stage 0."""


class PolicyConfig(_Section):
    """One policy: a model that is trained, and its engine."""

    model: str
    """Folder or Hugging Face id of a causal language model with a chat template."""
    learning_rate: float = Field(default=5e-6, gt=0)
    """The paper's (section 4.1)."""
    designer_learning_rate: float | None = Field(default=None, gt=0)
    """In steps that it learns designing alone in; None: the same. A designer stage has far fewer samples."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    lora: LoraSettings | None = None
    gradient_checkpointing: bool = True
    max_tokens_per_micro_batch: int = Field(default=16384, ge=1)
    """Tokens, padding included, that go through the model at once: bounds the memory of an update."""
    shared_prompts: bool = True
    """Whether an update computes a prompt once for all samples that begin with it; not with gradient checkpointing."""
    max_gradient_norm: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    update: UpdateConfig = UpdateConfig()
    engine: EngineConfig = EngineConfig()


Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]


def _wrong_device(key: str, policy: PolicyConfig, cluster: ClusterConfig) -> list[str]:
    """Where ranks could not be where their bundles are."""
    if policy.device == "cpu" and cluster.gpus_per_node:
        fix = 'device = "auto", or cluster.gpus_per_node = 0'
        return [f'{key}.device = "cpu" would leave the GPUs that its ranks are given idle. Fix: {fix}']
    if policy.device == "cuda" and not cluster.gpus_per_node:
        return [f'{key}.device = "cuda", and cluster.gpus_per_node = 0 gives it none. Fix: device = "auto", or GPUs']
    return []


def is_address(text: str) -> bool:
    """Whether `cluster.address` may be that."""
    found = re.fullmatch(r"local|auto|[\w.-]+:(\d{1,5})", text)
    return found is not None and 0 < int(found[1] or 1) <= 65_535


class ClusterConfig(_Section):
    """Where a run is computed. Of all these keys only `staleness` changes what is computed."""

    layout: Literal["one-process", "colocated", "disaggregated"] = "one-process"
    """`one-process`: no Ray. `colocated`: a policy's ranks and engines share GPUs and take turns. `disaggregated`: each
    has its own."""
    address: str = "local"
    """Of Ray: `local` starts one on this machine for this run, `auto` finds the one that runs here, HOST:PORT is a
    head node's."""
    nodes: Count = 1
    gpus_per_node: int = Field(default=8, ge=0, le=1024)
    """0: ranks and engines take CPUs."""
    run_workers_per_node: Count = 4
    """Processes that run programs, each with a sandbox and one event loop."""
    staleness: int = Field(default=0, ge=0, le=64)
    """S: step t is rolled out with the weights of step max(0, t - S), while earlier steps update. Needs engines apart
    from ranks (`disaggregated`)."""
    transport: Literal["auto", "store", "gloo", "nccl", "ipc"] = "auto"
    """How new weights reach the engines: Ray's object store (any engine), or vLLM's own weight transfer over gloo
    (CPUs), NCCL (GPUs apart) or CUDA IPC (one GPU). `auto` takes the last that the layout allows."""
    start_timeout_s: Seconds = 900.0
    """For Ray, nodes, and each process to be ready."""
    call_timeout_s: Seconds = 1800.0
    """For one call of a rank or an engine, such as a whole update or a sync."""
    collective_timeout_s: Seconds = 600.0
    """For one exchange between ranks; what waits longer ends the group, which is made anew."""
    heartbeat_s: Seconds = 30.0
    """Between two signs of life that every engine and worker is asked for, and for each to come."""
    restarts_per_hour: Count = 6
    """Engines, workers and groups that are replaced before the run ends."""


class Roles(_Section):
    """Which policy plays which role; one name for both is the shared setting, which is the paper's main one."""

    designer: str = "p0"
    executor: str = "p0"


class DataConfig(_Section):
    """One source of training problems."""

    format: str
    """A name in `tasks.data.benchmarks.READERS`."""
    path: Path
    share: float = Field(default=1.0, gt=0)
    """Of every batch, relative to the other sources."""

    @field_validator("format")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in READERS:
            near = nearest(name, READERS)
            hint = f" (did you mean {near!r}?)" if near else ""
            raise ValueError(f"there is no such format{hint}. Fix: use one of {', '.join(READERS)}")
        return name


class BranchingConfig(_Section):
    """Tree sampling at agents' turns (Stronger-MAS, Alg. 1)."""

    candidates: int = Field(default=4, ge=2, le=1024)
    """K: replies that are drawn for each call of an agent; 4 in Appendix C.1."""
    turns: Count = 4
    """T: the turns of each agent of the program at which K are drawn; from then on it says one thing at a time, from
    which nothing is learned."""
    select: Literal["best", "first", "random"] = "best"
    """Which of the K the run goes on with."""
    score: Literal["end"] = "end"
    """What a reply is worth: `end` runs each on to the end, with one reply at a time, and takes the run's reward."""
    max_open: int = Field(default=64, ge=1, le=256)
    """Runs that wait at a call, each in a jail, of which a sandbox has 256; more are dropped and made anew, with the
    same result."""


class RolloutConfig(_Section):
    """The rollout tree of one step: questions x designs x executions."""

    questions: Count = 8
    """Batch size (section 4.1)."""
    designs: Count = 4
    """M."""
    executions: Count = 4
    """N."""
    program: Path | None = None
    """A fixed program in place of the Designer's: with a single agent and N executions, the baseline `SA + GRPO`."""
    branching: BranchingConfig | None = None
    """With `credit = "at-grpo"`: where runs part at agents' calls."""
    style: Literal["short", "full"] = "short"
    """The Designer's prompt: without templates, or with some of the bank's."""
    repair: bool = False
    """Whether a rejected program goes back to the Designer once, with what the check found."""
    designer_temperature: float = Field(default=1.0, gt=0)
    executor_temperature: float = Field(default=1.0, gt=0)
    max_prompt_tokens: int = Field(default=8192, ge=1)
    """Together with `max_tokens` the context that the engine serves: a prompt that fills it ends its run by the limit
    `context_tokens`."""
    max_tokens: int = Field(default=8192, ge=1)
    """Tokens of one completion; 8192 as in section 4.1, like the prompt's."""
    limits: Limits = Limits()
    max_concurrent: Count = 256
    """Runs at once; the others wait their turn, none is dropped."""
    sandbox: str = "process"
    retries: int = Field(default=2, ge=0)
    """Times that a run is tried again after a failure of the engine or the sandbox, before training stops."""


class TrainConfig(_Section):
    """Everything that a training run depends on."""

    policies: Annotated[dict[PolicyName, PolicyConfig], Field(min_length=1)]
    roles: Roles = Roles()
    data: Annotated[list[DataConfig], Field(min_length=1)]
    rollout: RolloutConfig = RolloutConfig()
    schedule: Schedule = "stagewise"
    stage_length: Count = STAGE_LENGTH
    """K; 30 as in section 4.1."""
    steps: Count = 300
    credit: RuleName = "tree"
    format_weight: float = Field(default=FORMAT_WEIGHT, ge=0)
    """lambda of Eq. 10."""
    objective: PolicyObjective = PolicyObjective()
    kl_roles: Literal["active", "all"] = "active"
    """Whose replies the KL term of `objective` holds: those of the roles that learn, or, where both roles have one
    policy, of the other one, too, in a mean of its own."""
    checkpoint_every: Count = 10
    checkpoints_kept: Count = 3
    traces_kept: Count | None = None
    """Steps whose traces stay on disk, the newest ones; None: all."""
    seed: int = Field(default=0, ge=0)
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        """All that does not fit together, one line for each."""
        wrong = [
            f"roles.{role} = {name!r} names no policy. Fix: use one of {', '.join(self.policies)}"
            for role, name in self.role_policies.items()
            if name not in self.policies
        ]
        unused = sorted(set(self.policies) - set(self.role_policies.values()))
        wrong += [f"policies.{name} plays no role. Fix: name it in [roles], or leave it out" for name in unused]
        if self.rollout.program is not None and self.schedule != "executor-only":
            wrong.append(
                f'with a fixed rollout.program nothing is designed, but schedule = "{self.schedule}". '
                'Fix: set schedule = "executor-only"'
            )
        if self.kl_roles == "all" and not self.objective.kl_coefficient:
            wrong.append(
                'kl_roles = "all" says where a KL term holds, and there is none. Fix: objective.kl_coefficient'
            )
        if self.kl_roles == "all" and len(set(self.role_policies.values())) > 1:
            wrong.append('kl_roles = "all" is for roles with one policy. Fix: "active", or one policy for both')
        wrong += self._nothing_to_compare()
        wrong += self._wrong_branching()
        wrong += self._unplaceable()
        if wrong:
            raise ValueError("\n".join(wrong))
        return self

    def _nothing_to_compare(self) -> list[str]:
        """Roles that would learn nothing at any step, since their rewards have none beside them."""
        rollout, wrong = self.rollout, []
        learn = frozenset().union(
            *(active_roles(step, self.schedule, self.stage_length) for step in (0, self.steps - 1)),
            active_roles(min(self.stage_length, self.steps - 1), self.schedule, self.stage_length),
        )
        if "designer" in learn and rollout.designs == 1:
            fix = '2 or more, or schedule = "executor-only"'
            wrong.append(f"rollout.designs = 1 leaves the Designer's designs nothing to be compared with. Fix: {fix}")
        runs = rollout.executions if self.credit == "per-design" else rollout.designs * rollout.executions
        if rollout.branching is not None:
            runs *= rollout.branching.candidates
        if "executor" in learn and not rollout.limits.agent_calls:
            wrong.append("rollout.limits.agent_calls = 0 leaves an Executor nothing to say. Fix: 1 or more")
        if "executor" in learn and runs == 1:
            what = "rollout.executions = 1" if self.credit == "per-design" else "a single run of each question"
            fix = "rollout.executions = 2 or more"
            wrong.append(f'{what} leaves credit = "{self.credit}" nothing to compare an Executor\'s with. Fix: {fix}')
        return wrong

    def _wrong_branching(self) -> list[str]:
        branching, wrong = self.rollout.branching, []
        if self.credit == "at-grpo" and branching is None:
            wrong.append(
                'credit = "at-grpo" compares replies to one call, and there is one of each. Fix: '
                'rollout.branching.candidates = 4, or credit = "agent-turn"'
            )
        if branching is not None and self.credit != "at-grpo":
            wrong.append(f'rollout.branching has no part in credit = "{self.credit}". Fix: credit = "at-grpo"')
        if branching is not None and self.schedule != "executor-only":
            wrong.append(
                f'rollout.branching parts at what agents say, and schedule = "{self.schedule}" has the Designer learn. '
                'Fix: schedule = "executor-only"'
            )
        return wrong

    def _unplaceable(self) -> list[str]:
        """What a layout cannot do, one line for each."""
        cluster, wrong = self.cluster, []
        alone = cluster.layout == "one-process"
        for name, policy in self.policies.items():
            update, engine = policy.update, policy.engine
            key = f"policies.{name}"
            for what, one in (
                (f'{key}.update.backend = "deepspeed"', update.backend == "torch"),
                (f"{key}.engine.replicas = {engine.replicas}", engine.replicas == 1),
            ):
                if alone and not one:
                    fix = 'set cluster.layout = "disaggregated" or "colocated"'
                    wrong.append(f"{what} needs more than one process. Fix: {fix}")
            if update.backend == "torch" and update.ranks > 1:
                fix = f'{key}.update.backend = "deepspeed"'
                wrong.append(f"{key}.update.ranks = {update.ranks}, and plain torch has one. Fix: {fix}")
            if update.backend == "deepspeed" and update.zero_stage == 0 and policy.dtype == "bfloat16":
                wrong.append(
                    f"{key}.update.zero_stage = 0 keeps no float32 weights, which bfloat16 needs. Fix: stage 1 to 3, "
                    'or dtype = "float32"'
                )
            if update.backend == "deepspeed" and update.zero_stage == 0 and update.offload_optimizer:
                fix = f"{key}.update.zero_stage = 1 or more"
                wrong.append(f"{key}.update.offload_optimizer has nothing to move at stage 0. Fix: {fix}")
            if engine.kind == "transformers" and engine.tensor_parallel > 1:
                fix = f'{key}.engine.kind = "vllm"'
                wrong.append(f"{key}.engine.tensor_parallel needs vLLM. Fix: {fix}, or 1")
            if cluster.transport in ("gloo", "nccl", "ipc") and not alone and engine.kind != "vllm":
                fix = 'cluster.transport = "store" or "auto"'
                wrong.append(f'cluster.transport = "{cluster.transport}" needs vLLM ({key}.engine.kind). Fix: {fix}')
            if (
                (cluster.layout, cluster.transport) == ("colocated", "store")
                and (engine.kind, update.backend) == ("vllm", "deepspeed")
                and cluster.gpus_per_node
            ):
                fix = '"ipc", or "auto"'
                wrong.append(f'cluster.transport = "store" does not take turns with the GPU of {key}. Fix: {fix}')
            wrong += _wrong_device(key, policy, cluster) if not alone else []
        if not is_address(cluster.address):
            wrong.append(f'cluster.address = "{cluster.address}" is none. Fix: "local", "auto" or "HOST:PORT"')
        if cluster.staleness and cluster.layout != "disaggregated":
            wrong.append(
                f"cluster.staleness = {cluster.staleness} needs engines that work while ranks do. "
                'Fix: cluster.layout = "disaggregated", or 0'
            )
        if cluster.transport == "ipc" and cluster.layout != "colocated" and not alone:
            wrong.append('cluster.transport = "ipc" is for ranks and engines on one GPU. Fix: "nccl", or "auto"')
        if cluster.transport == "nccl" and cluster.layout == "colocated":
            wrong.append('cluster.transport = "nccl" is for ranks and engines on GPUs apart. Fix: "ipc", or "auto"')
        if cluster.transport in ("nccl", "ipc") and cluster.gpus_per_node == 0 and not alone:
            wrong.append(f'cluster.transport = "{cluster.transport}" needs GPUs. Fix: "gloo", "store" or "auto"')
        return wrong

    @property
    def role_policies(self) -> dict[PolicyRole, str]:
        return {"designer": self.roles.designer, "executor": self.roles.executor}

    def learning_rate(self, policy: str, active: Collection[PolicyRole]) -> float:
        """A policy's in a step in which the roles `active` learn."""
        settings = self.policies[policy]
        learned = {role for role, name in self.role_policies.items() if name == policy and role in active}
        return (learned == {"designer"} and settings.designer_learning_rate) or settings.learning_rate
