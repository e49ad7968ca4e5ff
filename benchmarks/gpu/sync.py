"""New weights for engines: bytes per second and the probe's gap, by every way that this machine has.

    ipc     CUDA IPC within the memory of one GPU: a trainer and vLLM on the same one
    nccl    between two GPUs: a trainer on the first, vLLM on the second
    gloo    through the host's memory, into vLLM
    file    by a file in shared memory, into vLLM of the same process
    store   Ray's object store: one rank, one transformers engine, on the CPU, in a cluster's own runtime

Each round changes all weights a little, and is the whole checked step: gates shut, bytes moved and compared by their
fingerprint, caches dropped, log-probabilities of 32 tokens compared with the trainer's. `gb_per_s` is of that step, and
`stream_gb_per_s` of the sender's stream alone. A gap that rounding does not explain (`engine.protocol.Probe`) ends
the script with 1. The model has the shape of Qwen3-0.6B and random weights.

Needs torch and transformers; vllm>=0.28,<0.33 for the first four ways, ray[default]==2.60.0 for the last. The rest of
this checkout that is loaded needs, as wheels: pydantic, pydantic-core, annotated-types, typing-inspection,
typing-extensions, greenlet, RestrictedPython, pyflakes; `store` needs what `pip install metaagent` brings.

    python -m benchmarks.gpu.sync [--out FILE] [--rounds 8] [--ways ipc nccl gloo file store]
    python -m benchmarks.gpu.sync --tiny
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.common import (
    SHAPES,
    Report,
    free_port,
    gpus,
    make_model,
    median,
    missing,
    no_gpu,
    parser,
    prepare,
    spread,
)
from engine.protocol import Probe
from engine.vllm import ControlClient, Sender, Transfer, VLLMEngine, ZeroSource

WAYS = ("ipc", "nccl", "gloo", "file", "store")
PROBED = list(range(32))
LIMIT_S = 120.0
"""For joining, and for one step of an engine."""


@dataclass
class Syncs:
    """All rounds of one way."""

    bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of the whole step."""
    streaming: list[float] = field(default_factory=list)
    """Of the sender's stream; empty where there is none."""
    gaps: list[float] = field(default_factory=list)
    """Of the probes, in nats."""


def lacking(way: str, tiny: bool) -> str:
    """Why a way cannot be measured here; empty if it can."""
    if why := missing("ray" if way == "store" else "vllm"):
        return why
    if way == "ipc" and (tiny or not gpus()):
        return "it needs a GPU, and a shape that is not --tiny"
    if way == "nccl" and (tiny or gpus() < 2):
        return f"it needs two GPUs, and a shape that is not --tiny; there are {gpus()}"
    return ""


# Into vLLM


@dataclass
class Trainer:
    """A transformers model whose weights change, as a trainer's do."""

    model: Any
    _dice: random.Random = field(default_factory=lambda: random.Random(0))

    def learn(self) -> Probe:
        """Other weights, and what the model then says."""
        import torch

        from engine.weights import probe

        with torch.no_grad():
            for tensor in self.model.parameters():
                tensor.mul_(1 + 0.02 * self._dice.uniform(-1, 1))
        return probe(self.model, PROBED)

    def tensors(self) -> dict[str, Any]:
        """Each weight once: the head is the embeddings'."""
        return {name: tensor for name, tensor in self.model.state_dict().items() if name != "lm_head.weight"}

    def stream(self) -> Iterator[list[tuple[str, Any]]]:
        """A layer at a time."""
        layers: dict[str, list[tuple[str, Any]]] = {}
        for name, tensor in self.tensors().items():
            layers.setdefault(".".join(name.split(".")[:3]), []).append((name, tensor))
        yield from layers.values()


def engine_for(folder: Path, transfer: Transfer, tiny: bool) -> VLLMEngine:
    options: dict[str, Any] = {"max_model_len": 1024, "enforce_eager": True, "max_num_seqs": 8}
    if tiny:
        options |= {"dtype": "float32", "kv_cache_memory_bytes": 64 << 20, "max_num_batched_tokens": 8 * 1024}
    else:
        options |= {"dtype": "bfloat16", "gpu_memory_utilization": 0.5}
    return VLLMEngine(str(folder), transfer=transfer, options=options)


@contextlib.contextmanager
def on_another_gpu(way: str) -> Iterator[None]:
    """For processes that are started within: the second GPU alone, where the trainer is on the first."""
    if way != "nccl":
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = (before or ",".join(map(str, range(gpus())))).split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[1]
    try:
        yield
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def asked_by(engine: VLLMEngine) -> ControlClient:
    """What a sender's thread asks an engine of this event loop with."""
    loop = asyncio.get_running_loop()

    def ask(method: str, arguments: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(getattr(engine, method)(**arguments), loop)

    return ControlClient({"engine": ask}, LIMIT_S)


async def into_vllm(ways: Sequence[str], folder: Path, arguments: argparse.Namespace, report: Report) -> None:
    """A row for each of these ways, which share one engine."""
    import torch
    import transformers

    transfer: Transfer = next((way for way in ("ipc", "nccl") if way in ways), "gloo")  # pyright: ignore
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False).eval()
    trainer = Trainer(model.to("cpu" if arguments.tiny else "cuda"))
    engine = engine_for(folder, transfer, arguments.tiny)
    sender = None
    try:
        with on_another_gpu(transfer):
            await engine.alive(LIMIT_S)  # it has started
        report.details.setdefault("devices", {})[transfer] = await engine.device_uuids()
        if set(ways) - {"file"}:
            sender = Sender(transfer, ZeroSource(trainer.stream), client=asked_by(engine))
            await asyncio.to_thread(sender.metadata)
            port = free_port()
            await asyncio.gather(
                asyncio.to_thread(sender.join, "127.0.0.1", port, 2, LIMIT_S),
                engine.join_transfer("127.0.0.1", port, 1, 2, LIMIT_S),
            )
        version = 0
        for way in ways:
            found = Syncs()
            for turn in range(-1, arguments.rounds):  # the first is a warm-up
                version += 1
                probe = trainer.learn()
                if not arguments.tiny:
                    torch.cuda.synchronize()
                began = time.perf_counter()
                if way == "file":
                    await engine.update_weights(version, trainer.tensors(), probe)
                    streaming = None
                    found.bytes = sum(tensor.nbytes for tensor in trainer.tensors().values())
                else:
                    assert sender is not None
                    sent = await asyncio.to_thread(sender.send, version)
                    assert sent is not None
                    await engine.verify(version, sent.fingerprint, probe)
                    streaming, found.bytes = sent.seconds, sent.bytes
                if turn >= 0:
                    found.seconds.append(time.perf_counter() - began)
                    found.streaming += [] if streaming is None else [streaming]
                    found.gaps.append(engine.probe_gap)
            tell(way, found, report)
    finally:
        if sender is not None:
            sender.leave()
        await engine.close()


# By Ray's object store


async def by_the_store(folder: Path, arguments: argparse.Namespace, report: Report) -> None:
    """A row of a cluster's own transactions."""
    from trainer.cluster import ClusterRuntime
    from trainer.config import TrainConfig

    policy = {
        "model": str(folder),
        "dtype": "float32",
        "device": "cpu",
        "gradient_checkpointing": False,
        "engine": {"kind": "transformers", "dtype": "float32"},
    }
    config = TrainConfig.model_validate(
        {
            "policies": {"p0": policy},
            "data": [{"format": "problems", "path": str(folder / "none.jsonl")}],  # nothing is rolled out
            "rollout": {"max_prompt_tokens": 512, "max_tokens": 512},
            "cluster": {
                "layout": "disaggregated",
                "address": arguments.address,
                "gpus_per_node": 0,
                "run_workers_per_node": 1,
                "transport": "store",
            },
        }
    )
    runtime = ClusterRuntime(config)
    runtime.check()
    found = Syncs()
    async with runtime.opened(lambda _: None, folder):
        for version in range(arguments.rounds + 1):  # the first is a warm-up
            told = (await runtime.sync({"p0": version + 1}))["p0"]
            found.bytes = told.bytes
            if version:
                found.seconds.append(told.seconds)
                found.gaps.append(told.gap)
    tell("store", found, report)


def tell(way: str, found: Syncs, report: Report) -> None:
    streamed = round(found.bytes / median(found.streaming) / 1e9, 3) if found.streaming else None
    report.row(
        way=way,
        mb=round(found.bytes / 1e6, 3),
        seconds=spread(found.seconds),
        gb_per_s=float(f"{found.bytes / median(found.seconds) / 1e9:.3g}"),
        stream_gb_per_s=streamed,
        gap=spread(found.gaps),
    )


async def all_of(arguments: argparse.Namespace, report: Report) -> None:
    tiny = arguments.tiny
    shape = SHAPES["tiny" if tiny else "0.6b"]
    can = []
    for way in arguments.ways:
        if why := lacking(way, tiny):
            report.leave_out(way, why)
        else:
            can.append(way)
    host = [way for way in can if way in ("gloo", "file")]
    groups = [*([way] for way in can if way in ("ipc", "nccl")), *([host] if host else [])]
    with tempfile.TemporaryDirectory(prefix="metaagent-sync-") as place:
        folder, took = Path(place) / "model", 0.0
        make_model(folder, shape, "float32" if tiny else "bfloat16")
        for ways in groups:
            if report.has_time(arguments.limit_s, ", ".join(ways), took):
                began = time.monotonic()
                with report.keeping(", ".join(ways)):
                    await into_vllm(ways, folder, arguments, report)
                took = time.monotonic() - began
        if "store" in can and report.has_time(arguments.limit_s, "store", took):
            with report.keeping("store"):
                await by_the_store(folder, arguments, report)


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options.add_argument("--address", default="local", help="of Ray, for store: local starts one (cluster.address)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = arguments_of(argv)
    prepare()
    settings = {"shape": "tiny" if arguments.tiny else "0.6b", "rounds": arguments.rounds, "ways": arguments.ways}
    report = Report("sync", settings, ("way", "mb", "seconds", "gb_per_s", "stream_gb_per_s", "gap"))
    if why := missing("torch", "transformers") or no_gpu(arguments.tiny):
        report.leave_out("everything", why)
        return report.end(arguments.out)
    with report.keeping("syncs"):
        asyncio.run(all_of(arguments, report))
    return report.end(arguments.out)


if __name__ == "__main__":
    raise SystemExit(main())
