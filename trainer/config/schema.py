"""One typed configuration of a training run, and what of it does not fit together.

Read from TOML with dotted overrides (`trainer.config.toml_file`); nothing here opens files, models or engines.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainer.config.sections import (
    ClusterConfig,
    Count,
    DataConfig,
    PolicyConfig,
    PolicyName,
    RewardConfig,
    Roles,
    RolloutConfig,
    Section,
    is_address,
)
from trainer.credit import (
    FORMAT_WEIGHT,
    STAGE_LENGTH,
    RuleName,
    Schedule,
    active_roles,
)
from trainer.update import PolicyObjective
from workflow.usage import PolicyRole


def _wrong_device(key: str, policy: PolicyConfig, cluster: ClusterConfig) -> list[str]:
    """Where ranks could not be where their bundles are."""
    if policy.device == "cpu" and cluster.gpus_per_node:
        fix = 'device = "auto", or cluster.gpus_per_node = 0'
        return [f'{key}.device = "cpu" would leave the GPUs that its ranks are given idle. Fix: {fix}']
    if policy.device == "cuda" and not cluster.gpus_per_node:
        return [f'{key}.device = "cuda", and cluster.gpus_per_node = 0 gives it none. Fix: device = "auto", or GPUs']
    return []


class TrainConfig(Section):
    """Everything that a training run depends on."""

    policies: Annotated[dict[PolicyName, PolicyConfig], Field(min_length=1)]
    roles: Roles = Roles()
    data: Annotated[list[DataConfig], Field(min_length=1)]
    rollout: RolloutConfig = RolloutConfig()
    schedule: Schedule = "stagewise"
    stage_length: Count = STAGE_LENGTH
    """K; 30 as in section 4.1."""
    steps: Count = 300
    generated_tokens: int | None = Field(default=None, ge=1)
    """A budget: training ends after the step with which the roles that learned have generated as many tokens, and after
    `steps` at the latest. So arms that are compared spend alike."""
    credit: RuleName = "tree"
    format_weight: float = Field(default=FORMAT_WEIGHT, ge=0)
    """lambda of Eq. 10."""
    reward: RewardConfig = RewardConfig()
    objective: PolicyObjective = PolicyObjective()
    designer_kl_coefficient: float | None = Field(default=None, ge=0)
    """That of `objective` in steps in which a policy learns designing alone; None: the same. A step has far fewer
    designs than replies of agents, so more of what it does to their policy is noise."""
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
            if name not in self.policies and name not in self.roles.agents.values()
        ]
        wrong += [
            f"roles.agents.{agent} = {name!r} names no policy. Fix: use one of {', '.join(self.policies)}"
            for agent, name in self.roles.agents.items()
            if name not in self.policies
        ]
        unused = sorted(set(self.policies) - set(self.role_policies.values()) - set(self.roles.agents.values()))
        wrong += [f"policies.{name} plays no role. Fix: name it in [roles], or leave it out" for name in unused]
        if self.rollout.program is not None and self.schedule != "executor-only":
            wrong.append(
                f'with a fixed rollout.program nothing is designed, but schedule = "{self.schedule}". '
                'Fix: set schedule = "executor-only"'
            )
        if self.kl_roles == "all" and not self.has_reference:
            wrong.append(
                'kl_roles = "all" says where a KL term holds, and there is none. Fix: objective.kl_coefficient'
            )
        if self.kl_roles == "all" and len({*self.role_policies.values(), *self.roles.agents.values()}) > 1:
            wrong.append('kl_roles = "all" is for roles with one policy. Fix: "active", or one policy for both')
        if self.roles.agents and self.rollout.program is None:
            wrong.append(
                "roles.agents names agents of a fixed program, and there is none. Fix: rollout.program, or one policy"
            )
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
        each_turn = self.reward.each_turn and self.credit not in ("single-agent", "agent-turn")
        if "executor" in learn and runs == 1 and not each_turn:
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
        if branching is not None and (branching.score == "turn") != self.reward.each_turn:
            fix = (
                'reward.kind = "turns"'
                if branching.score == "turn"
                else 'rollout.branching.score = "turn", or reward.kind = "run"'
            )
            wrong.append(
                f'reward.kind = "{self.reward.kind}" does not go with rollout.branching.score = "{branching.score}". '
                f"Fix: {fix}"
            )
        reward = self.reward
        if (reward.kind == "values") != (reward.prm is not None):
            wrong.append(
                f'reward.kind = "{reward.kind}" with{"out" if reward.prm is None else ""} reward.prm. Fix: '
                'reward.prm = a folder of `metaagent prm` and reward.kind = "values", or neither'
            )
        if reward.kind != "turns" and reward != RewardConfig(kind=reward.kind, prm=reward.prm):
            wrong.append('reward.alpha, shaping and roles are for turns. Fix: leave them out, or reward.kind = "turns"')
        if reward.kind == "values" and self.cluster.layout != "one-process":
            wrong.append(
                f'reward.kind = "values" asks a model in the process that trains, and cluster.layout = '
                f'"{self.cluster.layout}" has several. Fix: cluster.layout = "one-process"'
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

    def policy_of(self, role: PolicyRole, agent: str) -> str:
        """Which policy plays an agent; of the Designer there is one."""
        return self.role_policies[role] if role == "designer" else self.roles.agents.get(agent, self.roles.executor)

    def learning_rate(self, policy: str, active: Collection[PolicyRole]) -> float:
        """A policy's in a step in which the roles `active` learn."""
        settings = self.policies[policy]
        return (self._designs_alone(policy, active) and settings.designer_learning_rate) or settings.learning_rate

    def objective_of(self, policy: str, active: Collection[PolicyRole]) -> PolicyObjective:
        """A policy's in such a step."""
        own = self.designer_kl_coefficient if self._designs_alone(policy, active) else None
        return self.objective if own is None else self.objective.model_copy(update={"kl_coefficient": own})

    @property
    def has_reference(self) -> bool:
        """Whether policies are held near the ones that they began with."""
        return bool(self.objective.kl_coefficient or self.designer_kl_coefficient)

    def _designs_alone(self, policy: str, active: Collection[PolicyRole]) -> bool:
        return {role for role, name in self.role_policies.items() if name == policy and role in active} == {"designer"}
