"""A server that means harm: it may fail a call, but it gets nothing, keeps nothing busy and counts nothing wrong."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

import pytest
from scripted_server import USAGE, Handler, Server, answer, chat, raw

from engine.openai import OpenAIEngine, client
from engine.openai.bounded_http import MAX_ERROR, MAX_REPLY
from engine.openai.reply import most_characters
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
QUESTION = CompletionRequest(messages=[{"role": "user", "content": "hi"}])


def asked(url: str, request: CompletionRequest = QUESTION, **options: object) -> tuple[Completion, float]:
    """The reply, and the longest time in which nothing else ran on the event loop."""

    async def run() -> tuple[Completion, float]:
        stalls = [0.0]

        async def beat() -> None:
            last = time.monotonic()
            while True:
                await asyncio.sleep(0.01)
                now = time.monotonic()
                stalls.append(now - last)
                last = now

        engine = OpenAIEngine("m", url, "secret-key", **({"timeout_s": 5.0, "max_attempts": 1} | options))  # type: ignore[arg-type]
        beating = asyncio.create_task(beat())
        try:
            reply = await engine.complete(request)
            await asyncio.sleep(0.02)
            return reply, max(stalls)
        finally:
            beating.cancel()
            await engine.close()

    return asyncio.run(run())


def refused(url: str, request: CompletionRequest = QUESTION, **options: object) -> str:
    with pytest.raises(EngineFailed) as caught:
        asked(url, request, **options)
    assert len(str(caught.value)) < 2000
    return str(caught.value)


@contextmanager
def sending(write: Callable[[Callable[[bytes], None]], None]) -> Iterator[str]:
    """The URL of a server that reads a request and then writes what it likes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), connection:
                    read = b""
                    while b"\r\n\r\n" not in read or not read.endswith(b"}"):
                        read += connection.recv(65536)
                    write(connection.sendall)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.close()


def test_nothing_is_sent_on(server: Server) -> None:
    other = Server()
    threading.Thread(target=other.serve_forever, daemon=True).start()
    other.script = [chat("stolen")]
    targets = [other.url.replace("127.0.0.1", "localhost") + "/chat/completions", "/v1/else", "file:///etc/passwd"]
    try:
        for status in (301, 302, 303, 307, 308):
            for target in targets:
                server.asked.clear()
                server.script = [raw(status, b"", Location=target)]
                told = refused(server.url, max_attempts=3)
                assert f"status {status}" in told
                assert repr(target) in told
                assert len(server.asked) == 1, "asking again leads nowhere else"
    finally:
        other.shutdown()
        other.server_close()
    assert other.asked == []


def endless(send: Callable[[bytes], None]) -> None:
    send(CHUNKED)
    while True:
        send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def endless_refusal(send: Callable[[bytes], None]) -> None:
    send(CHUNKED.replace(b"200 OK", b"400 No"))
    while True:
        send(b"10000\r\n" + b"no " * (0x10000 // 3) + b"!\r\n")


def byte_by_byte(send: Callable[[bytes], None]) -> None:
    send(CHUNKED)
    while True:
        send(b"1\r\n \r\n" * 10_000)


def endless_header(send: Callable[[bytes], None]) -> None:
    send(HEAD)
    while True:
        send(b"X-More: " + b"a" * 10_000 + b"\r\n")


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (endless, "more than 16 MiB"),
        (endless_refusal, "status 400: no no"),
        (byte_by_byte, "too many pieces"),
        (endless_header, "broke off"),
    ],
)
def test_what_does_not_end_is_cut_off(write: Callable[[Callable[[bytes], None]], None], words: str) -> None:
    with sending(write) as url:
        assert words in refused(url, timeout_s=60.0)
    assert MAX_ERROR < MAX_REPLY


def test_slow_bytes_and_endless_interim_replies_end_at_the_timeout() -> None:
    def interim(send: Callable[[bytes], None]) -> None:
        while True:
            send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            time.sleep(0.01)

    def slow(send: Callable[[bytes], None]) -> None:
        for byte in HEAD + b"X: " + b"a" * 1000:
            send(bytes([byte]))
            time.sleep(0.05)

    for write in (interim, slow):
        with sending(write) as url:
            assert "within timeout_s=0.5" in refused(url, timeout_s=0.5)


def test_nothing_is_unpacked(server: Server) -> None:
    bomb = zlib.compress(b" " * (1 << 26))
    for packed in ("deflate", "gzip", "gzip, gzip", "br", "zstd"):
        server.script = [raw(200, bomb, Content_Encoding=packed)]
        assert f"the reply is packed ({packed!r})" in refused(server.url)
    assert all(headers["accept-encoding"] == "identity" for _, _, headers in server.asked)


@pytest.mark.parametrize("charset", ["zlib", "bz2", "punycode", "idna", "undefined", "unicode_escape", "utf-16"])
def test_headers_choose_no_codec(server: Server, charset: str) -> None:
    kind = f"application/json; charset={charset}"
    server.script = [raw(200, b'{"choices": [{"message": {"content": "caf\xc3\xa9"}}]}', kind)]
    assert asked(server.url)[0].text == "café"
    server.script = [raw(400, b"-" + b"a" * 50_000, kind)]
    assert "status 400: -aaa" in refused(server.url)


def test_a_server_cannot_refuse_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each refusal leaves room for one token less."""
    monkeypatch.setattr(client, "MAX_REFUSALS", 5)
    contexts = count(8192 + 99, -1)

    def refuse(handler: Handler) -> None:
        told = f"maximum context length is {next(contexts)} tokens: 100 in the messages, 8192 in the completion"
        answer(400, {"error": {"message": told}})(handler)

    server.script = [refuse]
    assert "refused 5 times" in refused(server.url, max_attempts=3)
    assert len(server.asked) == 5


def test_cookies_are_not_kept(server: Server) -> None:
    async def run() -> None:
        engine = OpenAIEngine("m", server.url)
        for _ in range(2):
            await engine.complete(QUESTION)
        await engine.close()

    server.script = [answer(200, {"choices": [{"message": {"content": "x"}}]}, Set_Cookie="who=you; Path=/")]
    asyncio.run(run())
    assert all("cookie" not in headers for _, _, headers in server.asked)


BIG = "[]," * 500_000
HEAVY = {
    "choices": '{"choices": [' + BIG + "{}]}",
    "an error": '{"error": [' + BIG + "1]}",
    "log-probabilities": '{"choices": [{"message": {"content": "x"}, "logprobs": {"content": [' + BIG + "1]}}]}",
    "calls": '{"choices": [{"message": {"content": "x", "tool_calls": [' + BIG + "1]}}]}",
    "what nobody reads": '{"choices": [{"message": {"content": "x"}}], "more": [' + BIG + "1]}",
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_reply_that_no_tokens_have_is_not_parsed(server: Server, name: str) -> None:
    server.script = [raw(200, HEAVY[name])]
    assert "characters, which no 8,192 tokens have" in refused(server.url)


def test_what_is_parsed_holds_up_nobody_for_long(server: Server) -> None:
    room = most_characters(QUESTION)
    heavy = '{"choices": [{"message": {"content": "x"}}], "more": [' + "[]," * ((room - 100) // 3) + "1]}"
    server.script = [raw(200, heavy)]
    assert len(heavy) > room * 0.9
    assert asked(server.url)[1] < 3.0  # some tenths of a second


def test_all_of_a_long_reply_fits(server: Server) -> None:
    sampling = Sampling(max_tokens=2000, logprobs=True)
    each = {"token": "\ud83d", "logprob": -0.12345678901234567, "bytes": [240, 159, 152, 128], "top_logprobs": []}
    each["top_logprobs"] = [dict(each)]
    server.script = [
        chat(
            "\u4e2d" * 4000,
            choice={"logprobs": {"content": [each] * 2000}, "token_ids": [200_000] * 2000},
            prompt_token_ids=[200_000] * 10,
        )
    ]
    request = CompletionRequest(messages=[{"role": "user", "content": "hi"}], sampling=sampling)
    reply, _ = asked(server.url, request, extra_body={"return_token_ids": True})
    assert len(reply.logprobs or []) == len(reply.token_ids or []) == 2000


@pytest.mark.parametrize("count", [-1, -(10**9), 10**30, float("nan"), float("inf"), 1.5, "7", None, True, [1]])
def test_counts_that_cannot_be_are_estimated(server: Server, count: object) -> None:
    server.script = [chat("hello" * 8, usage={"prompt_tokens": count, "completion_tokens": count})]
    usage = asked(server.url)[0].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 10)
    server.script = [chat("hello", usage=USAGE | {"prompt_tokens_details": {"cached_tokens": count}})]
    assert asked(server.url)[0].usage.prefix_tokens is None


@pytest.mark.parametrize("usage", [None, [], "lots", {}])
def test_a_reply_without_usage_is_served_and_counted(server: Server, usage: object) -> None:
    server.script = [chat("four tokens here", usage=usage)]
    assert asked(server.url, prices=(1.0, 1.0))[0].usage.total_tokens == 9
    server.script = [answer(200, {"choices": [{"text": "x", "token_ids": [5, 6, 7]}]})]
    request = CompletionRequest(token_ids=[3, 1, 4])
    assert asked(server.url, request)[0].usage.total_tokens == 6


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 10**400, 5.0, "0", None, True])
def test_log_probabilities_that_are_none_are_refused(server: Server, value: object) -> None:
    told = f"{value}" if value != 10**400 else "1" + "0" * 400
    body = '{"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"logprob": VALUE}]}}]}'
    told = {None: "null", True: "true", "0": '"0"'}.get(value, told.replace("nan", "NaN").replace("inf", "Infinity"))  # type: ignore[call-overload]
    server.script = [raw(200, body.replace("VALUE", told))]
    request = CompletionRequest(messages=QUESTION.messages, sampling=Sampling(logprobs=True))
    assert "log-probabilities hold" in refused(server.url, request)


PARTS: dict[str, tuple[object, str, str | None]] = {
    "texts": ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab", None),
    "a text of the other interface": ([{"type": "output_text", "text": "a"}], "a", None),
    "a thought": ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a", "hm"),
    "a thought of texts": (
        [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}],
        "a",
        "hm",
    ),
    "a thought in tags": ([{"type": "text", "text": "<think>hm</think>a"}], "a", "hm"),
    "a refusal": ([{"type": "refusal", "refusal": "no"}], "no", None),
    "an empty text": ([{"type": "text", "text": ""}], "", None),
}


@pytest.mark.parametrize("name", PARTS)
def test_content_may_be_a_list_of_parts(server: Server, name: str) -> None:
    content, text, reasoning = PARTS[name]
    server.script = [chat(message={"content": content})]
    reply = asked(server.url)[0]
    assert (reply.text, reply.reasoning) == (text, reasoning)


def test_halves_of_surrogate_pairs_become_question_marks(server: Server) -> None:
    escaped = r'{"choices": [{"message": {"content": "a\ud800b \\ud800 \ud83d\ude00 \uDE00"}, "index": "\udc00"}]}'
    server.script = [raw(200, escaped)]
    assert asked(server.url)[0].text == "a?b \\ud800 \U0001f600 ?"
    server.script = [raw(200, b'{"choices": [{"message": {"content": "a\xed\xa0\x80b"}}]}')]
    assert asked(server.url)[0].text.startswith("a\ufffd")


def test_passwords_in_addresses_are_not_shown() -> None:
    told = refused("http://user:hunter2@127.0.0.1:1/v1")
    assert "hunter2" not in told
    assert "openai:m@http://127.0.0.1:1/v1" in told
