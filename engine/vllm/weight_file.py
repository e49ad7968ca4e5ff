"""The file in which weights are handed to vLLM's workers of this machine: written for one update, then gone.

Workers read it by themselves (`engine.vllm.weight_loader`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

_SHARED_MEMORY = "/dev/shm"
_HEADER = 4 << 20
"""Bytes for the names and shapes in a file of weights, generously."""


def places() -> list[str]:
    """The folders that one engine of this process writes to, by a name that nobody else takes: in shared memory, and
    where temporary files go. They are there only while an update needs them."""
    name = f"metaagent-weights-{os.getpid()}-{secrets.token_hex(4)}"
    return [os.path.join(folder, name) for folder in (_SHARED_MEMORY, tempfile.gettempdir())]


@contextlib.asynccontextmanager
async def written(tensors: Mapping[str, Any], folders: Sequence[str]) -> AsyncIterator[str]:
    """The path of a file of tensors, which is gone afterwards, even where whoever writes it is cancelled.

    Raises RuntimeError where it cannot be written."""
    save_file = importlib.import_module("safetensors.torch").save_file
    folder = fitting(sum(tensor.nbytes for tensor in tensors.values()), folders)
    async with contextlib.AsyncExitStack() as stack:
        try:
            os.mkdir(folder, 0o700)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            path = os.path.join(folder, "weights.safetensors")
            writing = asyncio.create_task(asyncio.to_thread(save_file, tensors, path))
            stack.push_async_callback(asyncio.wait, {writing})
            await asyncio.shield(writing)
        except Exception as error:  # safetensors has errors of its own
            told = f"cannot write them to {os.path.dirname(folder)!r}: {type(error).__name__}: {error}"
            fix = "make room there, or start with TMPDIR set to a folder that has it"
            raise RuntimeError(f"{told}. Fix: {fix}") from error
        yield path


def fitting(size: int, folders: Sequence[str]) -> str:
    """Where tensors of `size` bytes are handed over: in shared memory if they fit there, which in a container may be as
    little as 64 MB, else where temporary files go."""
    shared, temporary = folders
    parent = os.path.dirname(shared)
    with contextlib.suppress(OSError):  # there is none
        if shutil.disk_usage(parent).free > size + _HEADER and os.access(parent, os.W_OK):
            return shared
    return temporary
