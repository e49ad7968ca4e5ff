"""vLLM's start in this process, shared by all who ask: its arguments, where its sockets go, and its end.

What is asked of it then is `engine.vllm.in_process`'s business.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.chat import ChatFormat, ends_of
from engine.vllm.remains import Sweeper, family, files_of
from workflow.failures import EngineFailed

_CPU_CACHE = 16 << 30
"""Bytes of the key-value cache on CPUs at most, and a third of what is available."""
_SOCKETS = "VLLM_RPC_BASE_PATH"
"""Environment variable: where vLLM puts its sockets, which it does not remove."""
_ENVIRONMENT = threading.Lock()
"""Held by the one engine of this process that starts: vLLM and the processes that it makes read the variable then."""


class Start:
    """`AsyncLLM` and the model's chat form, begun when first asked for.

    All who ask share one start, which goes on when they give up; the first after a failed one tries again. `options`
    are for `AsyncEngineArgs`, before what is chosen here. `timeout_s` bounds each wait. Raises `EngineFailed`.
    """

    def __init__(
        self, name: str, path_or_id: str, options: Mapping[str, Any], *, thinking: bool, timeout_s: float
    ) -> None:
        self.folder = ""
        """Where its sockets are, once it has begun."""
        self.cores: list[int] = []
        """The processes that it made here: vLLM's engine cores."""
        self._name = name
        self._path = path_or_id
        self._options = options
        self._thinking = thinking
        self._timeout_s = timeout_s
        self._task: asyncio.Task[tuple[Any, ChatFormat]] | None = None
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        self._sweeper: Sweeper | None = None
        self._closed = False

    async def llm_and_chat(self) -> tuple[Any, ChatFormat]:
        self.check_open()
        if self._task is None:
            self._task = asyncio.create_task(asyncio.to_thread(self._load))
            self._task.add_done_callback(self._ended)
        task = self._task
        if not task.done():
            await asyncio.wait({task}, timeout=self._timeout_s)  # who is cancelled here does not cancel it
        if not task.done():
            reason = f"vLLM did not start within start_timeout_s={self._timeout_s:g}"
            raise EngineFailed(self._name, f"{reason}. Fix: raise it, or ask again, since the start goes on")
        return task.result()

    def check_open(self) -> None:
        if self._closed:
            raise EngineFailed(self._name, "the engine is closed. Fix: make a new one", 0)

    def close(self) -> None:
        """From now on nobody gets it."""
        self._closed = True

    async def end(self) -> None:
        """End vLLM and its processes, once closed. Waits for a start under way."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=self._timeout_s)
        task, self._task = self._task, None
        if task is not None and task.done():  # else its thread ends what it starts
            llm, _ = task.result()
            held = set(files_of(family(self.cores))) - set(files_of([os.getpid()]))
            await asyncio.to_thread(llm.shutdown)
            for path in held:  # vLLM kills workers that take their time, which then leave some
                Path(path).unlink(missing_ok=True)
            llm.shutdown = lambda: None  # Python's end, when vLLM's modules are gone, is too late to do it once more
        if self._sockets is not None:
            self._sockets.cleanup()
        if self._sweeper is not None and (task is None or task.done()):
            self._sweeper.closed()
            self._sweeper = None

    def _ended(self, task: asyncio.Task[tuple[Any, ChatFormat]]) -> None:
        if task.cancelled():  # the event loop ends; nobody can have what the thread still starts
            self._closed = True
        if task.cancelled() or task.exception() is not None:
            self._task = None

    def _load(self) -> tuple[Any, ChatFormat]:
        """Runs in a thread, and leaves no vLLM behind when it fails."""
        try:
            with contextlib.ExitStack() as undo:
                with _ENVIRONMENT:
                    self.check_open()
                    llm = self._new_llm()
                undo.callback(llm.shutdown)
                tokenizer = llm.get_tokenizer()
                generation = llm.model_config.try_get_generation_config() or {}
                ends = ends_of(tokenizer, generation.get("eos_token_id"))
                chat = ChatFormat(tokenizer, ends, thinking=self._thinking)
                self.check_open()  # no longer, if it was closed in the meantime
                undo.pop_all()
                return llm, chat
        except EngineFailed:
            raise
        except Exception as error:  # whatever is wrong with the model, the device or the arguments
            raise EngineFailed(
                self._name,
                f"vLLM did not start: {type(error).__name__}: {error}. Fix: see its log above, and `options`",
            ) from error

    def _new_llm(self) -> Any:
        """Whoever calls it holds `_ENVIRONMENT`."""
        self._sockets = self._sockets or tempfile.TemporaryDirectory(prefix="metaagent-vllm-")
        self.folder = self._sockets.name
        self._sweeper = self._sweeper or Sweeper(self.folder)
        before = os.environ.get(_SOCKETS)
        os.environ[_SOCKETS] = self.folder
        try:
            arguments = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs(
                model=self._path,
                **{
                    "logprobs_mode": "processed_logprobs",
                    "disable_log_stats": True,
                    "enable_prefix_caching": True,
                    "trust_remote_code": False,  # as `engine.pretrained` has it
                    "load_format": "safetensors",
                    **_options_of_device(self._options),
                    **self._options,
                },
            )
            others = multiprocessing.active_children()
            llm = importlib.import_module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(arguments)
            made = [process for process in multiprocessing.active_children() if process not in others]
            self.cores = [process.pid for process in made if process.pid and process.name.startswith("EngineCore")]
            return llm
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
