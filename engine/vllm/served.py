"""Completions from a `vllm serve` elsewhere, asked with token ids: our own chat template, exact tokens over turns.

The address is asked through `engine.openai.client`, whose retries, limits and costs hold here too; only the model's
tokenizer is loaded in this process (it takes `transformers`, from the extra `local`, and no torch). New weights do not
go to such a server from here.
"""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.chat import ChatFormat, ends_of
from engine.openai import OpenAIEngine
from engine.pretrained import load_generation_config, load_tokenizer
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed

_IDS = {"return_token_ids": True}
_OWN = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_p": 0.0}
"""Said, since vLLM takes what is not from the model's generation_config.json."""


class ServedEngine:
    """A model behind vLLM's OpenAI-compatible server, with token ids in and out.

    `path_or_id` is what the server was started with: its name for the model unless `served_name` says another, and
    where the tokenizer is read, unless `tokenizer` names another folder or hub id. `options` are those of
    `OpenAIEngine`; `processed_logprobs=True` states that the server runs with `--logprobs-mode processed_logprobs`.

    Raises `EngineFailed` where transformers is missing; `complete` does where the tokenizer cannot be loaded, and where
    a server sends no token ids (those of vLLM before 0.10.2, and most that are not vLLM's).
    """

    def __init__(
        self,
        path_or_id: str,
        base_url: str,
        *,
        served_name: str | None = None,
        tokenizer: str | None = None,
        thinking: bool = False,
        **options: Any,
    ) -> None:
        self.name = f"vllm:{path_or_id}@{base_url}"
        self.thinking = thinking
        if importlib.util.find_spec("transformers") is None:
            raise EngineFailed(self.name, 'transformers not installed. Fix: pip install "metaagent[local]"', 0)
        extra = {**_OWN, **options.pop("extra_body", {}), **_IDS}
        self._endpoint = OpenAIEngine(served_name or path_or_id, base_url, extra_body=extra, **options)
        self._endpoint.name = self.name
        self._tokenizer = tokenizer or path_or_id
        self._loading: asyncio.Task[ChatFormat] | None = None

    async def complete(self, request: CompletionRequest) -> Completion:
        chat = await self._loaded()
        asked = request
        if request.messages is not None:
            try:
                prompt = await asyncio.to_thread(chat.prompt, request.messages, request.tools, request.previous)
            except Exception as error:  # templates raise what they like
                reason = f"agent {request.agent!r}: cannot make a prompt: {type(error).__name__}: {error}"
                raise EngineFailed(self.name, reason, 0) from error
            asked = replace(request, messages=None, tools=[], previous=None, token_ids=prompt)
        completion = await self._endpoint.complete(asked)
        if completion.token_ids is None or completion.prompt_token_ids is None:
            fix = f"serve with vLLM 0.10.2 or newer, or ask without token ids: openai:{self._endpoint.model}@..."
            raise EngineFailed(self.name, f"the server sends no token ids. Fix: {fix}")
        reply = chat.read(completion.prompt_token_ids, completion.token_ids, request.sampling.stop, request.tools)
        return replace(completion, text=reply.text, reasoning=reply.reasoning)

    async def close(self) -> None:
        await self._endpoint.close()

    async def _loaded(self) -> ChatFormat:
        """All who ask meanwhile share one attempt, and what comes of it; the next one after a failure tries again."""
        loading, limit = self._loading, self._endpoint.timeout_s
        if loading is None or (loading.done() and (loading.cancelled() or loading.exception() is not None)):
            loading = self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        await asyncio.wait({loading}, timeout=limit)  # who is cancelled here does not cancel it
        if not loading.done():
            reason = f"the tokenizer {self._tokenizer!r} was not loaded within timeout_s={limit:g}"
            raise EngineFailed(self.name, f"{reason}. Fix: raise it, or give tokenizer= a folder", 0)
        return loading.result()

    def _load(self) -> ChatFormat:
        try:
            tokenizer = load_tokenizer(self._tokenizer)
            ends = self._ends()
        except Exception as error:  # whatever is wrong with the files or the network
            raise EngineFailed(
                self.name,
                f"cannot load the tokenizer {self._tokenizer!r}: {type(error).__name__}: {error}. Fix: name the folder "
                "or hub id that the server was started with, or give tokenizer=",
                0,
            ) from error
        return ChatFormat(tokenizer, ends_of(tokenizer, ends), thinking=self.thinking)

    def _ends(self) -> Any:
        """Ids that end a turn, by the model's generation configuration; None where it has none."""
        try:
            return load_generation_config(self._tokenizer).eos_token_id
        except OSError as error:
            folder = Path(self._tokenizer)
            missing = "does not appear to have a file named" in str(error)
            if missing or (folder.is_dir() and not (folder / "generation_config.json").exists()):
                return None
            raise
