"""Ranks and engines of one GPU: who has its memory when, by a GPU that is too small for both, and without Ray."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from predicted import config

from engine.protocol import Probe
from trainer.cluster.assembly import Cast
from trainer.cluster.losses import Limits
from trainer.cluster.runtime import ClusterRuntime
from trainer.cluster.sync import GroupTransport
from trainer.cluster.turns import to_engines
from trainer.run.runtime import Lesson
from trainer.update import PolicyObjective

WEIGHTS, OPTIMIZER, CACHE = 20, 60, 60
LIMITS = Limits.of(config().cluster)


class Gpu:
    """100 units, of which two policies' processes take some."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def take(self, who: str, units: int) -> None:
        self.held[who] = units
        assert sum(self.held.values()) <= 100, f"out of memory: {self.held}"

    def has(self, *who: str) -> bool:
        return all(self.held.get(each, 0) for each in who)


class Ranks:
    """A `DeepSpeedBackend`'s part in it. It learns a version with each update."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.learned = gpu, 0
        self.reload()

    def offload(self, keep_weights: bool = False) -> None:
        self.gpu.take("optimizer", 0)
        self.gpu.take("weights", WEIGHTS if keep_weights else 0)

    def reload(self) -> None:
        self.gpu.take("weights", WEIGHTS)
        self.gpu.take("optimizer", OPTIMIZER)

    def update(self, samples: Any, objective: Any) -> Any:
        assert self.gpu.has("weights", "optimizer")
        self.learned, self.objective = self.learned + len(samples), objective
        return SimpleNamespace(steps=len(samples))

    def probe(self, ids: list[int]) -> Probe:
        assert self.gpu.has("weights", "optimizer")
        return Probe(ids, [0.0] * (len(ids) - 1), [1.0] * (len(ids) - 1))

    def snapshot(self) -> Any:
        assert self.gpu.has("weights", "optimizer")
        learned = self.learned

        def write(folder: Path) -> list[Any]:
            (folder / "p").write_text(str(learned))
            return []

        return SimpleNamespace(write=write)


class Engine:
    """An `EngineActor` with vLLM, asked as an `Actor` is."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.learned, self.proven, self.open = gpu, -1, -1, False
        self.take("engine", WEIGHTS)
        self.take("cache", CACHE)

    def take(self, what: str, units: int) -> None:
        self.gpu.take(what, units)

    async def call(self, method: str, *arguments: Any, limit: Any) -> Any:
        return getattr(self, method)(*arguments)

    def vllm(self, method: str, *arguments: Any) -> None:
        match method, arguments:
            case "sleep", (2,):
                self.learned = -1  # level 2 drops the weights
                self.take("engine", 0)
                self.take("cache", 0)
            case "wake", (["weights"],):
                self.take("engine", WEIGHTS)
            case "wake", (["kv_cache"],):
                self.take("cache", CACHE)
            case "join_transfer", _:
                pass
            case _:
                raise AssertionError(method)

    def close_gate(self) -> None:
        self.open = False

    def prove(self, version: int, sent: str, probe: Probe) -> float:
        assert self.gpu.has("engine", "cache"), "a probe is a completion"
        self.proven = version
        return 0.0

    def commit(self, version: int) -> None:
        assert self.proven == version
        self.open = True

    def shelve(self, reason: str) -> None:
        raise AssertionError(reason)

    def serves(self) -> int:
        """What has been learned in the weights that it serves."""
        assert self.open
        assert self.gpu.has("engine", "cache")
        return self.learned


class Watching:
    async def until_doom(self, work: Any) -> Any:
        return await work

    async def tell_workers(self) -> None:
        pass


def colocated() -> tuple[ClusterRuntime, Ranks, Engine]:
    policy = {"engine": {"kind": "vllm"}}
    settings = config(policy=policy, cluster={"layout": "colocated", "gpus_per_node": 1})
    runtime, gpu = ClusterRuntime(settings), Gpu()
    ranks = Ranks(gpu)  # the ranks load first, then the engines
    ranks.offload()
    engine = Engine(gpu)

    async def on_ranks(function: Any, *arguments: Any, limit: Any) -> list[Any]:
        if function.__name__ == "sending":
            assert gpu.has("weights", "engine")
            engine.learned = ranks.learned
            return [SimpleNamespace(bytes=WEIGHTS, fingerprint="f")]
        return [{}]

    async def address() -> tuple[str, int]:
        return "127.0.0.1", 1

    cast = Cast("p0", settings.policies["p0"], [], [SimpleNamespace(actor=engine, is_up=True)])  # pyright: ignore[reportArgumentType]
    cast.backend = ranks  # pyright: ignore[reportAttributeAccessIssue]
    received = partial(to_engines, ranks, limit=LIMITS.call)  # pyright: ignore[reportArgumentType]
    cast.transport = GroupTransport("ipc", on_ranks, address, 1, LIMITS, received)
    runtime._assembly = SimpleNamespace(casts={"p0": cast})  # pyright: ignore[reportAttributeAccessIssue]
    runtime._watching = Watching()  # pyright: ignore[reportAttributeAccessIssue]
    return runtime, ranks, engine


def learn(*samples: int) -> dict[str, Lesson]:
    return {"p0": Lesson(samples, 0.1, PolicyObjective())}  # pyright: ignore[reportArgumentType]


def test_a_step_takes_turns() -> None:
    async def steps() -> None:
        runtime, ranks, engine = colocated()
        await runtime.sync({"p0": 0})
        assert engine.serves() == 0
        for step in range(3):
            await runtime.update(learn(1))
            await runtime.sync({"p0": step + 1})
            assert engine.serves() == ranks.learned == step + 1

    asyncio.run(steps())


def test_ranks_follow_the_lesson_and_not_the_configuration() -> None:
    async def step() -> None:
        runtime, ranks, _ = colocated()
        own = PolicyObjective(kl_coefficient=7.0)
        assert own != runtime.config.objective
        await runtime.update({"p0": Lesson([], 0.5, own)})
        assert (ranks.objective, ranks.learning_rate) == (own, 0.5)

    asyncio.run(step())


def test_a_checkpoint_needs_no_turn_of_its_own(tmp_path: Path) -> None:
    async def steps() -> None:
        runtime, _, engine = colocated()
        await runtime.sync({"p0": 0})
        await runtime.update(learn(1))
        write = await runtime.snapshot()
        await runtime.sync({"p0": 1})
        assert engine.serves() == 1
        await runtime.update(learn(1))
        write(tmp_path)
        assert (tmp_path / "p0" / "p").read_text() == "1"

    asyncio.run(steps())


@pytest.mark.parametrize("what", ["an update without a step", "a checkpoint without an update"])
def test_what_brings_no_new_weights_leaves_the_engines_as_they_were(what: str) -> None:
    async def steps() -> None:
        runtime, _, engine = colocated()
        await runtime.sync({"p0": 0})
        await runtime.update(learn(1))
        await runtime.sync({"p0": 1})
        if what == "an update without a step":
            await runtime.update(learn())
            assert engine.serves() == 1
        await runtime.snapshot()
        assert engine.serves() == 1
        assert engine.proven == 1

    asyncio.run(steps())
