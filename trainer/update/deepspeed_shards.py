"""A DeepSpeed optimizer on disk: each rank writes the fragments that it holds, and any number of ranks at any stage
reads back those that it needs. Safetensors and JSON only.

`optimizer/rank-R-of-N.safetensors`, or the shards in its place, has, by parameter, `master/NAME` (float32),
`exp_avg/NAME`, `exp_avg_sq/NAME`, all flat, and `offset/NAME`: where in the flattened parameter they begin; and `step`
and `rng/...`. The fragments of all files together are every parameter once. Knows DeepSpeed's three ways to hold them,
and no model.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from trainer.disk import Written
from trainer.update import policy_files, tensor_files
from trainer.update.dice import CPU, CUDA
from trainer.update.policy_files import FIX

KINDS = ("master", "exp_avg", "exp_avg_sq")
STEP = "step"


class State(policy_files.State):
    """Of a policy that ranks share."""

    ranks: int = Field(ge=1, le=1 << 16)
    """Files of the optimizer."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of one flattened parameter, as one rank's optimizer holds it."""

    name: str
    start: int
    tensors: dict[str, torch.Tensor]
    """By `KINDS`, flat views of the optimizer's own memory, all of one length."""

    @property
    def end(self) -> int:
        return self.start + len(self.tensors["master"])

    def cut(self, start: int, end: int) -> Fragment:
        return Fragment(
            self.name, start, {kind: each[start - self.start : end - self.start] for kind, each in self.tensors.items()}
        )


def fragments(parameters: Mapping[str, Any], engine: Any, adamw: Any, rank: int) -> list[Fragment]:
    """What this rank holds of the trained parameters: whole ones at stage 0, else a part of some or of all."""
    zero = engine.optimizer
    found = []
    for name, parameter in parameters.items():
        if zero is adamw:
            flat, start, held = parameter, 0, slice(0, parameter.numel())
        elif hasattr(parameter, "ds_id"):
            group, offset, length = zero.grad_position[zero.get_param_id(parameter)]
            flat, start = zero.fp32_partitioned_groups_flat[group], rank * length
            held = slice(offset, offset + min(length, parameter.ds_numel - start))  # what is behind it is padding
        elif (mapping := parameter._hp_mapping) is not None:
            flat = zero.optimizer.param_groups[mapping.param_group_index]["params"][0]
            start, offset = mapping.lp_fragment_address.start, mapping.hp_fragment_address.start
            held = slice(offset, offset + mapping.hp_fragment_address.numel)
        else:
            continue
        if held.start < held.stop:
            whole = {"master": flat} | {kind: adamw.state[flat][kind] for kind in KINDS[1:]}
            found.append(Fragment(name, start, {kind: each.detach().view(-1)[held] for kind, each in whole.items()}))
    return found


def named(held: Sequence[Fragment], step: torch.Tensor, dice: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What one rank holds, as its file has it; the optimizer's own memory."""
    tensors = dict(dice) | {STEP: step}
    for fragment in held:
        tensors[f"offset/{fragment.name}"] = torch.tensor(fragment.start)
        tensors |= {f"{kind}/{fragment.name}": each for kind, each in fragment.tensors.items()}
    return tensors


def write(folder: Path, rank: int, ranks: int, tensors: Mapping[str, torch.Tensor]) -> list[Written]:
    """One rank's file, in a policy's folder that has `optimizer/`."""
    return tensor_files.write(folder / "optimizer", _stem(rank, ranks), tensors)


def _stem(rank: int, ranks: int) -> str:
    return f"rank-{rank}-of-{ranks}"


@dataclass(frozen=True, slots=True)
class Shards:
    """All files of one optimizer, whose names, types, lengths and steps fit each other and `sizes`."""

    step: torch.Tensor
    dice: list[tuple[Path, dict[str, torch.Tensor]]]
    """Of each rank that wrote, with its file."""
    _pieces: dict[str, list[tuple[Path, Fragment]]]
    """In the order of their offsets."""

    def fragment(self, name: str, start: int, end: int) -> Fragment:
        """Raises ValueError, naming the file, for values that are not finite."""
        parts: dict[str, list[torch.Tensor]] = {kind: [] for kind in KINDS}
        for path, piece in self._pieces[name]:
            low, high = max(start, piece.start), min(end, piece.end)
            if low >= high:
                continue
            for kind, tensor in piece.cut(low, high).tensors.items():
                policy_files.check_finite(path, {f"{kind}/{name}": tensor})
                parts[kind].append(tensor)
        return Fragment(name, start, {kind: torch.cat(each) for kind, each in parts.items()})


def read(folder: Path, ranks: int, sizes: Mapping[str, int]) -> Shards:
    """What `ranks` ranks wrote of parameters with so many elements. Reads headers, and values as they are asked for.
    Raises ValueError, naming the file, for what is damaged or does not fit."""
    pieces: dict[str, list[tuple[Path, Fragment]]] = defaultdict(list)
    dice, steps = [], []
    for rank in range(ranks):
        path = folder / "optimizer" / f"{_stem(rank, ranks)}.safetensors"
        tensors = policy_files.read_tensors(path)
        dice.append((path, {name: tensors.pop(name) for name in (CPU, CUDA) if name in tensors}))
        steps.append(_step(path, tensors))
        for fragment in _fragments(path, tensors, sizes):
            pieces[fragment.name].append((path, fragment))
        if not torch.equal(steps[0], steps[-1]):
            raise ValueError(f"{path} is of step {float(steps[-1])}, rank 0's file of {float(steps[0])}. Fix: {FIX}")
    for name, size in sizes.items():
        pieces[name].sort(key=lambda piece: piece[1].start)
        end = 0
        for path, fragment in [*pieces[name], (folder / "optimizer", None)]:
            start = size if fragment is None else fragment.start
            if start != end:
                raise ValueError(f"{path} has {name!r} from element {start} on, where {end} should be. Fix: {FIX}")
            end = size if fragment is None else fragment.end
    return Shards(steps[0], dice, pieces)


def _step(path: Path, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    step = {STEP: tensors.pop(STEP)} if STEP in tensors else {}
    policy_files.check_fits(path, step, {STEP: torch.tensor(0.0)})
    if step[STEP] < 0:
        raise ValueError(f"{path} is of step {float(step[STEP])}. Fix: load another checkpoint")
    return step[STEP]


def _fragments(path: Path, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> list[Fragment]:
    names = [name.removeprefix("offset/") for name in tensors if name.startswith("offset/")]
    for name in names:
        if name not in sizes:
            raise ValueError(f"{path} has an unknown {name!r}. Fix: {FIX}")
    lengths = {name: tensors[f"master/{name}"].numel() for name in names if f"master/{name}" in tensors}
    alike = {f"offset/{name}": torch.tensor(0) for name in names}
    for name in names:
        flat = torch.empty(lengths.get(name, 0), device="meta")
        alike |= {f"{kind}/{name}": flat for kind in KINDS}
    policy_files.check_alike(path, tensors, alike)
    found = [
        Fragment(name, int(tensors[f"offset/{name}"]), {kind: tensors[f"{kind}/{name}"] for kind in KINDS})
        for name in names
    ]
    for each in found:
        if not 0 <= each.start < each.end <= sizes[each.name]:
            raise ValueError(
                f"{path} has elements {each.start} to {each.end} of {each.name!r}, which has {sizes[each.name]}. "
                f"Fix: {FIX}"
            )
    return found
