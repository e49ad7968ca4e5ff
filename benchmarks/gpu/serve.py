"""Tokens per second of our engines at 1, 8, 64 and 256 requests at once, beside the very vLLM that ours holds.

A Qwen3-0.6B shape with random weights; each request reads 256 tokens and writes up to 256 at temperature 1, with the
log-probability of each, as rollouts ask for them. All get fresh prompts, so that nobody profits from another's
prefixes. Rounds are taken in turn and back; the first is a warm-up. What the text is worth is not looked at.

Needs torch, transformers and vllm>=0.28,<0.33 (whose wheels bring their own torch). Without vLLM only the transformers
engine is measured. The rest of this checkout that is loaded needs, as wheels: pydantic, pydantic-core, annotated-types,
typing-inspection, typing-extensions, greenlet, RestrictedPython, pyflakes.

    python -m benchmarks.gpu.serve [--out FILE] [--rounds 4] [--at-once 1 8 64 256]
    python -m benchmarks.gpu.serve --tiny
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.asking import Way, raw, through
from benchmarks.gpu.common import SHAPES, Report, make_model, missing, no_gpu, parser, prepare, spread
from engine.local import TransformersEngine
from engine.vllm import VLLMEngine

OURS, RAW, LOCAL = "VLLMEngine", "raw vLLM", "TransformersEngine"


def vllm_options(tiny: bool, context: int, at_once: int) -> dict[str, Any]:
    options: dict[str, Any] = {"max_model_len": context, "max_num_seqs": at_once}
    if not tiny:
        return options | {"dtype": "bfloat16", "gpu_memory_utilization": 0.6}
    return options | {
        "dtype": "float32",
        "enforce_eager": True,
        "kv_cache_memory_bytes": 64 << 20,
        "max_num_batched_tokens": at_once * context,
    }


async def measure(
    ways: dict[str, Way],
    counts: Sequence[int],
    lengths: tuple[int, int],
    vocabulary: int,
    rounds: int,
    report: Report,
    limit_s: float,
) -> None:
    """A row for each way and number of requests."""
    dice = random.Random(0)
    read, write = lengths
    for count in counts:
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        took = 0.0
        for turn in range(-1, rounds):  # the first is a warm-up
            if not report.has_time(limit_s, f"round {turn + 1} of {rounds} at {count} at once", took):
                break
            began = time.monotonic()
            for name, way in ways.items() if turn % 2 else reversed(ways.items()):
                prompts = [[dice.randrange(vocabulary - 3) for _ in range(read)] for _ in range(count)]
                started = time.perf_counter()
                tokens = await way(prompts, write)
                if turn >= 0:
                    speeds[name].append(tokens / (time.perf_counter() - started))
            took = time.monotonic() - began
        for name, seen in speeds.items():
            if seen:
                beside = speeds.get(RAW, []) if name == OURS else []
                ratios = [ours / theirs for ours, theirs in zip(seen, beside, strict=False)]
                report.row(
                    way=name, at_once=count, tokens_per_s=spread(seen), of_raw_vllm=spread(ratios) if ratios else None
                )


async def serve(folder: Path, arguments: argparse.Namespace, report: Report) -> None:
    tiny = arguments.tiny
    shape = SHAPES["tiny" if tiny else "0.6b"]
    lengths = (16, 16) if tiny else (256, 256)
    ways: dict[str, Way] = {}
    engines: list[VLLMEngine | TransformersEngine] = []
    try:
        if why := missing("vllm"):
            report.leave_out(f"{OURS} and {RAW}", why)
        else:
            options = vllm_options(tiny, sum(lengths), max(arguments.at_once))
            engines.append(engine := VLLMEngine(str(folder), max_concurrency=max(arguments.at_once), options=options))
            ways |= {OURS: through(engine), RAW: raw(engine)}
            await ways[OURS]([[1] * lengths[0]], 1)  # it starts now, before others take memory
            report.settings["vllm_options"] = options
        local = {"dtype": "float32" if tiny else "bfloat16", "max_batch": max(arguments.at_once)}
        engines.append(TransformersEngine(str(folder), **local))
        ways[LOCAL] = through(engines[-1])
        await measure(ways, arguments.at_once, lengths, shape.vocabulary, arguments.rounds, report, arguments.limit_s)
    finally:
        for engine in engines:
            await engine.close()


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--at-once", type=int, nargs="+", default=[1, 8, 64, 256], metavar="REQUESTS")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = arguments_of(argv)
    prepare()
    settings = {"shape": "tiny" if arguments.tiny else "0.6b", "rounds": arguments.rounds, "at_once": arguments.at_once}
    report = Report("serve", settings, ("way", "at_once", "tokens_per_s", "of_raw_vllm"))
    if why := missing("torch", "transformers") or no_gpu(arguments.tiny):
        report.leave_out("everything", why)
        return report.end(arguments.out)
    with tempfile.TemporaryDirectory(prefix="metaagent-serve-") as place:
        make_model(Path(place), SHAPES[settings["shape"]], "float32" if arguments.tiny else "bfloat16")
        with report.keeping("serving"):
            asyncio.run(serve(Path(place), arguments, report))
    return report.end(arguments.out)


if __name__ == "__main__":
    raise SystemExit(main())
