"""One stream of a jail in a container, as an asyncio transport: what goes over it is counted in both directions.

The relay may send no more than a window ahead of what was acknowledged; that a reader has paused means that nothing
is acknowledged. A relay that sends more breaks the protocol. Frames and jails are the business of
`sandbox.containers.container`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sandbox.containers import wire


class JailStream(asyncio.Transport):
    def __init__(
        self, send: Callable[[int, bytes], None], protocol: asyncio.BaseProtocol, loop: asyncio.AbstractEventLoop
    ) -> None:
        """`send(operation, payload)` sends a frame of this stream."""
        super().__init__()
        self._send, self._protocol, self._loop = send, protocol, loop
        self._window = wire.WINDOW
        """What may still be sent."""
        self._waiting = bytearray()
        self._ends = self._end_said = False
        self._full = False
        self._allowed = wire.WINDOW
        """What may still come."""
        self._owed = 0
        self._paused = False
        self._held = bytearray()
        self._closed = False

    def start(self) -> None:
        self._protocol.connection_made(self)

    # What comes from the relay

    def received(self, data: bytes) -> None:
        self._allowed -= len(data)
        if self._allowed < 0:
            raise wire.WireError("a jail's stream went past its window")
        if self._closed or not isinstance(self._protocol, asyncio.Protocol):
            return
        if self._paused or self._held:
            self._held += data
            return
        self._protocol.data_received(data)
        self._acknowledge(len(data))

    def _acknowledge(self, count: int) -> None:
        self._owed += count
        if self._owed >= wire.WINDOW // 2 and not self._closed:
            self._send(wire.CREDIT, wire.COUNT.pack(self._owed))
            self._allowed += self._owed
            self._owed = 0

    def credited(self, count: int) -> None:
        self._window += count
        if self._window > wire.WINDOW:
            raise wire.WireError("a stream was given back more than was sent")
        self._push()

    def ended(self) -> None:
        """The other side has closed it, or is gone; what it said before still counts."""
        if self._closed:
            return
        held, self._held = bytes(self._held), bytearray()
        if isinstance(self._protocol, asyncio.Protocol):
            if held:
                self._protocol.data_received(held)
            self._protocol.eof_received()
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._closed:
            self._closed = True
            self._waiting.clear()
            self._protocol.connection_lost(error)

    # What the program on this side does with it

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closed or self._ends:
            return
        self._waiting += data
        self._push()
        if self._waiting and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def _push(self) -> None:
        while self._waiting and self._window > 0:
            count = min(self._window, wire.CHUNK, len(self._waiting))
            chunk = bytes(self._waiting[:count])
            del self._waiting[:count]
            self._window -= count
            self._send(wire.DATA, chunk)
        if not self._waiting:
            if self._full:
                self._full = False
                self._protocol.resume_writing()
            self._say_end()

    def _say_end(self) -> None:
        if self._ends and not self._end_said and not self._closed:
            self._end_said = True
            self._send(wire.EOF, b"")

    def write_eof(self) -> None:
        self._ends = True
        if not self._waiting:
            self._say_end()

    def can_write_eof(self) -> bool:
        return True

    def abort(self) -> None:
        self._loop.call_soon(self._lose, None)

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        # Not at once: a StreamReader resumes before it starts to wait for what then comes.
        self._loop.call_soon(self._deliver_held)

    def _deliver_held(self) -> None:
        if self._held and not self._closed and not self._paused:
            held, self._held = bytes(self._held), bytearray()
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(held)
            self._acknowledge(len(held))

    def is_reading(self) -> bool:
        return not self._paused

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default
