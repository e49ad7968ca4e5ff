"""The other end of a `Sender`, in a process of its own and without vLLM: joins a group, and says what came."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def receive(pipe: Any, port: int, metadata: dict[str, Any], timeout_s: float, ends: str, after: int) -> None:
    """`ends`: what becomes of it when it has `after` tensors: "dies" or "sleeps"; nothing where it is empty."""
    from engine.vllm import Tally, gloo_group

    pipe.send("started")
    try:
        group = gloo_group.join(HOST, port, 1, 2, timeout_s)
        pipe.send("joined")
        tally, came = Tally(), {}
        for name, tensor in tally.passing(gloo_group.receive(group, metadata)):
            came[name] = tensor.clone()
            if ends and len(came) == after:
                if ends == "dies":
                    os._exit(9)
                time.sleep(60)
        pipe.send((tally.fingerprint, tally.bytes, {name: tensor.tolist() for name, tensor in came.items()}))
    except Exception as error:
        pipe.send(error)


class Receiver:
    def __init__(self, port: int, metadata: dict[str, Any], timeout_s: float, ends: str, after: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=receive, args=(theirs, port, metadata, timeout_s, ends, after))
        self.process.start()
        assert self.said() == "started"

    def said(self) -> Any:
        assert self._pipe.poll(60)
        return self._pipe.recv()


@contextlib.contextmanager
def receiver(
    port: int, metadata: dict[str, Any], timeout_s: float = 20.0, ends: str = "", after: int = 0
) -> Iterator[Receiver]:
    there = Receiver(port, metadata, timeout_s, ends, after)
    try:
        yield there
    finally:
        there.process.kill()
        there.process.join()
