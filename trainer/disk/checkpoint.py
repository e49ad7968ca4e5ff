"""Checkpoints on disk: folders `step-00000012` that are there whole or not at all, checked before they are believed.

What goes into one is the caller's: `write` fills a folder, `state` is a pydantic model. Nothing here knows models,
optimizers or torch, and nothing is pickled. One process writes at a time (`writing`); anyone may read. To go on working
meanwhile is `trainer.disk.checkpoint_writer`'s business.

    checkpoints/
      step-00000012/
        manifest.json   sha256 and size of every other file
        state.json
        ...             what `write` wrote
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.threads import mapped
from trainer.disk import plain_files, written_files
from trainer.disk.folder_lock import FolderBusy, only_writer
from trainer.disk.written_files import Written

KEEP = 2
MAX_MANIFEST = 16 << 20
"""Bytes."""
MANIFEST, STATE = "manifest.json", "state.json"
_STEP = re.compile(r"step-([0-9]{8,18})")
_TEMPORARY = ".tmp-"

State = TypeVar("State", bound=BaseModel)
Write = Callable[[Path], Iterable[Written] | None]
"""Fills an empty folder; may return those of its files whose digest it knows, so that they are not read again."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read. Those written before are as they were."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int
    sha256: str


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    step: int = Field(ge=0)
    files: dict[str, _File]
    """By path inside the checkpoint, with `/`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose every byte is as it was written."""

    folder: Path
    step: int
    passed_over: dict[str, str] = field(default_factory=dict)
    """Names of newer checkpoints that are damaged, each with what is wrong: to be told to the user."""

    def state(self, model: type[State]) -> State:
        """What was given to `save` as `state`. Raises `CheckpointError` where another version wrote something else."""
        try:
            return model.model_validate_json(plain_files.read(self.folder / STATE))
        except OSError as error:
            raise CheckpointError(f"{self.folder / STATE} cannot be read: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise CheckpointError(
                f"{self.folder / STATE} is not a {model.__name__}: field {place}: {first['msg']}. "
                "Fix: resume with the version that wrote it"
            ) from None


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the one process that writes into `folder` while the context lasts; makes the folder where it is missing.

    Removes what a killed writer left half done. Raises `CheckpointError` at once if another process writes here.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(only_writer(folder))
        except FolderBusy as error:
            raise CheckpointError(str(error)) from None
        except OSError as error:
            raise CheckpointError(f"cannot write checkpoints into {folder}: {error.strerror}") from error
        for left in folder.glob(f"{_TEMPORARY}*"):
            _discard(left)
        yield


def save(folder: Path, step: int, write: Write, state: BaseModel, keep: int = KEEP) -> Path:
    """Write checkpoint `step` and return its folder; then remove all up to this one but the newest `keep`.

    Files and folders are synced to disk before the checkpoint gets its name, by one rename, so that a kill or a crash
    at any moment leaves it whole or not there. A damaged checkpoint of the same step is replaced. Raises
    `CheckpointError` when anything fails (a full disk, a whole checkpoint of that step is there already): the earlier
    checkpoints are as they were and nothing half done stays.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step {step} must be at least 0, and keep {keep} at least 1")
    final = folder / f"step-{step:08d}"
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
        temporary.chmod(0o755)
        told = list(write(temporary) or ())
        told.append(written_files.write(temporary / STATE, state.model_dump_json(indent=2).encode()))
        manifest = _Manifest(step=step, files=_listed(temporary, told))
        written_files.write(temporary / MANIFEST, manifest.model_dump_json(indent=2).encode())
        written_files.synced(temporary)
        if os.path.lexists(final):
            if not damage(final):
                raise FileExistsError(f"a whole {final.name} is there already")
            _remove(final)
        temporary.rename(final)
        written_files.sync_one(folder)
    except BaseException as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        raise CheckpointError(_failed(final, error)) from error
    for old in [path for path in _steps(folder) if _number(path) <= step][:-keep]:
        try:
            _remove(old)
        except OSError as error:
            raise CheckpointError(f"{final} is written, and {old} cannot be removed: {error.strerror}") from error
    return final


def _listed(folder: Path, told: Iterable[Written]) -> dict[str, _File]:
    """All files below, by name. Those that were not told of are read."""
    known = {each.path: each for each in told}
    found = sorted(written_files.files_below(folder))
    for path, each in known.items():
        size = path.stat().st_size
        if size != each.size or folder not in path.parents:
            raise ValueError(f"{path} was written with {each.size:,} bytes into {folder}, and has {size:,} now")
    read = written_files.read_back(path for path in found if path not in known)
    everything = known | {each.path: each for each in read}
    return {
        path.relative_to(folder).as_posix(): _File(size=everything[path].size, sha256=everything[path].sha256)
        for path in found
    }


def _failed(final: Path, error: Exception) -> str:
    said = f"cannot save {final.name} in {final.parent}: {type(error).__name__}: {error}"
    others = ", ".join(path.name for path in _steps(final.parent)) or "none"
    with contextlib.suppress(OSError):
        said += f" ({shutil.disk_usage(final.parent).free / 2**20:,.0f} MiB are free there)"
    fix = ". Fix: make room there, or see what the disk has; then --resume" if isinstance(error, OSError) else ""
    return f"{said}. The checkpoints before it are as they were: {others}{fix}"


def latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole, with the damaged ones that were passed over; None where there is none yet.

    Reads every byte of it. Raises `CheckpointError` where there are checkpoints and all are damaged: to begin anew is
    for the user to decide.
    """
    passed_over: dict[str, str] = {}
    for path in reversed(_steps(folder)):
        wrong = damage(path)
        if not wrong:
            return Checkpoint(folder=path, step=_number(path), passed_over=passed_over)
        passed_over[path.name] = wrong
    if passed_over:
        told = "; ".join(f"{name}: {wrong}" for name, wrong in passed_over.items())
        raise CheckpointError(f"no checkpoint in {folder} is whole ({told}). Fix: begin anew in another folder")
    return None


def damage(checkpoint: Path) -> str:
    """What is wrong with a checkpoint's files, empty if nothing is. No file outside is read, whatever a manifest says.

    Files that were added later do not matter: who loads a checkpoint reads those that it wrote.
    """
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return "it is no folder of its own"
    try:
        manifest = _Manifest.model_validate_json(plain_files.read(checkpoint / MANIFEST, MAX_MANIFEST))
    except OSError as error:
        return f"{MANIFEST}: {error.strerror}"
    except ValidationError as error:
        return f"{MANIFEST}: {error.errors()[0]['msg']}"
    if manifest.step != _number(checkpoint):
        return f"{MANIFEST} is not this checkpoint's"
    if STATE not in manifest.files:
        return f"{MANIFEST} does not name {STATE}"

    def wrong_with(name: str) -> str:
        try:
            wrong = _differs(plain_files.inside(checkpoint, name), manifest.files[name])
        except OSError as error:
            return f"{name[:200]}: {error.strerror}"
        return f"{name} {wrong}" if wrong else ""

    return next(filter(None, mapped(wrong_with, manifest.files)), "")


def _steps(folder: Path) -> list[Path]:
    """The checkpoints, whole or not, oldest first."""
    found = [path for path in folder.iterdir() if _STEP.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=_number)


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _differs(path: Path, meant: _File) -> str:
    """How a file is not what was written; empty if it is."""
    with open(plain_files.opened(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size != meant.size:
            return f"has {size:,} bytes, not {meant.size:,}"
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return "" if digest == meant.sha256 else "has another sha256 than when it was written"


def _remove(checkpoint: Path) -> None:
    """Take the name away first: a removal that is cut short leaves no damaged checkpoint."""
    doomed = checkpoint.with_name(f"{_TEMPORARY}{checkpoint.name}")
    _discard(doomed)
    checkpoint.rename(doomed)
    _discard(doomed)


def _discard(path: Path) -> None:
    """As far as it goes. Of a link nothing but the link goes."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
