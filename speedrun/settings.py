"""All that a speedrun depends on, in one place. RL has its own files, `recipes/speedrun.toml` and `speedrun_lm.toml`;
nothing here runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from speedrun.tiny_policy import Architecture
from tasks.data import Difficulty
from trainer.config import Roles, TrainConfig, read_config
from trainer.sft import SFTSettings

RECIPES = Path(__file__).parents[1] / "recipes"


class SpeedrunSettings(BaseModel):
    """The defaults take 15 to 20 minutes on two cores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, ge=0)
    difficulty: Difficulty = Difficulty()
    architecture: Architecture = Architecture()
    cold_problems: int = Field(default=4500, ge=1)
    """Problems of the cold start, of all kinds."""
    cold_designs: int = Field(default=2, ge=1)
    """Templates that each of them is tried with, drawn at random."""
    mistakes: bool = True
    """Whether the teacher makes mistakes on purpose: who begins with random weights learns them, and unlearns them by
    RL. A language model makes its own."""
    designer_rows: int = Field(default=60, ge=1)
    """Of the cold start that are looked at, of each program for each kind of problem; see `speedrun.phases.lessons`."""
    executor_rows: int = Field(default=1400, ge=1)
    """Of the cold start that are learned from, of each kind of problem and each way of being asked."""
    train_problems: int = Field(default=4000, ge=1)
    """Problems that RL draws from."""
    validation_problems: int = Field(default=800, ge=2)
    """To choose learning rates on, and to try each program of the bank on."""
    test_problems: int = Field(default=800, ge=2)
    """Held out; each is attempted once by every system."""
    sft: SFTSettings = SFTSettings(epochs=6, batch=32, learning_rate=3e-3, held_out=0.02)
    pretrained: Path | None = None
    """Folder of a language model that learns in place of a random one; see `of_language_model`."""
    shared: bool = False
    """One policy for both roles, in RL too, with the learning rate of the role that a stage is for."""
    kl_roles: Literal["active", "all"] = "active"
    """Of the RL of a shared policy; see `trainer.config`."""
    overrides: tuple[str, ...] = ()
    """Changes to the RL recipe, as `metaagent train` takes them."""

    @model_validator(mode="after")
    def _kl_needs_sharing(self) -> SpeedrunSettings:
        if self.kl_roles == "all" and not self.shared:
            raise ValueError('kl_roles="all" is for one policy that plays both roles. Fix: shared=true')
        return self

    @classmethod
    def of_language_model(cls, folder: Path, seed: int = 0, overrides: tuple[str, ...] = ()) -> SpeedrunSettings:
        """For a model of a hundred million weights on two cores: easier problems and fewer conversations, without
        mistakes, from which one policy for both roles learns adapters. It speaks already, and is taught how to work
        here."""
        return cls(
            pretrained=folder,
            seed=seed,
            overrides=overrides,
            difficulty=Difficulty(chain_terms=3, pair_numbers=3),
            cold_problems=320,
            mistakes=False,
            designer_rows=4,
            executor_rows=20,
            train_problems=1000,
            validation_problems=80,
            test_problems=80,
            sft=SFTSettings(epochs=2, batch=4, learning_rate=7e-4, held_out=0.03),
        )

    def rl(self, model: Path, data: Path) -> TrainConfig:
        """The RL run of these settings. Raises `ConfigError` for overrides that do not fit."""
        recipe = RECIPES / ("speedrun.toml" if self.pretrained is None else "speedrun_lm.toml")
        policies = tomllib.loads(recipe.read_text(encoding="utf-8"))["policies"]
        models = [f'policies.{name}.model="{model}"' for name in policies]
        config = read_config(recipe, [f"seed={self.seed}", *self.overrides, *models, f'data.0.path="{data}"'])
        return sharing(config, self.kl_roles) if self.shared else config

    def recipe(self) -> dict[str, Any]:
        """That run as written down, wherever model and data are."""
        return written(self.rl(Path("model"), Path("problems.jsonl")))


def written(rl: TrainConfig) -> dict[str, Any]:
    """But for the data, with the KL coefficient of a role that learns alone as that of all, and so for what a schedule
    never asks for."""
    own = rl.designer_kl_coefficient
    if rl.schedule in ("designer-only", "executor-only") and own is not None:
        of_all = {} if rl.schedule == "executor-only" else {"kl_coefficient": own}
        changes = {"designer_kl_coefficient": None, "objective": rl.objective.model_copy(update=of_all)}
        rl = rl.model_copy(update=changes)
    return rl.model_dump(mode="json", exclude_none=True, exclude={"data"})


def sharing(config: TrainConfig, kl_roles: str = "active") -> TrainConfig:
    """The same run with one policy for both roles: the Executor's, with the Designer's learning rate in its stages."""
    designer, executor = (config.policies[config.role_policies[role]] for role in ("designer", "executor"))
    policy = executor.model_copy(update={"designer_learning_rate": designer.learning_rate})
    roles = Roles(designer="shared", executor="shared")
    changes = {"policies": {"shared": policy}, "roles": roles, "kl_roles": kl_roles}
    return TrainConfig.model_validate(config.model_copy(update=changes).model_dump())
