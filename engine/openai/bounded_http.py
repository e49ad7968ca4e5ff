"""The HTTP client under the `openai` library, for servers that are not believed: what one of them sends is bounded.

A reply has at most `MAX_REPLY` bytes as they come over the wire, and is neither unpacked nor decoded as its headers
say. Redirections are not followed, so that nothing that was meant for one host reaches another. Cookies are dropped.
Not here: time (`engine.openai.client` bounds it) and meaning (`engine.openai.reply`). Importing this module imports the
library.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from typing import Any

from openai import DefaultAsyncHttpxClient

from engine.openai.refusal import Fault

http: Any = importlib.import_module(DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
"""What the library itself speaks HTTP with: httpx, or its successor."""
MAX_REPLY = 16 << 20
"""Bytes: some hundred thousand tokens with their log-probabilities. What it costs to read so much stays bearable."""
MAX_ERROR = 64 << 10
"""Bytes that are looked at where a server refuses."""
_PIECE = 256
"""Bytes that a piece of a reply counts for at least: a server may send them one by one, and each costs time."""
_PAUSE = 64
"""Pieces between two pauses in which others on the event loop come in."""
EVENTS = "text/event-stream"
"""What a reply is that is shown while it is written."""
_KEPT = ("retry-after", "retry-after-ms", "location")


class BoundedClient(DefaultAsyncHttpxClient):
    """Gives replies with the headers that mean something to us, as UTF-8; whole, but for a stream of events. Raises
    `Fault` for what is too large or packed; the library makes it the cause of an `APIConnectionError`."""

    async def send(self, request: Any, **options: Any) -> Any:
        request.headers["Accept-Encoding"] = "identity"
        own: dict[str, Any] = {"stream": True, "follow_redirects": False}
        response = await super().send(request, **options | own)
        headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
        if options.get("stream") and response.status_code < 300 and EVENTS in response.headers.get("content-type", ""):
            given: dict[str, Any] = {"headers": {**headers, "content-type": EVENTS}, "stream": _Events(response)}
        else:
            try:
                given = {"headers": headers, "content": b"".join([part async for part in _pieces(response)])}
            finally:
                await response.aclose()
        self.cookies.clear()
        return type(response)(response.status_code, request=request, **given)


class _Events(http.AsyncByteStream):
    """A stream of events, bounded as a whole reply is."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in _pieces(self._response):
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()


async def _pieces(response: Any) -> AsyncIterator[bytes]:
    """What comes over the wire, up to the bounds above: past them a good reply is a `Fault`, and a refusal ends."""
    good = response.status_code < 300
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed != "identity" and good:
        raise Fault(
            f"the reply is packed ({packed[:40]!r}) though it was asked for as it is",
            "have the server or gateway send `Content-Encoding: identity` when it is asked to",
            status=response.status_code,
        )
    count = counted = size = 0
    most = MAX_REPLY if good else MAX_ERROR
    async for part in response.aiter_raw():
        count, counted = count + 1, counted + max(len(part), _PIECE)
        yield part[: most - size]
        size += len(part)
        if counted > most:
            if not good:
                return  # enough to say what it is
            raise Fault(
                f"the reply has more than {most >> 20} MiB, or comes in too many pieces",
                "lower `max_tokens`, or see what the server sends",
                status=response.status_code,
                retry=False,
            )
        if count % _PAUSE == 0:
            await asyncio.sleep(0)
