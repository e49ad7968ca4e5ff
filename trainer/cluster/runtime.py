"""The runtime of a cluster: ranks, engines and run workers in Ray's actors, for the same loop as one process has.

    driver    the loop, credit, samples; placement, watching, replacing
    ranks     one backend per policy (`trainer.cluster.ranks`)
    engines   one pool per policy; run workers ask them directly (`trainer.cluster.engine_pool`)
    workers   grow the trees (`trainer.cluster.run_pool`)

An engine or a worker that is lost is replaced while the run goes on. Where a rank is lost, all ranks are made anew, and
where a node is, everything; the loop then goes back to its newest checkpoint (`StepsLost`). What sits where is
`trainer.cluster.layout`'s business, and how weights reach engines `trainer.cluster.sync`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tasks.problems import Problem
from trainer.cluster.actors import EngineActor, NodeKeeper, RankActor, RunWorker, Work
from trainer.cluster.engine_pool import PoolTable
from trainer.cluster.failures import Limits, Restarts, is_loss
from trainer.cluster.layout import Process, layout, shown
from trainer.cluster.ranks import backend_on, on_ranks
from trainer.cluster.run_pool import UNITS_AHEAD, RunPool
from trainer.cluster.seats import Seat, Seats
from trainer.cluster.session import Actor, ActorLost, CallTimedOut, ClusterError, Limit, Session
from trainer.cluster.sync import GroupTransport, StoreTransport, Transport, sync
from trainer.config import PolicyConfig, TrainConfig
from trainer.credit import RewardFunction, paper_reward
from trainer.rollout import check_answered
from trainer.run import PROBE_TOKENS, Lesson, Phase, StepsLost, SyncReport, Watch
from trainer.trees import QuestionTree
from trainer.update import Backend, UpdateReport

Result = TypeVar("Result")


@dataclass
class _Policy:
    name: str
    config: PolicyConfig
    ranks: list[Seat]
    engines: list[Seat]
    backend: Any = None
    transport: Any = None
    serving: set[int] = field(default_factory=set)
    """Numbers of engines that serve."""
    version: int = 0
    """Of the weights that serve."""
    ahead: bool = False
    """Whether the ranks have learned since."""
    using: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever asks the ranks for something."""


class ClusterRuntime:
    """See `trainer.run.Runtime`. `reward` is Eq. 10 unless given; it is sent to the run workers."""

    def __init__(self, config: TrainConfig, *, reward: RewardFunction | None = None) -> None:
        self.config = config
        self.limits = Limits.of(config.cluster)
        self._reward = reward or partial(paper_reward, format_weight=config.format_weight)
        self._restarts = Restarts(config.cluster.restarts_per_hour)
        self._policies: dict[str, _Policy] = {}
        self._workers: list[Seat] = []
        self._background: set[asyncio.Task[None]] = set()
        self._watch: Watch = lambda _: None
        self._asked_at = time.monotonic()

    def check(self) -> None:
        needed = {"ray", "torch", "transformers"}
        for policy in self.config.policies.values():
            needed |= {"deepspeed"} if policy.update.backend == "deepspeed" else set()
            needed |= {"vllm"} if policy.engine.kind == "vllm" else set()
        missing = sorted(name for name in needed if importlib.util.find_spec(name) is None)
        if missing:
            extras = '"metaagent[cluster]"' + (' "metaagent[vllm]"' if "vllm" in missing else "")
            raise ClusterError(f"{', '.join(missing)} not installed. Fix: pip install {extras} on every node")

    @asynccontextmanager
    async def opened(self, watch: Watch, out: Path) -> AsyncIterator[None]:
        self._watch, self._out = watch, out.absolute()
        self._doom: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with Session(self.config.cluster).opened() as session:
            self._session = session
            try:
                await self._assemble()
                yield
            finally:
                await self._dissolve()

    # Making and ending everything

    async def _assemble(self) -> None:
        config = self.config
        nodes = await self._session.enough_nodes()
        placed = layout(config, nodes)
        self.placement = shown(placed)
        for line in self.placement:
            self._watch(Phase(0, line))
        self._seats = Seats(self._session, placed, self.limits)
        await self._seats.reserve()
        await self._check_folder()
        for name, policy in config.policies.items():
            self._policies[name] = _Policy(
                name,
                policy,
                [self._rank_seat(process) for process in placed.of("rank", name)],
                [self._engine_seat(process) for process in placed.of("engine", name) if process.part == 0],
            )
        await self._start_ranks()
        self._watch(Phase(0, "starting engines and run workers"))
        engines = [engine for policy in self._policies.values() for engine in policy.engines]
        self._workers = [self._worker_seat(process) for process in placed.of("run_worker")]
        # Several at once on one machine's few cores take longer than one after another.
        await self._all_up(engines, at_once=len(engines) if config.cluster.gpus_per_node else 1)
        await self._all_up(self._workers, at_once=len(self._workers))
        self._check_shared_devices()
        self._runs = RunPool(self._units, self._unit_limit, self._worker_lost)
        for number, seat in enumerate(self._workers):
            await self._runs.put(number, seat.here)
        self._doom = asyncio.get_running_loop().create_future()
        for seat in self._seats.seated:
            self._in_background(self._watched(seat))

    async def _dissolve(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        if hasattr(self, "_seats"):
            await self._seats.clear()
        self._policies.clear()

    async def _all_up(self, seats: Sequence[Seat], at_once: int) -> None:
        turns = asyncio.Semaphore(at_once)

        async def up(seat: Seat) -> None:
            async with turns:
                await self._seats.up(seat)

        async with asyncio.TaskGroup() as group:
            for seat in seats:
                group.create_task(up(seat))

    async def _start_ranks(self) -> None:
        for policy in self._policies.values():
            self._watch(Phase(0, f"starting {len(policy.ranks)} ranks of {policy.name}"))
        await self._all_up([seat for policy in self._policies.values() for seat in policy.ranks], at_once=64)
        for policy in self._policies.values():
            actors = [seat.here for seat in policy.ranks]
            policy.backend = await asyncio.to_thread(
                backend_on, actors, policy.name, policy.config, self.config, self.limits
            )
            policy.transport = self._transport(policy, actors)
            policy.ahead = True  # the engines have not these weights, though they may be equal

    def _rank_seat(self, process: Process) -> Seat:
        environment = {} if self.config.cluster.gpus_per_node else {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
        return Seat(process, f"rank {process.number} of {process.policy}", RankActor, environment=environment)

    def _engine_seat(self, process: Process) -> Seat:
        policy = self.config.policies[process.policy]
        context = self.config.rollout.max_prompt_tokens + self.config.rollout.max_tokens
        how = transport_name(self.config, policy)
        return Seat(
            process,
            f"engine {process.number} of {process.policy}",
            EngineActor,
            (policy, context, None if how == "store" else how),
            concurrency=10_000,
            first="start",
        )

    def _worker_seat(self, process: Process) -> Seat:
        rollout, roles = self.config.rollout, self.config.role_policies
        work = Work(
            rollout=rollout,
            reward=self._reward,
            program=rollout.program.read_text(encoding="utf-8") if rollout.program else None,
            designer=roles["designer"],
            executor=roles["executor"],
            at_once=self._runs_at_once,
            wait_s=self.limits.start.seconds,
            call_s=self.limits.call.seconds,
        )
        return Seat(process, f"run worker {process.number}", RunWorker, (work,), concurrency=10_000, first="start")

    @property
    def _runs_at_once(self) -> int:
        """Of one worker."""
        return -(-self.config.rollout.max_concurrent // (self.config.cluster.nodes * self._workers_per_node))

    @property
    def _workers_per_node(self) -> int:
        return self.config.cluster.run_workers_per_node

    @property
    def _units(self) -> int:
        return -(-self._runs_at_once // self.config.rollout.executions)

    @property
    def _unit_limit(self) -> Limit:
        """For a unit of a worker: every run in it, and before it, may take its time and be tried again."""
        rollout = self.config.rollout
        seconds = rollout.limits.wall_s * (1 + rollout.retries) * (1 + UNITS_AHEAD) + self.limits.call.seconds
        return Limit("the time for a design's runs", seconds)

    def _transport(self, policy: _Policy, ranks: Sequence[Actor]) -> Transport:
        name, calls = transport_name(self.config, policy.config), on_ranks(ranks, policy.name)
        if name == "store":
            return StoreTransport(calls, self.limits)

        async def address() -> tuple[str, int]:
            return await ranks[0].call("address", limit=self.limits.heartbeat)

        return GroupTransport(name, calls, address, policy.config.engine.tensor_parallel, self.limits)

    async def _check_folder(self) -> None:
        """That all nodes see the run's folder."""
        token, path = secrets.token_hex(8), self._out / f".seen-{os.getpid()}"
        path.write_text(token, encoding="utf-8")
        try:
            for seat in self._seats.seated:
                if seat.kind is NodeKeeper and (
                    wrong := await seat.here.call("sees", path, token, limit=self.limits.start)
                ):
                    raise ClusterError(
                        f"{seat.name} does not see --out {self._out}: {wrong}. Fix: a folder that all nodes share"
                    )
        finally:
            path.unlink(missing_ok=True)

    def _check_shared_devices(self) -> None:
        """Colocated ranks and engines must see the same GPUs."""
        if self.config.cluster.layout != "colocated" or not self.config.cluster.gpus_per_node:
            return
        for policy in self._policies.values():
            ranks = {uuid for seat in policy.ranks if seat.identity for uuid in seat.identity.devices}
            engines = {uuid for seat in policy.engines if seat.identity for uuid in seat.identity.devices}
            if ranks != engines:
                raise ClusterError(
                    f"ranks of {policy.name} are on GPUs {sorted(ranks)}, its engines on {sorted(engines)}: they "
                    'do not share them. Fix: cluster.layout = "disaggregated", or a node whose GPUs Ray counts right'
                )

    # The steps

    async def load(self, folder: Path) -> None:
        for policy in self._policies.values():
            await self._asked(policy, "load", policy.backend.load, folder.absolute() / policy.name)
            policy.ahead = True

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path) -> list[QuestionTree]:
        trees = await self._until_doom(self._runs.rollout(problems, seed, folder.absolute(), self._watch))
        check_answered(trees, "of the executor", self.config.rollout.limits.wall_s)
        return trees

    async def update(self, lessons: Mapping[str, Lesson]) -> dict[str, UpdateReport]:
        async def one(policy: _Policy, lesson: Lesson) -> UpdateReport:
            def work() -> UpdateReport:
                policy.backend.learning_rate = lesson.learning_rate
                return policy.backend.update(lesson.samples, self.config.objective)

            report = await self._asked(policy, "update", work)
            policy.ahead = policy.ahead or report.steps > 0
            return report

        async with self._memory_for_updates(lessons):
            reports = await asyncio.gather(
                *(one(self._policies[name], lesson) for name, lesson in lessons.items()), return_exceptions=True
            )
        for report in reports:
            if isinstance(report, BaseException):
                raise report
        return {name: report for name, report in zip(lessons, reports, strict=True) if isinstance(report, UpdateReport)}

    async def sync(self, versions: Mapping[str, int]) -> dict[str, SyncReport]:
        reports = await asyncio.gather(
            *(self._synced(self._policies[name], version) for name, version in versions.items()), return_exceptions=True
        )
        for report in reports:
            if isinstance(report, BaseException):
                raise report
        return {name: report for name, report in zip(versions, reports, strict=True) if isinstance(report, SyncReport)}

    async def _synced(self, policy: _Policy, version: int, only: Sequence[int] | None = None) -> SyncReport:
        """The transaction with all engines of a policy that are up, or with one that comes later."""
        probe = await self._asked(policy, "probe", policy.backend.probe, list(range(PROBE_TOKENS)))
        async with policy.using:
            engines = {
                number: seat.actor
                for number, seat in enumerate(policy.engines)
                if seat.actor is not None and seat.identity is not None and (only is None or number in only)
            }
            try:
                report, serving, failed = await self._until_doom(
                    sync(policy.name, version, engines, policy.transport, probe, self.limits)
                )
            except Exception as error:
                raise self._lost(policy, "a sync", error) from error
            policy.serving = set(serving) | (policy.serving - engines.keys() if only else set())
            policy.version, policy.ahead = version, False
        await self._tell_workers()
        for number, error in failed.items():
            if isinstance(error, (ActorLost, CallTimedOut)):
                self._in_background(self._engine_lost(policy, policy.engines[number], engines[number], error))
        return report

    def save(self, folder: Path) -> None:
        for policy in self._policies.values():
            (folder / policy.name).mkdir()
            try:
                policy.backend.save(folder.absolute() / policy.name)
            except Exception as error:
                raise self._lost(policy, "saving", error) from error

    async def idle_s(self) -> dict[str, float]:
        now = time.monotonic()
        passed, self._asked_at = now - self._asked_at, now
        pools = {
            "ranks": [seat for policy in self._policies.values() for seat in policy.ranks],
            "engines": [seat for policy in self._policies.values() for seat in policy.engines],
            "run_workers": self._workers,
        }
        idle = {}
        for name, seats in pools.items():
            actors = [seat.actor for seat in seats if seat.actor is not None]
            busy = await asyncio.gather(
                *(actor.call("busy_s", limit=self.limits.heartbeat) for actor in actors), return_exceptions=True
            )
            known = [each for each in busy if isinstance(each, float)]
            if known:
                idle[name] = round(max(0.0, passed - sum(known) / len(known)), 3)
        return idle

    @asynccontextmanager
    async def _memory_for_updates(self, lessons: Mapping[str, Lesson]) -> AsyncIterator[None]:
        yield

    # Losses

    async def recover(self, lost: StepsLost) -> None:
        """New ranks, with the weights of the start; everything new where a node is gone."""
        self._restarts.count(str(lost))
        seats = [seat for policy in self._policies.values() for seat in policy.ranks]
        if any(self._seats.node_is_gone(seat) for seat in self._seats.seated):
            await self._dissolve()
            await self._assemble()
            return
        await asyncio.gather(*(self._seats.fence(seat) for seat in seats))
        for policy in self._policies.values():
            policy.using = asyncio.Lock()
        self._doom = asyncio.get_running_loop().create_future()
        await self._start_ranks()
        for seat in seats:
            self._in_background(self._watched(seat))

    def _lost(self, policy: _Policy, doing: str, error: Exception) -> Exception:
        """What an exception means for the run: `StepsLost` where a process is gone."""
        if isinstance(error, StepsLost) or not is_loss(error):
            return error
        return StepsLost(f"in {doing} of {policy.name}: {error}")

    async def _asked(self, policy: _Policy, doing: str, work: Any, *arguments: Any) -> Any:
        """What blocking work with a policy's ranks returns."""
        async with policy.using:
            try:
                return await self._until_doom(asyncio.to_thread(work, *arguments))
            except Exception as error:
                raise self._lost(policy, doing, error) from error

    async def _until_doom(self, work: Awaitable[Result]) -> Result:
        """What work returns, unless something happens meanwhile that ends it."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._doom}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self._doom.done():
                self._doom.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1)

    def _end(self, error: BaseException) -> None:
        """Whoever waits for a step learns of it."""
        if not self._doom.done():
            self._doom.set_exception(error)
            self._doom.exception()  # it may be that nobody asks

    def _in_background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._background.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._end(error)

        task.add_done_callback(ended)

    async def _watched(self, seat: Seat) -> None:
        """Ask an actor for signs of life until it is lost, and see to it then."""
        actor = seat.here
        limit = self.limits.heartbeat
        method, arguments = ("alive", (limit.seconds,)) if seat.kind is EngineActor else ("identity", ())
        while seat.actor == actor:
            await asyncio.sleep(limit.seconds)
            try:
                found = await actor.call(method, *arguments, limit=Limit(limit.name, 2 * limit.seconds))
                if found is not None and seat.actor == actor:
                    seat.identity = found
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if seat.actor == actor:
                    await self._noticed(seat, actor, error)
                return

    async def _noticed(self, seat: Seat, actor: Actor, error: Exception) -> None:
        if await asyncio.to_thread(self._seats.node_is_gone, seat):
            self._end(StepsLost(f"node {seat.process.node[:8]} is gone, with {seat.name}"))
        elif seat.kind is EngineActor:
            await self._engine_lost(self._policies[seat.process.policy], seat, actor, error)
        elif seat.kind is RunWorker:
            await self._worker_lost(seat.process.number, actor, error)
        else:
            self._end(StepsLost(f"{seat.name}: {error}"))

    async def _worker_lost(self, number: int, actor: Actor, error: Exception) -> None:
        """Replace a run worker; what it was at is done anew by whoever gave it."""
        if not self._runs.remove(number, actor):
            return
        seat = self._workers[number]
        if await asyncio.to_thread(self._seats.node_is_gone, seat):
            self._end(StepsLost(f"node {seat.process.node[:8]} is gone, with {seat.name}"))
            return

        async def replace() -> None:
            self._restarts.count(f"{seat.name}: {error}")
            await self._seats.fence(seat)
            await self._seats.up(seat)
            await seat.here.call("engines", self._tables(), limit=self.limits.heartbeat)
            await self._runs.put(number, seat.here)
            self._in_background(self._watched(seat))

        self._in_background(replace())

    async def _engine_lost(self, policy: _Policy, seat: Seat, actor: Actor, error: Exception) -> None:
        """Replace an engine. It gets the weights that serve now, or, where the ranks have gone on, the next ones."""
        if seat.actor != actor:
            return
        number = policy.engines.index(seat)
        policy.serving.discard(number)
        self._restarts.count(f"{seat.name}: {error}")
        await self._seats.fence(seat)
        await self._tell_workers()
        await self._seats.up(seat)
        self._in_background(self._watched(seat))
        while policy.using.locked():  # an update or a sync, after which it is known which weights there are
            await asyncio.sleep(0.05)
        if not policy.ahead:
            await self._synced(policy, policy.version, only=[number])
        elif not policy.serving:
            self._end(StepsLost(f"all engines of {policy.name} were lost, and its ranks have other weights now"))

    def _tables(self) -> dict[str, PoolTable]:
        return {
            name: PoolTable(
                [
                    (number, seat.actor)
                    for number, seat in enumerate(policy.engines)
                    if number in policy.serving and seat.actor is not None
                ]
            )
            for name, policy in self._policies.items()
        }

    async def _tell_workers(self) -> None:
        tables = self._tables()
        for number, actor in self._runs.workers.items():
            with contextlib.suppress(ActorLost, CallTimedOut):  # whoever gives it work learns of it
                await actor.call("engines", tables, limit=self.limits.heartbeat)
            del number


def transport_name(config: TrainConfig, policy: PolicyConfig) -> Any:
    """How a policy's weights reach its engines: as configured, or the fastest way that the layout has."""
    if policy.engine.kind != "vllm":
        return "store"
    if config.cluster.transport != "auto":
        return config.cluster.transport
    if not config.cluster.gpus_per_node:
        return "gloo"
    return "ipc" if config.cluster.layout == "colocated" else "nccl"


__all__ = ["Backend", "ClusterRuntime", "transport_name"]
