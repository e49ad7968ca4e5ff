"""The weight transaction over two engines of a real Ray: all that serve have one version, whoever fails."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from trainer.cluster.actors import EngineActor, RankActor
from trainer.cluster.engine_pool import EnginePool, NotServing, PoolTable
from trainer.cluster.losses import Limits
from trainer.cluster.places import Bundle
from trainer.cluster.ranks import OneRank, on_ranks, torch_rank
from trainer.cluster.ray_session import Actor, ActorLost, Limit, Session
from trainer.cluster.sync import StoreTransport, SyncFailed, sync
from trainer.config import ClusterConfig, EngineConfig, PolicyConfig
from trainer.samples import Sample
from trainer.update.backend import ImitationObjective
from workflow.completion import CompletionRequest, Sampling

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LIMIT = Limit("a limit of this test", 120.0)


class Faulty(EngineActor):
    """An engine whose next weights arrive with a bit flipped, or at whose next weights its process is gone."""

    fault = ""

    async def break_at_next(self, fault: str) -> None:
        self.fault = fault

    async def receive(self, version: int, parcels: Any, sent: str, probe: Any) -> float:
        fault, self.fault = self.fault, ""
        if fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "bit":
            import ray

            found = [await each for each in parcels]
            name, dtype, shape, array = found[0].tensors[0]
            array = array.copy()
            array[len(array) // 2] ^= 1
            found[0].tensors[0] = (name, dtype, shape, array)
            parcels = [ray.put(each) for each in found]
        return await super().receive(version, parcels, sent, probe)


class Scene:
    """A rank and two engines, for all tests here: each begins with both engines on the same weights."""

    def __init__(self, address: str, model: Path) -> None:
        self.version, self.model = -1, model
        self._runner, self._stack = asyncio.Runner(), AsyncExitStack()
        self.config = ClusterConfig(
            layout="disaggregated",
            address=address,
            gpus_per_node=0,
            start_timeout_s=120,
            call_timeout_s=60,
            heartbeat_s=10,
        )
        self.limits = Limits.of(self.config)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    async def begin(self) -> None:
        self.session = await self._stack.enter_async_context(Session(self.config).opened())
        [node] = self.session.nodes()
        self.group = await self.session.reserve([Bundle(node.id, 2.0)])
        self.rank = self.session.start(RankActor, "a rank", 0, group=self.group, bundle=0, cpus=0.5)
        self.engines = {0: self.engine(0), 1: self.engine(1)}
        settings = {"learning_rate": 1e-3, "device": "cpu"}
        await self.rank.call("make", "p0", torch_rank, str(self.model), settings, limit=LIMIT)
        self.backend = OneRank(self.rank, "p0", LIMIT)
        self.transport = StoreTransport(on_ranks([self.rank], "p0"), self.limits)
        await asyncio.gather(*(each.call("start", limit=LIMIT) for each in self.engines.values()))
        for number in self.engines:
            with pytest.raises(NotServing, match="no weights yet"):
                await self.said(number)

    def end(self) -> None:
        self.run(self._stack.aclose())
        self._runner.close()

    def engine(self, number: int) -> Actor:
        policy = PolicyConfig(
            model=str(self.model),
            dtype="float32",
            device="cpu",
            engine=EngineConfig(kind="transformers", dtype="float64"),
        )
        return self.session.start(
            Faulty, f"engine {number}", policy, 512, 60.0, group=self.group, bundle=0, cpus=0.5, concurrency=100
        )

    async def whole(self) -> int:
        """Both serve weights that nobody had before; returns their version."""
        report, serving, failed = await self.sync()
        assert (serving, failed, report.engines, report.transport) == ([0, 1], {}, 2, "store")
        assert report.bytes > 0
        assert report.gap < 1e-3
        return self.version

    async def replace(self, number: int) -> None:
        """Another one where an engine was lost: it serves nobody before it has weights."""
        self.engines[number] = self.engine(number)
        await self.engines[number].call("start", limit=LIMIT)
        with pytest.raises(NotServing, match="no weights yet"):
            await self.said(number)

    async def sync(self) -> Any:
        """Of the next version, after a step of learning."""
        sample = Sample(
            policy="p0", token_ids=[1, 2, 3, 4], loss_mask=[0, 1, 1, 1], behaviour_logprobs=[0.0] * 4, advantage=1.0
        )
        await asyncio.to_thread(self.backend.update, [sample], ImitationObjective())
        self.version += 1
        probe = await asyncio.to_thread(self.backend.probe, list(range(8)))
        return await sync("p0", self.version, self.engines, self.transport, probe, self.limits)

    def pool(self) -> EnginePool:
        pool = EnginePool("p0", wait_s=20, reply_s=60)
        pool.serve(PoolTable(list(self.engines.items())))
        return pool

    async def said(self, number: int, seed: int = 0) -> Any:
        request = CompletionRequest(
            token_ids=[5, 6, 7], agent="a", key="k", sampling=Sampling(max_tokens=8, seed=seed, logprobs=True)
        )
        return await self.engines[number].call("complete", request, limit=LIMIT)


@pytest.fixture(scope="module")
def on(ray_address: str, model: Path) -> Iterator[Scene]:
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    made = Scene(ray_address, model)
    try:
        made.run(made.begin())
        yield made
    finally:
        made.end()


def test_all_serve_one_version_and_say_the_same(on: Scene) -> None:
    async def work() -> None:
        first = await on.whole()
        before = [await on.said(number) for number in (0, 1)]
        pool = on.pool()
        request = CompletionRequest(
            token_ids=[5, 6], agent="a", key="k", sampling=Sampling(max_tokens=60, logprobs=True)
        )
        under_way = [asyncio.ensure_future(pool.complete(request, route)) for route in range(16)]
        await asyncio.sleep(0.05)
        _, serving, _ = await on.sync()
        assert serving == [0, 1]
        drawn = {(await each).weights_version for each in under_way}
        assert drawn <= {first, first + 1}
        after = [await on.said(number) for number in (0, 1)]
        assert before[0].token_ids == before[1].token_ids
        assert before[0].logprobs == before[1].logprobs
        assert after[0].logprobs == after[1].logprobs
        assert after[0].logprobs != before[0].logprobs
        assert [each.weights_version for each in (*before, *after)] == [first, first, first + 1, first + 1]

    on.run(work())


def test_a_flipped_bit_takes_one_engine_out_until_the_next_weights(on: Scene) -> None:
    async def work() -> None:
        first = await on.whole()
        await on.engines[1].call("break_at_next", "bit", limit=LIMIT)
        report, serving, failed = await on.sync()
        assert (serving, report.engines) == ([0], 1)
        assert "not those that were sent" in str(failed[1])
        assert (await on.said(0)).weights_version == first + 1
        with pytest.raises(NotServing, match="not those that were sent"):  # not even with the old ones
            await on.said(1)
        pool = on.pool()  # a stale one among two: who asks it is sent on
        request = CompletionRequest(token_ids=[5], agent="a", key="k", sampling=Sampling(max_tokens=4, logprobs=True))
        found = [await pool.complete(request, route) for route in range(8)]
        assert {each.weights_version for each in found} == {first + 1}
        _, serving, failed = await on.sync()
        assert (serving, failed) == ([0, 1], {})
        assert (await on.said(0)).logprobs == (await on.said(1)).logprobs

    on.run(work())


def test_where_no_engine_takes_the_weights_none_serves_and_all_is_said(on: Scene) -> None:
    async def work() -> None:
        await on.whole()
        for engine in on.engines.values():
            await engine.call("break_at_next", "bit", limit=LIMIT)
        told = rf"weights {on.version + 1} went into none of 2: engine 0: .*; engine 1: "
        with pytest.raises(SyncFailed, match=told):
            await on.sync()
        for number in (0, 1):
            with pytest.raises(NotServing):
                await on.said(number)

    on.run(work())


def test_an_engine_that_dies_amid_a_sync_concerns_nobody_else(on: Scene) -> None:
    async def work() -> None:
        await on.whole()
        await on.engines[0].call("break_at_next", "dies", limit=LIMIT)
        report, serving, failed = await on.sync()
        assert (serving, report.engines, report.version) == ([1], 1, on.version)
        assert isinstance(failed[0], ActorLost)
        assert (await on.said(1)).weights_version == on.version
        await on.replace(0)
        await on.whole()

    on.run(work())


def test_requests_move_to_another_engine_when_theirs_is_lost(on: Scene) -> None:
    async def work() -> None:
        await on.whole()
        pool = on.pool()
        request = CompletionRequest(
            token_ids=[5, 6], agent="a", key="k", sampling=Sampling(max_tokens=80, seed=3, logprobs=True)
        )
        expected = await on.engines[0].call("complete", request, limit=LIMIT)
        under_way = [asyncio.ensure_future(pool.complete(request, route)) for route in range(12)]
        await asyncio.sleep(0.1)
        who = await on.engines[1].call("identity", limit=LIMIT)
        os.kill(who.pid, signal.SIGKILL)
        for each in await asyncio.gather(*under_way):
            assert (each.token_ids, each.logprobs) == (expected.token_ids, expected.logprobs)
        await on.replace(1)

    on.run(work())
