"""Ranks that go wrong where a test wants them to, and that show what a rank does not."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from trainer.update.deepspeed_rank import DeepSpeedRank
from trainer.update.exchange import join, joined
from trainer.update.parked import Parked


class TestedRank(DeepSpeedRank):
    """A `DeepSpeedRank` that is the same until it is told otherwise."""

    __test__ = False

    def buffers(self) -> dict[str, str]:
        return {name: str(each.dtype) for name, each in self._opened().causal.named_buffers()}

    def kept(self) -> dict[str, int]:
        """Elements of each weight that are on this rank."""
        return {name: each.numel() for name, each in self._opened().causal.named_parameters()}

    def failing(self, *arguments: Any) -> str:
        """What an update says on this rank."""
        try:
            return repr(self.update(*arguments))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def streamed(self, everywhere: bool) -> list[list[tuple[str, tuple[int, ...]]]]:
        return [[(name, tuple(each.shape)) for name, each in layer] for layer in self.stream(everywhere)]

    def run_out(self, ranks: list[int], where: str, at: int) -> None:
        """Of memory, on some ranks, in the `at`th pass through the second layer."""
        passes = 0

        def full(*_: Any) -> None:
            nonlocal passes
            passes += 1
            if passes == at:
                raise torch.OutOfMemoryError("CUDA out of memory")

        mlp = self._opened().causal.model.layers[1].mlp
        if self._exchange.rank in ranks:
            self._hook = (
                mlp.register_full_backward_hook(full) if where == "backward" else mlp.register_forward_hook(full)
            )

    def wander(self, rank: int) -> None:
        """Call the last norm once more than others do, on one rank."""
        model = self._opened().causal.model

        def stray(_: Any, __: Any, hidden: torch.Tensor) -> None:
            model.norm(hidden)

        if self._exchange.rank == rank:
            self._hook = model.layers[1].register_forward_hook(stray)

    def sleep(self, rank: int, seconds: float) -> None:
        """In the next passes through the second layer, on one rank."""
        if self._exchange.rank == rank:
            layer = self._opened().causal.model.layers[1]
            self._hook = layer.mlp.register_forward_pre_hook(lambda *_: time.sleep(seconds))

    def behave(self) -> None:
        if hasattr(self, "_hook"):
            self._hook.remove()

    def park(self) -> tuple[int, int]:
        """As on a GPU; returns the bytes that wait, and how many are still held."""
        for each in self._opened().weights_now():
            if not each.untyped_storage().resizable():
                each.data = each.data.clone()  # a part of a file, as weights on a GPU never are
        tensors = [each for each in self._opened().tensors() if each.device == self._exchange.device]
        parked = Parked(tensors, self._exchange.device)
        self._parked, self._weights_are_here = [parked], False
        return parked.nbytes, sum(each.untyped_storage().nbytes() for each in tensors)


class Passer:
    """Holds nothing, and only meets the others."""

    def __init__(self, _: Any) -> None:
        pass

    def meet(self, *_: Any) -> list[list[float]]:
        exchange = joined()
        with exchange.during("a meeting"):
            return exchange.gathered([exchange.rank, 0.5])

    def join_again(self, rank: int) -> None:
        place = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
        exchange = joined()
        again = join(rank, 1, place["MASTER_ADDR"], int(place["MASTER_PORT"]), exchange.timeout_s, exchange.device.type)
        assert again is exchange

    def wait(self, rank: int, seconds: float) -> None:
        """Come late, on one rank."""
        if joined().rank == rank:
            time.sleep(seconds)
        self.meet()
