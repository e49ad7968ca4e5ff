"""A server that speaks OpenAI's interface and misbehaves as told: each request gets the next answer of a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]
MOST_REQUESTS = 50


class Server(ThreadingHTTPServer):
    """Gives the answers in `script` in turn (the last one again and again) and records what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Answer] = []
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.busy = 0
        self.most_busy = 0
        self.lock = threading.Lock()
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body, _ in self.asked]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
            number = len(self.server.asked)
            self.server.busy += 1
            self.server.most_busy = max(self.server.most_busy, self.server.busy)
        assert number <= MOST_REQUESTS
        try:
            self.server.script[min(number, len(self.server.script)) - 1](self)
        finally:
            with self.server.lock:
                self.server.busy -= 1

    def send(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}


def raw(status: int, body: bytes | str, content_type: str = "application/json", **headers: str) -> Answer:
    data = body.encode() if isinstance(body, str) else body
    return lambda handler: handler.send(status, data, content_type, **headers)


def answer(status: int, body: object, **headers: str) -> Answer:
    return raw(status, json.dumps(body), **headers)


def chat(content: str | None = "hello", finish: str | None = "stop", **more: Any) -> Answer:
    message = {"role": "assistant", "content": content} | more.pop("message", {})
    choice = {"index": 0, "message": message, "finish_reason": finish} | more.pop("choice", {})
    return answer(200, {"id": "x", "model": "served", "choices": [choice], "usage": USAGE} | more)


def hang_up(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.close()


def cut_short(handler: Handler) -> None:
    handler.send(200, b'{"choices": [{"mess', Content_Length="5000")
    hang_up(handler)


def silent(handler: Handler) -> None:
    handler.server.over.wait(20)
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """A byte now and then: never silent for long, never done."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(400):
        if handler.server.over.wait(0.05):
            break
        try:
            handler.wfile.write(b" ")
        except OSError:
            break
    handler.close_connection = True
