"""Work that trains nothing, spread over a cluster: attempts of an evaluation, questions of a distillation.

    driver    gives out pieces, takes what comes back; placement, watching, replacing
    workers   make pieces (`trainer.cluster.crew_worker`)
    engines   one pool per model on the cluster, with the weights that it was loaded with, version 0

A piece whose worker is lost is made anew on another one; where a node is lost, everything is started anew on those that
are there. What a piece is, and its record, are others' business (`trainer.evaluate`, `trainer.distill`): what has not
come back counts nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from trainer.cluster.actors import EngineActor
from trainer.cluster.assembly import Cast
from trainer.cluster.crew_worker import CrewWorker, Job
from trainer.cluster.engine_pool import PoolTable
from trainer.cluster.layout import engines_alone
from trainer.cluster.losses import Limits, Restarts
from trainer.cluster.places import Node, shown
from trainer.cluster.ray_session import Actor, ActorLost, CallTimedOut, ClusterError, Limit, Session
from trainer.cluster.run_pool import UNITS_AHEAD, RunPool
from trainer.cluster.seats import Seat, Seats, engine_environment
from trainer.cluster.watching import Watching
from trainer.config import ClusterConfig
from trainer.run import StepsLost


class Crew:
    """`async with Crew(...) as crew: await crew.make(*piece)`, of many tasks of one event loop at once. Its processes
    are started when the first piece is asked for.

    `at_once` pieces are asked for at a time, each of which takes `piece_s` at most. All nodes must see `folder`, if
    there is one. `find_gpus` takes as many GPUs of each node as every one of `cluster.nodes` has, whatever
    `cluster.gpus_per_node` says. `told` hears of what is under way.

    `make` raises what the piece raised; `ClusterError` where the processes cannot be had, `Unplaceable` where they have
    no room, `EngineFailed` where more are lost than `cluster.restarts_per_hour`.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        job: Job,
        *,
        at_once: int,
        piece_s: float,
        folder: Path | None = None,
        find_gpus: bool = False,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.cluster, self.job = cluster, job
        self.limits = Limits.of(cluster)
        self.casts: dict[str, Cast] = {}
        self.workers: list[Seat] = []
        self.seats: Seats
        self._at_once, self._folder, self._find_gpus, self._told = at_once, folder, find_gpus, told
        seconds = piece_s * (1 + UNITS_AHEAD) + self.limits.call.seconds
        self._piece = Limit("the time for a piece of work", seconds)
        self._restarts = Restarts(cluster.restarts_per_hour)
        self._changing = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._session: Session | None = None
        self._watching: Watching | None = None
        self._runs: RunPool
        self._broken: Exception | None = None

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._dissolve()
        finally:
            await self._opened.aclose()

    async def make(self, *piece: Any) -> Any:
        """The piece, by one of the workers."""
        while True:
            watching = await self._up()
            try:
                return await watching.until_doom(self._runs.unit("make", *piece))
            except StepsLost as lost:
                await self._start_anew(watching, lost)
            except (ActorLost, CallTimedOut) as error:
                raise _not_had(error) from error

    @property
    def tables(self) -> dict[str, PoolTable]:
        return {name: cast.table for name, cast in self.casts.items()}

    # Starting, and starting anew

    async def _up(self) -> Watching:
        async with self._changing:
            if self._broken is not None:
                raise self._broken
            if self._watching is None:
                try:
                    if self._session is None:
                        self._session = await self._opened.enter_async_context(Session(self.cluster).opened())
                    self._watching = await self._assembled(self._session)
                except (ActorLost, CallTimedOut) as error:
                    self._broken = _not_had(error)
                    raise self._broken from error
                except Exception as error:
                    self._broken = error  # for all who wait: it would not be otherwise for them
                    raise
            return self._watching

    async def _start_anew(self, watching: Watching, lost: StepsLost) -> None:
        async with self._changing:
            if self._watching is watching:  # else another piece has seen to it
                self._restarts.count(str(lost))
                await self._dissolve()

    async def _dissolve(self) -> None:
        if self._watching is not None:
            await self._watching.end()
            self._watching = None
        if hasattr(self, "seats"):
            await self.seats.clear()
        self.casts.clear()
        self.workers.clear()

    async def _assembled(self, session: Session) -> Watching:
        policies = self.job.policies
        nodes = await session.enough_nodes(self._gpus_asked_for, self._told)
        cluster = self.cluster.model_copy(update={"gpus_per_node": self._gpus(nodes)})
        placed = engines_alone(cluster, {name: policy.engine for name, policy in policies.items()}, nodes)
        for line in shown(placed):
            self._told(line)
        self.seats = Seats(session, placed, self.limits)
        await self.seats.reserve()
        if self._folder is not None:
            await self.seats.check_folder(self._folder)
        for name, policy in policies.items():
            engines = [
                Seat(
                    process,
                    f"engine {process.number} of {self.job.players[name].name}",
                    EngineActor,
                    (policy, None, self.job.reply_s),
                    environment=engine_environment(placed, process),
                    concurrency=10_000,
                    first="start",
                )
                for process in placed.of("engine", name)
            ]
            self.casts[name] = Cast(name, policy, [], engines)
        self.workers = [
            Seat(
                process,
                f"run worker {process.number}",
                CrewWorker,
                (self.job, self.limits.start.seconds),
                concurrency=10_000,
                first="start",
            )
            for process in placed.of("run_worker")
        ]
        seats = [seat for cast in self.casts.values() for seat in cast.engines]
        self._told(f"starting {len(seats)} engines and {len(self.workers)} run workers")
        await self.seats.all_up([*seats, *self.workers])
        return await self._watched()

    @property
    def _gpus_asked_for(self) -> int:
        """Of each node; 0 also where they are taken as they are found."""
        return self.cluster.gpus_per_node if self.job.policies and not self._find_gpus else 0

    def _gpus(self, nodes: list[Node]) -> int:
        """Of each node, for engines."""
        if not (self.job.policies and self._find_gpus):
            return self._gpus_asked_for
        return sorted((node.gpus for node in nodes), reverse=True)[self.cluster.nodes - 1]

    async def _watched(self) -> Watching:
        """Everything is up: let the engines serve, and the workers be given pieces."""

        async def worker_lost(number: int, actor: Actor, error: Exception) -> None:
            await watching.worker_lost(number, actor, error)

        async def serve(cast: Cast, number: int) -> None:
            actor = cast.engines[number].here
            try:
                await actor.call("commit", cast.version, limit=self.limits.heartbeat)
            except (ActorLost, CallTimedOut) as error:
                watching.engine_is_lost(cast, number, actor, error)
                return
            cast.serving.add(number)
            await watching.tell_workers()

        self._runs = RunPool(-(-self._at_once // len(self.workers)), self._piece, worker_lost)
        watching = Watching(self, self._runs, self._restarts, serve)
        for number, seat in enumerate(self.workers):
            await self._runs.put(number, seat.here)
        watching.begin(self.seats.seated)
        for cast in self.casts.values():
            for number in range(len(cast.engines)):
                await serve(cast, number)
        return watching


def _not_had(error: Exception) -> ClusterError:
    return ClusterError(f"{error}. Fix: see why it ended (memory? the node's logs), then go on with the same command")
