"""Processes that are the ranks of DeepSpeed policies, on this machine and without Ray: for tests.

`Ranks` starts them; each `Group` that it makes is one policy in all of them. Every wait has an end.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import multiprocessing.connection
import os
import socket
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from device import DEVICE

from trainer.disk import Written

LIMIT_S = 100.0
"""For any answer of a rank."""
HEAVY = ("trainer.update.deepspeed_rank", "deepspeed", "transformers.models.qwen3.modeling_qwen3")
"""What is loaded before the first question, which would else wait for it."""
_numbers = iter(range(1 << 30))


def need(count: int) -> None:
    """Skip where DeepSpeed, or a GPU for each rank, is not there."""
    pytest.importorskip("deepspeed")
    if DEVICE == "cuda":
        import torch

        if torch.cuda.device_count() < count:
            pytest.skip(f"needs a GPU for each of {count} ranks")


class Ranks:
    """`count` processes, one per rank, and all there are, unless they are told to wait for more of them (`of`). `kind`
    is what they hold of a policy: `module:class` of a `DeepSpeedRank`."""

    def __init__(
        self,
        count: int,
        timeout_s: float = 60.0,
        kind: str = "trainer.update.deepspeed_rank:DeepSpeedRank",
        imports: Sequence[str] = HEAVY,
        of: int | None = None,
    ) -> None:
        self.count, self._kind = count, kind
        with socket.socket() as probing:
            probing.bind(("127.0.0.1", 0))
            port = probing.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self._pipes, self.processes = [], []
        for rank in range(count):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(there, rank, of or count, port, timeout_s, imports), daemon=True
            )
            process.start()
            there.close()
            self._pipes.append(here)
            self.processes.append(process)
        self._answers()

    def group(self, settings: Any, kind: str | None = None) -> ProcessGroup:
        number = next(_numbers)
        self.ask("make", number, kind or self._kind, settings)
        return ProcessGroup(self, number)

    def ask(self, *message: Any, each: Sequence[Any] | None = None) -> list[Any]:
        for rank, pipe in enumerate(self._pipes):
            pipe.send((*message, each[rank]) if each is not None else message)
        return self._answers()

    def ask_one(self, rank: int, *message: Any) -> Any:
        """As if the others were asked too, and never heard it."""
        self._pipes[rank].send(message)
        return self._answers(rank)[0]

    def close(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
            pipe.close()
        ends = time.monotonic() + 10
        for process in self.processes:
            process.join(max(0.0, ends - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join(10)

    def _answers(self, *ranks: int) -> list[Any]:
        """One of every rank, or of some; the failure that came first is raised once all have answered or are gone."""
        waiting = {rank: pipe for rank, pipe in enumerate(self._pipes) if rank in ranks or not ranks}
        answers: dict[int, Any] = {}
        failures: list[Exception] = []
        ends = time.monotonic() + LIMIT_S
        while waiting:
            ready = multiprocessing.connection.wait(list(waiting.values()), max(0.0, ends - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer of ranks {list(waiting)} within {LIMIT_S} s")
            for rank in [rank for rank, pipe in waiting.items() if pipe in ready]:
                try:
                    worked, answer = waiting.pop(rank).recv()
                except (EOFError, ConnectionError):
                    worked, answer = False, RuntimeError(f"rank {rank} is gone")
                if worked:
                    answers[rank] = answer
                else:
                    failures.append(answer)
        if failures:
            raise failures[0]
        return [answers[rank] for rank in sorted(answers)]


class ProcessGroup:
    """A `trainer.update.deepspeed_group.Group`."""

    def __init__(self, ranks: Ranks, number: int) -> None:
        self._ranks, self._number = ranks, number
        self.size = ranks.count
        self._open = True

    def call(self, method: str, *arguments: Any, each: Sequence[Any] | None = None) -> list[Any]:
        return self._ranks.ask("call", self._number, method, *arguments, each=each)

    def snapshot(self) -> None:
        self._ranks.ask("keep", self._number, "snapshot")

    def write(self, folder: Path) -> list[Written]:
        return [each for written in self._ranks.ask("write", self._number, folder) for each in written]

    def close(self) -> None:
        if self._open:
            self._open = False
            self._ranks.ask("drop", self._number)


def _serve(pipe: Any, rank: int, ranks: int, port: int, timeout_s: float, imports: Sequence[str]) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if DEVICE == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(ranks)))).split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[rank]
    import torch

    torch.set_num_threads(1)
    from trainer.update import join

    made: dict[int, Any] = {}
    kept: dict[int, Any] = {}

    def done(message: tuple[Any, ...]) -> Any:
        match message:
            case ("make", number, kind, settings):
                module, _, name = kind.partition(":")
                made[number] = getattr(importlib.import_module(module), name)(settings)
            case ("call", number, method, *arguments):
                return getattr(made[number], method)(*arguments)
            case ("keep", number, method):
                kept[number] = getattr(made[number], method)()
            case ("write", number, folder):
                return kept.pop(number).write(folder)
            case ("drop", number):
                del made[number]
                if not number:  # what the first one has loaded on its way
                    gc.collect()
                    gc.freeze()
        return None

    try:
        try:
            join(rank, ranks, "127.0.0.1", port, timeout_s, DEVICE)
            for package in imports:
                importlib.import_module(package)
            gc.freeze()  # DeepSpeed collects garbage whenever it partitions a model
            pipe.send((True, None))
        except RuntimeError as error:
            pipe.send((False, error))
        while (message := pipe.recv()) is not None:
            try:
                pipe.send((True, done(message)))
            except Exception as error:
                error.add_note("".join(traceback.format_exception(error)))
                pipe.send((False, error))
    except (EOFError, OSError):
        pass  # whoever asked is gone
