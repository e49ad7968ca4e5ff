"""The pool: never over its cap, no kind starved, spoiled containers replaced, failures told to those who wait."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.containers.pool import BUSY, CROWDED, KINDS, Container, Pool
from workflow.failures import SandboxUnavailable


class FakeConnection:
    def __init__(self, kind, on_lost):
        self.kind, self.on_lost = kind, on_lost
        self.spoiled = ""
        self.lost = None

    def spoil(self, reason):
        self.spoiled = self.spoiled or reason

    def close(self):
        self.lost = self.lost or "closed"

    def die(self):
        self.lost = "died"
        self.on_lost(self)


class World:
    """Starts fake containers; `failing` makes starts fail, `gate` holds them up."""

    def __init__(self, **options):
        self.live: list[FakeConnection] = []
        self.most = 0
        self.started = 0
        self.failing = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.pool = Pool(self.start, **{"max_containers": 8, "jails_each": 2, "spares": None, **options})

    async def start(self, kind, on_lost):
        self.started += 1
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failing:
            raise SandboxUnavailable("no daemon", "start one")
        connection = FakeConnection(kind, on_lost)
        self.live.append(connection)
        self.most = max(self.most, len(self.live))

        async def remove():
            await asyncio.sleep(0)
            self.live.remove(connection)

        return Container(connection, remove)  # type: ignore[arg-type]


async def settled():
    for _ in range(50):
        await asyncio.sleep(0)


def run(work, **options):
    async def main():
        world = World(**options)
        await asyncio.wait_for(work(world), 10)
        await asyncio.wait_for(world.pool.close(), 10)
        assert world.live == []
        assert world.pool.counts() == 0

    asyncio.run(main())


def test_warm_containers_are_shared_and_more_come_with_the_load():
    async def work(world):
        first = await world.pool.acquire("code")
        world.pool.release(first)
        assert await world.pool.acquire("code") is first
        held = [first, *[await world.pool.acquire("code") for _ in range(9)]]
        assert len({id(one) for one in held}) == 5
        assert max(one.held for one in held) == 2

    run(work)


def test_ahead_of_need_there_are_containers_for_all_cores_and_then_for_a_crowd():
    async def work(world):
        world.pool.enough = 2
        counts = []
        for _ in range(4 * BUSY + 2 * CROWDED):
            await world.pool.acquire("code")
            await settled()
            counts.append(len(world.live))
        came = [counts.index(number) for number in (1, 2, 3)]
        assert came == [0, BUSY - 1, 2 * CROWDED - 1]
        for container in world.pool.containers:
            while container.held:
                world.pool.release(container)

    run(work, jails_each=100)


def test_a_strict_container_serves_once_and_spares_are_ready():
    async def work(world):
        first = await world.pool.acquire("code")
        await settled()
        assert len(world.live) == 3
        world.pool.release(first)
        await settled()
        second = await world.pool.acquire("code")
        assert second is not first
        assert first.connection not in world.live

    run(work, spares=2)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(["use", "spoil", "die", "cancel"])), max_size=60),
    st.sampled_from([None, 0, 2]),
    st.integers(3, 7),
)
def test_whatever_happens_the_cap_holds_and_everybody_is_served(orders, spares, most):
    async def work(world):
        served = 0

        async def one(kind, what):
            nonlocal served
            container = await world.pool.acquire(kind)
            try:
                assert container.connection.lost is None
                await asyncio.sleep(0)
                if what == "spoil":
                    container.connection.spoil("a run timed out")
                elif what == "die" and container.connection.lost is None:
                    container.connection.die()
                await asyncio.sleep(0)
                served += 1
            finally:
                world.pool.release(container)

        tasks = [(asyncio.create_task(one(kind, what)), what) for kind, what in orders]
        await asyncio.sleep(0)
        for task, what in tasks:
            if what == "cancel":
                task.cancel()
        results = await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)
        for result, (_, what) in zip(results, tasks, strict=True):
            assert result is None or (what == "cancel" and isinstance(result, asyncio.CancelledError)), result
        await settled()
        assert world.most <= most
        assert all(container.held == 0 for container in world.pool.containers)

    run(work, spares=spares, max_containers=most)


def test_code_can_run_while_programs_take_all_they_can_get():
    async def work(world):
        programs = [asyncio.create_task(world.pool.acquire("program")) for _ in range(20)]
        await settled()
        code = await asyncio.wait_for(world.pool.acquire("code"), 5)
        assert code.connection.kind == "code"
        assert not all(task.done() for task in programs)
        for task in programs:
            task.cancel()
        await settled()

    run(work, spares=1, max_containers=5)
    run(work, max_containers=5)


def test_a_spoiled_container_ends_its_work_and_takes_no_more():
    async def work(world):
        first = await world.pool.acquire("code")
        first.connection.spoil("out of memory")
        second = await world.pool.acquire("code")
        assert second is not first
        assert first.connection in world.live
        world.pool.release(first)
        await settled()
        assert first.connection not in world.live

    run(work)


def test_a_failing_daemon_fails_who_waits_and_is_asked_again_later():
    async def work(world):
        world.failing = True
        results = await asyncio.gather(*(world.pool.acquire("code") for _ in range(5)), return_exceptions=True)
        assert all(isinstance(result, SandboxUnavailable) for result in results)
        started = world.started
        await settled()
        assert world.started == started, "it does not go on by itself"
        world.failing = False
        assert (await world.pool.acquire("code")).connection in world.live

    for spares in (None, 2):
        run(work, spares=spares)


def test_closing_while_containers_start_leaves_none():
    async def main():
        world = World(spares=2)
        world.gate.clear()
        waiting = [asyncio.create_task(world.pool.acquire(kind)) for kind in KINDS]
        await settled()
        closing = asyncio.create_task(world.pool.close())
        await settled()
        world.gate.set()
        await asyncio.wait_for(closing, 10)
        for task in waiting:
            with pytest.raises(SandboxUnavailable, match="closed"):
                await task
        assert world.live == []

    asyncio.run(main())


@pytest.mark.parametrize("back", [True, False], ids=["once", "for good"])
def test_a_removal_that_fails_does_not_stop_the_pool_and_is_tried_again_at_the_end(back):
    async def work(world):
        container = await world.pool.acquire("code")
        asked, remove = [], container.remove

        async def fail():
            asked.append(1)
            if not back:
                world.live.remove(container.connection)  # for `run`, which wants none
                container.remove = still_down
            else:
                container.remove = remove
            raise OSError("the daemon is gone")

        async def still_down():
            asked.append(2)
            raise OSError("the daemon is gone")

        container.remove = fail
        container.connection.spoil("x")
        world.pool.release(container)
        assert await world.pool.acquire("code") is not container
        await asyncio.wait_for(world.pool.close(), 10)
        assert asked == ([1] if back else [1, 2])

    run(work)


def test_a_cap_below_one_for_each_kind_is_refused():
    with pytest.raises(ValueError, match="max_containers=2"), contextlib.suppress(RuntimeError):
        asyncio.run(_make(2))


async def _make(most):
    return World(max_containers=most)
