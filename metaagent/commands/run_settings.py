"""How one run goes that a command starts: its limits, sampling, seed and sandbox, or those of a recorded run that is
replayed.

Not here: the options themselves (`metaagent.commands.options`), and running (`metaagent.commands.run`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer
from pydantic import BaseModel, ConfigDict

from engine import Engine
from engine.replay import ReplayEngine
from tasks import Problem
from workflow.completion import Sampling
from workflow.limits import Limits

SAMPLING_OPTIONS = {"temperature", "top_p", "max_tokens"}


class RunSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    limits: Limits = Limits()
    sampling: Sampling = Sampling()
    own_sampling: bool = True
    """Agents are sampled as their nodes ask."""
    seed: int = 0
    given: frozenset[str] = frozenset()
    """Those of the settings, and fields of them, that somebody has set, and a recorded run does not change."""
    graded: Problem | None = None
    """The problem, where there is something to grade with: a known answer, tests or a game, which is played then."""
    sandbox: str | None = None
    """Name of the sandbox; see `open_sandbox`."""
    cache: Path | None = None
    """Folder that keeps the replies of an endpoint."""

    def as_replayed(self, engine: Engine) -> RunSettings:
        """The same, but as the run was whose Trace the engine replays, where it says how that was sampled."""
        started = engine.started if isinstance(engine, ReplayEngine) else None
        if started is None or started.sampling is None or started.own_sampling is None:
            return self
        sampling = {name: getattr(self.sampling, name) for name in self.given & SAMPLING_OPTIONS}
        limits = {name: getattr(self.limits, name) for name in self.given & Limits.model_fields.keys()}
        return self.model_copy(
            update={
                "limits": started.limits.model_copy(update=limits),
                "sampling": replace(started.sampling, **sampling),
                "own_sampling": started.own_sampling,
                "seed": self.seed if "seed" in self.given else started.seed,
            }
        )


def given_to(ctx: typer.Context) -> frozenset[str]:
    """The options that have a value of somebody's, by their names."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")
