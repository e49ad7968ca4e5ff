"""Completions from vLLM with exact tokens: its engine in this job, or a `vllm serve` elsewhere.

vLLM (the extra `vllm`) is imported when an engine is made. Not here: servers asked with messages (`engine.openai`).
"""

from engine.vllm.in_process import VLLMEngine, sampling_params
from engine.vllm.served import ServedEngine

__all__ = [
    "ServedEngine",
    "VLLMEngine",
    "sampling_params",
]
