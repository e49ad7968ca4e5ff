"""An OpenAI-compatible server in front of any engine, with chat and text completions and vLLM's token ids."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from engine.protocol import Engine
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import LimitExceeded


class TinyServer:
    """Serves until closed; the engine lives on an event loop of its own thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, reply = outer.answer(self.path, body)
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        wants_logprobs = bool(body.get("logprobs"))
        sampling = Sampling(
            temperature=body["temperature"],
            top_p=body.get("top_p", 1.0),
            top_k=max(0, body.get("top_k", 0)),  # -1 is off, as in vLLM
            max_tokens=body["max_tokens"],
            stop=tuple(body.get("stop", ())),
            seed=body.get("seed"),
            logprobs=wants_logprobs,
        )
        is_chat = path.endswith("/chat/completions")
        prompt = {"messages": body["messages"]} if is_chat else {"token_ids": body["prompt"]}
        request = CompletionRequest(sampling=sampling, **prompt)
        done = asyncio.run_coroutine_threadsafe(self.engine.complete(request), self._loop)
        try:
            completion = done.result(timeout=600)
        except LimitExceeded as error:
            told = (
                f"This model's maximum context length is {error.limit:g} tokens; the prompt has {error.used:g} tokens"
            )
            return 400, {"error": {"message": told, "code": "context_length_exceeded"}}
        return 200, _body(completion, is_chat, wants_logprobs)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        asyncio.run_coroutine_threadsafe(self.engine.close(), self._loop).result(timeout=60)
        self._loop.call_soon_threadsafe(self._loop.stop)


def _body(completion: Completion, is_chat: bool, wants_logprobs: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": completion.finish_reason,
        "token_ids": completion.token_ids,
        "prompt_token_ids": completion.prompt_token_ids,
    }
    if is_chat:
        choice["message"] = {"role": "assistant", "content": completion.text}
    else:
        choice["text"] = completion.text
    if wants_logprobs:
        values = completion.logprobs or []
        choice["logprobs"] = (
            {"content": [{"token": "", "logprob": value} for value in values]}
            if is_chat
            else {"token_logprobs": values}
        )
    usage = {
        "prompt_tokens": completion.usage.prompt_tokens,
        "completion_tokens": completion.usage.completion_tokens,
        "total_tokens": completion.usage.total_tokens,
    }
    return {"id": "x", "object": "completion", "model": "tiny", "choices": [choice], "usage": usage}
