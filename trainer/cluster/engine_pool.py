"""Several engines of one policy as one: a run's turns stay on one engine, and move to another where it is lost.

Each process that asks has a pool of its own, which asks the engines directly; who serves is told by the driver
(`trainer.cluster.runtime`). New weights are not given here: that is one transaction over all engines of the policy
(`trainer.cluster.sync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from engine.by_agent import ByAgent
from engine.protocol import Engine
from trainer.cluster.ray_session import Actor, ActorLost, CallTimedOut, Limit
from trainer.rollout import derived_seed
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed


class NotServing(RuntimeError):
    """An engine that has no weights, or not those that serve: to be asked is another one."""


@dataclass(frozen=True)
class PoolTable:
    """Who serves a policy: by the engine's number, since routing depends on it."""

    engines: Sequence[tuple[int, Actor]]
    doom: str = ""
    """Why nobody ever will again."""


class EnginePool:
    """See `engine.protocol.Engine`. A request that an engine lost is made again on another one: with the same seed and
    the same weights it brings the same completion. Where no engine serves, requests wait, `wait_s` at most; an engine
    that serves has `reply_s` for its reply. Its name is that of its engines, where they have one."""

    def __init__(self, policy: str, *, wait_s: float, reply_s: float, name: str = "") -> None:
        self.name = name or f"engines of {policy}"
        self._wait_s, self._limit = wait_s, Limit("limits.reply_s", reply_s)
        self._engines: dict[int, Actor] = {}
        self._doom = ""
        self._changed = asyncio.Event()

    def serve(self, table: PoolTable) -> None:
        self._engines, self._doom = dict(table.engines), table.doom
        self._changed.set()
        self._changed = asyncio.Event()

    def for_run(self, seed: int) -> RunEngine:
        return RunEngine(self, seed)

    async def complete(self, request: CompletionRequest, route: int = 0) -> Completion:
        while True:
            number, engine = await self._serving(route)
            try:
                return await engine.call("complete", request, limit=self._limit)
            except (ActorLost, NotServing):
                if self._engines.get(number) == engine:  # until the driver says who serves now
                    del self._engines[number]
            except CallTimedOut as error:
                raise EngineFailed(self.name, f"{error}. Fix: raise it, or ask for fewer tokens at once") from error

    async def _serving(self, route: int) -> tuple[int, Actor]:
        """The engine that is asked on this route: the same one as long as the same ones serve."""
        try:
            async with asyncio.timeout(self._wait_s):
                while not self._engines and not self._doom:
                    await self._changed.wait()
        except TimeoutError:
            raise EngineFailed(
                self.name,
                f"no engine served within cluster.start_timeout_s={self._wait_s:g}. Fix: see why they end, or raise it",
            ) from None
        if not self._engines:
            raise EngineFailed(self.name, self._doom)
        # Rendezvous hashing: who leaves moves only its own runs.
        number = max(self._engines, key=lambda number: derived_seed(route, number))
        return number, self._engines[number]

    async def close(self) -> None:
        self.serve(PoolTable([], "the pool is closed. Fix: make a new one"))


def engine_of_run(engine: Engine, seed: int) -> Engine:
    """What the run with this seed asks: its own engine of a pool, and of each pool where agents have several."""
    if isinstance(engine, ByAgent):
        return engine.each(lambda one: engine_of_run(one, seed))
    return engine.for_run(seed) if isinstance(engine, EnginePool) else engine


@dataclass(frozen=True)
class RunEngine:
    """The engine of one run."""

    pool: EnginePool
    seed: int

    @property
    def name(self) -> str:
        return self.pool.name

    async def complete(self, request: CompletionRequest) -> Completion:
        return await self.pool.complete(request, self.seed)

    async def close(self) -> None:
        """Nothing: the pool is others', too."""
