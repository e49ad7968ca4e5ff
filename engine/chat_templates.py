"""Renders chat templates, which are programs that come with models, in a process that can be ended.

`transformers` runs them in jinja's sandbox, which keeps them from files and attributes, but not from loops and
gigabytes. So they run in a child of this process that has no environment and little memory, and that is killed when a
template takes too long; the next one gets a new child. One child serves all models. What is rendered is what
`apply_chat_template` gives. Not here: what is made of the text (`engine.chat`, `engine.tool_form`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

TIMEOUT_S = 10.0
"""For one text. A real template takes a millisecond."""
START_TIMEOUT_S = 120.0
MAX_TEXT = 16 << 20
"""Characters."""
KEPT_TEXTS, KEPT_SIZE = 512, 64 << 10
"""So many of the latest texts are kept, as candidates and executions begin alike; none that is longer, or whose request
is. Nor what a template with `CLOCK` makes."""
CLOCK = "strftime_now"
MEMORY_BYTES = 512 << 20
"""On top of what the child has once it has imported everything."""
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")
_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from engine.chat_templates import serve; serve()"


class TemplateFailed(ValueError):
    """A chat template raised, or was ended."""


def render(tokenizer: Any, turns: Sequence[Any], tools: Sequence[Any] | None = None, **options: Any) -> str:
    """`tokenizer.apply_chat_template(turns, tools, tokenize=False, **options)`. Raises `TemplateFailed`."""
    special = {name: str(each) for name, each in tokenizer.special_tokens_map.items() if not isinstance(each, list)}
    asked = {
        "template": tokenizer.get_chat_template(None, tools),
        "special": special,
        "turns": list(turns),
        "options": {"tools": list(tools) if tools else None, **options},
    }
    return _CHILD.ask(asked)


class _Child:
    """The process, made at the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: dict[bytes, str] = {}
        """By request, the latest last."""

    def ask(self, asked: dict[str, Any]) -> str:
        frame = _packed(asked)
        with self._lock:
            text = self._kept.pop(frame, None)
            if text is None:
                text = self._text(frame)
            if max(len(frame), len(text)) <= KEPT_SIZE and CLOCK not in str(asked["template"]):
                self._kept[frame] = text
                if len(self._kept) > KEPT_TEXTS:
                    del self._kept[next(iter(self._kept))]
            return text

    def _text(self, frame: bytes) -> str:
        process = self._started()
        try:
            _write(process.stdin, frame)
            reply = _read(process.stdout, time.monotonic() + TIMEOUT_S)
        except TimeoutError:
            self.end()
            why = f"the chat template was ended after {TIMEOUT_S:g} s"
            raise TemplateFailed(f"{why}. Fix: use a model whose template you trust") from None
        except OSError as error:  # it is gone: killed for its memory, or by somebody
            self.end()
            raise TemplateFailed(f"the process that renders chat templates died ({error})") from error
        except BaseException:  # interrupted: what it says next would be the reply to this
            self.end()
            raise
        if "text" not in reply:
            raise TemplateFailed(str(reply.get("error"))[:2000])
        return str(reply["text"])

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def forget(self) -> None:
        """After a fork the process is the parent's."""
        self.__init__()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.end()
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=kept | {"HF_HUB_OFFLINE": "1"},
            start_new_session=True,  # Ctrl-C is for the parent
        )
        try:
            ready = _read(self._process.stdout, time.monotonic() + START_TIMEOUT_S)
        except OSError as error:
            ready = {"error": f"{type(error).__name__}: {error}"}
        if ready.get("ready") is not True:
            self.end()
            raise TemplateFailed(f"the process that renders chat templates did not start: {ready.get('error')}")
        return self._process


_CHILD = _Child()
atexit.register(_CHILD.end)
os.register_at_fork(after_in_child=_CHILD.forget)


def serve() -> None:
    """The child: reads requests and writes texts until the parent is gone."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever is printed is no reply
    try:
        from transformers import PreTrainedTokenizerBase

        class Tokenizer(PreTrainedTokenizerBase):
            """What `apply_chat_template` asks of a tokenizer."""

            special_tokens_map: Any = None

            def __init__(self) -> None:
                self.chat_template = None

        tokenizer = Tokenizer()
    except Exception as error:
        _write(replies, _packed({"error": f"{type(error).__name__}: {error}"}))
        return
    _limit()
    _write(replies, _packed({"ready": True}))
    while True:
        try:
            asked = _read(sys.stdin.buffer.raw, None)  # type: ignore[attr-defined]
        except OSError:
            return
        seconds = int(time.process_time() + TIMEOUT_S) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        try:
            Tokenizer.special_tokens_map = asked["special"]
            text = tokenizer.apply_chat_template(
                asked["turns"], chat_template=asked["template"], tokenize=False, **asked["options"]
            )
            if len(text) > MAX_TEXT:
                raise ValueError(f"the chat template made {len(text):,} characters; the limit is {MAX_TEXT:,}")
            reply = _packed({"text": text})
        except Exception as error:
            kind = type(error).__name__
            prefix = "" if kind == "TemplateError" else f"{kind}: "  # what a template says itself
            reply = _packed({"error": prefix + str(error)[:1000]})
        _write(replies, reply)


def _limit() -> None:
    with suppress(OSError, ValueError):  # where /proc is missing nothing says what is in use
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _packed(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return len(body).to_bytes(8, "little") + body


def _write(pipe: BinaryIO | Any, frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[pipe.write(view) :]


def _read(pipe: BinaryIO | Any, deadline: float | None) -> dict[str, Any]:
    """One frame. Raises TimeoutError, and OSError where the other side is gone or says what is no frame."""
    size = int.from_bytes(_exactly(pipe, 8, deadline), "little")
    if size > 8 * MAX_TEXT:
        raise OSError(f"a frame of {size:,} bytes")
    try:
        value = json.loads(_exactly(pipe, size, deadline))
    except (ValueError, RecursionError) as error:
        raise OSError(f"no frame: {error}") from error
    return value if isinstance(value, dict) else {}


def _exactly(pipe: BinaryIO | Any, size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while size:
        if deadline is not None and not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        part = pipe.read(min(size, 1 << 20))
        if not part:
            raise OSError("it is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
