"""What several runs begin from, kept in the repository in half precision: a policy, or a model of values, of two
megabytes.

Training ends with other weights on another machine, and arms are compared within a seed: all of them begin from what
is kept, whichever day and machine they are made on. Teaches nothing; see `speedrun.arms`.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from engine.pretrained import folder_digest
from trainer.disk import agree

POLICY = "policy"
"""In the folder of a start; what else is kept has another name (`what`)."""
MADE_BY = "made_by.json"
_WEIGHTS = "model.safetensors"


def halved(model: Path, policy: Path) -> None:
    """Write the model with weights in half precision, which is what is begun from. Raises OSError."""
    from safetensors.torch import load_file, save_file

    beside = policy.with_name(f".{policy.name}")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(model, beside)
    weights = {name: tensor.half() for name, tensor in load_file(model / _WEIGHTS).items()}
    save_file(weights, beside / _WEIGHTS, {"format": "pt"})
    beside.rename(policy)


def keep(start: Path, kept: Path, made_by: Mapping[str, Any], what: str = POLICY) -> None:
    """Copy the weights from the folder where they were made to the one where they are kept, in place of others."""
    beside = kept.with_name(f".{kept.name}")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(start / what, beside / what)
    agree(beside / MADE_BY, made_by, begun=False)
    shutil.rmtree(kept, ignore_errors=True)
    beside.rename(kept)


def kept_digest(kept: Path, made_by: Mapping[str, Any], today: Callable[[Any], Any], what: str = POLICY) -> str:
    """Which weights are kept in a folder; "" where there are none, or some that were made otherwise. `today` says in
    the terms of today what an earlier version wrote. Raises ValueError for a file that holds something else."""
    path = kept / MADE_BY
    if not path.exists():
        return ""
    try:
        written = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} does not say how {kept / what} was made: {error}. Fix: remove {kept}") from None
    return digest(kept, what) if today(written) == made_by else ""


class Begun(Protocol):
    """What is kept of a run that began from a policy."""

    made_by: dict[str, Any]
    start: str


def answers(run: Begun | None, made_by: Mapping[str, Any], today: Callable[[Any], Any], start: str) -> bool:
    """Whether it was made as wanted, from the policy that is kept."""
    return run is not None and today(run.made_by) == made_by and run.start == start


def fetch(kept: Path, start: Path, what: str = POLICY) -> None:
    """Copy the weights that are kept into a start's folder. Raises ValueError where that has other ones."""
    if not (start / what).exists():
        beside = start / f".{what}"
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(kept / what, beside)
        beside.rename(start / what)
    if digest(start, what) != digest(kept, what):
        raise ValueError(
            f"{start / what} is another one than {kept / what}, which is kept. Fix: another --out, or remove one"
        )


def digest(start: Path, what: str = POLICY) -> str:
    """Of weights and tokenizer; "" where there are none."""
    return folder_digest(start / what)
