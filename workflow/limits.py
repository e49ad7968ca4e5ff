"""The limits of one run, in one typed place. Enforced by the driver or the jail, not here."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

DAY_S = 86_400.0
"""Seconds after which whatever is still under way hangs."""


class Limits(BaseModel):
    """Limits of one run of a program. A run that passes one ends with `LimitExceeded(kind, limit, used)`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    wall_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """Seconds from start to answer, without those in which the run waits for replies of its agents: how fast the
    engine is, and how many others ask it, is no business of the run's."""
    reply_s: float = Field(default=1800.0, gt=0, allow_inf_nan=False)
    """Seconds for one reply of an agent, or of the Designer, its wait in the engine's queue included. Past them it is
    the engine that has failed (`EngineFailed`), not the run."""
    cpu_s: int = Field(default=20, ge=1)
    """CPU seconds of the program itself (agents think elsewhere)."""
    memory_mb: int = Field(default=512, ge=16)
    """Address space that the program may add to the worker's own, in MiB."""
    output_bytes: int = Field(default=1 << 20, ge=1)
    """What the program may print, in bytes."""
    agent_calls: int = Field(default=64, ge=0)
    tokens: int = Field(default=500_000, ge=0)
    """Prompt and completion tokens of all agent calls together."""
    tool_calls: int = Field(default=128, ge=0)
    """Tool calls and code runs together."""

    @property
    def longest_s(self) -> float:
        """Seconds after which a run that is still under way hangs: each reply as late as may be and none beside
        another, but a day at most."""
        return min(self.wall_s + self.agent_calls * self.reply_s, DAY_S)


class CodeLimits(BaseModel):
    """Limits of one code run. A run that passes one says so in `CodeResult.limit`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    wall_s: float = Field(default=90.0, gt=0)
    """More than `cpu_s`: what computes for too long is ended by the same limit on a busy machine, too."""
    cpu_s: int = Field(default=30, ge=1)
    memory_mb: int = Field(default=512, ge=16)
    output_bytes: int = Field(default=256 << 10, ge=1)
    """stdout and stderr together, in bytes."""
    disk_mb: int = Field(default=64, ge=1)
    """Size of the workspace, in MiB."""
