"""The bare mechanism of `docker/warm`: one container, its relay spoken to with blocking calls, `print(1)` in a loop.

What `benchmarks.sandbox` holds the Docker backend against: the same container, relay and jails without a pool, an
event loop, clocks and caps. Prints a JSON list of seconds per run.

    python -m benchmarks.bare_container 200
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator

from benchmarks.bare_jail import LIMITS, WARM_UPS
from sandbox.containers import Box, Daemon, wire
from sandbox.image import image_tag

TIMEOUT_S = 60.0
SPAWN = json.dumps({"limits": LIMITS, "workspace": None}).encode() + b"\nprint(1)"

Frame = tuple[int, int, int, bytes]


def main(count: int) -> list[float]:
    daemon = Daemon("benchmark")
    daemon.open(image_tag(), "warm")
    try:
        started = daemon.start(image_tag(), "code", "warm", Box(), ())
        try:
            started.socket.settimeout(TIMEOUT_S)
            frames = received(started.socket)
            if next(frames)[0] != wire.READY:
                raise SystemExit("the container did not get ready")
            return [one(started.socket, frames, number) for number in range(1, WARM_UPS + count + 1)][WARM_UPS:]
        finally:
            started.socket.close()
            daemon.remove(started.id)
    finally:
        daemon.close()


def received(stdio: socket.socket) -> Iterator[Frame]:
    """Frames out of Docker's stream, whose parts have a byte for their source, three zeros and a length."""
    frames = wire.Frames(wire.MAX_REPLY)
    with stdio.makefile("rb") as parts:
        while header := parts.read(8):
            part = parts.read(int.from_bytes(header[4:]))
            if header[0] != 1:
                raise SystemExit(f"the relay complained: {part[:500].decode(errors='replace')}")
            yield from frames.feed(part)
    raise SystemExit("the container has ended")


def one(stdio: socket.socket, frames: Iterator[Frame], number: int) -> float:
    began = time.perf_counter()
    stdio.sendall(wire.frame(wire.SPAWN, number, SPAWN) + wire.frame(wire.EOF, number, stream=wire.STDIN))
    printed = b""
    for operation, _, stream, payload in frames:
        if operation == wire.DATA and stream == wire.STDOUT:
            printed += payload
        elif operation in (wire.EXITED, wire.FAILED):
            break
    if printed != b"1\n":
        raise SystemExit(f"the jail said {printed!r} instead of 1")
    return time.perf_counter() - began


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m benchmarks.bare_container COUNT")
    print(json.dumps(main(int(sys.argv[1]))))
