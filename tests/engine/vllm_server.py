"""vLLM's own OpenAI-compatible server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 300.0


class VLLMServer:
    """Serves until closed. `options` are vLLM's engine arguments, as `VLLMEngine` takes them."""

    def __init__(self, folder: str, options: dict[str, Any]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        given = {
            "logprobs_mode": "processed_logprobs",
            "served_model_name": "tiny",
            "enable_prompt_tokens_details": True,  # which are in its cache
            **options,
        }
        flags = []
        for name, value in given.items():
            flag = "--" + name.replace("_", "-")
            flags += [flag] if value is True else [f"{flag}={value}"]
        # The command `vllm serve` needs package metadata that the CPU build lacks.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={folder}", *flags]
        self._folder = tempfile.TemporaryDirectory(prefix="vllm-server-")
        self._log = Path(self._folder.name) / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--host=127.0.0.1", f"--port={port}"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "VLLM_RPC_BASE_PATH": self._folder.name},
                start_new_session=True,  # so that its workers can be ended with it
            )
        self.url = f"http://127.0.0.1:{port}/v1"
        try:
            self._wait(f"http://127.0.0.1:{port}/health")
        except BaseException:
            self.close()
            raise

    def _wait(self, health: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(health, timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        raise RuntimeError(f"vLLM's server did not start:\n{self._log.read_text()[-4000:]}")

    def close(self) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        with contextlib.suppress(ProcessLookupError):  # what it started, or it itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        self._folder.cleanup()
