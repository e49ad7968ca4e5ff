"""Seconds and bytes of new weights for vLLM on this machine: by file and over gloo, while idle and under load.

A trainer's stream is played by a thread of this process. Times are of the whole checked step, from closing the gate to
the probe's verdict; under load that includes the end of the requests under way. Needs vLLM.

    .venv-cluster/bin/python -m benchmarks.weight_sync [--width 32] [--layers 2] [--rounds 5]
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.protocol import Probe
from engine.vllm import Sender, VLLMEngine, ZeroSource
from workflow.completion import Completion, CompletionRequest, Sampling

HOST = "127.0.0.1"
CONTEXT = 512
UNDER_WAY, NEW = 8, 200
"""Requests under load, and the tokens that each writes at most."""


@dataclass
class Syncs:
    """All rounds of one way."""

    way: str
    under_way: int
    bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of the whole step."""
    moving: list[float] = field(default_factory=list)
    """Of the sender's stream alone; empty where there is none."""
    lost: int = 0
    """Requests without a completion, or whose tokens name another version than the two around the step."""


async def measure(engine: VLLMEngine, model: Any, rounds: int) -> list[Syncs]:
    """Update an engine that was made with `transfer="gloo"` to ever new weights of `model`, a transformers model."""
    import torch

    from engine.weights import probed

    def stream() -> Iterator[list[tuple[str, Any]]]:
        for pair in model.state_dict().items():
            yield [pair]

    sender = Sender("gloo", ZeroSource(stream))
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    await asyncio.gather(asyncio.to_thread(sender.join, HOST, port, 2, 60), engine.join_transfer(HOST, port, 1, 2, 60))
    found = [Syncs(way, under_way) for under_way in (0, UNDER_WAY) for way in ("file", "gloo")]
    dice = random.Random(0)
    token_ids = [dice.randrange(3, 250) for _ in range(64)]
    for turn in range(-1, rounds):  # the first is a warm-up
        for syncs in found:
            with torch.no_grad():
                for tensor in model.parameters():
                    tensor.mul_(1 + 1e-3 * dice.uniform(-1, 1))
            probe = Probe(token_ids, probed(model, token_ids))
            before = engine.weights_version
            asked = [asyncio.create_task(engine.complete(_request(number))) for number in range(syncs.under_way)]
            await asyncio.sleep(0.05)
            began = time.perf_counter()
            moving = await _updated(engine, sender, model, before + 1, probe, syncs.way)
            took = time.perf_counter() - began
            replies = await asyncio.gather(*asked, return_exceptions=True)
            if turn >= 0:
                syncs.bytes = sum(tensor.nbytes for tensor in model.state_dict().values())
                syncs.seconds.append(took)
                syncs.moving += moving
                syncs.lost += sum(not isinstance(r, Completion) or r.weights_version != before for r in replies)
    sender.leave()
    return found


async def _updated(engine: VLLMEngine, sender: Sender, model: Any, version: int, probe: Probe, way: str) -> list[float]:
    if way == "file":
        await engine.update_weights(version, model.state_dict(), probe)
        return []
    sent, _ = await asyncio.gather(
        asyncio.to_thread(sender.send, version), engine.receive_weights(version, sender.metadata())
    )
    assert sent is not None
    await engine.verify(version, sent.fingerprint, probe)
    return [sent.seconds]


def _request(number: int) -> CompletionRequest:
    prompt = [3 + (number + place) % 200 for place in range(64)]
    return CompletionRequest(token_ids=prompt, sampling=Sampling(max_tokens=NEW, seed=number, logprobs=True))


async def _run(folder: Path, rounds: int) -> list[Syncs]:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False).eval()
    engine = VLLMEngine(
        str(folder),
        transfer="gloo",
        options={
            "dtype": "float32",
            "max_model_len": CONTEXT,
            "kv_cache_memory_bytes": 256 << 20,
            "enforce_eager": True,
            "max_num_batched_tokens": 16 * CONTEXT,
        },
    )
    try:
        return await measure(engine, model, rounds)
    finally:
        await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.update({"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"})
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from benchmarks.tiny_models import make_model

    with tempfile.TemporaryDirectory(prefix="metaagent-sync-") as place:
        make_model(Path(place), layers=arguments.layers, width=arguments.width, context=CONTEXT)
        found = asyncio.run(_run(Path(place), arguments.rounds))
    print(
        f"{'way':6}{'under way':>10}{'MB':>8}{'step, s':>9}{'stream, s':>11}{'lost':>6}   median of {arguments.rounds}"
    )
    for syncs in found:
        moving = f"{statistics.median(syncs.moving):.3f}" if syncs.moving else "-"
        size, step = syncs.bytes / 1e6, statistics.median(syncs.seconds)
        print(f"{syncs.way:6}{syncs.under_way:>10}{size:>8.1f}{step:>9.3f}{moving:>11}{syncs.lost:>6}")


if __name__ == "__main__":
    main()
