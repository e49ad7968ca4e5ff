"""Losses at moments when others are under way, on the real runtime and its watching; processes are pretended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from predicted import config

from trainer.cluster import runtime as runtime_module
from trainer.cluster.assembly import Assembly, Cast
from trainer.cluster.losses import Limits, Restarts
from trainer.cluster.places import Process
from trainer.cluster.ray_session import ActorLost, ClusterError, Limit, NotStarted
from trainer.cluster.run_pool import UNITS_AHEAD, RunPool
from trainer.cluster.runtime import ClusterRuntime
from trainer.cluster.seats import Seat
from trainer.cluster.sync import Outcome
from trainer.cluster.watching import Watching
from trainer.run.runtime import Lesson, StepsLost
from trainer.update import PolicyObjective
from workflow.failures import EngineFailed

LIMITS = Limits(*(Limit(name, 5.0) for name in ("start", "call", "collective", "heartbeat")))
SOON = 20.0


class Process_:
    """An actor: an engine that has weights and a version, or a run worker."""

    def __init__(self, name: str) -> None:
        self.name, self.gone, self.weights, self.version = name, False, -1, -1
        self.garbles = False
        self.told: list[int] = []

    async def call(self, method: str, *arguments: Any, limit: Any) -> Any:
        await asyncio.sleep(0)
        if self.gone:
            raise ActorLost(self.name, "killed")
        if method == "commit":
            self.version = arguments[0]
        if method == "engines":
            [self.told] = [[number for number, _ in table.engines] for table in arguments[0].values()]


class Ranks:
    """A backend whose weights are the number of its updates, and the transport of them."""

    name = "store"

    def __init__(self) -> None:
        self.weights = 0

    def probe(self, ids: list[int]) -> int:
        time.sleep(0.1)
        return self.weights

    def update(self, samples: Any, objective: Any) -> Any:
        time.sleep(0.1)
        self.weights += 1
        return SimpleNamespace(steps=1)

    async def send(self, version: int, engines: dict[int, Process_], probe: int) -> Outcome:
        outcome = Outcome(4)
        for number, engine in engines.items():
            try:
                await engine.call("receive", limit=None)
                engine.weights = self.weights if not engine.garbles else -5
                if engine.weights != probe:
                    raise EngineFailed(engine.name, "the probe differs")
                outcome.gaps[number] = 0.0
            except Exception as error:
                outcome.failures[number] = error
        return outcome


class Known(SimpleNamespace):
    """An assembly, whose tables are those of now."""

    @property
    def tables(self) -> dict[str, Any]:
        return {name: cast.table for name, cast in self.casts.items()}


class Cluster:
    """A runtime with engines and run workers, whose replacements come when they are let `come`."""

    def __init__(self, engines: int, workers: int = 0, *, staleness: int = 0, per_hour: int = 6) -> None:
        self.come: Callable[[Seat], Awaitable[None]] = lambda seat: asyncio.sleep(0.05)
        self.started: list[str] = []
        self.ranks = Ranks()
        settings = config(cluster={"layout": "disaggregated", "gpus_per_node": 0, "staleness": staleness})
        self.runtime = ClusterRuntime(settings)
        seats = [self.seat("engine", number) for number in range(engines)]
        self.cast = Cast("p0", settings.policies["p0"], [], seats)
        self.cast.backend = self.cast.transport = self.ranks  # pyright: ignore[reportAttributeAccessIssue]
        self.workers = [self.seat("run_worker", number) for number in range(workers)]
        self.runtime._limits = LIMITS
        self.runtime._restarts = Restarts(per_hour)
        self.runtime._assembly = Known(  # pyright: ignore[reportAttributeAccessIssue]
            limits=LIMITS,
            casts={"p0": self.cast},
            workers=self.workers,
            ranks=[],
            engines=seats,
            start_ranks=self.start_ranks,
            seats=SimpleNamespace(up=self.up, fence=self.fence, node_is_gone=lambda _: False, seated=[]),
        )
        self.pool = RunPool(1, LIMITS.call, self.worker_lost)
        self.runtime._runs = self.pool
        self.runtime._watching = self.watching = Watching(
            self.runtime._assembly, self.pool, self.runtime._restarts, self.runtime._catch_up
        )

    def seat(self, kind: Any, number: int) -> Seat:
        seat = Seat(Process(kind, "n0", 0, policy="p0", number=number), f"{kind} {number}", object)
        seat.actor, seat.is_up = Process_(seat.name), True  # pyright: ignore[reportAttributeAccessIssue]
        return seat

    async def fence(self, seat: Seat) -> None:
        seat.actor, seat.is_up = None, False
        await asyncio.sleep(0.05)

    async def up(self, seat: Seat) -> None:
        self.started.append(seat.name)
        seat.actor = Process_(seat.name)  # pyright: ignore[reportAttributeAccessIssue]
        await self.come(seat)
        seat.is_up = True

    async def start_ranks(self) -> None:
        await asyncio.sleep(0.2)
        self.cast.ahead = True

    async def worker_lost(self, number: int, actor: Any, error: Exception) -> None:
        await self.watching.worker_lost(number, actor, error)

    def kill(self, seat: Seat, *, noticed: bool = True) -> None:
        assert isinstance(seat.actor, Process_)
        seat.actor.gone = True
        if noticed:
            self.watching.engine_is_lost(self.cast, seat.process.number, seat.actor, ActorLost(seat.name, "killed"))

    async def lose_worker(self) -> Any:
        """The only one; returns the process that it was."""
        worker: Any = self.workers[0].actor
        await self.pool.put(0, worker)
        worker.gone = True
        await self.watching.worker_lost(0, worker, ActorLost(worker.name, "killed"))
        return worker

    def serving(self) -> dict[int, tuple[int, int]]:
        """By engine, its version and its weights."""
        actors: Any = {number: self.cast.engines[number].actor for number in self.cast.serving}
        return {number: (actor.version, actor.weights) for number, actor in actors.items()}


LEARN = {"p0": Lesson([], 1e-3, PolicyObjective())}


def played(play: Callable[..., Awaitable[None]], *scenes: tuple[Any, ...]) -> None:
    """All scenes side by side, each a cluster of its own, as most of their time is waiting."""

    async def scene(told: tuple[Any, ...]) -> None:
        try:
            async with asyncio.timeout(SOON):
                await play(*told)
        except BaseException as error:
            error.add_note(f"in the scene {told}")
            raise

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for told in scenes:
                group.create_task(scene(told))

    asyncio.run(all_of_them() if scenes else scene(()))


def test_the_only_engine_is_lost_in_an_update() -> None:
    """The new weights wait for the one that comes, and the run goes on."""

    async def play(loads_s: float, noticed: bool) -> None:
        cluster = Cluster(1)
        cluster.come = lambda _: asyncio.sleep(loads_s)
        await cluster.runtime.sync({"p0": 0})
        updating = asyncio.ensure_future(cluster.runtime.update(LEARN))
        await asyncio.sleep(0.02)
        cluster.kill(cluster.cast.engines[0], noticed=noticed)
        await updating
        await cluster.runtime.sync({"p0": 1})
        assert cluster.serving() == {0: (1, 1)}
        assert cluster.started == ["engine 0"]
        await cluster.watching.until_doom(asyncio.sleep(0.2))
        await cluster.watching.end()

    played(play, *product((0.0, 0.3, 1.0), (True, False)))


def test_a_loss_that_is_told_late_does_not_cost_the_engine_that_came_in_its_place() -> None:
    async def play() -> None:
        cluster = Cluster(1)
        await cluster.runtime.sync({"p0": 0})
        seat = cluster.cast.engines[0]
        first: Any = seat.actor
        cluster.kill(seat)
        while not cluster.started or not cluster.serving():
            await asyncio.sleep(0.01)
        second = seat.actor
        assert second is not first
        cluster.watching.engine_is_lost(cluster.cast, 0, first, ActorLost("engine 0", "killed"))
        await asyncio.sleep(0.2)
        assert seat.actor is second
        assert seat.is_up
        assert cluster.serving() == {0: (0, 0)}
        assert cluster.started == ["engine 0"]
        await cluster.watching.end()

    played(play)


def test_an_engine_that_came_while_a_sync_ended_does_not_serve_for_the_one_that_took_the_weights() -> None:
    async def play() -> None:
        cluster = Cluster(2)
        await cluster.runtime.sync({"p0": 0})
        proven: Any = cluster.cast.engines[0].actor
        garbling: Any = cluster.cast.engines[1].actor
        garbling.garbles = True
        told = garbling.call

        async def call(method: str, *arguments: Any, limit: Any) -> Any:
            if method == "shelve":  # the other one has committed
                cluster.kill(cluster.cast.engines[0])
                while cluster.cast.engines[0].actor in (proven, None):
                    await asyncio.sleep(0.01)
            return await told(method, *arguments, limit=limit)

        garbling.call = call
        cluster.ranks.weights = 7
        await cluster.runtime.sync({"p0": 1})
        while not cluster.serving():
            await asyncio.sleep(0.01)
        assert cluster.serving() == {0: (1, 7)}
        await cluster.watching.end()

    played(play)


def test_an_engine_that_does_not_come_back_ends_the_run_with_its_reason() -> None:
    async def play() -> None:
        cluster = Cluster(1)

        async def full(seat: Seat) -> None:
            raise ClusterError("engine 0 did not start: out of memory")

        cluster.come = full
        await cluster.runtime.sync({"p0": 0})
        cluster.kill(cluster.cast.engines[0])

        async def step() -> None:
            await cluster.runtime.update(LEARN)
            await cluster.runtime.sync({"p0": 1})

        with pytest.raises(ClusterError, match="out of memory"):
            await step()
        await cluster.watching.end()

    played(play)


def test_an_engine_that_comes_beside_an_update_has_the_weights_of_its_version() -> None:
    async def play(pause_s: float) -> None:
        cluster = Cluster(2, staleness=1)
        await cluster.runtime.sync({"p0": 0})
        cluster.kill(cluster.cast.engines[1])
        await asyncio.sleep(pause_s)
        await cluster.runtime.update(LEARN)
        assert set(cluster.serving().values()) == {(0, 0)}
        await cluster.runtime.sync({"p0": 1})
        await cluster.watching.until_doom(asyncio.sleep(0.3))
        assert cluster.serving() == {0: (1, 1), 1: (1, 1)} or cluster.serving() == {0: (1, 1)}
        await cluster.runtime.update(LEARN)
        await cluster.runtime.sync({"p0": 2})
        assert cluster.serving() == {0: (2, 2), 1: (2, 2)}
        await cluster.watching.end()

    played(play, (0.0,), (0.05,), (0.12,), (0.2,), (0.3,))


def test_nobody_waits_for_an_engine_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "FENCE", Limit("a fence", 0.1))

    async def play() -> None:
        cluster = Cluster(1)
        cluster.runtime._limits = replace(LIMITS, start=Limit("cluster.start_timeout_s", 0.2))
        cluster.cast.engines[0].is_up = False  # and nothing replaces it
        with pytest.raises(ClusterError, match=r"no engine of p0 was up again within cluster\.start_t.* Fix: "):
            await cluster.runtime.sync({"p0": 0})

    played(play)


def test_an_engine_that_is_lost_again_before_it_catches_up_is_replaced_again() -> None:
    async def play() -> None:
        cluster = Cluster(2)
        await cluster.runtime.sync({"p0": 0})
        async with cluster.cast.using:  # as an update has it
            cluster.kill(cluster.cast.engines[1])
            await asyncio.sleep(0.3)
            cluster.kill(cluster.cast.engines[1])
            cluster.come = lambda _: asyncio.sleep(0.3)
            await asyncio.sleep(0.1)
        await cluster.watching.until_doom(asyncio.sleep(0.8))
        assert cluster.started == ["engine 1"] * 2
        assert cluster.serving() == {0: (0, 0), 1: (0, 0)}
        await cluster.watching.end()

    played(play)


@pytest.mark.parametrize("others", [0, 1])
def test_a_new_engine_that_garbles_its_weights_is_left_out_where_others_serve(others: int) -> None:
    async def play() -> None:
        cluster = Cluster(1 + others)

        async def garbling(seat: Seat) -> None:
            assert isinstance(seat.actor, Process_)
            seat.actor.garbles = True

        cluster.come = garbling
        await cluster.runtime.sync({"p0": 0})
        cluster.kill(cluster.cast.engines[-1])
        if not others:
            with pytest.raises(EngineFailed, match=r"went into none of 1: .*the probe differs"):
                await cluster.watching.until_doom(asyncio.sleep(1))
            return
        await cluster.watching.until_doom(asyncio.sleep(1))
        assert cluster.serving() == {0: (0, 0)}
        actor: Any = cluster.cast.engines[-1].actor
        actor.garbles = False
        await cluster.runtime.update(LEARN)
        await cluster.runtime.sync({"p0": 1})
        assert cluster.serving() == {0: (1, 1), 1: (1, 1)}
        await cluster.watching.end()

    played(play)


@pytest.mark.parametrize(
    ("nodes", "workers", "executions", "retries"), [(8, 16, 4, 2), (64, 4, 4, 2), (8, 16, 16, 0), (1, 1, 1, 0)]
)
def test_a_unit_has_the_time_of_all_runs_that_a_worker_may_have(
    nodes: int, workers: int, executions: int, retries: int
) -> None:
    """Each run its wall clock and its replies, with retries, as many at once as the worker runs; a day at most."""

    def assembled(**limits: float) -> Assembly:
        settings = config(
            cluster={"layout": "disaggregated", "nodes": nodes, "run_workers_per_node": workers},
            rollout={"executions": executions, "retries": retries, "max_concurrent": 128, "limits": limits},
        )
        assembly = Assembly(settings, LIMITS, None, Path(), lambda *_: None)  # pyright: ignore[reportArgumentType]
        assembly.seats = SimpleNamespace(placed=SimpleNamespace(of=lambda _: [None] * nodes * workers))  # pyright: ignore[reportAttributeAccessIssue]
        return assembly

    assembly = assembled(wall_s=20, reply_s=10, agent_calls=4)
    at_once = -(-128 // (nodes * workers))
    runs = (assembly.units + UNITS_AHEAD) * executions
    worst, began = [0.0] * at_once, 0.0
    for _ in range(runs):  # a queue, each taken up by whoever is free first
        began = min(worst)
        worst[worst.index(began)] = began + 60 * (1 + retries)
    assert max(worst) <= assembly.unit_limit.seconds <= max(worst) + LIMITS.call.seconds
    assert assembled().unit_limit.seconds == 86_400 + LIMITS.call.seconds


class Dying:
    """What comes dies while it starts, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def __call__(self, seat: Seat) -> None:
        await asyncio.sleep(0.05)
        if self.left:
            self.left -= 1
            raise NotStarted(seat.name, ActorLost(seat.name, "killed"))


def test_what_dies_while_it_starts_is_replaced_again() -> None:
    async def play() -> None:
        cluster = Cluster(1, 1)
        await cluster.runtime.sync({"p0": 0})
        cluster.come = Dying(3)
        cluster.kill(cluster.cast.engines[0])
        await cluster.lose_worker()
        await cluster.watching.until_doom(asyncio.sleep(1))
        assert sorted(set(cluster.started)) == ["engine 0", "run_worker 0"]
        assert len(cluster.started) == len(cluster.runtime._restarts.history) == 5
        assert cluster.serving() == {0: (0, 0)}
        new: Any = cluster.pool.workers[0]
        assert new.told == [0]
        await cluster.watching.end()

    played(play)


def test_what_always_dies_while_it_starts_ends_the_run() -> None:
    async def play() -> None:
        cluster = Cluster(2, per_hour=3)
        await cluster.runtime.sync({"p0": 0})
        cluster.come = Dying(100)
        cluster.kill(cluster.cast.engines[1])
        with pytest.raises(
            EngineFailed, match=r"4 processes were lost within an hour.*engine 1 did not start: .*Fix: "
        ):
            await cluster.watching.until_doom(asyncio.sleep(5))
        assert cluster.started == ["engine 1"] * 3
        await cluster.watching.end()

    played(play)


def test_a_rank_that_dies_while_it_is_made_anew_loses_the_steps_again() -> None:
    async def play() -> None:
        cluster = Cluster(1)
        await cluster.runtime.sync({"p0": 0})

        async def dies() -> None:
            raise ActorLost("rank 0 of p0", "killed")

        cluster.runtime._assembly.start_ranks = dies
        with pytest.raises(StepsLost, match="making ranks anew: rank 0 of p0 is gone"):
            await cluster.runtime.recover(StepsLost("rank 0 of p0 is gone"))
        await cluster.watching.end()

    played(play)


def test_a_worker_that_comes_beside_an_engine_knows_it() -> None:
    """Also where the worker is told of the engines a little later than all others are."""

    async def play(late_s: float, comes_s: float) -> None:
        cluster = Cluster(1, 1)
        await cluster.runtime.sync({"p0": 0})

        async def come(seat: Seat) -> None:
            await asyncio.sleep(comes_s if seat.process.kind == "engine" else 0.1)
            if seat.process.kind == "run_worker":
                seat.actor = Late(seat.name, late_s)  # pyright: ignore[reportAttributeAccessIssue]

        cluster.come = come
        cluster.kill(cluster.cast.engines[0])
        worker = await cluster.lose_worker()
        await cluster.watching.until_doom(asyncio.sleep(1.2))
        new: Any = cluster.pool.workers[0]
        assert new is not worker
        assert new.told == [0]
        await cluster.watching.end()

    played(play, *product((0.0, 0.1, 0.25), (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)))


class Late(Process_):
    """Calls take their time to come, in their order."""

    def __init__(self, name: str, late_s: float) -> None:
        super().__init__(name)
        self.late_s, self.turn = late_s, asyncio.Lock()

    async def call(self, method: str, *arguments: Any, limit: Any) -> Any:
        async with self.turn:
            await asyncio.sleep(self.late_s)
            return await super().call(method, *arguments, limit=limit)


def test_a_keeper_is_made_anew_and_no_step_is_lost() -> None:
    async def play() -> None:
        cluster = Cluster(1)
        await cluster.runtime.sync({"p0": 0})
        keeper = cluster.seat("keeper", 0)
        actor: Any = keeper.actor
        cluster.watching.begin([keeper])
        actor.gone = True
        await cluster.watching._noticed(keeper, actor, ActorLost(keeper.name, "killed"))
        assert keeper.actor is not None
        assert keeper.actor is not actor
        assert cluster.started == ["keeper 0"]
        await cluster.watching.until_doom(asyncio.sleep(0.1))
        await cluster.watching.end()

    played(play)


def test_a_loss_that_two_notice_is_one() -> None:
    async def play() -> None:
        cluster = Cluster(2)
        await cluster.runtime.sync({"p0": 0})
        for _ in range(3):
            cluster.kill(cluster.cast.engines[1])
        await asyncio.sleep(0.5)
        assert cluster.started == ["engine 1"]
        assert len(cluster.runtime._restarts.history) == 1
        await cluster.watching.end()

    played(play)


@pytest.mark.parametrize("why", ["it does not start", "too many"])
def test_what_strikes_while_ranks_are_made_anew_is_not_forgotten(why: str) -> None:
    async def play() -> None:
        cluster = Cluster(1, 1, per_hour=1 if why == "too many" else 6)

        async def full(seat: Seat) -> None:
            if seat.process.kind == "run_worker":
                raise ClusterError("run worker 0 did not start: out of memory")

        cluster.come = full
        worker: Any = cluster.workers[0].actor
        await cluster.pool.put(0, worker)
        recovering = asyncio.ensure_future(cluster.runtime.recover(StepsLost("rank 0 of p0 is gone")))
        await asyncio.sleep(0.05)
        worker.gone = True
        await cluster.watching.worker_lost(0, worker, ActorLost(worker.name, "killed"))
        await recovering
        problem: Any = SimpleNamespace(id="q0")
        with pytest.raises((ClusterError, EngineFailed), match=r"did not start|within an hour"):
            await cluster.watching.until_doom(cluster.pool.rollout([problem], 0, None, lambda _: None))  # pyright: ignore[reportArgumentType]
        await cluster.watching.end()

    played(play)
