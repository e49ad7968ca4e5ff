"""Frames on a jail's channel: a length and a JSON object, in both directions.

What arrives from a jail is hostile: its length is capped before anything is read, its nesting and number of values
before anybody walks it, and whatever does not fit is a `FrameError`. This module knows no message types.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # jails of programs hold this module, and no event loop
    import asyncio

HEADER = struct.Struct("<I")
MAX_FRAME = 16 << 20
"""Largest frame, in bytes; a conversation of an 8192-token context is well below it."""
MAX_DEPTH = 64
"""Deepest nesting of objects and lists; code that handles messages may recurse."""
MAX_BRACKETS = 1 << 20
"""Most opening brackets in one frame: parsed, an empty list takes 20 times the memory of its text."""
MAX_VALUES = 1 << 17
"""Most JSON values in one frame."""
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD]")
_VALUE_WEIGHT = 64
_FRAME_WEIGHT = 1024


class FrameError(ValueError):
    """The peer sent something that is not a frame. The channel cannot be used any more."""


class ChannelClosed(Exception):
    """The host has closed the channel: nobody waits for this jail any more."""


def encode(message: dict[str, Any]) -> bytes:
    """Lone surrogates, which are not text, become question marks."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    if len(body) > MAX_FRAME:
        raise FrameError(f"frame of {len(body)} bytes is over the cap of {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """Parse one frame. NaN and infinities, which JSON does not have, stay text."""
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise FrameError(f"more than {MAX_BRACKETS} brackets")
    try:
        message = json.loads(body.decode(), parse_constant=str, parse_float=_finite)
        if _ESCAPED_SURROGATE.search(body):
            json.dumps(message, ensure_ascii=False).encode()  # raises for a lone one, which is no text
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {type(error).__name__}") from None
    if not isinstance(message, dict):
        raise FrameError(f"not an object but {type(message).__name__}")
    return message


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def weigh(message: dict[str, Any]) -> int:
    """Rough memory that a parsed frame takes, in bytes. Raises FrameError past `MAX_DEPTH` or `MAX_VALUES`."""
    weight, values = _FRAME_WEIGHT, 0
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        values += len(level)
        if values > MAX_VALUES:
            raise FrameError(f"more than {MAX_VALUES} values")
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                weight += sys.getsizeof(value)
            elif isinstance(value, dict):
                weight += sum(map(sys.getsizeof, value))
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int):
                weight += value.bit_length() >> 3
        if not below:
            return weight + values * _VALUE_WEIGHT
        level = below
    raise FrameError(f"nested deeper than {MAX_DEPTH} levels")


def checked_length(header: bytes) -> int:
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME:
        raise FrameError(f"frame of {length} bytes is over the cap of {MAX_FRAME}")
    return length


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], int] | None:
    """The next frame and its weight, or None at a clean or torn end of the stream."""
    try:
        length = checked_length(await reader.readexactly(HEADER.size))
        body = await reader.readexactly(length)
    except (EOFError, ConnectionError):
        return None
    message = decode(body)
    return message, weigh(message)


class BlockingChannel:
    """The jail's end: plain blocking reads and writes on one file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(encode(message))
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except ConnectionError:
            raise ChannelClosed from None

    def receive(self) -> dict[str, Any]:
        """The next frame; ChannelClosed when the host has closed the channel."""
        return decode(self._read(checked_length(self._read(HEADER.size))))

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self._fd, min(size, 1 << 20))
            if not part:
                raise ChannelClosed
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
