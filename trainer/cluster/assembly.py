"""A run's processes, made: which actors sit where with which settings, policies in their ranks, engines loaded, workers
up.

Not here: what they then do for a step (`trainer.cluster.runtime`), and what happens when one is lost
(`trainer.cluster.watching`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from trainer.cluster.actors import EngineActor, RankActor, RunWorker, Work
from trainer.cluster.engine_pool import PoolTable
from trainer.cluster.layout import layout
from trainer.cluster.losses import Limits
from trainer.cluster.places import Process, shown
from trainer.cluster.ranks import backend_on, on_ranks
from trainer.cluster.ray_session import Actor, ClusterError, Limit, Session
from trainer.cluster.run_pool import UNITS_AHEAD
from trainer.cluster.seats import Seat, Seats, all_done, engine_environment, threads_told
from trainer.cluster.sync import GroupTransport, StoreTransport, Transport
from trainer.cluster.turns import take_turns, to_engines
from trainer.config import PolicyConfig, TrainConfig
from trainer.credit import SINGLE_TURNS, RewardFunction
from trainer.run import fixed_program
from trainer.update import Backend
from workflow.limits import DAY_S

Told = Callable[[str, Sequence[str]], None]
"""Hears what is under way, with lines for people to keep."""


@dataclass
class Cast:
    """One policy: who updates it, and who serves it."""

    name: str
    config: PolicyConfig
    ranks: list[Seat]
    engines: list[Seat]
    backend: Backend = field(init=False)
    transport: Transport = field(init=False)
    serving: set[int] = field(default_factory=set)
    """Numbers of engines that serve."""
    version: int = 0
    """Of the weights that serve."""
    ahead: bool = False
    """Whether the ranks have other weights than the engines."""
    using: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever asks the ranks for something."""

    @property
    def up(self) -> dict[int, Actor]:
        """Engines that are there, by their numbers, whether or not they serve."""
        return {number: seat.actor for number, seat in enumerate(self.engines) if seat.actor is not None and seat.is_up}

    @property
    def table(self) -> PoolTable:
        return PoolTable(
            [
                (number, seat.actor)
                for number, seat in enumerate(self.engines)
                if number in self.serving and seat.actor is not None
            ]
        )


class Assembly:
    """Everything of one run that is in other processes."""

    def __init__(self, config: TrainConfig, limits: Limits, reward: RewardFunction, out: Path, told: Told) -> None:
        self.config, self.limits = config, limits
        self._reward, self._out, self._told = reward, out, told
        self.casts: dict[str, Cast] = {}
        self.workers: list[Seat] = []
        self.seats: Seats

    async def make(self, session: Session) -> None:
        config = self.config
        nodes = await session.enough_nodes(config.cluster.gpus_per_node, lambda doing: self._told(doing, ()))
        placed = layout(config, nodes)
        self._told("placing", shown(placed))
        self.seats = Seats(session, placed, self.limits)
        await self.seats.reserve()
        await self.seats.check_folder(self._out)
        for name, policy in config.policies.items():
            self.casts[name] = Cast(
                name,
                policy,
                [self._rank_seat(process) for process in placed.of("rank", name)],
                [self._engine_seat(process) for process in placed.of("engine", name) if process.part == 0],
            )
        self.workers = [self._worker_seat(process) for process in placed.of("run_worker")]
        turns = [cast for cast in self.casts.values() if take_turns(config, cast.name)]
        if turns:  # engines measure what is free when they start
            await self.start_ranks()
            for cast in turns:
                await to_engines(cast.backend, [], self.limits.call)
                self._share_devices(cast)
            await self._start_others()
        else:
            await all_done([self.start_ranks(), self._start_others()])
        self._check_shared_devices()

    async def _start_others(self) -> None:
        engines = [seat for cast in self.casts.values() for seat in cast.engines]
        self._told(f"starting {len(engines)} engines and {len(self.workers)} run workers", ())
        await self.seats.all_up([*engines, *self.workers])

    async def start_ranks(self) -> None:
        """All ranks of all policies, with the weights of the start."""
        for cast in self.casts.values():
            self._told(f"starting {len(cast.ranks)} ranks of {cast.name}", ())
        await self.seats.all_up(self.ranks)
        for cast in self.casts.values():
            actors = [seat.here for seat in cast.ranks]
            cast.backend = await asyncio.to_thread(backend_on, actors, cast.name, cast.config, self.config, self.limits)
            cast.transport = self._transport(cast, actors)
            cast.using = asyncio.Lock()
            cast.ahead = True

    @property
    def ranks(self) -> list[Seat]:
        return [seat for cast in self.casts.values() for seat in cast.ranks]

    @property
    def engines(self) -> list[Seat]:
        return [seat for cast in self.casts.values() for seat in cast.engines]

    @property
    def tables(self) -> dict[str, PoolTable]:
        return {name: cast.table for name, cast in self.casts.items()}

    async def clear(self) -> None:
        if hasattr(self, "seats"):
            await self.seats.clear()
        self.casts.clear()
        self.workers = []

    # Who sits where, with what

    def _rank_seat(self, process: Process) -> Seat:
        on_cpus = {} if self.config.cluster.gpus_per_node else {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
        return Seat(
            process,
            f"rank {process.number} of {process.policy}",
            RankActor,
            (process.number,),
            environment={**threads_told(self.seats.placed, process), **on_cpus},
        )

    def _engine_seat(self, process: Process) -> Seat:
        policy, rollout = self.config.policies[process.policy], self.config.rollout
        how = transport_name(self.config, policy)
        if take_turns(self.config, process.policy):
            options = {"enable_sleep_mode": True, **policy.engine.options}
            policy = policy.model_copy(update={"engine": policy.engine.model_copy(update={"options": options})})
        return Seat(
            process,
            f"engine {process.number} of {process.policy}",
            EngineActor,
            (
                policy,
                rollout.max_prompt_tokens + rollout.max_tokens,
                rollout.limits.reply_s,
                None if how == "store" else how,
            ),
            environment=engine_environment(self.seats.placed, process),
            concurrency=10_000,
            first="start",
        )

    def _worker_seat(self, process: Process) -> Seat:
        rollout, roles = self.config.rollout, self.config.role_policies
        work = Work(
            rollout=rollout,
            reward=self._reward,
            turn_reward=self.config.reward.of_turns,
            program=fixed_program(self.config),
            single_turns=self.config.credit in SINGLE_TURNS,
            designer=roles["designer"],
            executor=roles["executor"],
            agents=self.config.roles.agents,
            at_once=self._runs_at_once,
            wait_s=self.limits.start.seconds,
        )
        return Seat(process, f"run worker {process.number}", RunWorker, (work,), concurrency=10_000, first="start")

    @property
    def _runs_at_once(self) -> int:
        """Of one worker."""
        return -(-self.config.rollout.max_concurrent // len(self.seats.placed.of("run_worker")))

    @property
    def units(self) -> int:
        """Designs whose runs a worker has under way at once."""
        return -(-self._runs_at_once // self.config.rollout.executions)

    @property
    def unit_limit(self) -> Limit:
        """For a unit of a worker: every run in it, and before it, may take its time and be tried again, as many at once
        as the worker runs."""
        rollout = self.config.rollout
        waves = -(-(self.units + UNITS_AHEAD) * rollout.executions // self._runs_at_once)
        seconds = min(rollout.limits.longest_s * (1 + rollout.retries) * waves, DAY_S) + self.limits.call.seconds
        return Limit("the time for a design's runs", seconds)

    def _transport(self, cast: Cast, ranks: Sequence[Actor]) -> Transport:
        name, calls = transport_name(self.config, cast.config), on_ranks(ranks, cast.name)
        if name == "store":
            return StoreTransport(calls, self.limits)

        async def address() -> tuple[str, int]:
            return await ranks[0].call("address", limit=self.limits.heartbeat)

        received = None
        if take_turns(self.config, cast.name):
            received = partial(to_engines, cast.backend, limit=self.limits.call)
        return GroupTransport(name, calls, address, cast.config.engine.tensor_parallel, self.limits, received)

    # What they need

    def _share_devices(self, cast: Cast) -> None:
        """An engine over several bundles sees the GPUs of the ranks there; Ray would show it only its own bundle's."""
        parallel = cast.config.engine.tensor_parallel
        for number, seat in enumerate(cast.engines if parallel > 1 else []):
            ranks = cast.ranks[number * parallel : (number + 1) * parallel]
            uuids = [f"GPU-{uuid}" for rank in ranks if rank.identity for uuid in rank.identity.devices]
            seat.environment = {
                "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
                "CUDA_VISIBLE_DEVICES": ",".join(uuids),
            }

    def _check_shared_devices(self) -> None:
        """Colocated ranks and engines must see the same GPUs."""
        if self.config.cluster.layout != "colocated" or not self.config.cluster.gpus_per_node:
            return
        for cast in self.casts.values():
            ranks = {uuid for seat in cast.ranks if seat.identity for uuid in seat.identity.devices}
            engines = {uuid for seat in cast.engines if seat.identity for uuid in seat.identity.devices}
            if ranks != engines:
                raise ClusterError(
                    f"ranks of {cast.name} are on GPUs {sorted(ranks)}, its engines on {sorted(engines)}: they do not "
                    'share them. Fix: cluster.layout = "disaggregated", or a node whose GPUs Ray counts right'
                )


def transport_name(config: TrainConfig, policy: PolicyConfig) -> Any:
    """How a policy's weights reach its engines: as configured, or the fastest way that the layout has."""
    if policy.engine.kind != "vllm":
        return "store"
    if config.cluster.transport != "auto":
        return config.cluster.transport
    if not config.cluster.gpus_per_node:
        return "gloo"
    return "ipc" if config.cluster.layout == "colocated" else "nccl"
