"""Completions from vLLM with exact tokens: its engine in this job, or a `vllm serve` elsewhere; new weights for it.

vLLM (the extra `vllm`) is imported when an engine is made. Not here: servers asked with messages (`engine.openai`), the
trainer, and who starts and ends processes.
"""

from engine.vllm.control_client import ControlClient
from engine.vllm.in_process import VLLMEngine, sampling_params
from engine.vllm.remains import family, files_of
from engine.vllm.served import ServedEngine
from engine.vllm.transfer import Sender, Sent, Transfer, TransferFailed
from engine.vllm.weight_stream import Tally, Weight, ZeroSource, told_of

__all__ = [
    "ControlClient",
    "Sender",
    "Sent",
    "ServedEngine",
    "Tally",
    "Transfer",
    "TransferFailed",
    "VLLMEngine",
    "Weight",
    "ZeroSource",
    "family",
    "files_of",
    "sampling_params",
    "told_of",
]
