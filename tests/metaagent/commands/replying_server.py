"""A small endpoint whose replies follow from messages and seed, whatever was asked before. It may be slow."""

from __future__ import annotations

import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ReplyingServer(ThreadingHTTPServer):
    """`with ReplyingServer() as server:` serves until the end; `spec` is it as an engine."""

    daemon_threads = True

    def __init__(self, pause_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pause_s = pause_s
        self.asked: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def spec(self) -> str:
        return f"openai:small@http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> ReplyingServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked may be gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ReplyingServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        dice = random.Random(json.dumps([body["messages"], body["seed"]]))
        time.sleep(self.server.pause_s * dice.random())
        said = f"Draft {dice.randrange(1000)}. \\boxed{{{dice.choice('24')}}}"
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
        about = {"id": "r", "object": "chat.completion", "created": 0, "model": "small"}
        reply = {**about, "choices": [choice], "usage": usage}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...
