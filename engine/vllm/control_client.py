"""What a sender of weights tells several engines: vLLM's `VLLMWeightSyncClient`, with a limit on every wait.

It knows no Ray: how a call reaches an engine is given, and so is nothing else. It moves no weights, but for the handles
of shared memory that vLLM's `ipc` puts into its messages.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

Call = Callable[[str, dict[str, Any]], "Future[Any]"]
"""Starts a method of one engine with keyword arguments. Of a Ray actor, which holds a `VLLMEngine`:
`lambda method, arguments: getattr(actor, method).remote(**arguments).future()`."""


class ControlClient:
    """Takes `engines`, by name, through `begin_receiving`, `receive` and `finish_receiving`, all at once.

    `timeout_s` bounds each step of all engines: the first of them waits for requests under way. Raises TimeoutError,
    which names the engines that did not answer, or what an engine raised.
    """

    def __init__(self, engines: Mapping[str, Call], timeout_s: float) -> None:
        self.engines = dict(engines)
        self.timeout_s = timeout_s
        self._next: dict[str, Any] = {}

    def prepare(self, version: int, metadata: Mapping[str, Any]) -> None:
        """What `start_weight_update` says, which vLLM's senders call without arguments."""
        self._next = {"version": version, "metadata": dict(metadata)}

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Nothing: engines are told one by one, by `VLLMEngine.join_transfer`, since each has ranks of its own."""

    def start_weight_update(self) -> None:
        self._tell("begin_receiving", self._next)

    def update_weights(self, update_info: Any) -> None:
        if "ipc_handles" in update_info:  # types that messages to vLLM's workers do not hold
            update_info = {**update_info, "ipc_handles": pickle.dumps(update_info["ipc_handles"])}
        self._tell("receive", {"info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._tell("finish_receiving", {})

    def _tell(self, method: str, arguments: dict[str, Any]) -> None:
        until = time.monotonic() + self.timeout_s
        asked = {name: call(method, arguments) for name, call in self.engines.items()}
        silent = []
        for name, answer in asked.items():
            try:
                answer.result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                if answer.done():
                    raise
                silent.append(name)
        if silent:
            told = f"no answer to {method} from {', '.join(silent)} within timeout_s={self.timeout_s:g}"
            raise TimeoutError(f"{told}. Fix: raise it, or see whether they live")
