"""Frames on a jail's channel: a length and a JSON object, in both directions.

What arrives from a jail is hostile: the length is capped before anything is read, the JSON's depth is capped by the
parser's own recursion limit, and whatever does not fit is a `FrameError`. This module knows no message types.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from typing import Any

HEADER = struct.Struct("<I")
MAX_FRAME = 16 << 20
"""Largest frame, in bytes; a conversation of an 8192-token context is well below it."""


class FrameError(ValueError):
    """The peer sent something that is not a frame. The channel cannot be used any more."""


def encode(message: dict[str, Any]) -> bytes:
    """Lone surrogates, which JSON text may hold, survive as escapes."""
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise FrameError(f"frame of {len(body)} bytes is over the cap of {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {type(error).__name__}") from None
    if not isinstance(message, dict):
        raise FrameError(f"not an object but {type(message).__name__}")
    return message


def checked_length(header: bytes) -> int:
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME:
        raise FrameError(f"frame of {length} bytes is over the cap of {MAX_FRAME}")
    return length


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next frame, or None at a clean or torn end of the stream."""
    try:
        length = checked_length(await reader.readexactly(HEADER.size))
        return decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class BlockingChannel:
    """The jail's end: plain blocking reads and writes on one file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(encode(message))
        while data:
            data = data[os.write(self._fd, data) :]

    def receive(self) -> dict[str, Any]:
        """The next frame; EOFError when the host has closed the channel."""
        return decode(self._read(checked_length(self._read(HEADER.size))))

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self._fd, min(size, 1 << 20))
            if not part:
                raise EOFError("the host closed the channel")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
