"""Torch's random numbers for one policy: a state of its own, that nothing else draws from and that is saved with it.

Used by update backends. Not here: the seeds of a rollout, which are one per place in the tree.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from trainer.update import policy_files

CPU, CUDA = "rng/cpu", "rng/cuda"
"""States, as named on disk."""


class Dice:
    """`states` holds one, or on a GPU two."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        self.states = {CPU: torch.Generator().manual_seed(seed).get_state()}
        if device.type == "cuda":
            self.states[CUDA] = torch.Generator("cuda").manual_seed(seed).get_state()

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """Torch's global random numbers come from these states within, and are as before afterwards."""
        on_cuda = CUDA in self.states
        with torch.random.fork_rng(devices=[self._device] if on_cuda else []):
            torch.set_rng_state(self.states[CPU])
            if on_cuda:
                torch.cuda.set_rng_state(self.states[CUDA], self._device)
            yield
            self.states[CPU] = torch.get_rng_state()
            if on_cuda:
                self.states[CUDA] = torch.cuda.get_rng_state(self._device)

    def checked(self, path: Path, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The states among the tensors of a file. Raises ValueError, naming `path`, for states that no random numbers
        come from, or where there is none for the CPU."""
        found = {name: tensors[name].clone() for name in self.states if name in tensors}
        if CPU not in found:
            raise ValueError(f"{path} has no {CPU!r}. Fix: {policy_files.FIX}")
        for name, state in found.items():
            try:
                torch.Generator(self._device if name == CUDA else "cpu").set_state(state)
            except (RuntimeError, TypeError) as error:
                fix = "load another checkpoint"
                raise ValueError(
                    f"{path} has {name!r}, which is no state of random numbers: {error}. Fix: {fix}"
                ) from error
        return found

    def load(self, states: Mapping[str, torch.Tensor]) -> None:
        """Go on from what `checked` gave."""
        self.states |= states
