"""The trainer's side of new weights: its ranks send a stream of layers to engines that receive it.

Over `gloo` nothing of vLLM is loaded here; `nccl` and `ipc` are vLLM's own senders. Engines have the other side
(`VLLMEngine.join_transfer` and after). When a group is made anew, and whether what was sent is what came, is for the
caller to see to.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from engine.vllm.control_client import ControlClient
from engine.vllm.weight_stream import Tally, Weight, ZeroSource, told_of

Transfer = Literal["gloo", "nccl", "ipc"]
"""How the bytes go: through the host's memory, between GPUs, or within the memory of one GPU."""
_IPC_BUFFER = 256 << 20
"""Bytes of a GPU's memory that pass weights on over `ipc`; more where one tensor is larger."""


class TransferFailed(RuntimeError):
    """Weights did not reach the engines. The group is of no more use: all its members join a new one."""


@dataclass(frozen=True)
class Sent:
    """What went out in one `Sender.send`."""

    fingerprint: str
    """Of all tensors (`engine.fingerprints`); engines compare it with theirs in `VLLMEngine.verify`."""
    tensors: int
    bytes: int
    seconds: float


class Sender:
    """One of the trainer's ranks. Rank 0 sends; all iterate the source, whose gathers are collectives.

    With a `client` it takes the engines through their steps. Without one the caller does, and runs `receive_weights` of
    all engines while it runs `send`. `ipc` needs a client, as its messages hold the handles of shared memory.
    """

    def __init__(
        self, transfer: Transfer, source: ZeroSource, *, rank: int = 0, client: ControlClient | None = None
    ) -> None:
        if transfer == "ipc" and client is None:
            raise ValueError('transfer "ipc" needs a client. Fix: Sender("ipc", ..., client=ControlClient(...))')
        self.transfer: Transfer = transfer
        self.rank = rank
        self._client = client
        self._noted = _Noted(source)
        self._joined: Any = None
        self._timeout_s = 0.0

    @property
    def _follows(self) -> bool:
        """Whether this rank only iterates. Over `ipc` each rank fills a buffer, for the engine on its own GPU."""
        return self.rank != 0 and self.transfer != "ipc"

    def metadata(self) -> dict[str, list[Any]]:
        """What engines are told (`told_of`). The first call is a collective of all ranks."""
        return told_of(self._noted.metadata())

    def join(self, host: str, port: int, world_size: int, timeout_s: float) -> None:
        """Open, on all ranks, a group of this sender and the engines' workers, of `world_size` together, at
        `host:port` of rank 0. One that was joined before is left.

        `timeout_s` bounds the meeting and then, over gloo, the wait for each tensor, else for all of them. Over `ipc`
        nobody meets, and only the limit counts. Raises `TransferFailed`.
        """
        self.leave()
        self._timeout_s = timeout_s
        if self._follows:
            return
        with _failing(f"no group of {world_size} at {host}:{port}"):
            if self.transfer == "gloo":
                self._joined = importlib.import_module("engine.vllm.gloo_group").join(
                    host, port, 0, world_size, timeout_s
                )
                return
            trainers = importlib.import_module("vllm.distributed.weight_transfer").WeightTransferTrainerFactory
            about = _about(self.transfer, self.rank, host, port, world_size, self._noted.metadata())
            client = self._client or ControlClient({}, timeout_s)
            opening = _Background(lambda: trainers.trainer_init(about, client=client, source=self._noted))
            self._joined = opening.result(timeout_s)

    def send(self, version: int) -> Sent | None:
        """Send everything, as weights `version`, on all ranks; None on those that only iterate.

        Raises `TransferFailed`. The stream has then run to its end all the same, so that no other rank waits in it.
        """
        began = time.monotonic()
        metadata = self.metadata()
        if self._follows:
            self._noted.follow()
            return None
        self._noted.begin()
        try:
            with _failing(f"weights {version} were not sent"):
                if self._joined is None:
                    raise RuntimeError("there is no group. Fix: join() one first")
                self._send(version, metadata)
        except TransferFailed:
            if self.transfer == "gloo":  # the others need not wait for their time-out
                self.leave()
            self._noted.run_out()
            raise
        tally = self._noted.tally
        seconds = time.monotonic() - began
        return None if self.rank else Sent(tally.fingerprint, len(tally.parts), tally.bytes, seconds)

    def _send(self, version: int, metadata: dict[str, list[Any]]) -> None:
        client = self._client
        if client is not None:
            client.prepare(version, metadata)
        if self.transfer != "gloo":
            _Background(self._joined.send_weights).result(self._timeout_s)
            return
        send = importlib.import_module("engine.vllm.gloo_group").send
        if client is None:
            send(self._joined, self._noted)
            return
        client.start_weight_update()
        receiving = _Background(lambda: client.update_weights(metadata))
        send(self._joined, self._noted)
        receiving.result(client.timeout_s)
        client.finish_weight_update()

    def leave(self) -> None:
        """Leave the group; engines that wait in it notice. Harmless where there is none."""
        joined, self._joined = self._joined, None
        if joined is not None:
            joined.leave() if self.transfer == "gloo" else joined.shutdown()


def _about(transfer: Transfer, rank: int, host: str, port: int, world_size: int, weights: list[Weight]) -> Any:
    """What vLLM's own sender is made from."""
    module = importlib.import_module(f"vllm.distributed.weight_transfer.{transfer}_engine")
    if transfer == "nccl":
        return module.NCCLTrainerInitInfo(host, port, world_size, packed=True, rank=rank)
    largest = max(prod(weight.shape) * weight.dtype.itemsize for weight in weights)
    return module.IPCTrainerInitInfo(packed=True, packed_buffer_size_bytes=max(largest, _IPC_BUFFER), rank=rank)


class _Noted:
    """The source as vLLM's senders see it: each pass is tallied and held against what engines were told."""

    def __init__(self, source: ZeroSource) -> None:
        self._source = source
        self.tally = Tally()
        self._pass: Iterator[tuple[str, Any]] | None = None

    def metadata(self) -> list[Weight]:
        return self._source.metadata()

    def begin(self) -> None:
        self.tally = Tally()
        self._pass = None

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        self._pass = iter(self._source)
        expected = iter(self.metadata())
        for name, tensor in self.tally.passing(self._pass):
            weight = next(expected, None)
            now = Weight(name, tensor.dtype, tuple(tensor.shape))
            if now != weight:
                raise ValueError(f"the stream gave {now}, where engines were told of {weight}. Fix: keep its order")
            yield name, tensor
        if (missing := next(expected, None)) is not None:
            raise ValueError(f"the stream ended before {missing}. Fix: yield what the first pass did")

    def follow(self) -> None:
        """Go through the stream for the sake of the other ranks."""
        for _ in self._source.stream():
            pass

    def run_out(self) -> None:
        """The same with what is left of the last pass."""
        with contextlib.suppress(Exception):
            if self._pass is None:
                self.follow()
            else:
                for _ in self._pass:
                    pass


class _Background:
    """Work in a thread that nobody waits for longer than he likes, not even Python's end."""

    def __init__(self, work: Callable[[], Any]) -> None:
        torch = importlib.import_module("torch")
        self._device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self._value: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(work, torch), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any], torch: Any) -> None:
        if self._device is not None:
            torch.cuda.set_device(self._device)  # each thread has its own
        try:
            self._value = work()
        except Exception as error:
            self._error = error

    def result(self, timeout_s: float) -> Any:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"it was not done within timeout_s={timeout_s:g}. Fix: raise it, or see who is missing")
        if self._error is not None:
            raise self._error
        return self._value


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise TransferFailed(f"{what}: {type(error).__name__}: {error}") from error
