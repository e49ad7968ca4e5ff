"""Completions from vLLM in this job: its asynchronous engine, with token ids in and out (the extra `vllm`).

vLLM batches, caches prefixes and owns the processes that hold the model; this module translates requests, and replaces
weights as one checked step. A separate `vllm serve` is reached through `engine.openai` instead.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import Any, Literal

from engine.chat import ChatFormat, ends_of
from engine.protocol import Probe
from workflow.completion import Completion, CompletionRequest, FinishReason, Sampling, Usage
from workflow.failures import EngineFailed, LimitExceeded

WORKER = "engine.vllm_worker.WeightLoader"
_SHARED_MEMORY = "/dev/shm"
_SOCKETS = "VLLM_RPC_BASE_PATH"
"""Environment variable: where vLLM puts its sockets, which it does not remove."""


class VLLMEngine:
    """A model from a local folder or the Hugging Face hub in vLLM's `AsyncLLM`; started at the first request.

    `options` are vLLM's own engine arguments (`AsyncEngineArgs`), such as `tensor_parallel_size` or
    `kv_cache_memory_bytes`. Log-probabilities are those of the distribution sampled from, after temperature, top-k and
    top-p (`processed_logprobs`). At most `max_concurrency` requests are inside vLLM at once. `start_timeout_s` bounds
    loading, `timeout_s` a call. Raises `EngineFailed` where vLLM is missing, does not start or dies.
    """

    def __init__(
        self,
        path_or_id: str,
        *,
        thinking: bool = False,
        max_concurrency: int = 256,
        timeout_s: float = 1800.0,
        start_timeout_s: float = 900.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = f"vllm:{path_or_id}"
        self.thinking = thinking
        self.timeout_s = timeout_s
        self.start_timeout_s = start_timeout_s
        if max_concurrency < 1 or timeout_s <= 0:
            raise ValueError(
                f"max_concurrency must be at least 1 and timeout_s above 0, got {max_concurrency} and {timeout_s:g}"
            )
        if importlib.util.find_spec("vllm") is None:
            raise EngineFailed(self.name, 'vllm is not installed. Fix: pip install "metaagent[vllm]"', 0)
        self.weights_version = 0
        self._path = path_or_id
        self._options = dict(options or {})
        self._slots = asyncio.Semaphore(max_concurrency)
        self._starting = asyncio.Lock()
        self._gate = _Gate()
        self._asleep: contextlib.AsyncExitStack | None = None
        self._numbers = itertools.count()
        self._llm: Any = None
        self._chat: ChatFormat | None = None
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        self._broken = ""
        self._closed = False

    async def complete(self, request: CompletionRequest) -> Completion:
        async with self._in_time("no completion", "raise it, or ask for fewer tokens at once"), self._slots:
            llm, chat = await self._started()
            async with self._gate.passing():
                self._check_serving()
                return await self._complete(llm, chat, request)

    @contextlib.asynccontextmanager
    async def _in_time(self, failure: str, fix: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.timeout_s):
                yield
        except TimeoutError as error:
            raise EngineFailed(self.name, f"{failure} within timeout_s={self.timeout_s:g}. Fix: {fix}") from error

    async def _complete(self, llm: Any, chat: ChatFormat, request: CompletionRequest) -> Completion:
        try:
            prompt = request.token_ids
            if prompt is None:
                prompt = chat.prompt(request.messages or [], request.tools, request.previous)
        except Exception as error:  # templates raise what they like
            reason = f"agent {request.agent!r}: cannot make a prompt: {type(error).__name__}: {error}"
            raise EngineFailed(self.name, reason) from error
        context = llm.model_config.max_model_len
        if len(prompt) >= context:
            raise LimitExceeded("context_tokens", context, len(prompt))
        version = self.weights_version
        room = min(request.sampling.max_tokens, context - len(prompt))
        output = await self._generate(llm, prompt, sampling_params(request.sampling, room))
        said = output.outputs[0]
        tokens = list(said.token_ids)
        reply = chat.read(prompt, tokens, request.sampling.stop)
        return Completion(
            text=reply.text,
            reasoning=reply.reasoning,
            finish_reason=_finish(said.finish_reason),
            token_ids=tokens,
            logprobs=_chosen(tokens, said.logprobs) if request.sampling.logprobs else None,
            prompt_token_ids=prompt,
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(tokens)),
            model=self._path,
            weights_version=version,
        )

    async def _generate(self, llm: Any, prompt: list[int], parameters: Any) -> Any:
        """vLLM's last output for a prompt. Cancelling it aborts the request there."""
        name = f"metaagent-{next(self._numbers)}"
        output = None
        try:
            async for latest in llm.generate({"prompt_token_ids": prompt}, parameters, name):
                output = latest
        except Exception as error:
            raise EngineFailed(self.name, f"{type(error).__name__}: {error}. Fix: see vLLM's log above") from error
        if output is None:
            raise EngineFailed(self.name, "vLLM ended a request without any output. Fix: see its log above")
        return output

    async def update_weights(self, version: int, tensors: Mapping[str, Any], probe: Probe | None = None) -> str:
        """Replace all weights as one checked step (see `engine.protocol.LiveEngine`): requests under way end first,
        new ones wait, every cache is dropped. `tensors` are named as in the checkpoint."""
        llm, _ = await self._started()
        if self._asleep is not None:
            raise EngineFailed(self.name, f"weights {version} did not go in: it sleeps. Fix: wake() it first", 0)
        weights = importlib.import_module("engine.weights")
        save_file = importlib.import_module("safetensors.torch").save_file
        given = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        await asyncio.to_thread(lambda: weights.check(weights.skeleton(llm.model_config.hf_config), given))
        meant = weights.fingerprint(given)
        folder = _SHARED_MEMORY if os.path.isdir(_SHARED_MEMORY) else None
        slow = "raise it, or see what still runs or sleeps"
        async with self._in_time(f"weights {version} did not go in", slow), self._gate.closed():
            with tempfile.TemporaryDirectory(prefix="metaagent-weights-", dir=folder) as place:
                path = str(Path(place) / "weights.safetensors")
                await asyncio.to_thread(save_file, weights.unshared(given), path)
                self._broken = f"weights {version} did not go in. Fix: update the weights again, or start anew"
                try:
                    await llm.pause_generation(mode="wait", clear_cache=True)
                    read = await llm.collective_rpc("load_weights_from", args=(path,))
                    await llm.reset_prefix_cache()
                    await llm.resume_generation()
                except Exception as error:
                    self._broken = f"weights {version} did not go in: {type(error).__name__}: {error}"
                    raise EngineFailed(self.name, self._broken) from error
            if set(read) != {meant}:
                self._broken = f"weights {version} were read as {set(read)}, not as {meant}"
                raise EngineFailed(self.name, self._broken)
            if probe is not None:
                self._broken = await self._off_by(llm, probe)
                if self._broken:
                    raise EngineFailed(self.name, f"weights {version}: {self._broken}")
            self._broken = ""
            self.weights_version = version
        return meant

    async def sleep(self, level: Literal[1, 2] = 1) -> None:
        """Give the GPU's memory to others until `wake`: requests under way end first, new ones wait.

        Level 1 keeps the weights in host memory. Level 2 drops them: after waking, nothing is served until
        `update_weights`. Needs `options={"enable_sleep_mode": True}`. Raises `EngineFailed` where vLLM cannot.
        """
        llm, _ = await self._started()
        if not self._options.get("enable_sleep_mode"):
            raise EngineFailed(self.name, 'it cannot sleep. Fix: make it with options={"enable_sleep_mode": True}', 0)
        if self._asleep is not None:
            return
        slow = "raise it, or see what still runs"
        async with self._in_time("it did not go to sleep", slow), contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate.closed())
            await self._told(llm.sleep(level), "did not go to sleep")
            if level == 2:
                self._broken = "its weights were dropped when it slept. Fix: update the weights"
            self._asleep = stack.pop_all()

    async def wake(self) -> None:
        """Take the memory back and serve again. Does nothing while awake."""
        llm, _ = await self._started()
        if self._asleep is None:
            return
        # Whether it wakes up or not, who waits for it goes on, and learns which.
        stack, self._asleep = self._asleep, None
        async with self._in_time("it did not wake up", "make a new engine"), stack:
            await self._told(llm.wake_up(), "did not wake up")

    async def _told(self, call: Awaitable[Any], failure: str) -> None:
        try:
            await call
        except Exception as error:
            self._broken = f"it {failure}: {type(error).__name__}: {error}. Fix: make a new engine"
            raise EngineFailed(self.name, self._broken) from error

    async def _off_by(self, llm: Any, probe: Probe) -> str:
        """What is wrong with the log-probabilities that the engine now gives to a probe; empty if nothing is."""
        parameters = importlib.import_module("vllm").SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
        output = await self._generate(llm, probe.token_ids, parameters)
        seen = _chosen(probe.token_ids[1:], output.prompt_logprobs[1:])
        return probe.difference(seen)

    async def close(self) -> None:
        """End vLLM and its processes. What runs fails."""
        self._closed = True
        async with self._starting:
            llm, self._llm = self._llm, None
        if self._asleep is not None:
            await self._asleep.aclose()  # whoever waits for it to wake learns that it is closed
        if llm is not None:
            await asyncio.to_thread(llm.shutdown)
        if self._sockets is not None:
            self._sockets.cleanup()

    def _check_serving(self) -> None:
        if self._closed:
            raise EngineFailed(self.name, "the engine is closed. Fix: make a new one", 0)
        if self._broken:
            raise EngineFailed(self.name, self._broken)

    async def _started(self) -> tuple[Any, ChatFormat]:
        async with self._starting:
            if self._closed:
                raise EngineFailed(self.name, "the engine is closed. Fix: make a new one", 0)
            if self._llm is None or self._chat is None:
                self._sockets = self._sockets or tempfile.TemporaryDirectory(prefix="metaagent-vllm-")
                try:
                    async with asyncio.timeout(self.start_timeout_s):
                        self._llm = await asyncio.to_thread(self._start)
                except TimeoutError:
                    reason = f"vLLM did not start within start_timeout_s={self.start_timeout_s:g}. Fix: raise it"
                    raise EngineFailed(self.name, reason) from None
                tokenizer = self._llm.get_tokenizer()
                generation = self._llm.model_config.try_get_generation_config() or {}
                ends = ends_of(tokenizer, generation.get("eos_token_id"))
                self._chat = ChatFormat(tokenizer, ends, thinking=self.thinking)
            return self._llm, self._chat

    def _start(self) -> Any:
        assert self._sockets is not None
        before = os.environ.get(_SOCKETS)
        os.environ[_SOCKETS] = self._sockets.name
        try:
            arguments = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs(
                model=self._path,
                **{
                    "logprobs_mode": "processed_logprobs",
                    "worker_extension_cls": WORKER,
                    "disable_log_stats": True,
                    "enable_prefix_caching": True,
                    **self._options,
                },
            )
            return importlib.import_module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(arguments)
        except Exception as error:  # whatever is wrong with the model, the device or the arguments
            raise EngineFailed(
                self.name,
                f"vLLM did not start: {type(error).__name__}: {error}. Fix: see its log above, and `options`",
            ) from error
        finally:
            os.environ.pop(_SOCKETS)
            if before is not None:
                os.environ[_SOCKETS] = before


class _Gate:
    """Many may pass while it is open; it closes when all who were inside are out."""

    def __init__(self) -> None:
        self._inside = 0
        self._changed = asyncio.Condition()
        self._shut = False

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            async with self._changed:
                self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._shut = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._inside == 0)
            yield
        finally:
            self._shut = False
            async with self._changed:
                self._changed.notify_all()


def sampling_params(sampling: Sampling, room: int) -> Any:
    """Ours in vLLM's terms, for at most `room` tokens; the engine says nothing before the completion is whole."""
    return importlib.import_module("vllm").SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=room,
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        seed=sampling.seed,
        logprobs=0 if sampling.logprobs else None,
        output_kind=importlib.import_module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY,
    )


def _chosen(tokens: list[int], logprobs: Any) -> list[float]:
    """One log-probability per token from vLLM's tables of the likeliest ones, which hold the chosen one too."""
    return [table[token].logprob for token, table in zip(tokens, logprobs or [], strict=True)]


def _finish(reason: str | None) -> FinishReason:
    return "stop" if reason == "stop" else "length" if reason == "length" else "abort"
