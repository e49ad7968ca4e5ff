"""Tokens per second of the local engines at 1, 8 and 64 concurrent requests, next to what they are built on.

One random-weight model, the same prompts, lengths and sampling for all, one process, rounds in turn. `generate` of
transformers is measured one by one and as one big batch; raw vLLM is the very `AsyncLLM` that our engine holds. Quality
is not looked at. Needs vLLM's environment (`make test-vllm` makes one).

    .venv-vllm/bin/python -m benchmarks.engine [--write] [--model FOLDER] [--layers 4] [--width 128] [--rounds 3]
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from engine.local import TransformersEngine
from engine.vllm import VLLMEngine, sampling_params
from workflow.completion import CompletionRequest, Sampling

CONCURRENT = (1, 8, 64)
PROMPT, NEW = 64, 128
"""Tokens read and, at most, written by each request."""
ONE_BY_ONE = 8
"""Requests that one-by-one generation is timed on: its speed does not depend on how many wait."""
PAIRS = {
    "our transformers engine / one by one": ("our transformers engine", "generate, one by one"),
    "our transformers engine / one batch": ("our transformers engine", "generate, one batch"),
    "our vLLM engine / raw vLLM": ("our vLLM engine", "raw vLLM"),
}
Prompts = list[list[int]]
Way = Callable[[Prompts], Awaitable[int]]
RESULTS = Path(__file__).parent / "results" / "engine.json"


def quiet_ends(folder: Path) -> None:
    """Give the end token's row of the output head no weight, so that completions reach their full length (nearly)."""
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    with torch.no_grad():
        model.lm_head.weight[model.config.eos_token_id] = 0
    model.save_pretrained(folder)


def sampling(number: int) -> Sampling:
    return Sampling(temperature=1.0, top_k=50, seed=number, max_tokens=NEW, logprobs=True)


def ways(folder: Path, context: int) -> tuple[dict[str, Way], Callable[[], Awaitable[None]]]:
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False).eval()
    ends = torch.tensor([model.config.eos_token_id]).flatten()
    ours = TransformersEngine(str(folder))
    cpu = not torch.cuda.is_available()
    on_cpu: dict[str, Any] = {"kv_cache_memory_bytes": 1 << 30, "enforce_eager": True}
    vllm = VLLMEngine(
        str(folder),
        options={
            "dtype": "float32" if cpu else "auto",
            "max_model_len": context,
            "max_num_seqs": max(CONCURRENT),
            "max_num_batched_tokens": max(CONCURRENT) * (PROMPT + NEW),
            **(on_cpu if cpu else {"gpu_memory_utilization": 0.6}),
        },
    )
    model = model.to("cpu" if cpu else "cuda")

    @torch.inference_mode()
    def generate(prompts: Prompts) -> int:
        ids = torch.tensor(prompts, device=model.device)
        said = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=50,
            max_new_tokens=NEW,
            return_dict_in_generate=True,
            output_logits=True,  # ours record log-probabilities, which these are needed for
        ).sequences[:, PROMPT:]
        ended = torch.isin(said.cpu(), ends).int().cumsum(-1)
        return int((ended - torch.isin(said.cpu(), ends).int() == 0).sum())

    async def one_by_one(prompts: Prompts) -> int:
        return sum([await asyncio.to_thread(generate, [prompt]) for prompt in prompts])

    async def one_batch(prompts: Prompts) -> int:
        return await asyncio.to_thread(generate, prompts)

    def through(engine: TransformersEngine | VLLMEngine) -> Way:
        async def ask(prompts: Prompts) -> int:
            requests = [CompletionRequest(token_ids=ids, sampling=sampling(n)) for n, ids in enumerate(prompts)]
            completions = await asyncio.gather(*map(engine.complete, requests))
            return sum(len(completion.token_ids or ()) for completion in completions)

        return ask

    async def raw(prompts: Prompts) -> int:
        llm, _ = await vllm._start.llm_and_chat()

        async def one(number: int, prompt: list[int]) -> int:
            parameters, name = sampling_params(sampling(number), NEW), f"raw-{time.monotonic_ns()}-{number}"
            outputs = [output async for output in llm.generate({"prompt_token_ids": prompt}, parameters, name)]
            return len(outputs[-1].outputs[0].token_ids)

        return sum(await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(prompts))))

    async def close() -> None:
        await ours.close()
        await vllm.close()

    everything: dict[str, Way] = {
        "generate, one by one": one_by_one,
        "generate, one batch": one_batch,
        "our transformers engine": through(ours),
        "raw vLLM": raw,
        "our vLLM engine": through(vllm),
    }
    return everything, close


async def measure(folder: Path, context: int, rounds: int) -> dict[str, dict[int, list[float]]]:
    """Way -> concurrent requests -> tokens per second in each round."""
    import random

    every, close = ways(folder, context)
    speeds: dict[str, dict[int, list[float]]] = {name: {count: [] for count in CONCURRENT} for name in every}
    dice = random.Random(0)
    for turn in range(-1, rounds):  # the first is a warm-up
        for count in CONCURRENT:
            for name, way in every.items() if turn % 2 else reversed(every.items()):
                asked = min(count, ONE_BY_ONE) if name == "generate, one by one" else count
                # Fresh prompts each time: no way profits from another's prefixes.
                prompts = [[dice.randrange(250) for _ in range(PROMPT)] for _ in range(asked)]
                started = time.perf_counter()
                tokens = await way(prompts)
                if turn >= 0:
                    speeds[name][count].append(tokens / (time.perf_counter() - started))
    await close()
    return speeds


def report(speeds: dict[str, dict[int, list[float]]]) -> dict[str, dict[str, float]]:
    """Medians, and the median over rounds of each ratio."""
    found: dict[str, dict[str, float]] = {
        name: {str(count): round(statistics.median(seen)) for count, seen in by_count.items()}
        for name, by_count in speeds.items()
    }
    for name, (one, other) in PAIRS.items():
        found[name] = {
            str(count): round(
                statistics.median(a / b for a, b in zip(speeds[one][count], speeds[other][count], strict=True)), 3
            )
            for count in CONCURRENT
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a checkpoint of yours, in place of random weights")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    os.environ.update({"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"})
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import torch

    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    with tempfile.TemporaryDirectory(prefix="metaagent-engines-") as place:
        folder = arguments.model or Path(place)
        if arguments.model is None:
            from benchmarks.tiny_models import make_model

            make_model(folder, layers=arguments.layers, width=arguments.width, context=PROMPT + NEW)
            quiet_ends(folder)
        found = report(asyncio.run(measure(folder, PROMPT + NEW, arguments.rounds)))
    print(f"tokens per second, {PROMPT} read and up to {NEW} written by each request; {machine}")
    print(f"{'':40}" + "".join(f"{count:>10}" for count in CONCURRENT))
    for name, values in found.items():
        print(f"{name:40}" + "".join(f"{value:>10,.10g}" for value in values.values()))
    if arguments.write:
        model = str(arguments.model or f"random, {arguments.layers} layers of width {arguments.width}, float32")
        said = {"machine": machine, "python": platform.python_version(), "model": model, "results": found}
        RESULTS.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
