"""The optimizer's part of one policy on disk, and whether files fit what they are read into: safetensors and JSON only.

`folder/model` and `folder/adapter` are written by transformers and peft. Flipped bits are not looked for: that is done
where checkpoints are chosen (`trainer.checkpoint` knows every file's SHA-256).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.backend import LoraSettings

if TYPE_CHECKING:
    import torch

STATE, TENSORS = "optimizer/state.json", "optimizer/optimizer.safetensors"
FIX = "load it into the model and settings that it came from"


class State(BaseModel):
    """What is no tensor."""

    model_config = ConfigDict(extra="forbid")

    steps: int
    dtype: str
    lora: LoraSettings | None
    start: str | None
    """Fingerprint of the frozen weights: what adapters are added to, or the reference. None where there are none."""


def write(folder: Path, state: State, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write `folder/optimizer`."""
    from safetensors.torch import save_file

    (folder / STATE).parent.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / TENSORS)
    (folder / STATE).write_text(state.model_dump_json(indent=1), encoding="utf-8")


def read_state(folder: Path) -> State:
    """Raises ValueError where there is none."""
    try:
        return State.model_validate_json((folder / STATE).read_bytes())
    except (OSError, ValidationError) as error:
        raise ValueError(f"{folder / STATE} cannot be read: {error}. Fix: load another checkpoint") from error


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, or of all such files in a folder, on the CPU. Raises ValueError for files that
    are missing, cut short or no such files."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = {}
    try:
        for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
            tensors |= load_file(file)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Fix: load another checkpoint") from error
    return tensors


def check_fits(path: Path, given: Mapping[str, torch.Tensor], held: Mapping[str, torch.Tensor]) -> None:
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
