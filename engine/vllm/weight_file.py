"""The file in which weights are handed to vLLM's workers of this machine: written for one update, then gone.

Workers read it by themselves (`engine.vllm.weight_loader`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import Any

PREFIX = "metaagent-weights-"
_SHARED_MEMORY = "/dev/shm"
_HEADER = 4 << 20
"""Bytes for the names and shapes in a file of weights, generously."""


@contextlib.asynccontextmanager
async def written(tensors: Mapping[str, Any]) -> AsyncIterator[str]:
    """The path of a file of tensors, which is gone afterwards, even where whoever writes it is cancelled.

    Raises RuntimeError where it cannot be written."""
    save_file = importlib.import_module("safetensors.torch").save_file
    folder = folder_for(sum(tensor.nbytes for tensor in tensors.values()))
    async with contextlib.AsyncExitStack() as stack:
        try:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=folder))
            path = os.path.join(place, "weights.safetensors")
            writing = asyncio.create_task(asyncio.to_thread(save_file, tensors, path))
            stack.push_async_callback(asyncio.wait, {writing})
            await asyncio.shield(writing)
        except Exception as error:  # safetensors has errors of its own
            told = f"cannot write them to {folder!r}: {type(error).__name__}: {error}"
            fix = "make room there, or start with TMPDIR set to a folder that has it"
            raise RuntimeError(f"{told}. Fix: {fix}") from error
        yield path


def folder_for(size: int) -> str:
    """Where tensors of `size` bytes are handed over: in shared memory if they fit there, which in a container may be as
    little as 64 MB, else where temporary files go."""
    with contextlib.suppress(OSError):  # there is none
        if shutil.disk_usage(_SHARED_MEMORY).free > size + _HEADER and os.access(_SHARED_MEMORY, os.W_OK):
            return _SHARED_MEMORY
    return tempfile.gettempdir()
