"""Engines by name, as people write them on a command line: `openai:MODEL@URL`, `transformers:PATH` and so on.

Only the form is checked here; what an engine itself refuses, it refuses when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from engine.local import TransformersEngine
from engine.openai import OpenAIEngine
from engine.protocol import Engine
from engine.replay import ReplayEngine
from engine.vllm import ServedEngine, VLLMEngine
from workflow.checks import nearest

FORMS = {
    "openai": "openai:MODEL or openai:MODEL@BASE_URL (such as openai:qwen3-8b@http://localhost:8000/v1)",
    "transformers": "transformers:FOLDER_OR_HUB_ID",
    "vllm": "vllm:FOLDER_OR_HUB_ID, or vllm:FOLDER_OR_HUB_ID@BASE_URL for one that `vllm serve` holds",
    "replay": "replay:FILE",
}

_AT_URL = re.compile(r"(?P<model>.+?)(?:@(?P<url>https?://.+))?")  # a model's own name may hold an @
_BARE_HOST = re.compile(r"@[\w.-]+:\d")


def parse_engine(spec: str, cache: Path | None = None, also: Mapping[str, str] | None = None) -> Engine:
    """The engine that `spec` names, with that engine's defaults; `cache` is a folder for the replies of an endpoint.

    `also` holds names that the caller itself takes, each with how it is written, for the message that lists all.
    Raises ValueError for an unknown or incomplete form, or a cache where there is no endpoint; `EngineFailed` for what
    the engine refuses.
    """
    kind, _, rest = spec.partition(":")
    if kind not in FORMS or not rest:
        known = FORMS | dict(also or {})
        guess = kind if kind in known else nearest(kind.lower(), known)
        forms = known[guess] if guess else "; ".join(known.values())
        raise ValueError(f"unknown engine {spec!r}. Fix: write {forms}")
    if cache is not None and kind != "openai":
        raise ValueError(f"{spec!r} is no endpoint, so there is nothing to cache. Fix: leave the cache out")
    if kind == "transformers":
        return TransformersEngine(rest)
    if kind == "replay":
        return ReplayEngine(rest)
    parts = _AT_URL.fullmatch(rest)
    remote = kind == "openai" or (parts is not None and parts["url"])  # vLLM itself reads models from s3:// and others
    if parts is None or (remote and "://" in parts["model"]) or _BARE_HOST.search(parts["model"]):
        raise ValueError(f"engine {spec!r} needs a model, and a URL with its scheme. Fix: write {FORMS[kind]}")
    if kind == "vllm":
        return ServedEngine(parts["model"], parts["url"]) if parts["url"] else VLLMEngine(rest)
    engine = OpenAIEngine(parts["model"], parts["url"])
    if cache is None:
        return engine
    from engine.openai import CachedEngine

    return CachedEngine(engine, cache)
