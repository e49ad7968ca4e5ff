"""What runtimes have in common, and what one process says of a sync."""

import asyncio
from types import SimpleNamespace
from typing import Any

from predicted import config

from trainer.config import EngineConfig
from trainer.run.one_process import OneProcess
from trainer.run.runtime import Lesson, vllm_options
from trainer.update import PolicyObjective


def test_vllm_is_told_what_the_configuration_says() -> None:
    assert vllm_options(EngineConfig(kind="vllm", dtype="bfloat16"), None) == {"dtype": "bfloat16"}
    parallel = vllm_options(EngineConfig(kind="vllm", tensor_parallel=2, options={"dtype": "float16", "seed": 1}), 512)
    assert parallel == {
        "dtype": "float16",
        "max_model_len": 512,
        "tensor_parallel_size": 2,
        "distributed_executor_backend": "mp",
        "seed": 1,
    }


def test_a_sync_says_what_the_weights_are_on() -> None:
    def weight(size: int) -> Any:
        return SimpleNamespace(nbytes=size, device=SimpleNamespace(type="cuda"))

    async def update_weights(*_: object) -> None:
        pass

    backend = SimpleNamespace(weights=lambda: {"a": weight(8), "b": weight(4)}, probe=lambda _: None)
    policy: Any = SimpleNamespace(
        backend=backend, engine=SimpleNamespace(update_weights=update_weights, probe_gap=0.125)
    )
    sandbox: Any = None
    run = OneProcess(config(), sandbox)
    run._policies["p0"] = policy
    report = asyncio.run(run.sync({"p0": 3}))["p0"]
    assert (report.version, report.bytes, report.gap, report.device) == (3, 12, 0.125, "cuda")


def test_an_update_follows_its_lesson_and_not_the_configuration() -> None:
    backend = SimpleNamespace(learning_rate=0.0, update=lambda samples, objective: (samples, objective))
    sandbox: Any = None
    run, policy = OneProcess(config(), sandbox), SimpleNamespace(backend=backend)
    run._policies["p0"] = policy  # pyright: ignore[reportArgumentType]
    own = PolicyObjective(kl_coefficient=7.0)
    assert own != run.config.objective
    assert asyncio.run(run.update({"p0": Lesson([], 0.5, own)})) == {"p0": ([], own)}
    assert backend.learning_rate == 0.5
