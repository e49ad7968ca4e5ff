"""A group of several engines through which weights go, of which some are lost or fail: who is left out, who serves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicted import config

from engine.protocol import Probe
from trainer.cluster.losses import Limits
from trainer.cluster.ray_session import ActorLost
from trainer.cluster.sync import GroupTransport, SyncFailed, sync
from workflow.failures import EngineFailed

LIMITS = Limits.of(config().cluster)
PROBE = Probe([0, 1], [0.0], [1.0])


class World:
    """A sender and engines, all of whom fail in a collective in which one does."""

    def __init__(self, engines: int, faults: dict[int, tuple[str, str]], rank_gone: str = "") -> None:
        self.engines = {number: Engine(self, number, *faults.get(number, ("", ""))) for number in range(engines)}
        self.members: set[int] = set()
        self.rank_gone = rank_gone

    async def ranks(self, function: Any, *arguments: Any, limit: Any) -> list[Any]:
        await asyncio.sleep(0.01)  # the engines of the collective have come, or failed
        if self.rank_gone == function.__name__:
            raise ActorLost("rank 0 of p0", "killed")
        if function.__name__ == "joined":
            expected = arguments[3] - 1
            if len(self.members) != expected:
                raise EngineFailed("sender", f"{len(self.members)} of {expected} came")
            return [{}]
        if not all(self.engines[each].takes for each in self.members):
            raise EngineFailed("sender", "the connection was closed")
        return [SimpleNamespace(bytes=8, fingerprint="sent")]

    async def address(self) -> tuple[str, int]:
        self.members.clear()
        return "127.0.0.1", 1


class Engine:
    """`breaks` at a call, and is `gone` from then on, or `fails` and lives."""

    def __init__(self, world: World, number: int, breaks: str, how: str) -> None:
        self.world, self.number, self.breaks, self.how = world, number, breaks, how
        self.gone, self.takes, self.has, self.serves, self.shelved = False, False, -1, -1, False

    async def call(self, method: str, *arguments: Any, limit: Any) -> Any:
        name = arguments[0] if method == "vllm" else method
        if name == self.breaks and self.how == "gone":
            self.gone = True
        if self.gone:
            raise ActorLost(f"engine {self.number}", "killed")
        if name == self.breaks:
            raise EngineFailed(f"engine {self.number}", "it says no")
        return await getattr(self, name)(*arguments)

    async def close_gate(self) -> None:
        self.serves = -1

    async def join_transfer(self, *_: Any) -> None:
        self.world.members.add(self.number)

    async def begin_receiving(self, *_: Any) -> None:
        self.takes = False

    async def take(self, metadata: Any) -> None:
        self.takes = True
        await asyncio.sleep(0.02)
        if self.world.rank_gone == "sending" or not all(self.world.engines[each].takes for each in self.world.members):
            raise EngineFailed(f"engine {self.number}", "a peer closed the connection")
        self.has = 1

    async def prove(self, version: int, sent: str, probe: Probe) -> float:
        assert (self.has, sent) == (version, "sent")
        return 0.0

    async def alive(self, within_s: float) -> None:
        pass

    async def commit(self, version: int) -> None:
        assert self.has == version
        self.serves = version

    async def shelve(self, reason: str) -> None:
        self.shelved = True


CALLS = ("close_gate", "join_transfer", "begin_receiving", "take", "prove", "commit")
FAULT = st.tuples(st.sampled_from(CALLS), st.sampled_from(["gone", "fails"]))


@given(st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.dictionaries(st.integers(0, n - 1), FAULT))))
def test_whoever_is_well_serves_and_nobody_else(drawn: tuple[int, dict[int, tuple[str, str]]]) -> None:
    engines, faults = drawn
    world = World(engines, faults)
    transport = GroupTransport("gloo", world.ranks, world.address, 1, LIMITS)
    well = set(range(engines)) - set(faults)

    async def once() -> Any:
        return await asyncio.wait_for(sync("p0", 1, world.engines, transport, PROBE, LIMITS), 30)  # pyright: ignore[reportArgumentType]

    if not well:
        with pytest.raises(SyncFailed, match=f"went into none of {engines}"):
            asyncio.run(once())
    else:
        report, serving, failed = asyncio.run(once())
        assert (set(serving), report.engines) == (well, len(well))
        assert set(failed) == set(faults)
    for number, engine in world.engines.items():
        assert engine.serves == (1 if number in well else -1)
        assert engine.shelved == (number in faults and not engine.gone)


def test_an_engine_that_comes_back_is_in_the_group_again() -> None:
    world = World(3, {1: ("take", "fails")})
    transport = GroupTransport("gloo", world.ranks, world.address, 1, LIMITS)

    async def twice() -> None:
        _, serving, _ = await sync("p0", 1, world.engines, transport, PROBE, LIMITS)  # pyright: ignore[reportArgumentType]
        assert serving == [0, 2]
        world.engines[1].breaks = ""
        _, serving, _ = await sync("p0", 1, world.engines, transport, PROBE, LIMITS)  # pyright: ignore[reportArgumentType]
        assert serving == [0, 1, 2]
        assert world.members == {0, 1, 2}, "in one group"

    asyncio.run(twice())


@given(st.integers(1, 3), st.sampled_from(["joined", "sending"]))
def test_a_rank_that_is_gone_is_no_fault_of_the_engines(engines: int, during: str) -> None:
    """Their connections are closed, too: the steps are lost, and the run goes on."""
    world = World(engines, {}, rank_gone=during)
    transport = GroupTransport("gloo", world.ranks, world.address, 1, LIMITS)
    with pytest.raises(ActorLost, match="rank 0 of p0"):
        asyncio.run(sync("p0", 1, world.engines, transport, PROBE, LIMITS))  # pyright: ignore[reportArgumentType]
