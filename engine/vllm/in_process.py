"""Completions from vLLM in this job: its asynchronous engine, with token ids in and out (the extra `vllm`).

vLLM batches, caches prefixes and owns the processes that hold the model; this module translates requests, and replaces
weights as one checked step. A separate `vllm serve` is reached through `engine.openai.client` instead.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import itertools
import math
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, Literal

from engine.chat import ChatFormat, ends_of
from engine.gate import Gate
from engine.protocol import Probe
from workflow.completion import Completion, CompletionRequest, FinishReason, Sampling, Usage
from workflow.failures import EngineFailed, LimitExceeded

WORKER = "engine.vllm.weight_loader.WeightLoader"
_SHARED_MEMORY = "/dev/shm"
_CPU_CACHE = 16 << 30
"""Bytes of the key-value cache on CPUs at most, and a third of what is available."""
_HEADER = 4 << 20
"""Bytes for the names and shapes in a file of weights, generously."""
_SOCKETS = "VLLM_RPC_BASE_PATH"
"""Environment variable: where vLLM puts its sockets, which it does not remove."""
_ENVIRONMENT = threading.Lock()
"""Held by the one engine of this process that starts: vLLM and the processes that it makes read the variable then."""


class VLLMEngine:
    """A model from a local folder or the Hugging Face hub in vLLM's `AsyncLLM`; started at the first request.

    `options` are vLLM's own engine arguments (`AsyncEngineArgs`), such as `tensor_parallel_size` or
    `kv_cache_memory_bytes` (unless given, on CPUs a third of the memory, and the context that fits). Log-probabilities
    are those of the distribution sampled from, after temperature, top-k and top-p (`processed_logprobs`). Weights come
    from safetensors files, and no code from the model's folder. At most
    `max_concurrency` requests are inside vLLM at once. `start_timeout_s` bounds how long anybody waits for the start,
    `timeout_s` a call. All requests share one start, which goes on when they give up; the first after a failed one
    tries again. Raises `EngineFailed` where vLLM is missing, does not start or dies.
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
        self._gate = Gate()
        self._asleep: contextlib.AsyncExitStack | None = None
        self._numbers = itertools.count()
        self._start: asyncio.Task[tuple[Any, ChatFormat]] | None = None
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
                messages = request.messages or []
                prompt = await asyncio.to_thread(chat.prompt, messages, request.tools, request.previous)
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
        reply = chat.read(prompt, tokens, request.sampling.stop, request.tools)
        return Completion(
            text=reply.text,
            reasoning=reply.reasoning,
            finish_reason=_finish(said.finish_reason),
            token_ids=tokens,
            logprobs=self._chosen(tokens, said.logprobs) if request.sampling.logprobs else None,
            prompt_token_ids=prompt,
            usage=Usage(
                prompt_tokens=len(prompt), completion_tokens=len(tokens), prefix_tokens=output.num_cached_tokens
            ),
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
        new ones wait, every cache is dropped. `tensors` are named as in the checkpoint.

        The fingerprint is that of what vLLM's workers read and loaded: nothing was lost on the way to them. What the
        engine computes with them, only a `probe` shows."""
        llm, _ = await self._started()
        if self._asleep is not None:
            raise EngineFailed(self.name, f"weights {version} did not go in: it sleeps. Fix: wake() it first", 0)
        weights = importlib.import_module("engine.weights")
        given = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        await asyncio.to_thread(lambda: weights.check(weights.skeleton(llm.model_config.hf_config), given))
        meant = weights.fingerprint(given)
        slow = "raise it, or see what still runs or sleeps"
        async with self._in_time(f"weights {version} did not go in", slow), self._gate.closed():
            async with self._written(version, weights.unshared(given)) as path:
                self._broken = f"weights {version} did not go in. Fix: update the weights again, or start anew"
                try:
                    await llm.pause_generation(mode="wait", clear_cache=True)
                    read = await llm.collective_rpc("load_weights_from", args=(path,))
                    if await llm.reset_prefix_cache() is False:
                        raise RuntimeError("vLLM did not drop its prefix cache. Fix: update again, or start anew")
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

    @contextlib.asynccontextmanager
    async def _written(self, version: int, tensors: Mapping[str, Any]) -> AsyncIterator[str]:
        """The path of a file of tensors, which is gone afterwards, even where whoever writes it is cancelled."""
        save_file = importlib.import_module("safetensors.torch").save_file
        folder = _folder_for(sum(tensor.nbytes for tensor in tensors.values()))
        async with contextlib.AsyncExitStack() as stack:
            try:
                place = stack.enter_context(tempfile.TemporaryDirectory(prefix="metaagent-weights-", dir=folder))
                path = os.path.join(place, "weights.safetensors")
                writing = asyncio.create_task(asyncio.to_thread(save_file, tensors, path))
                stack.push_async_callback(asyncio.wait, {writing})
                await asyncio.shield(writing)
            except Exception as error:  # safetensors has errors of its own
                self._broken = (
                    f"weights {version} did not go in: cannot write them to {folder!r}: {type(error).__name__}: "
                    f"{error}. Fix: make room there, or start with TMPDIR set to a folder that has it"
                )
                raise EngineFailed(self.name, self._broken) from error
            yield path

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
        seen = self._chosen(probe.token_ids[1:], output.prompt_logprobs[1:])
        return probe.difference(seen)

    def _chosen(self, tokens: list[int], logprobs: Any) -> list[float]:
        """One log-probability per token from vLLM's tables of the likeliest ones, which hold the chosen one too."""
        chosen = [table[token].logprob for token, table in zip(tokens, logprobs or [], strict=True)]
        if not all(map(math.isfinite, chosen)):
            at = next(at for at, value in enumerate(chosen) if not math.isfinite(value))
            reason = f"the model gave logits that are not finite: token {at} has log-probability {chosen[at]}"
            raise EngineFailed(self.name, f"{reason}. Fix: see its weights for NaN, or use a wider dtype")
        return chosen

    async def close(self) -> None:
        """End vLLM and its processes. What runs fails. Waits for a start under way, at most `start_timeout_s`."""
        self._closed = True
        if self._start is not None and not self._start.done():
            await asyncio.wait({self._start}, timeout=self.start_timeout_s)
        start, self._start = self._start, None
        if self._asleep is not None:
            await self._asleep.aclose()  # whoever waits for it to wake learns that it is closed
        if start is not None and start.done():  # else its thread ends what it starts
            llm, _ = start.result()
            await asyncio.to_thread(llm.shutdown)
            llm.shutdown = lambda: None  # Python's end, when vLLM's modules are gone, is too late to do it once more
        if self._sockets is not None:
            self._sockets.cleanup()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineFailed(self.name, "the engine is closed. Fix: make a new one", 0)

    def _check_serving(self) -> None:
        self._check_open()
        if self._broken:
            raise EngineFailed(self.name, self._broken)

    async def _started(self) -> tuple[Any, ChatFormat]:
        self._check_open()
        if self._start is None:
            self._start = asyncio.create_task(asyncio.to_thread(self._load))
            self._start.add_done_callback(self._start_ended)
        start = self._start
        if not start.done():
            await asyncio.wait({start}, timeout=self.start_timeout_s)  # who is cancelled here does not cancel it
        if not start.done():
            reason = f"vLLM did not start within start_timeout_s={self.start_timeout_s:g}"
            raise EngineFailed(self.name, f"{reason}. Fix: raise it, or ask again, since the start goes on")
        return start.result()

    def _start_ended(self, start: asyncio.Task[tuple[Any, ChatFormat]]) -> None:
        if start.cancelled():  # the event loop ends; nobody can have what the thread still starts
            self._closed = True
        if start.cancelled() or start.exception() is not None:
            self._start = None

    def _load(self) -> tuple[Any, ChatFormat]:
        """vLLM, started, and the model's chat form. Runs in a thread, and leaves no vLLM behind when it fails."""
        try:
            with contextlib.ExitStack() as undo:
                with _ENVIRONMENT:
                    self._check_open()
                    llm = self._new_llm()
                undo.callback(llm.shutdown)
                tokenizer = llm.get_tokenizer()
                generation = llm.model_config.try_get_generation_config() or {}
                ends = ends_of(tokenizer, generation.get("eos_token_id"))
                chat = ChatFormat(tokenizer, ends, thinking=self.thinking)
                self._check_open()  # no longer, if it was closed in the meantime
                undo.pop_all()
                return llm, chat
        except EngineFailed:
            raise
        except Exception as error:  # whatever is wrong with the model, the device or the arguments
            raise EngineFailed(
                self.name,
                f"vLLM did not start: {type(error).__name__}: {error}. Fix: see its log above, and `options`",
            ) from error

    def _new_llm(self) -> Any:
        """Whoever calls it holds `_ENVIRONMENT`."""
        self._sockets = self._sockets or tempfile.TemporaryDirectory(prefix="metaagent-vllm-")
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
                    "trust_remote_code": False,  # as `engine.pretrained` has it
                    "load_format": "safetensors",
                    **_options_of_device(self._options),
                    **self._options,
                },
            )
            return importlib.import_module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(arguments)
        finally:
            os.environ.pop(_SOCKETS, None)
            if before is not None:
                os.environ[_SOCKETS] = before


def _options_of_device(given: Mapping[str, Any]) -> dict[str, Any]:
    """What vLLM needs to be told on CPUs, where its defaults take nearly all memory for the cache, and end the engine
    when a seeded request is read in pieces; what was given goes before. The context is what the cache has room for."""
    if not importlib.import_module("vllm.platforms").current_platform.is_cpu():
        return {}
    available = importlib.import_module("psutil").virtual_memory().available  # vLLM itself needs psutil
    options: dict[str, Any] = {"kv_cache_memory_bytes": min(_CPU_CACHE, available // 3), "max_model_len": -1}
    return options if "max_num_batched_tokens" in given else {**options, "enable_chunked_prefill": False}


def _folder_for(size: int) -> str:
    """Where tensors of `size` bytes are handed over: in shared memory if they fit there, which in a container may be as
    little as 64 MB, else where temporary files go."""
    with contextlib.suppress(OSError):  # there is none
        if shutil.disk_usage(_SHARED_MEMORY).free > size + _HEADER and os.access(_SHARED_MEMORY, os.W_OK):
            return _SHARED_MEMORY
    return tempfile.gettempdir()


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


def _finish(reason: str | None) -> FinishReason:
    return "stop" if reason == "stop" else "length" if reason == "length" else "abort"
