"""The weight transaction over two engines of a real Ray: all that serve have one version, whoever fails."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from trainer.cluster.actors import EngineActor, RankActor
from trainer.cluster.engine_pool import EnginePool, NotServing, PoolTable
from trainer.cluster.layout import Bundle
from trainer.cluster.losses import Limits
from trainer.cluster.ranks import OneRank, on_ranks, torch_rank
from trainer.cluster.ray_session import ActorLost, Limit, Session
from trainer.cluster.sync import StoreTransport, SyncFailed, sync
from trainer.config.schema import ClusterConfig, EngineConfig, PolicyConfig
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
    """A rank and two engines."""

    def __init__(self, session: Session, group: Any, model: Path) -> None:
        policy = PolicyConfig(
            model=str(model), dtype="float32", device="cpu", engine=EngineConfig(kind="transformers", dtype="float64")
        )
        self.limits = Limits.of(session.config)
        self.engines = {
            number: session.start(
                Faulty, f"engine {number}", policy, 512, group=group, bundle=0, cpus=0.5, concurrency=100
            )
            for number in range(2)
        }
        self.rank = session.start(RankActor, "a rank", 0, group=group, bundle=0, cpus=0.5)
        self.model = model

    async def begin(self) -> None:
        settings = {"learning_rate": 1e-3, "device": "cpu"}
        await self.rank.call("make", "p0", torch_rank, str(self.model), settings, limit=LIMIT)
        self.backend = OneRank(self.rank, "p0", LIMIT)
        for engine in self.engines.values():
            await engine.call("start", limit=LIMIT)
        self.transport = StoreTransport(on_ranks([self.rank], "p0"), self.limits)

    async def learn(self) -> None:
        sample = Sample(
            policy="p0", token_ids=[1, 2, 3, 4], loss_mask=[0, 1, 1, 1], behaviour_logprobs=[0.0] * 4, advantage=1.0
        )
        await asyncio.to_thread(self.backend.update, [sample], ImitationObjective())

    async def sync(self, version: int) -> Any:
        probe = await asyncio.to_thread(self.backend.probe, list(range(8)))
        return await sync("p0", version, self.engines, self.transport, probe, self.limits)

    async def said(self, number: int, seed: int = 0) -> Any:
        request = CompletionRequest(
            token_ids=[5, 6, 7], agent="a", key="k", sampling=Sampling(max_tokens=8, seed=seed, logprobs=True)
        )
        return await self.engines[number].call("complete", request, limit=LIMIT)


def scene(address: str, model: Path, work: Callable[[Scene], Awaitable[Any]]) -> Any:
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    config = ClusterConfig(
        layout="disaggregated", address=address, gpus_per_node=0, start_timeout_s=120, call_timeout_s=60, heartbeat_s=10
    )

    async def run() -> Any:
        async with Session(config).opened() as session:
            [node] = session.nodes()
            made = Scene(session, await session.reserve([Bundle(node.id, 2.0)]), model)
            await made.begin()
            return await work(made)

    return asyncio.run(run())


def test_all_serve_one_version_and_say_the_same(ray_address: str, model: Path) -> None:
    async def work(on: Scene) -> None:
        with pytest.raises(NotServing, match="no weights yet"):
            await on.said(0)
        report, serving, failed = await on.sync(0)
        assert (serving, failed, report.engines, report.transport) == ([0, 1], {}, 2, "store")
        assert report.bytes > 0
        assert report.gap < 1e-3
        before = [await on.said(number) for number in (0, 1)]
        await on.learn()
        pool = EnginePool("p0", wait_s=20, call_s=60)
        pool.serve(PoolTable(list(on.engines.items())))
        request = CompletionRequest(
            token_ids=[5, 6], agent="a", key="k", sampling=Sampling(max_tokens=60, logprobs=True)
        )
        under_way = [asyncio.ensure_future(pool.complete(request, route)) for route in range(16)]
        await asyncio.sleep(0.05)
        _, serving, _ = await on.sync(1)
        assert serving == [0, 1]
        drawn = {(await each).weights_version for each in under_way}
        assert drawn <= {0, 1}
        after = [await on.said(number) for number in (0, 1)]
        assert before[0].token_ids == before[1].token_ids
        assert before[0].logprobs == before[1].logprobs
        assert after[0].logprobs == after[1].logprobs
        assert after[0].logprobs != before[0].logprobs
        assert [each.weights_version for each in (*before, *after)] == [0, 0, 1, 1]

    scene(ray_address, model, work)


def test_a_flipped_bit_takes_one_engine_out_until_the_next_weights(ray_address: str, model: Path) -> None:
    async def work(on: Scene) -> None:
        await on.sync(0)
        await on.learn()
        await on.engines[1].call("break_at_next", "bit", limit=LIMIT)
        report, serving, failed = await on.sync(1)
        assert (serving, report.engines) == ([0], 1)
        assert "not those that were sent" in str(failed[1])
        assert (await on.said(0)).weights_version == 1
        with pytest.raises(NotServing, match="not those that were sent"):  # not even with the old ones
            await on.said(1)
        pool = EnginePool("p0", wait_s=20, call_s=60)
        pool.serve(PoolTable(list(on.engines.items())))  # a stale one among two: who asks it is sent on
        request = CompletionRequest(token_ids=[5], agent="a", key="k", sampling=Sampling(max_tokens=4, logprobs=True))
        found = [await pool.complete(request, route) for route in range(8)]
        assert {each.weights_version for each in found} == {1}
        _, serving, failed = await on.sync(2)
        assert (serving, failed) == ([0, 1], {})
        assert (await on.said(0)).logprobs == (await on.said(1)).logprobs

    scene(ray_address, model, work)


def test_an_engine_that_dies_amid_a_sync_concerns_nobody_else(ray_address: str, model: Path) -> None:
    async def work(on: Scene) -> None:
        await on.sync(0)
        await on.learn()
        await on.engines[0].call("break_at_next", "dies", limit=LIMIT)
        report, serving, failed = await on.sync(1)
        assert (serving, report.engines, report.version) == ([1], 1, 1)
        assert isinstance(failed[0], ActorLost)
        assert (await on.said(1)).weights_version == 1

    scene(ray_address, model, work)


def test_where_no_engine_takes_the_weights_none_serves_and_all_is_said(ray_address: str, model: Path) -> None:
    async def work(on: Scene) -> None:
        await on.sync(0)
        await on.learn()
        for engine in on.engines.values():
            await engine.call("break_at_next", "bit", limit=LIMIT)
        with pytest.raises(SyncFailed, match=r"weights 1 went into none of 2: engine 0: .*; engine 1: "):
            await on.sync(1)
        for number in (0, 1):
            with pytest.raises(NotServing):
                await on.said(number)

    scene(ray_address, model, work)


def test_requests_move_to_another_engine_when_theirs_is_lost(ray_address: str, model: Path) -> None:
    async def work(on: Scene) -> None:
        await on.sync(0)
        pool = EnginePool("p0", wait_s=20, call_s=60)
        pool.serve(PoolTable(list(on.engines.items())))
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

    scene(ray_address, model, work)
