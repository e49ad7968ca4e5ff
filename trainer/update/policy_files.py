"""The optimizer's part of one policy on disk, and whether files fit what they are read into: safetensors and JSON only.

Not here: `folder/model` and `folder/adapter` (`trainer.update.snapshot`). Flipped bits are not looked for: that is done
where checkpoints are chosen (`trainer.disk.checkpoint` knows every file's SHA-256).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.disk import Written, hashing, plain_files
from trainer.update.backend import LoraSettings

if TYPE_CHECKING:
    import torch

STATE, TENSORS = "optimizer/state.json", "optimizer/optimizer.safetensors"
FIX = "load it into the model and settings that it came from"
_STEMS = ("model", "adapter_model")


class _Index(BaseModel):
    weight_map: dict[str, str]


class State(BaseModel):
    """What is no tensor."""

    model_config = ConfigDict(extra="forbid")

    steps: int = Field(ge=0)
    dtype: str
    lora: LoraSettings | None
    start: str | None
    """Fingerprint of the frozen weights: what adapters are added to, or the reference. None where there are none."""


SomeState = TypeVar("SomeState", bound=State)


def write(folder: Path, state: State, tensors: Mapping[str, torch.Tensor]) -> list[Written]:
    """Into `folder/optimizer`, which is there."""
    from trainer.update import tensor_files

    written = tensor_files.write((folder / TENSORS).parent, "optimizer", tensors)
    return [*written, write_state(folder, state)]


def write_state(folder: Path, state: State) -> Written:
    with hashing(folder / STATE) as file:
        file.write(state.model_dump_json(indent=1).encode())
    return file.written()


def read_state(folder: Path, kind: type[SomeState] = State) -> SomeState:
    """Raises ValueError where there is none."""
    try:
        return kind.model_validate_json(plain_files.read(folder / STATE))
    except (OSError, ValidationError) as error:
        raise _unreadable(folder / STATE, error) from error


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, or of the shards in its place, or of those in the folder of a model or an
    adapter, on the CPU; what was put beside them is not read. Raises ValueError for files that are missing, cut short,
    links or no such files."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = {}
    try:
        for file in _written(path):
            os.close(plain_files.opened(file))
            tensors |= load_file(file)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    return tensors


def _unreadable(path: Path, error: Exception) -> ValueError:
    said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
    return ValueError(f"{path} cannot be read: {said}. Fix: load another checkpoint")


def _written(path: Path) -> list[Path]:
    files = [path / f"{stem}.safetensors" for stem in _STEMS] if path.is_dir() else [path]
    for file in files:
        if os.path.lexists(file):
            return [file]
    for file in files:
        index = file.with_name(f"{file.name}.index.json")
        if os.path.lexists(index):
            listed = _Index.model_validate_json(plain_files.read(index)).weight_map.values()
            return [plain_files.inside(file.parent, name) for name in sorted(set(listed))]
    return [files[0]]


def check_state(folder: Path, found: State, here: State) -> None:
    """Raise ValueError, naming `folder`, where a policy like `here` cannot go on from the one that was saved."""
    from engine.fingerprints import comparable

    for name in ("dtype", "lora", "start"):
        there, mine = getattr(found, name), getattr(here, name)
        if name == "start" and there and mine and not comparable(there):
            raise ValueError(
                f"{folder} was written by an earlier version, whose fingerprint of the start weights ({there}) tells "
                "nothing about these. Fix: resume with the version that wrote it, or begin a new run from its model/"
            )
        if there != mine:
            what = "start weights (their fingerprint)" if name == "start" else name
            raise ValueError(f"{folder} has another {what}: {there}, here it is {mine}. Fix: set it as it was")


def check_fits(path: Path, given: Mapping[str, torch.Tensor], held: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError, naming `path`, unless both have the same names, shapes and types, and `given` finite values."""
    check_alike(path, given, held)
    check_finite(path, given)


def check_alike(path: Path, given: Mapping[str, torch.Tensor], held: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError, naming `path`, unless both have the same names, shapes and types."""
    for name in [*held, *given]:
        if name not in given or name not in held:
            raise ValueError(f"{path} {'has no' if name not in given else 'has an unknown'} {name!r}. Fix: {FIX}")
        there, here = given[name], held[name]
        if there.shape != here.shape or there.dtype != here.dtype:
            raise ValueError(
                f"{path} has {name!r} as {there.dtype} {list(there.shape)}, and here it is {here.dtype} "
                f"{list(here.shape)}. Fix: {FIX}"
            )


def check_finite(path: Path, given: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError, naming `path`, where a value is not finite."""
    for name, tensor in given.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{path} has {name!r} with values that are not finite. Fix: load another checkpoint")
