"""Completions from a model in this process, through `transformers` and torch (the extra `local`).

Requests that wait are run together, `max_batch` at a time, in one worker thread; the event loop stays free. A wave
begins with those who wait, others join it as they come and as there is room, and each is answered when it is done. This
engine does not train, and does not share a model between processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.chat import ChatFormat, ends_of
from engine.pretrained import folder_digest, load_model, load_tokenizer
from engine.protocol import Probe, Watch
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.failures import EngineFailed, LimitExceeded, MetaAgentError

if TYPE_CHECKING:
    from engine.local.generation import Row

GATHER_S = 0.005
"""Pause before a wave starts, so that calls made at the same moment share it."""


@dataclass(slots=True, eq=False)
class _Job:
    request: CompletionRequest
    future: Future[Completion]
    after: frozenset[Future[str]]
    """Updates of the weights that were asked for before it, which it waits for."""


@dataclass(slots=True)
class _Loaded:
    model: Any
    chat: ChatFormat
    context: int | None
    """Prompt and completion tokens that fit, None if unlimited."""


class TransformersEngine:
    """A causal language model from a local folder or the Hugging Face hub; loaded at the first request.

    `dtype` is a torch dtype's name; "auto" takes the checkpoint's. A request's tokens depend on its prompt,
    sampling and seed, not on what runs beside it; with `seed=None` they differ from call to call. Log-probabilities
    are those of the distribution actually sampled from (see `engine.local.generation.draw`). Token ids include the end
    token; the text stops before the first stop string. A prompt that leaves no room for a token raises
    `LimitExceeded` (`context_tokens`); completions are cut where the context ends: the model's, or `max_context`
    tokens of prompt and completion if that is less.

    `timeout_s` bounds a call, waiting and loading included. Raises `EngineFailed` where the extra is missing.
    """

    def __init__(
        self,
        path_or_id: str,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        dtype: str = "auto",
        *,
        thinking: bool = False,
        max_batch: int = 64,
        max_context: int | None = None,
        timeout_s: float = 1800.0,
    ) -> None:
        self.name = f"transformers:{path_or_id}"
        self.device = device
        self.dtype = dtype
        self.thinking = thinking
        self.max_batch = max_batch
        self.max_context = max_context
        self.timeout_s = timeout_s
        if max_batch < 1 or timeout_s <= 0:
            raise ValueError(f"max_batch must be at least 1 and timeout_s above 0, got {max_batch} and {timeout_s:g}")
        missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
        if missing:
            raise EngineFailed(
                self.name, f'{" and ".join(missing)} not installed. Fix: pip install "metaagent[local]"', 0
            )
        self._path = str(Path(path_or_id).expanduser()) if path_or_id.startswith("~") else path_or_id
        if self._path.startswith(("/", ".")) and not Path(self._path).is_dir():
            raise EngineFailed(self.name, f"there is no folder {self._path!r}. Fix: name a folder or a hub id", 0)
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transformers-engine")
        self._loaded: _Loaded | None = None
        self._closed = False
        self._broken = ""
        self._updates: set[Future[str]] = set()
        """New weights that wait for the wave's end; nobody joins it then."""
        self.weights_version = 0
        self.probe_gap = 0.0
        self.watch: Watch | None = None
        """See `engine.protocol.WatchedEngine`."""

    @functools.cached_property
    def digest(self) -> str:
        """See `engine.protocol.KnownEngine`: of the model's folder, as it is when somebody asks first."""
        return folder_digest(self._path)

    async def complete(self, request: CompletionRequest) -> Completion:
        if self._closed:
            raise EngineFailed(self.name, "the engine is closed. Fix: make a new one", 0)
        job = _Job(request, Future(), frozenset(self._updates))
        self._waiting.append(job)
        self._worker.submit(self._run_wave)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asyncio.wrap_future(job.future)  # cancelling one cancels the other
        except TimeoutError as error:
            raise EngineFailed(
                self.name,
                f"no completion within timeout_s={self.timeout_s:g}. Fix: raise it, or ask for fewer tokens at once",
            ) from error

    async def update_weights(self, version: int, tensors: Mapping[str, Any], probe: Probe | None = None) -> str:
        """Replace all weights between two waves (see `engine.protocol.LiveEngine`): after what was asked before, and
        before what is asked from now on. `tensors` are named as in the model's state dict."""
        if self._closed:
            raise EngineFailed(self.name, "the engine is closed. Fix: make a new one", 0)
        future = self._worker.submit(self._update, version, tensors, probe)
        self._updates.add(future)
        future.add_done_callback(self._updates.discard)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise EngineFailed(
                self.name, f"no new weights within timeout_s={self.timeout_s:g}. Fix: raise it"
            ) from error

    def _update(self, version: int, tensors: Mapping[str, Any], probe: Probe | None) -> str:
        if self._loaded is None:
            self._loaded = self._load()
        weights = importlib.import_module("engine.weights")
        try:
            digest = weights.load(self._loaded.model, tensors)
            if probe is not None:
                seen = weights.probed(self._loaded.model, probe.token_ids)
                self.probe_gap = probe.gap(seen)
                if problem := probe.difference(seen):
                    raise RuntimeError(problem)
        except ValueError:
            raise
        except Exception as error:
            self._broken = f"weights {version} did not go in: {error}. Fix: update the weights again, or load anew"
            raise EngineFailed(self.name, self._broken) from error
        self.weights_version, self._broken = version, ""
        return digest

    async def close(self) -> None:
        """Drop what waits and what runs, release the model. Waits for the one step, or the loading, under way."""
        self._closed = True
        gone = EngineFailed(self.name, "the engine was closed before the completion was done. Fix: close it later", 0)
        for job in [*self._running, *self._waiting]:
            _settle(job.future, gone)
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)
        self._loaded = None

    def _take(self, most: int) -> list[_Job]:
        """The first jobs in line that somebody still waits for, up to those that wait for new weights."""
        taken: list[_Job] = []
        while self._waiting and len(taken) < most and self._waiting[0].after.isdisjoint(self._updates):
            job = self._waiting.popleft()
            if not job.future.done():
                taken.append(job)
        return taken

    def _run_wave(self) -> None:
        """Serve those who wait, up to `max_batch` at once. In the worker thread; every error reaches them."""
        if not self._waiting:
            return  # an earlier wave served what this one was called for
        time.sleep(GATHER_S)
        jobs = self._take(self.max_batch)
        self._running += jobs
        try:
            if self._loaded is None:
                self._loaded = self._load()
            if self._broken:
                raise EngineFailed(self.name, self._broken)
            rows = self._rows(self._loaded, jobs)
            if rows:
                generation = importlib.import_module("engine.local.generation")
                generation.generate(self._loaded.model, rows, self._loaded.chat.ends, self._joining)
        except EngineFailed as error:
            self._fail(self._running, error)
        except Exception as error:
            fix = "lower max_batch" if "OutOfMemory" in type(error).__name__ else "see the error"
            count = len(self._running)
            reason = f"{type(error).__name__} while generating {count} completions: {error}. Fix: {fix}"
            self._fail(self._running, EngineFailed(self.name, reason))
        finally:
            self._running = []

    def _joining(self, under_way: int) -> list[Row]:
        """Who joins the wave; nobody while new weights wait, which no wave may see come in."""
        if self._updates or self._loaded is None:
            return []
        jobs = self._take(self.max_batch - under_way)
        self._running += jobs
        return self._rows(self._loaded, jobs)

    def _fail(self, jobs: Iterable[_Job], error: MetaAgentError) -> None:
        for job in jobs:
            _settle(job.future, error)

    def _load(self) -> _Loaded:
        torch: Any = importlib.import_module("torch")
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            tokenizer = load_tokenizer(self._path)
            model = load_model(self._path, self.dtype).to(device).eval()
        except Exception as error:  # whatever is wrong with the files, the network or the device
            raise EngineFailed(
                self.name,
                f"cannot load {self._path!r} on {device}: {type(error).__name__}: {error}. Fix: see that the folder "
                "or hub id holds a causal language model with its tokenizer, and that it fits the device",
            ) from error
        ends = ends_of(tokenizer, model.generation_config.eos_token_id)
        contexts = (getattr(model.config.get_text_config(), "max_position_embeddings", None), self.max_context)
        return _Loaded(
            model=model,
            chat=ChatFormat(tokenizer, ends, thinking=self.thinking),
            context=min((each for each in contexts if each is not None), default=None),
        )

    def _rows(self, loaded: _Loaded, jobs: Iterable[_Job]) -> list[Row]:
        return [row for job in jobs if (row := self._row(loaded, job))]

    def _row(self, loaded: _Loaded, job: _Job) -> Row | None:
        """The job's place in the wave; None (and the job failed) where its prompt cannot be used."""
        request = job.request
        try:
            prompt = _encode(loaded, request)
        except LimitExceeded as error:
            self._fail([job], error)
            return None
        except Exception as error:  # templates raise what they like; the other jobs go on
            reason = f"agent {request.agent!r}: cannot make a prompt: {type(error).__name__}: {error}"
            self._fail([job], EngineFailed(self.name, reason))
            return None
        generation = importlib.import_module("engine.local.generation")
        room = request.sampling.max_tokens
        if loaded.context is not None:
            room = min(room, loaded.context - len(prompt))

        def done(row: Row) -> None:
            self._running.remove(job)
            _settle(job.future, self._completion(loaded, row, request.tools))

        return generation.Row(
            prompt=prompt,
            sampling=request.sampling,
            max_tokens=room,
            is_stopped=_stop_check(loaded.chat, request.sampling.stop),
            is_abandoned=job.future.done,
            on_token=None
            if self.watch is None or request.token_ids
            else _Written(loaded.chat, request.key, self.watch),
            on_finish=done,
        )

    def _completion(self, loaded: _Loaded, row: Row, tools: list[dict[str, Any]]) -> Completion:
        reply = loaded.chat.read(row.prompt, row.tokens, row.sampling.stop, tools)
        return Completion(
            text=reply.text,
            reasoning=reply.reasoning,
            finish_reason=row.finish or "abort",
            token_ids=row.tokens,
            logprobs=row.logprobs if row.sampling.logprobs else None,
            prompt_token_ids=row.prompt,
            usage=Usage(prompt_tokens=len(row.prompt), completion_tokens=len(row.tokens), prefix_tokens=row.known),
            model=self._path,
            weights_version=self.weights_version,
        )


def _settle(future: Future[Completion], outcome: Completion | MetaAgentError) -> None:
    """Hand over the outcome, unless the caller went away."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, Completion):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


def _encode(loaded: _Loaded, request: CompletionRequest) -> list[int]:
    """Prompt token ids. Raises ValueError for prompts that the model cannot take."""
    if request.token_ids is not None:
        prompt = request.token_ids
        size = loaded.model.get_input_embeddings().num_embeddings
        strange = [token for token in prompt if not 0 <= token < size]
        if strange:
            raise ValueError(f"token id {strange[0]} is not in the model's vocabulary of {size}")
    else:
        prompt = loaded.chat.prompt(request.messages or [], request.tools, request.previous)
    if not prompt:
        raise ValueError("the prompt is empty")
    if loaded.context is not None and len(prompt) >= loaded.context:
        raise LimitExceeded("context_tokens", loaded.context, len(prompt))
    return prompt


class _Written:
    """Tells a watcher the text of a reply, which is decoded from its last line break on."""

    def __init__(self, chat: ChatFormat, key: str, watch: Watch) -> None:
        self._chat, self._key, self._watch = chat, key, watch
        self._begin = self._shown = 0

    def __call__(self, tokens: list[int]) -> None:
        text = self._chat.decode(tokens[self._begin :])
        if text.endswith("\N{REPLACEMENT CHARACTER}"):  # a character whose other bytes are to come
            return
        if text[self._shown :]:
            self._watch(self._key, text[self._shown :])
        self._shown = len(text)
        if text.endswith("\n"):
            self._begin, self._shown = len(tokens), 0


def _stop_check(chat: ChatFormat, stops: tuple[str, ...]) -> Callable[[list[int]], bool]:
    """Whether tokens, looked at after each new one, contain a stop string."""
    # A token is at least a byte, so a stop string that has just been completed lies within this many tokens
    # (a few more, for a character cut in two at the window's edge).
    window = max((len(stop.encode()) for stop in stops), default=0) + 4

    def is_stopped(tokens: list[int]) -> bool:
        tail = chat.decode(tokens[-window:]) if stops else ""
        if not any(stop in tail for stop in stops):
            return False
        text = chat.decode(tokens)
        return any(stop in text for stop in stops)

    return is_stopped
