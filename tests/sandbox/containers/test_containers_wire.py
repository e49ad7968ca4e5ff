"""Bytes from a container, however they are cut and whatever they are: understood, or refused without a fuss."""

import asyncio
import random
import struct
from itertools import pairwise

import pytest
from growth import check_linear, peak_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.containers import wire
from sandbox.containers.container import Connection
from sandbox.containers.streams import JailStream
from sandbox.host.spawner import CodeStreams

NUMBERS = st.integers(0, 2**32 - 1)
FRAMES = st.lists(st.tuples(st.integers(0, 255), NUMBERS, st.integers(0, 255), st.binary(max_size=60)), max_size=8)


def cut(data, points):
    edges = sorted({0, len(data), *(point % (len(data) + 1) for point in points)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(FRAMES, st.lists(st.integers(0, 2**16)))
def test_frames_survive_any_cutting(frames, points):
    data = b"".join(wire.frame(operation, number, body, stream) for operation, number, stream, body in frames)
    reader = wire.Frames(1000)
    assert [frame for part in cut(data, points) for frame in reader.feed(part)] == frames


@given(FRAMES, st.lists(st.integers(0, 2**16)))
def test_dockers_streams_survive_any_cutting(frames, points):
    data = b"".join(wire.frame(operation, number, body, stream) for operation, number, stream, body in frames)
    parts = cut(data, points)
    sent = b"".join(struct.pack(">BxxxI", 1, len(part)) + part + struct.pack(">BxxxI", 2, 1) + b"e" for part in parts)

    async def main():
        connection = Connection("code", "docker/warm", lambda _: None)
        received = b"".join(part for piece in cut(sent, points[::-1]) for part in connection._divided(piece))
        assert received == data
        assert bytes(connection.errors) == b"e" * len(parts)

    asyncio.run(main())


KNOWN = st.sampled_from([1, 2, 3, 11, 20, 21, 22, 23])
LIKELY = st.lists(
    st.tuples(
        KNOWN, st.integers(0, 2), st.integers(0, 3), st.binary(max_size=20) | st.just(b'{"error":1,"errno":2,"fix":[]}')
    )
)


@settings(max_examples=300)
@given(st.binary(max_size=300) | LIKELY, st.booleans())
def test_no_bytes_of_a_container_raise(said, docker):
    if not isinstance(said, bytes):
        said = b"".join(wire.frame(operation, number, body, stream) for operation, number, stream, body in said)
        said = struct.pack(">BxxxI", 1, len(said)) + said if docker else said

    async def main():
        lost = []
        connection = Connection("code", "docker/warm", lost.append, docker=docker)
        streams = CodeStreams(asyncio.BaseProtocol(), asyncio.Protocol(), asyncio.Protocol())
        await connection.open_code(b"1", {}, None, streams)
        connection.data_received(said)
        connection.data_received(said)
        connection.fail("the end")
        assert lost == [connection]
        assert connection.idle

    asyncio.run(main())


def of_docker(*parts, source=1):
    return b"".join(struct.pack(">BxxxI", source, len(part)) + part for part in parts)


def at_once(data):
    return [data]


def bytewise(data):
    return [data[at : at + 1] for at in range(len(data))]


FAMILIES = {
    "small frames": lambda n: at_once(of_docker(wire.frame(wire.DATA, 1, b"x", wire.STDOUT) * n)),
    "frames of nothing": lambda n: at_once(of_docker(wire.frame(wire.CREDIT, 9) * n)),
    "small frames, each in a part of its own": lambda n: at_once(of_docker(*[wire.frame(wire.DATA, 1, b"x", 1)] * n)),
    "parts of nothing": lambda n: at_once(of_docker(*[b""] * n)),
    "parts of stderr": lambda n: at_once(of_docker(*[b"e" * 9] * n, source=2)),
    "one frame, byte by byte": lambda n: bytewise(of_docker(wire.frame(wire.DATA, 1, b"x" * n, wire.STDOUT))),
    "one frame, in parts of a byte": lambda n: at_once(of_docker(*bytewise(wire.frame(wire.DATA, 1, b"x" * n, 1)))),
    "one frame that never ends": lambda n: bytewise(of_docker(wire.frame(wire.DATA, 1, b"x" * n)[: n // 2])),
    "a failure with a long reason": lambda n: at_once(
        of_docker(wire.frame(wire.FAILED, 1, b'{"error":"' + b"e" * n + b'","errno":1,"fix":"' + b"f" * n + b'"}'))
    ),
    "a failure nested deeply": lambda n: at_once(of_docker(wire.frame(wire.FAILED, 1, b"[" * n + b"]" * n))),
}


def receive(pieces):
    """What a connection with one run of code, whose output nobody reads, makes of what its relay sends."""

    async def main():
        connection = Connection("code", "docker/warm", lambda _: None, docker=True)
        readers = [asyncio.StreamReader() for _ in range(2)]
        stdout, stderr = (asyncio.StreamReaderProtocol(reader) for reader in readers)
        await connection.open_code(b"1", {}, None, CodeStreams(asyncio.BaseProtocol(), stdout, stderr))
        for piece in pieces:
            connection.data_received(piece)
        return connection.lost

    return asyncio.run(main())


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_container_sends_costs_time_in_proportion_to_its_size(family):
    def work(size):
        pieces = FAMILIES[family](size)
        return lambda: receive(pieces)

    check_linear(family, work, 20_000)


FLOODS = {
    "output that nobody reads": of_docker(wire.frame(wire.DATA, 1, b"x" * wire.CHUNK, wire.STDOUT)),
    "stderr of the relay": of_docker(b"e" * wire.CHUNK, source=2),
    "output of a run that is over": of_docker(wire.frame(wire.DATA, 9, b"x" * wire.CHUNK, wire.STDOUT)),
    "credit": of_docker(wire.frame(wire.CREDIT, 1, wire.COUNT.pack(2**32 - 1), wire.STDIN)),
    "parts of a frame that is too long": of_docker(b"\xff" * wire.CHUNK),
    "a part that is too long": b"\x01\0\0\0\xff\xff\xff\xff" + b"x" * wire.CHUNK,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_container_that_floods_fills_no_memory(flood):
    receive([FLOODS[flood]])  # what is imported and cached at the first time
    peak = peak_bytes(lambda: receive(FLOODS[flood] for _ in range(1000)))
    assert peak < 4 * wire.MAX_REPLY, f"{peak} bytes of memory"


SIZES = st.lists(st.integers(1, 3 * wire.WINDOW), min_size=1, max_size=4)


@settings(max_examples=40)
@given(SIZES, st.integers(100, 1 << 16), st.integers(0, 9999))
def test_a_reader_gets_long_pieces_whole_and_in_order_whatever_its_buffer(sizes, limit, seed):
    """Longer than window and buffer: it pauses, resumes and acknowledges on the way, and must neither stall nor mix."""
    chance = random.Random(seed)
    said = chance.randbytes(sum(sizes))

    async def main():
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=limit)
        credit, given_back = wire.WINDOW, asyncio.Event()

        def send(operation, payload):
            nonlocal credit
            assert operation == wire.CREDIT
            credit += wire.COUNT.unpack(payload)[0]
            given_back.set()

        stream = JailStream(send, asyncio.StreamReaderProtocol(reader), loop)
        stream.start()

        async def relay():
            nonlocal credit
            at = 0
            while at < len(said):
                while not credit:
                    given_back.clear()
                    await given_back.wait()
                part = said[at : at + min(credit, chance.randint(1, wire.CHUNK))]
                credit -= len(part)
                at += len(part)
                stream.received(part)
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            stream.ended()

        async with asyncio.timeout(20):
            relaying = asyncio.create_task(relay())
            got = b"".join([await reader.readexactly(size) for size in sizes])
            await relaying
        assert got == said
        assert await reader.read() == b""

    asyncio.run(main())
