"""Completions from any server that speaks OpenAI's HTTP interface, and a cache of them.

Not here: servers that are asked with token ids (`engine.vllm`).
"""

from engine.openai.cache import CachedEngine
from engine.openai.client import OpenAIEngine

__all__ = [
    "CachedEngine",
    "OpenAIEngine",
]
