"""Seconds to the first token, and tokens per second, of the local engines, next to what they are built on.

One model, the same prompts, lengths and sampling for all, one process, rounds in turn and back. `generate` of
transformers is measured one by one and as one big batch; raw vLLM is the very `AsyncLLM` that our engine holds. The
first token is timed by requests for one token: how long until all have it. Requests that have one prompt, as those for
the designs of a question do, are timed so, too. Quality is not looked at. Needs vLLM's environment (`make test-vllm`
makes one).

    .venv-vllm/bin/python -m benchmarks.engine [--write] [--rounds 3]
    .venv-vllm/bin/python -m benchmarks.engine --model FOLDER --prompts 500 4000 --at-once 1 8 32 64
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.asking import Prompts, Way, raw, through
from engine.local import TransformersEngine
from engine.vllm import VLLMEngine

ONE_BY_ONE = 4096
"""Tokens that one-by-one generation reads, at least one request: its speed does not depend on how many wait."""
TWINS = 8
"""Requests with one prompt."""
SINGLE, BATCH, LOCAL = "generate, one by one", "generate, one batch", "our transformers engine"
RAW, OURS = "raw vLLM", "our vLLM engine"
PAIRS = ((LOCAL, SINGLE), (LOCAL, BATCH), (OURS, RAW))
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the requests of one measurement."""

    prompt: int
    """Tokens that each reads."""
    at_once: int
    new: int
    """Tokens that each writes, at most."""
    twins: bool = False
    """Whether all have the same prompt."""

    @property
    def read(self) -> int:
        """Tokens, all requests together."""
        return self.prompt * self.at_once

    def prompts(self, dice: random.Random, vocabulary: int, requests: int) -> Prompts:
        """Fresh ones: no way profits from another's prefixes."""
        drawn = [[dice.randrange(vocabulary) for _ in range(self.prompt)] for _ in range(1 if self.twins else requests)]
        return drawn * requests if self.twins else drawn


@dataclass(slots=True)
class Seen:
    """What one way took for one shape, a number per round."""

    first_s: list[float] = field(default_factory=list)
    """Per request where they come one by one; else until all have their first token."""
    tokens_per_s: list[float] = field(default_factory=list)


def quiet_ends(folder: Path) -> None:
    """Give the end token's row of the output head no weight, so that completions reach their full length (nearly)."""
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    with torch.no_grad():
        model.lm_head.weight[model.config.eos_token_id] = 0
    model.save_pretrained(folder)


def cache_bytes(config: Any, tokens: int) -> int:
    """Of so many tokens' keys and values in float32."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    each = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * 4 * config.num_hidden_layers * heads * each * tokens


def ways(folder: Path, shapes: Iterable[Shape]) -> tuple[dict[str, Way], int, Callable[[], Awaitable[None]]]:
    """Each way to complete prompts, the size of the vocabulary, and what closes the engines."""
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=False, dtype="auto" if torch.cuda.is_available() else torch.float32
    ).eval()
    ends = torch.tensor([model.config.eos_token_id]).flatten()
    at_once = max(shape.at_once for shape in shapes)
    context = max(shape.prompt + shape.new for shape in shapes)
    together = max((shape.prompt + shape.new) * shape.at_once for shape in shapes)
    cpu = not torch.cuda.is_available()
    ours = TransformersEngine(str(folder), dtype="float32" if cpu else "auto", max_batch=at_once)
    on_cpu: dict[str, Any] = {
        "kv_cache_memory_bytes": max(2 * cache_bytes(model.config, together), 1 << 30),
        "enforce_eager": True,
    }
    vllm = VLLMEngine(
        str(folder),
        max_concurrency=at_once,
        options={
            "dtype": "float32" if cpu else "auto",
            "max_model_len": context,
            "max_num_seqs": at_once,
            "max_num_batched_tokens": max(min(together, 16_384), context),
            **(on_cpu if cpu else {"gpu_memory_utilization": 0.6}),
        },
    )
    model = model.to("cpu" if cpu else "cuda")

    @torch.inference_mode()
    def generate(prompts: Prompts, most: int) -> int:
        ids = torch.tensor(prompts, device=model.device)
        said = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=most,
            return_dict_in_generate=True,
            output_logits=True,  # ours record log-probabilities, which these are needed for
        ).sequences[:, ids.shape[1] :]
        ended = torch.isin(said.cpu(), ends).int().cumsum(-1)
        return int((ended - torch.isin(said.cpu(), ends).int() == 0).sum())

    async def one_by_one(prompts: Prompts, most: int) -> int:
        return sum([await asyncio.to_thread(generate, [prompt], most) for prompt in prompts])

    async def one_batch(prompts: Prompts, most: int) -> int:
        return await asyncio.to_thread(generate, prompts, most)

    async def close() -> None:
        await ours.close()
        await vllm.close()

    everything: dict[str, Way] = {
        SINGLE: one_by_one,
        BATCH: one_batch,
        LOCAL: through(ours),
        RAW: raw(vllm),
        OURS: through(vllm),
    }
    return everything, model.config.vocab_size, close


async def measure(folder: Path, shapes: list[Shape], rounds: int) -> dict[Shape, dict[str, Seen]]:
    every, vocabulary, close = ways(folder, shapes)
    found = {shape: {name: Seen() for name in every} for shape in shapes}
    dice = random.Random(0)

    async def once(way: Way, shape: Shape, requests: int, new: int) -> tuple[float, int]:
        prompts = shape.prompts(dice, vocabulary - 10, requests)
        started = time.perf_counter()
        tokens = await way(prompts, new)
        return time.perf_counter() - started, tokens

    for way in every.values():  # a warm-up
        await once(way, shapes[0], 1, 8)
    for turn in range(rounds):
        for shape in shapes:
            for name, way in every.items() if turn % 2 else reversed(every.items()):
                single = name == SINGLE
                asked = (
                    min(shape.at_once, max(ONE_BY_ONE // (shape.prompt + shape.new), 1)) if single else shape.at_once
                )
                seen = found[shape][name]
                took, _ = await once(way, shape, asked, 1)
                seen.first_s.append(took / asked if single else took)
                if not shape.twins:
                    took, tokens = await once(way, shape, asked, shape.new)
                    seen.tokens_per_s.append(tokens / took)
                print(f"round {turn + 1}, {shape}: {name}, {took:.1f} s", flush=True)
    await close()
    return found


def ratio(ones: list[float], others: list[float]) -> float:
    """The median over rounds."""
    return round(statistics.median(a / b for a, b in zip(ones, others, strict=True)), 3)


def report(found: dict[Shape, dict[str, Seen]]) -> list[dict[str, Any]]:
    """A row for each shape: medians, and the medians over rounds of our engines' speed as a share of the others'."""
    rows = []
    for shape, seen in found.items():
        row: dict[str, Any] = {"prompt": shape.prompt, "at_once": shape.at_once, "one_prompt": shape.twins}
        row["first_token_s"] = {name: round(statistics.median(each.first_s), 4) for name, each in seen.items()}
        first = {f"{a} / {b}": ratio(seen[b].first_s, seen[a].first_s) for a, b in PAIRS if b != SINGLE}
        row["first_token_speed"] = first
        if not shape.twins:
            row["tokens_per_s"] = {name: round(statistics.median(each.tokens_per_s), 1) for name, each in seen.items()}
            row["tokens_speed"] = {f"{a} / {b}": ratio(seen[a].tokens_per_s, seen[b].tokens_per_s) for a, b in PAIRS}
        rows.append(row)
    return rows


def shapes_of(prompts: list[int], at_once: list[int], new: int, most: int) -> tuple[list[Shape], list[Shape]]:
    """Those that read at most so many tokens at once, those with one prompt for all included, and those left out."""
    every = [Shape(prompt, count, new) for prompt in prompts for count in at_once]
    every += [Shape(prompt, TWINS, new, twins=True) for prompt in prompts]
    return [shape for shape in every if shape.read <= most], [shape for shape in every if shape.read > most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a checkpoint of yours, in place of random weights")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--prompts", type=int, nargs="+", default=[64], help="tokens read by each request")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8, 64], help="requests")
    parser.add_argument("--new", type=int, default=128, help="tokens written by each request, at most")
    parser.add_argument("--most", type=int, default=40_000, help="tokens read at once; what reads more is left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"into {RESULTS.name}/engine.json, or engine_NAME.json")
    given = parser.parse_args()
    os.environ.update({"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"})
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import torch

    shapes, left_out = shapes_of(given.prompts, given.at_once, given.new, given.most)
    if not shapes:
        parser.error(f"--most {given.most}: every shape reads more. Fix: raise it")
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    with tempfile.TemporaryDirectory(prefix="metaagent-engines-") as place:
        folder = given.model or Path(place)
        if given.model is None:
            from benchmarks.tiny_models import make_model

            make_model(folder, layers=given.layers, width=given.width, context=max(s.prompt + s.new for s in shapes))
            quiet_ends(folder)
        rows = report(asyncio.run(measure(folder, shapes, given.rounds)))
    said: dict[str, Any] = {
        "machine": machine,
        "python": platform.python_version(),
        "model": given.model.name if given.model else f"random, {given.layers} layers of width {given.width}, float32",
        "new": given.new,
        "rounds": given.rounds,
        "left_out": [{"prompt": shape.prompt, "at_once": shape.at_once} for shape in left_out],
        "results": rows,
    }
    print(json.dumps(said, indent=1))
    if given.write:
        name = f"engine_{given.model.name}.json" if given.model else "engine.json"
        (RESULTS / name).write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
