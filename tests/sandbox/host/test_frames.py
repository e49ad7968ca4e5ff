"""Frames: what is sent arrives, and nothing that arrives does harm."""

import asyncio
import contextlib
import json
import socket
import struct
import threading
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.frames import (
    HEADER,
    MAX_BRACKETS,
    MAX_DEPTH,
    MAX_FRAME,
    MAX_VALUES,
    BlockingChannel,
    ChannelClosed,
    FrameError,
    decode,
    encode,
    read_frame,
    weigh,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
MESSAGE = st.dictionaries(st.text(), JSON, max_size=5)


async def read_all(data: bytes) -> list:
    """Every frame in a stream that ends after `data`."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    frames = []
    while (read := await asyncio.wait_for(read_frame(reader), 5)) is not None:
        frames.append(read[0])
    return frames


@settings(max_examples=40, deadline=None)
@given(st.lists(MESSAGE, max_size=5))
def test_messages_survive_the_channel(messages):
    data = b"".join(map(encode, messages))
    assert asyncio.run(read_all(data)) == messages


@settings(max_examples=40, deadline=None)
@given(st.lists(MESSAGE, min_size=1, max_size=3), st.data())
def test_a_torn_stream_gives_the_whole_frames_and_ends(messages, data):
    stream = b"".join(map(encode, messages))
    cut = data.draw(st.integers(0, len(stream) - 1))
    frames = asyncio.run(read_all(stream[:cut]))
    assert frames == messages[: len(frames)]
    assert len(frames) < len(messages)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error_or_an_end(data):
    try:
        frames = asyncio.run(read_all(data))
    except FrameError:
        return
    assert all(isinstance(frame, dict) for frame in frames)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_body_is_an_object_or_an_error(body):
    with contextlib.suppress(FrameError):
        assert isinstance(decode(body), dict)


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (HEADER.pack(MAX_FRAME + 1), "over the cap"),
        (HEADER.pack(2**32 - 1), "over the cap"),
        (framed(b""), "not JSON"),
        (framed(b"[]"), "not an object but list"),
        (framed(b'"text"'), "not an object but str"),
        (framed(b"null"), "not an object but NoneType"),
        (framed(b'{"a": 1'), "not JSON"),
        (framed(b'{"a": 1} {"b": 2}'), "not JSON"),
        (framed(b"\xff\xfe{\x00}\x00"), "not JSON: UnicodeDecodeError"),
        (framed('{"a": "\u00e9"}'.encode("latin-1")), "not JSON: UnicodeDecodeError"),
        (framed(b'{"a": ' + b"9" * 5000 + b"}"), "not JSON: ValueError"),
        (framed(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "not JSON: RecursionError|nested deeper"),
        (framed(b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}"), f"nested deeper than {MAX_DEPTH}"),
        (framed(b'{"a":' * 70 + b"1" + b"}" * 70), f"nested deeper than {MAX_DEPTH}"),
        (framed(b'{"a": [' + b"[]," * (MAX_BRACKETS + 1) + b"1]}"), "brackets"),
        (framed(b'{"a": [' + b"1," * MAX_VALUES + b"1]}"), "values"),
    ],
)
def test_what_is_not_a_frame_is_refused(data, expected):
    with pytest.raises(FrameError, match=expected):
        asyncio.run(read_all(data))


def test_a_giant_length_allocates_nothing():
    async def attempt() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(HEADER.pack(2**32 - 1) + b"x" * 100)
        with pytest.raises(FrameError):
            await read_frame(reader)

    tracemalloc.start()
    asyncio.run(attempt())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.thorough
@pytest.mark.parametrize("item", [b"[]", b"1.5", b'"ab"', b'{"a":1}'])
def test_a_frame_is_refused_before_it_takes_much_memory(item):
    size = 1 << 20
    body = b'{"a": [' + (item + b",") * (size // (len(item) + 1)) + b"1]}"
    tracemalloc.start()
    with pytest.raises(FrameError, match=r"brackets|values"):
        asyncio.run(read_all(framed(body)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * size


def test_the_weight_grows_with_what_a_frame_takes():
    empty = weigh({})
    assert empty >= 1024, "a flood of small frames is charged"
    assert weigh({"a": "x" * 1000}) > empty + 1000
    assert weigh({"a": 1 << 8000}) > empty + 1000
    assert weigh({"a": "x" * 1000 + "\U0001f600"}) > empty + 4000, "one wide character makes all of them wide"
    assert weigh({"k" * 1000: 1}) > empty + 1000
    assert weigh({"a": [0] * 1000}) > empty + 50_000


def test_duplicate_keys_cannot_say_two_things():
    assert decode(b'{"op": "print", "op": "answer", "text": "a", "text": "b"}') == {"op": "answer", "text": "b"}


def test_nan_and_infinity_stay_text():
    assert decode(b'{"a": NaN, "b": [Infinity, -Infinity, 1e999, 1.5]}') == {
        "a": "NaN",
        "b": ["Infinity", "-Infinity", "1e999", 1.5],
    }
    json.dumps(decode(encode({"a": float("nan")})[4:]), allow_nan=False)


def test_lone_surrogates_become_question_marks():
    assert decode(encode({"a": "x\ud800y"})[4:]) == {"a": "x?y"}


def test_a_lone_surrogate_in_an_escape_is_refused_and_text_about_escapes_is_not():
    for body in (b'{"a": "\\ud800"}', b'{"\\uDC00": 1}', b'{"a": ["\\udc00\\ud800"]}'):
        with pytest.raises(FrameError, match="UnicodeEncodeError"):
            decode(body)
    assert decode(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    for text in ("\\ud800", "print('\\ud83d\\ude00')"):
        assert decode(encode({"a": text})[4:]) == {"a": text}


def test_too_large_a_message_is_not_sent():
    with pytest.raises(FrameError, match="over the cap"):
        encode({"a": "x" * MAX_FRAME})


def test_the_blocking_end():
    ours, theirs = socket.socketpair()
    channel = BlockingChannel(theirs.fileno())
    message = {"text": "\u00e9" * 2_000_000}
    sender = threading.Thread(target=channel.send, args=(message,))
    sender.start()  # does not fit into the socket's buffer at once
    received = bytearray()
    while len(received) < len(encode(message)):
        received += ours.recv(1 << 20)
    sender.join(5)
    assert decode(bytes(received[4:])) == message
    for byte in encode({"a": [1, "b"]}):
        ours.send(bytes([byte]))  # however it is cut
    assert channel.receive() == {"a": [1, "b"]}
    ours.send(struct.pack("<I", 10) + b"half")
    ours.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    with pytest.raises(ChannelClosed):
        channel.send({"a": 1})
    theirs.close()


@settings(max_examples=30, deadline=None)
@given(MESSAGE)
def test_weighing_accepts_what_fits(message):
    assert weigh(message) >= 1024
