"""What the host and a container's relay say to each other: frames that belong to one jail (or file) and one stream.

Bytes of streams travel as they are; control messages are small JSON objects. Each direction of each stream has a
window: a sender stops when that many bytes have not been acknowledged, so that neither end ever has to keep more, and
one jail that floods or does not read holds up no other. This module sends nothing and decides nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEADER = struct.Struct("<IIBB")
"""Length of the payload, number of the jail, operation, stream."""
WINDOW = 256 << 10
"""Bytes of one stream that may be under way in one direction."""
CHUNK = 64 << 10
MAX_REPLY = 1 << 20
"""Longest payload that the host accepts from a relay."""

# Both ways.
DATA = 1
EOF = 2
CREDIT = 3
"""So many more bytes of this stream may be sent: an unsigned 32-bit number."""
# To the relay.
SPAWN = 10
"""JSON {limits, workspace, source: length}, then for code its source."""
KILL = 11
WORKSPACE = 12
"""JSON {disk_mb}."""
DROP_WORKSPACE = 13
READ_FILE = 14
"""JSON {workspace, name}; the file comes as DATA, then DONE."""
WRITE_FILE = 15
"""JSON {workspace, name}; the file goes as DATA and EOF, then comes DONE."""
# From the relay.
READY = 20
"""The jail 0, which stands for the container itself."""
FAILED = 21
"""JSON {error, errno, fix}: nothing runs under this number (any more)."""
EXITED = 22
DONE = 23
"""The workspace is there, or the file has been read or written."""

EXIT = struct.Struct("<id?")
"""Wait status, CPU seconds, whether the container was out of memory. All the jail's output has come before."""
COUNT = struct.Struct("<I")

CHANNEL = STDIN = 0
STDOUT, STDERR = 1, 2


class WireError(ValueError):
    """The peer sent what is no frame. Nothing more of it can be understood."""


def frame(operation: int, number: int, payload: bytes = b"", stream: int = 0) -> bytes:
    return HEADER.pack(len(payload), number, operation, stream) + payload


class Frames:
    """Cuts received bytes into frames."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pending = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[int, int, int, bytes]]:
        """Operation, number, stream and payload of every frame that is now complete."""
        self._pending += data
        at, end = 0, len(self._pending)
        try:
            while end - at >= HEADER.size:
                length, number, operation, stream = HEADER.unpack_from(self._pending, at)
                if length > self._longest:
                    raise WireError(f"a frame of {length} bytes; at most {self._longest} are allowed")
                start = at + HEADER.size
                if end - start < length:
                    break
                at = start + length
                yield operation, number, stream, bytes(self._pending[start:at])
        finally:
            del self._pending[:at]
