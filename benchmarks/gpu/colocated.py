"""Ranks and an engine that take turns on one GPU: seconds of every part of a turn, and memory over twenty rounds.

A round is what a colocated run does between two rollouts: the engine sleeps (level 2: weights and cache are dropped),
the rank comes back from the host's memory and learns, its optimizer leaves again, the engine wakes for weights alone
and takes the new ones over CUDA IPC, the rank's weights leave, too, the engine wakes for its cache and proves the
weights by a probe; then it completes requests with them. After each round the GPU's memory is looked at, and the host's
of all processes. Growth ends the script with 1, as do a probe that does not agree, and a completion of other weights.

Needs torch, transformers and deepspeed==0.19.8 with hjson; vllm>=0.28,<0.33 for the engine's half. Without vLLM only
the rank's half is measured: coming back, learning, leaving. The rest of this checkout that is loaded needs, as wheels:
pydantic, pydantic-core, annotated-types, typing-inspection, typing-extensions, greenlet, RestrictedPython, pyflakes. On
a CPU (`--tiny`) nothing sleeps, and weights go over gloo.

    python -m benchmarks.gpu.colocated [--out FILE] [--shape 0.6b] [--rounds 20]
    python -m benchmarks.gpu.colocated --tiny
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.common import (
    SHAPES,
    Alone,
    Report,
    free_port,
    make_model,
    median,
    missing,
    no_gpu,
    parser,
    prepare,
    spread,
)
from benchmarks.gpu.learners import Load
from engine.vllm import ControlClient, Sender, VLLMEngine, ZeroSource
from workflow.completion import CompletionRequest, Sampling

MIB = 1 << 20
GPU_GROWTH, HOST_GROWTH = 64 * MIB, 256 * MIB
"""What counts as growth from the first rounds to the last, of the whole GPU and of all processes."""
REQUESTS, WRITTEN = 8, 64
"""Completions after each round, and the tokens of each at most."""
LIMIT_S = 120.0
"""For joining, and for one step of an engine."""


@dataclass
class Turns:
    """What all rounds took."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    """By part."""
    memory: dict[str, list[int]] = field(default_factory=dict)
    """By what was looked at, in bytes; one for each round."""
    gaps: list[float] = field(default_factory=list)
    """Of the probe: the largest difference of a log-probability."""
    bytes: int = 0
    """Of weights, in one round."""

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds.setdefault(part, []).append(time.perf_counter() - began)

    def saw(self, what: str, count: int) -> None:
        self.memory.setdefault(what, []).append(count)


def grown(series: Sequence[int]) -> int:
    """From the first third to the last, by their medians; the first quarter of all rounds is left out, in which caches
    fill. 0 where there are too few rounds to tell."""
    settled = series[len(series) // 4 :]
    third = len(settled) // 3
    return int(median(settled[-third:]) - median(settled[:third])) if third else 0


def gpu_bytes() -> int:
    """In use on the GPU, whoever has it."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return total - free


def host_bytes(pids: Sequence[int]) -> int:
    """Resident memory of these processes and this one."""
    found = 0
    for pid in {os.getpid(), *pids}:
        with contextlib.suppress(OSError):
            resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            found += int(resident[1]) * 1024 if resident else 0
    return found


@dataclass
class Pair:
    """A rank and an engine, and what each round does with them. `engine` is None without vLLM."""

    backend: Any
    rank: Any
    engine: VLLMEngine | None
    samples: Sequence[Any]
    on_gpu: bool
    turns: Turns = field(default_factory=Turns)
    _sender: Sender | None = None

    async def round(self, version: int) -> None:
        from trainer.update import PolicyObjective

        turns, engine, backend = self.turns, self.engine, self.backend
        if engine is not None and self.on_gpu:
            with turns.timed("engine sleeps, level 2"):
                await engine.sleep(2)
        with turns.timed("rank comes back"):
            await asyncio.to_thread(backend.reload)
        with turns.timed("update"):
            await asyncio.to_thread(backend.update, self.samples, PolicyObjective())
        if self.on_gpu:
            turns.saw("GPU, after the update", gpu_bytes())
        probe, sent = await asyncio.to_thread(backend.probe, list(range(32))), None
        with turns.timed("rank's optimizer leaves"):
            await asyncio.to_thread(backend.offload, True)
        if engine is not None:
            if self.on_gpu:
                with turns.timed("engine wakes for weights"):
                    await engine.wake(["weights"])
            sender = await self._joined(engine)
            with turns.timed("weights"):
                sent = await asyncio.to_thread(sender.send, version)
            assert sent is not None
            turns.bytes = sent.bytes
        with turns.timed("rank's weights leave"):
            await asyncio.to_thread(backend.offload)
        if engine is not None and sent is not None:
            if self.on_gpu:
                with turns.timed("engine wakes for its cache"):
                    await engine.wake(["kv_cache"])
            with turns.timed("probe"):
                await engine.verify(version, sent.fingerprint, probe)
            turns.gaps.append(engine.probe_gap)
            with turns.timed("completions"):
                await self._complete(engine, version)
        if self.on_gpu:
            turns.saw("GPU, after the round", gpu_bytes())
        turns.saw("host, all processes", host_bytes(engine.pids() if engine is not None else []))

    async def _joined(self, engine: VLLMEngine) -> Sender:
        """Once, in the first round: the engine must have memory for weights."""
        if self._sender is None:
            loop = asyncio.get_running_loop()

            def ask(method: str, arguments: dict[str, Any]) -> Any:
                return asyncio.run_coroutine_threadsafe(getattr(engine, method)(**arguments), loop)

            client = ControlClient({"engine": ask}, LIMIT_S)
            sender = Sender(engine.transfer or "gloo", ZeroSource(self.rank.stream), client=client)
            await asyncio.to_thread(sender.metadata)
            port = free_port()
            await asyncio.gather(
                asyncio.to_thread(sender.join, "127.0.0.1", port, 2, LIMIT_S),
                engine.join_transfer("127.0.0.1", port, 1, 2, LIMIT_S),
            )
            self._sender = sender
        return self._sender

    async def _complete(self, engine: VLLMEngine, version: int) -> None:
        asked = [
            CompletionRequest(
                token_ids=[1 + (number + place) % 200 for place in range(64)],
                sampling=Sampling(max_tokens=WRITTEN, seed=number, logprobs=True),
            )
            for number in range(REQUESTS)
        ]
        for completion in await asyncio.gather(*map(engine.complete, asked)):
            if completion.weights_version != version:
                raise RuntimeError(f"a completion came from weights {completion.weights_version}, not {version}")


async def started(folder: Path, tiny: bool, report: Report) -> VLLMEngine | None:
    """The engine; None without vLLM."""
    if why := missing("vllm"):
        report.leave_out("the engine's half: sleeping, waking, weights, the probe", why)
        return None
    options: dict[str, Any] = {"max_model_len": 1024, "enforce_eager": True, "max_num_seqs": REQUESTS}
    if tiny:
        report.leave_out("sleeping, waking and CUDA IPC", "they need a GPU; here nothing sleeps, weights go over gloo")
        options |= {"dtype": "float32", "kv_cache_memory_bytes": 64 * MIB, "max_num_batched_tokens": REQUESTS * 1024}
        engine = VLLMEngine(str(folder), transfer="gloo", options=options)
    else:
        options |= {"dtype": "bfloat16", "gpu_memory_utilization": 0.8, "enable_sleep_mode": True}
        engine = VLLMEngine(str(folder), transfer="ipc", options=options)
    report.settings["vllm_options"] = options
    try:
        await engine.complete(CompletionRequest(token_ids=[1, 2], sampling=Sampling(max_tokens=1)))
    except BaseException:
        await engine.close()
        raise
    return engine


async def rounds(folder: Path, arguments: argparse.Namespace, report: Report) -> None:
    """The rank is made first and leaves the GPU: vLLM measures what is free when it starts."""
    from trainer.update import DeepSpeedBackend

    tiny, device = arguments.tiny, "cpu" if arguments.tiny else "cuda"
    settings = {
        "model": str(folder),
        "learning_rate": 1e-6,
        "dtype": "float32" if tiny else "bfloat16",
        "max_tokens_per_micro_batch": 8192,
    }
    group = await asyncio.to_thread(Alone, settings, device)
    backend, engine = DeepSpeedBackend(group), None
    turns = Turns()
    try:
        await asyncio.to_thread(backend.offload)
        engine = await started(folder, tiny, report)
        load = Load(2, 4, 16, (8, 32)) if tiny else Load()
        samples = load.samples(SHAPES["tiny" if tiny else arguments.shape].vocabulary)
        pair = Pair(backend, group.rank, engine, samples, not tiny, turns)
        took = 0.0
        for number in range(1, arguments.rounds + 1):
            if not report.has_time(arguments.limit_s, f"rounds {number} to {arguments.rounds}", took):
                break
            began = time.monotonic()
            await pair.round(number)
            took = time.monotonic() - began
    finally:
        tell(turns, report)
        await asyncio.to_thread(backend.close)
        if engine is not None:
            await engine.close()


def tell(turns: Turns, report: Report) -> None:
    """Rows of what took how long, without the first round, and whether memory grew."""
    for part, seconds in turns.seconds.items():
        later = seconds[1:] or seconds
        speed = round(turns.bytes / median(later) / 1e9, 3) if part == "weights" else None
        report.row(what=part, rounds=len(seconds), seconds=spread(later), gb_per_s=speed)
    if turns.gaps:
        report.row(what="probe's gap, nats", rounds=len(turns.gaps), gap=spread(turns.gaps))
    for what, series in turns.memory.items():
        more, most = grown(series), GPU_GROWTH if what.startswith("GPU") else HOST_GROWTH
        mib = [round(each / MIB) for each in (median(series), min(series), max(series))]
        report.row(what=what, rounds=len(series), mib=mib, grown_mib=round(more / MIB))
        if more > most:
            report.fail(
                f"{what}: {more / MIB:.0f} MiB more in the last rounds than in the first; {most / MIB:.0f} may be"
            )
    report.details["memory"] = turns.memory
    report.details["seconds"] = turns.seconds


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--shape", choices=[name for name in SHAPES if name != "tiny"], default="0.6b")
    options.add_argument("--rounds", type=int, default=20)
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = arguments_of(argv)
    prepare()
    settings = {"shape": "tiny" if arguments.tiny else arguments.shape, "rounds": arguments.rounds}
    columns = ("what", "rounds", "seconds", "gb_per_s", "gap", "mib", "grown_mib")
    report = Report("colocated", settings, columns)
    if why := missing("torch", "transformers", "deepspeed") or no_gpu(arguments.tiny):
        report.leave_out("everything", why)
        return report.end(arguments.out)
    with tempfile.TemporaryDirectory(prefix="metaagent-colocated-") as place:
        make_model(Path(place), SHAPES[settings["shape"]], "float32" if arguments.tiny else "bfloat16")
        with report.keeping("taking turns"):
            asyncio.run(rounds(Path(place), arguments, report))
    return report.end(arguments.out)


if __name__ == "__main__":
    raise SystemExit(main())
