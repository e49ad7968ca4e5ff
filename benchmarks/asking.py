"""How benchmarks ask for completions: through our engines, and by the vLLM that is in one of them. Measures nothing."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from engine.local import TransformersEngine
from engine.vllm import VLLMEngine, sampling_params
from workflow.completion import CompletionRequest, Sampling

Prompts = list[list[int]]
Way = Callable[[Prompts, int], Awaitable[int]]
"""Completes all prompts at once, with so many tokens at most each; returns how many tokens came."""


def sampling(number: int, most: int) -> Sampling:
    return Sampling(temperature=1.0, seed=number, max_tokens=most, logprobs=True)


def through(engine: VLLMEngine | TransformersEngine) -> Way:
    async def ask(prompts: Prompts, most: int) -> int:
        requests = [CompletionRequest(token_ids=ids, sampling=sampling(n, most)) for n, ids in enumerate(prompts)]
        completions = await asyncio.gather(*map(engine.complete, requests))
        return sum(len(completion.token_ids or ()) for completion in completions)

    return ask


def raw(engine: VLLMEngine) -> Way:
    """vLLM's own engine, asked without ours around it."""

    async def ask(prompts: Prompts, most: int) -> int:
        llm, _ = await engine._start.llm_and_chat()

        async def one(number: int, prompt: list[int]) -> int:
            name = f"raw-{time.monotonic_ns()}-{number}"
            asked = llm.generate({"prompt_token_ids": prompt}, sampling_params(sampling(number, most), most), name)
            outputs = [output async for output in asked]
            return len(outputs[-1].outputs[0].token_ids)

        return sum(await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(prompts))))

    return ask
