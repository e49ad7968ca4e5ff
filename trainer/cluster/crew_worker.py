"""A run worker that trains nothing: it makes pieces of graded work, such as attempts of an evaluation, and asks the
engines itself. A plain class without Ray in it.

Not here: who starts and watches it (`trainer.cluster.spread`), and what a piece is (`trainer.evaluate`,
`trainer.distill`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Engine
from sandbox.named import named_sandbox
from tasks import MATH_WORKER
from trainer.cluster.engine_pool import EnginePool, PoolTable, engine_of_run
from trainer.cluster.processes import Identity, identity
from trainer.config import PolicyConfig
from trainer.rollout import first_failure
from workflow.limits import Limits


@dataclass(frozen=True, eq=False)
class Player:
    """Who plays a role."""

    name: str
    """Of its engine, as records and traces have it."""
    source: PolicyConfig | Callable[[], Engine]
    """A model, for engines of the cluster that all workers ask; or what opens an engine for one worker, such as the
    client of a server."""


@dataclass(frozen=True)
class Job:
    """What run workers are told once."""

    maker: Callable[..., Any]
    """Called once in each worker, with its `executor`, `designer`, `sandbox` and `engine_of_run`; the method `make` of
    what it returns makes a piece."""
    executor: Player
    designer: Player | None = None
    """None where nobody designs; the same object as `executor` where both roles share an engine."""
    sandbox: str = "process"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What clients of servers read of it, such as keys."""
    reply_s: float = Limits().reply_s
    """For one reply of an engine."""

    @property
    def players(self) -> dict[str, Player]:
        players = {"executor": self.executor}
        if self.designer is not None and self.designer is not self.executor:
            players["designer"] = self.designer
        return players

    @property
    def policies(self) -> dict[str, PolicyConfig]:
        """Those that engines of the cluster serve."""
        return {name: each.source for name, each in self.players.items() if isinstance(each.source, PolicyConfig)}


class CrewWorker:
    """`wait_s` is for an engine to be there, where none is."""

    def __init__(self, job: Job, wait_s: float) -> None:
        self._job, self._wait_s = job, wait_s

    async def start(self) -> Identity:
        job = self._job
        os.environ.update(job.environment)
        self._sandbox = named_sandbox(job.sandbox, ("designer.check", MATH_WORKER))
        self._engines = {name: self._opened(name, player) for name, player in job.players.items()}
        designer = self._engines.get("designer", self._engines["executor"])
        self._maker = job.maker(
            executor=self._engines["executor"],
            designer=None if job.designer is None else designer,
            sandbox=self._sandbox,
            engine_of_run=engine_of_run,
        )
        return identity()

    def _opened(self, policy: str, player: Player) -> Engine:
        if isinstance(player.source, PolicyConfig):
            return EnginePool(policy, wait_s=self._wait_s, reply_s=self._job.reply_s, name=player.name)
        return player.source()

    async def identity(self) -> Identity:
        return identity()

    async def engines(self, tables: Mapping[str, PoolTable]) -> None:
        """Who serves each policy from now on."""
        for name, table in tables.items():
            pool = self._engines[name]
            assert isinstance(pool, EnginePool)
            pool.serve(table)

    async def make(self, *piece: Any) -> Any:
        try:
            return await self._maker.make(*piece)
        except BaseExceptionGroup as failures:
            raise first_failure(failures) from None

    async def close(self) -> None:
        for engine in self._engines.values():
            await engine.close()
        await self._sandbox.close()
