"""Completions from vLLM in this job: its asynchronous engine, with token ids in and out (the extra `vllm`).

vLLM batches, caches prefixes and owns the processes that hold the model; this module translates requests and says what
can be asked of the engine. How it starts is in `engine.vllm.starting`, how weights are replaced in
`engine.vllm.live_weights`. A separate `vllm serve` is reached through `engine.openai.client` instead.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from engine.chat import ChatFormat
from engine.pretrained import folder_digest
from engine.protocol import Probe, Watch
from engine.vllm.live_weights import LiveWeights, tell
from engine.vllm.remains import family, files_of
from engine.vllm.starting import Start
from engine.vllm.transfer import Transfer
from workflow.completion import Completion, CompletionRequest, FinishReason, Sampling, Usage
from workflow.failures import EngineFailed, LimitExceeded

LOADER = "engine.vllm.weight_loader.WeightLoader"
RECEIVER = "engine.vllm.weight_receiver.WeightReceiver"


class VLLMEngine:
    """A model from a local folder or the Hugging Face hub in vLLM's `AsyncLLM`; started at the first request.

    `options` are vLLM's own engine arguments (`AsyncEngineArgs`), such as `tensor_parallel_size` or
    `kv_cache_memory_bytes` (unless given, on CPUs a third of the memory, and the context that fits). Log-probabilities
    are those of the distribution sampled from, after temperature, top-k and top-p (`processed_logprobs`). Weights come
    from safetensors files, and no code from the model's folder. At most
    `max_concurrency` requests are inside vLLM at once. `start_timeout_s` bounds how long anybody waits for the start,
    `timeout_s` a call. All requests share one start, which goes on when they give up; the first after a failed one
    tries again. `transfer` lets it receive weights from another process, over gloo, NCCL or CUDA IPC. Raises
    `EngineFailed` where vLLM is missing, does not start or dies.
    """

    def __init__(
        self,
        path_or_id: str,
        *,
        thinking: bool = False,
        max_concurrency: int = 256,
        timeout_s: float = 1800.0,
        start_timeout_s: float = 900.0,
        transfer: Transfer | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = f"vllm:{path_or_id}"
        self.thinking = thinking
        self.timeout_s = timeout_s
        self.start_timeout_s = start_timeout_s
        self.transfer: Transfer | None = transfer
        if max_concurrency < 1 or timeout_s <= 0:
            raise ValueError(
                f"max_concurrency must be at least 1 and timeout_s above 0, got {max_concurrency} and {timeout_s:g}"
            )
        if importlib.util.find_spec("vllm") is None:
            raise EngineFailed(self.name, 'vllm is not installed. Fix: pip install "metaagent[vllm]"', 0)
        self._path = path_or_id
        self._options = dict(options or {})
        ours: dict[str, Any] = {"worker_extension_cls": LOADER}
        if transfer is not None:
            ours = {"worker_extension_cls": RECEIVER, "weight_transfer_config": {"backend": transfer}}
        self._start = Start(
            self.name, path_or_id, {**ours, **self._options}, thinking=thinking, timeout_s=start_timeout_s
        )
        self._slots = asyncio.Semaphore(max_concurrency)
        self._live = LiveWeights(self.name, timeout_s, self._off_by)
        self._numbers = itertools.count()
        self.watch: Watch | None = None
        """See `engine.protocol.WatchedEngine`."""
        self.probe_gap = 0.0
        """Largest absolute difference over the tokens of the last probe."""

    @property
    def weights_version(self) -> int:
        return self._live.version

    @functools.cached_property
    def digest(self) -> str:
        """See `engine.protocol.KnownEngine`: of the model's folder, as it is when somebody asks first."""
        return folder_digest(self._path)

    async def complete(self, request: CompletionRequest) -> Completion:
        try:
            async with asyncio.timeout(self.timeout_s), self._slots:
                llm, chat = await self._start.llm_and_chat()
                async with self._live.serving(self._start.check_open):
                    return await self._complete(llm, chat, request)
        except TimeoutError as error:
            told = f"no completion within timeout_s={self.timeout_s:g}"
            raise EngineFailed(self.name, f"{told}. Fix: raise it, or ask for fewer tokens at once") from error

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
        watch = None if self.watch is None or request.token_ids else functools.partial(self.watch, request.key)
        output = await self._generate(llm, prompt, sampling_params(request.sampling, room, watch is not None), watch)
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

    async def _generate(
        self, llm: Any, prompt: list[int], parameters: Any, watch: Callable[[str], None] | None = None
    ) -> Any:
        """vLLM's last output for a prompt. Cancelling it aborts the request there."""
        name = f"metaagent-{next(self._numbers)}"
        output, shown = None, 0
        try:
            async for latest in llm.generate({"prompt_token_ids": prompt}, parameters, name):
                output = latest
                if watch is not None and (text := output.outputs[0].text)[shown:]:
                    watch(text[shown:])
                    shown = len(text)
        except Exception as error:
            raise EngineFailed(self.name, f"{type(error).__name__}: {error}. Fix: see vLLM's log above") from error
        if output is None:
            raise EngineFailed(self.name, "vLLM ended a request without any output. Fix: see its log above")
        return output

    # Weights from this process

    async def update_weights(self, version: int, tensors: Mapping[str, Any], probe: Probe | None = None) -> str:
        """Replace all weights as one checked step (see `engine.protocol.LiveEngine`): requests under way end first,
        new ones wait, every cache is dropped. `tensors` are named as in the checkpoint.

        The fingerprint is that of what vLLM's workers read and loaded: nothing was lost on the way to them. What the
        engine computes with them, only a `probe` shows."""
        llm, _ = await self._start.llm_and_chat()
        self._live.check_awake(version, probe)
        given, meant = await asyncio.to_thread(_prepared, llm.model_config.hf_config, tensors)
        await self._live.update(llm, version, given, meant, probe)
        return meant

    # Weights from a `Sender` in another process

    async def join_transfer(
        self, host: str, port: int, rank_offset: int, world_size: int, timeout_s: float = 300.0
    ) -> None:
        """Join the group of a sender that is, or will be, at `host:port`; one that was joined before is left.

        The workers take the ranks from `rank_offset` on, of `world_size` with the sender and all other engines; they
        compute nothing until all have met. Over gloo, `timeout_s` also bounds the wait for each tensor later: a slow
        engine should not take longer to begin. Over `ipc` nobody meets. What is served does not change.
        """
        over = self._transfer()
        group = {"master_address": host, "master_port": port, "rank_offset": rank_offset, "world_size": world_size}
        info = {"gloo": {**group, "timeout_s": timeout_s}, "nccl": {**group, "packed": True}, "ipc": {"packed": True}}
        llm, _ = await self._start.llm_and_chat()
        where = f"the group of {world_size} at {host}:{port}"
        await self._live.join(llm, info[over], timeout_s, where)

    async def receive_weights(self, version: int, metadata: Mapping[str, Any]) -> str:
        """Take in all weights that the sender sends meanwhile; returns the fingerprint of what came.

        The checked step of `update_weights`, but for its end: nothing is served until `verify` has compared what came
        with what was sent. `metadata` is the sender's. Raises ValueError, with nothing changed, for names and shapes
        that are not the model's; `EngineFailed` when they did not go in: the engine then refuses to serve until an
        update succeeds, and all members of the group have to join a new one.
        """
        await self.begin_receiving(version, metadata)
        await self.receive(metadata)
        return await self.finish_receiving()

    async def begin_receiving(self, version: int, metadata: Mapping[str, Any]) -> None:
        """The first part of `receive_weights`: requests under way end, new ones wait. Where several engines share a
        sender, all should have begun before it sends, as they end at different times."""
        self._transfer()
        llm, _ = await self._start.llm_and_chat()
        await asyncio.to_thread(_check, llm.model_config.hf_config, metadata)
        await self._live.begin(llm, version)

    async def receive(self, info: Mapping[str, Any]) -> None:
        """The second part: `metadata`, or what the sender tells a `ControlClient`, which may come in pieces."""
        llm, _ = await self._start.llm_and_chat()
        await self._live.receive(llm, info)

    async def finish_receiving(self) -> str:
        """The third part."""
        llm, _ = await self._start.llm_and_chat()
        return await self._live.finish(llm)

    async def verify(self, version: int, sent: str, probe: Probe | None = None) -> None:
        """Serve what was received, if its fingerprint is what was `sent`, vLLM has this version, and a `probe` gets its
        log-probabilities. Raises `EngineFailed` as `receive_weights` does."""
        llm, _ = await self._start.llm_and_chat()
        await self._live.verify(llm, version, sent, probe)

    def _transfer(self) -> Transfer:
        if self.transfer is None:
            raise EngineFailed(self.name, 'it takes no weights from elsewhere. Fix: make it with transfer="gloo"', 0)
        return self.transfer

    # Its GPUs and processes

    async def sleep(self, level: Literal[1, 2] = 1) -> None:
        """Give the GPU's memory to others until `wake`: requests under way end first, new ones wait.

        Level 1 keeps the weights in host memory. Level 2 drops them: after waking, nothing is served until new ones
        are in. Needs `options={"enable_sleep_mode": True}`. Raises `EngineFailed` where vLLM cannot.
        """
        llm, _ = await self._start.llm_and_chat()
        if not self._options.get("enable_sleep_mode"):
            raise EngineFailed(self.name, 'it cannot sleep. Fix: make it with options={"enable_sleep_mode": True}', 0)
        await self._live.sleep(llm, level)

    async def wake(self, tags: Sequence[Literal["weights", "kv_cache"]] | None = None) -> None:
        """Take the memory back, and serve again when all of it is. Does nothing while awake.

        Where a trainer's weights lie on the same GPU: `wake(["weights"])`, receive, and when the trainer has given its
        memory up `wake(["kv_cache"])` and `verify`, whose probe needs the cache.
        """
        llm, _ = await self._start.llm_and_chat()
        await self._live.wake(llm, tags)

    async def alive(self, timeout_s: float) -> None:
        """Raise `EngineFailed` if vLLM does not make one token in time, whoever else waits for a slot.

        While it is updated, joins a group or sleeps it makes none, and that is no failure; the calls that do it have
        limits of their own. Waits for the start, if it has not started.
        """
        llm, _ = await self._start.llm_and_chat()
        live = self._live
        if getattr(llm, "errored", False):
            raise EngineFailed(self.name, "vLLM's processes have died. Fix: see its log above, and make a new engine")
        pauses = live.pauses
        if live.is_paused:
            return
        parameters = importlib.import_module("vllm").SamplingParams(max_tokens=1, temperature=0)
        try:
            async with asyncio.timeout(timeout_s):
                await self._generate(llm, [0], parameters)
        except TimeoutError as error:
            if live.pauses == pauses:
                told = f"not one token within timeout_s={timeout_s:g}"
                raise EngineFailed(self.name, f"{told}. Fix: end it and make a new engine") from error

    async def device_uuids(self) -> list[str]:
        """The GPUs of its workers, by their ranks, as CUDA and vLLM's `ipc` name them; empty on CPUs."""
        llm, _ = await self._start.llm_and_chat()
        return [uuid for uuid in await tell(llm, "device_uuid") if uuid]

    def pids(self) -> list[int]:
        """vLLM's processes on this machine: its engine core, its workers, and what these have made. Empty before its
        start and when they are gone."""
        return family(self._start.cores)

    def leftovers(self) -> list[str]:
        """Files and folders that would stay if it were killed: its sockets, weights on their way, what its processes
        now hold in shared memory. Ask while they live, if only stopped; some of it is not there all the time."""
        return [*filter(None, [self._start.folder]), *self._live.places, *files_of(self.pids())]

    async def _off_by(self, llm: Any, probe: Probe) -> str:
        """What is wrong with the log-probabilities that the engine now gives to a probe; empty if nothing is."""
        parameters = importlib.import_module("vllm").SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
        output = await self._generate(llm, probe.token_ids, parameters)
        seen = self._chosen(probe.token_ids[1:], output.prompt_logprobs[1:])
        self.probe_gap = probe.gap(seen)
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
        self._start.close()
        self._live.release()  # whoever waits for it to wake, or for weights, learns that it is closed
        await self._start.end()


def _prepared(config: Any, tensors: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Weights that fit the configuration's model, as a file holds them, and their fingerprint."""
    weights = importlib.import_module("engine.weights")
    given = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    weights.check(weights.skeleton(config), given)
    return weights.unshared(given), weights.fingerprint(given)


def _check(config: Any, metadata: Mapping[str, Any]) -> None:
    """Raise ValueError unless names and shapes are those of the configuration's model."""
    torch = importlib.import_module("torch")
    weights = importlib.import_module("engine.weights")
    shapes = zip(metadata["names"], metadata["shapes"], strict=True)
    weights.check(weights.skeleton(config), {name: torch.empty(shape, device="meta") for name, shape in shapes})


def sampling_params(sampling: Sampling, room: int, in_pieces: bool = False) -> Any:
    """Ours in vLLM's terms, for at most `room` tokens; unless `in_pieces`, the engine says nothing before the
    completion is whole."""
    kinds = importlib.import_module("vllm.sampling_params").RequestOutputKind
    return importlib.import_module("vllm").SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=room,
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        seed=sampling.seed,
        logprobs=0 if sampling.logprobs else None,
        output_kind=kinds.CUMULATIVE if in_pieces else kinds.FINAL_ONLY,
    )


def _finish(reason: str | None) -> FinishReason:
    return "stop" if reason == "stop" else "length" if reason == "length" else "abort"
