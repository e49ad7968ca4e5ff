"""A chat reply that is shown while it is written, put together to the body that the server would have sent whole.

What the body means is `engine.openai.reply`'s part, sending and retrying `engine.openai.client`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from engine.openai.refusal import Fault

DATA = "data:"
END = "[DONE]"


async def streamed(completions: Any, body: dict[str, Any], watch: Callable[[str], None]) -> str:
    """The body of one reply; `watch` gets each piece of its text. Raises `Fault` for a stream that breaks off, and what
    the library raises for a request that fails."""
    import openai

    asked = body | {"stream": True, "stream_options": {"include_usage": True}}
    whole = _Whole()
    try:
        async with completions.with_streaming_response.create(**asked) as response:
            if "event-stream" not in response.headers.get("content-type", ""):  # a server that does not stream
                return (await response.read()).decode("utf-8", "replace")
            async for line in response.iter_lines():
                line = line.removeprefix("\ufeff")
                if line.startswith(DATA) and (data := line.removeprefix(DATA).strip()) != END:
                    chunk = json.loads(data)
                    if not isinstance(chunk, dict) or chunk.get("error"):
                        return data
                    if piece := whole.add(chunk):
                        watch(piece)
    except (openai.OpenAIError, Fault):
        raise
    except Exception as error:  # of the library's transport, which is not always the same one, or of a piece's form
        raise _broken_off(f"{type(error).__name__}: {error}") from error
    if whole.finish is None:
        raise _broken_off("it never ended")
    return whole.body()


def _broken_off(why: str) -> Fault:
    return Fault(f"the reply broke off while it was streamed ({why})", "see whether the server runs")


class _Whole:
    """What has come so far."""

    def __init__(self) -> None:
        self.content, self.reasoning = "", ""
        self.calls: dict[int, dict[str, str]] = {}
        self.finish: str | None = None
        self.rest: dict[str, Any] = {}

    def add(self, chunk: dict[str, Any]) -> str:
        """Take in one chunk; returns what it adds to the text."""
        self.rest |= {name: chunk[name] for name in ("model", "usage") if chunk.get(name)}
        piece = ""
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            piece += delta.get("content") or ""
            self.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or []:
                made = self.calls.setdefault(call.get("index", 0), {"name": "", "arguments": ""})
                for name in made:
                    made[name] += (call.get("function") or {}).get(name) or ""
            self.finish = choice.get("finish_reason") or self.finish
        self.content += piece
        return piece

    def body(self) -> str:
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [{"function": call} for _, call in sorted(self.calls.items())]
        return json.dumps(self.rest | {"choices": [{"message": message, "finish_reason": self.finish}]})
