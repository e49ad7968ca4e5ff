"""The sections of a training run's configuration. Defaults are the setting of MetaAgent-X (section 4.1) and say so.

What does not fit together is said by the whole (`trainer.config.schema`).
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, field_validator, model_validator

from tasks.data import READERS
from trainer.credit import (
    Shaping,
    TurnReward,
    TurnRole,
    turn_reward,
)
from trainer.update import LoraSettings
from workflow.checks import nearest
from workflow.limits import Limits


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


PolicyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""A part of overrides and of file names."""


Count = Annotated[int, Field(ge=1, le=1_000_000)]


class EngineConfig(Section):
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


class UpdateConfig(Section):
    """Who updates a policy's weights: one process, or the ranks of DeepSpeed. More than one needs a cluster layout."""

    backend: Literal["torch", "deepspeed"] = "torch"
    ranks: Count = 1
    """Processes that share the policy, one per GPU."""
    zero_stage: Literal[0, 1, 2, 3] = 3
    """What DeepSpeed's ranks divide between them (Rajbhandari et al., 2020): nothing, the optimizer, the gradients too,
    the weights too."""
    offload_optimizer: bool = False
    """Whether optimizer and float32 weights stay in the host's memory; not at stage 0."""


class PolicyConfig(Section):
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


def is_address(text: str) -> bool:
    """Whether `cluster.address` may be that."""
    found = re.fullmatch(r"local|auto|[\w.-]+:(\d{1,5})", text)
    return found is not None and 0 < int(found[1] or 1) <= 65_535


class ClusterConfig(Section):
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


class Roles(Section):
    """Which policy plays which role; one name for both is the shared setting, which is the paper's main one."""

    designer: str = "p0"
    executor: str = "p0"
    """Of all agents that `agents` does not name."""
    agents: dict[str, str] = {}
    """Policies of single agents, by their names in a fixed program (role-specialised policies of Stronger-MAS). Where
    there are any and `executor` is left out, every agent has to be named."""
    _has_others: bool = PrivateAttr(default=True)

    @model_validator(mode="after")
    def _of_agents_alone(self) -> Roles:
        """What is left out is the first agent's, which then plays nobody else."""
        self._has_others = not self.agents or "executor" in self.model_fields_set
        first = next(iter(self.agents.values()), "p0")
        if not self._has_others:
            object.__setattr__(self, "executor", first)  # it is being made, and frozen then
        if self.agents and "designer" not in self.model_fields_set:
            object.__setattr__(self, "designer", self.executor)
        return self

    @property
    def has_others(self) -> bool:
        """Whether there is a policy for agents that `agents` does not name."""
        return self._has_others


class DataConfig(Section):
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


class BranchingConfig(Section):
    """Tree sampling at agents' turns (Stronger-MAS, Alg. 1)."""

    candidates: int = Field(default=4, ge=2, le=1024)
    """K: replies that are drawn for each call of an agent; 4 in Appendix C.1."""
    turns: Count = 4
    """T: the turns of each agent of the program at which K are drawn; from then on it says one thing at a time, from
    which nothing is learned."""
    select: Literal["best", "first", "random"] = "best"
    """Which of the K the run goes on with."""
    score: Literal["end", "turn"] = "end"
    """What a reply is worth: `end` runs each on to the end, with one reply at a time, and takes the run's reward;
    `turn` looks at what it does before the next call (`reward.kind = "turns"`)."""
    max_open: int = Field(default=64, ge=1, le=256)
    """Runs that wait at a call, each in a jail, of which a sandbox has 256; more are dropped and made anew, with the
    same result."""


class RolloutConfig(Section):
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


class RewardConfig(Section):
    """What is rewarded."""

    kind: Literal["run", "turns", "values"] = "run"
    """`run`: whole runs, by MetaAgent-X, Eq. 10. `turns`: each reply of an agent, by Stronger-MAS, Eq. 3. `values`:
    each reply by what a model of values says of the state after it (MASPRM), the last one by the grader."""
    prm: Path | None = None
    """The model of `values`, a folder that `metaagent prm` made."""
    alpha: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """What the team's part of a turn's reward weighs."""
    shaping: Shaping = "dense"
    """Of turns: `dense` follows what a turn achieves, `outcome` only that the problem is solved and a format kept."""
    roles: dict[str, TurnRole] = {}
    """What agents of the program are for in math and code whose names are not Reasoner, Tool, Coder or Tester."""

    @property
    def each_turn(self) -> bool:
        """Whether replies are rewarded one by one."""
        return self.kind != "run"

    @property
    def of_turns(self) -> TurnReward | None:
        """None where something else is rewarded."""
        if self.kind != "turns":
            return None
        return partial(turn_reward, alpha=self.alpha, shaping=self.shaping, roles=self.roles)
