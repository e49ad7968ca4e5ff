"""Checkpoints: whole or not there, whatever is killed, full or damaged."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trainer.disk import written_files
from trainer.disk.checkpoint import Checkpoint, CheckpointError, damage, latest, save, writing
from trainer.disk.folder_lock import LOCK

STEP = "step-00000012"


class State(BaseModel):
    step: int
    random: list[int] = []


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(text)
        (folder / "empty").touch()

    return write


def put(folder: Path, step: int, keep: int = 2) -> Path:
    return save(folder, step, writer(f"weights {step}"), State(step=step, random=[2**200]), keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


def read(folder: Path) -> Checkpoint:
    """The newest, where none is damaged."""
    found = latest(folder)
    assert found is not None
    assert found.passed_over == {}
    return found


def flip(path: Path, place: int = 0, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    assert latest(folder) is None
    saved = put(folder, 12)
    found = read(folder)
    assert (found.folder, found.step) == (saved, 12)
    assert found.folder.name == STEP
    assert found.state(State) == State(step=12, random=[2**200])
    assert (found.folder / "model" / "weights").read_text() == "weights 12"
    assert names(folder) == [STEP]


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (2, 9, 10, 100):  # not in the order of their digits
        put(tmp_path, step, keep=3)
    assert names(tmp_path) == ["step-00000009", "step-00000010", "step-00000100"]
    put(tmp_path, 123_456_789, keep=1)
    assert names(tmp_path) == ["step-123456789"]


# Damage


def test_a_flipped_bit_anywhere_is_seen(tmp_path: Path) -> None:
    saved = put(tmp_path, 12)
    files = [path for path in saved.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) == 3
    for path in files:
        for place in range(path.stat().st_size):
            bit = place % 8
            flip(path, place, bit)
            assert damage(saved), f"bit {bit} of byte {place} of {path.name}"
            flip(path, place, bit)
    assert damage(saved) == ""


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda saved: flip(saved / "model" / "weights"), "model/weights has another sha256"),
        (lambda saved: (saved / "model" / "weights").write_text("short"), "model/weights has 5 bytes, not 10"),
        (lambda saved: (saved / "empty").unlink(), "empty: No such file"),
        (lambda saved: shutil.rmtree(saved / "model"), "model/weights: No such file"),
        (lambda saved: (saved / "manifest.json").unlink(), "manifest.json: No such file"),
        (lambda saved: (saved / "manifest.json").write_text("{}"), "manifest.json: Field required"),
        (lambda saved: shutil.copy(saved.with_name("step-00000010") / "manifest.json", saved), "not this checkpoint's"),
    ],
)
def test_a_damaged_newest_checkpoint_is_passed_over_by_name(harm: Any, told: str, tmp_path: Path) -> None:
    put(tmp_path, 10)
    harm(put(tmp_path, 12))
    found = latest(tmp_path)
    assert found is not None
    assert found.step == 10
    assert list(found.passed_over) == [STEP]
    assert told in found.passed_over[STEP]
    put(tmp_path, 12)  # going on from there replaces it
    assert read(tmp_path).step == 12
    assert names(tmp_path) == ["step-00000010", STEP]


def test_where_all_are_damaged_nothing_begins_anew_in_silence(tmp_path: Path) -> None:
    for step in (10, 12):
        flip(put(tmp_path, step) / "state.json")
    with pytest.raises(CheckpointError, match=r"step-00000012: state\.json has another.*step-00000010: .*Fix: "):
        latest(tmp_path)


def test_a_damaged_newer_one_never_costs_the_only_whole_one(tmp_path: Path) -> None:
    flip(put(tmp_path, 20) / "state.json")
    put(tmp_path, 12, keep=1)
    assert names(tmp_path) == [STEP, "step-00000020"]
    found = latest(tmp_path)
    assert found is not None
    assert (found.step, list(found.passed_over)) == (12, ["step-00000020"])


def test_a_whole_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    saved = put(tmp_path, 12)
    with pytest.raises(CheckpointError, match="a whole step-00000012 is there already"):
        save(tmp_path, 12, writer("other"), State(step=12))
    assert (saved / "model" / "weights").read_text() == "weights 12"
    assert names(tmp_path) == [STEP]


def test_the_state_of_another_version_is_named(tmp_path: Path) -> None:
    class Other(BaseModel):
        step: int
        stage: str

    put(tmp_path, 12)
    found = read(tmp_path)
    with pytest.raises(CheckpointError, match=r"state\.json is not a Other: field stage: Field required"):
        found.state(Other)


# Full disks and other failures


def test_a_full_disk_leaves_the_earlier_ones_and_says_so(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_text("half")
        with open("/dev/full", "w") as full:  # a real ENOSPC, at the flush
            full.write("x")

    put(tmp_path, 10)
    with pytest.raises(CheckpointError) as caught:
        save(tmp_path, 12, write, State(step=12))
    said = str(caught.value)
    assert f"cannot save step-00000012 in {tmp_path}: OSError: [Errno 28] No space left on device" in said
    assert "MiB are free there" in said
    assert "as they were: step-00000010. Fix: make room there" in said
    assert names(tmp_path) == ["step-00000010"]
    put(tmp_path, 12)


def test_a_file_that_grows_too_large_leaves_the_earlier_ones(tmp_path: Path) -> None:
    put(tmp_path, 10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(CheckpointError, match=r"cannot save step-00000012.*File too large"):
            save(tmp_path, 12, writer("x"), State(step=12, random=[2**400]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == ["step-00000010"]


@pytest.mark.parametrize("function", ["mkdir", "fsync", "rename", "write_text"])
def test_a_disk_that_fails_at_any_call_leaves_a_whole_newest(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 1)
    owner: Any = Path if function == "write_text" else os
    real = getattr(owner, function)
    for failing in range(100):  # the first call fails, then the second, and so on until none is left to fail
        calls = 0

        def instead(*args: Any, failing: int = failing) -> Any:
            nonlocal calls
            calls += 1
            if calls == failing + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args)

        error = None
        with monkeypatch.context() as patch:
            patch.setattr(owner, function, instead)
            try:
                put(tmp_path, 2)
            except CheckpointError as raised:
                error = raised
        assert error is None or "No space left on device" in str(error)
        found = read(tmp_path)
        assert (found.folder / "model" / "weights").read_text() == f"weights {found.step}"
        assert all(name.startswith("step-") for name in names(tmp_path)), "nothing half done stays"
        assert error is not None or found.step == 2
        if calls <= failing:
            break
        if found.step == 2:  # only what came after the renaming failed
            shutil.rmtree(found.folder)
    assert failing > 0, "no call failed"


def test_ctrl_c_leaves_nothing_half_done(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 12, write, State(step=12))
    assert names(tmp_path) == []


def test_everything_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    sync, rename = os.fsync, os.rename

    def noted_sync(descriptor: int) -> None:
        events.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def noted_rename(source: Any, target: Any) -> None:
        events.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "rename", noted_rename)
    saved = put(tmp_path, 12)
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert set(before) == {path.stat().st_ino for path in [saved, *saved.rglob("*")]}
    assert after == [tmp_path.stat().st_ino]


# Digests that are known


def test_files_whose_digest_is_known_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = written_files._read_back
    monkeypatch.setattr(written_files, "_read_back", lambda path: (read.append(path.name), real(path))[1])

    def write(folder: Path) -> list[written_files.Written]:
        (folder / "deep").mkdir()
        (folder / "library").write_text("by a library")
        return [written_files.write(folder / "deep" / "own", b"own"), written_files.write(folder / "other", b"other")]

    saved = save(tmp_path, 12, write, State(step=12))
    assert read == ["library"]
    assert damage(saved) == ""
    for name in ("deep/own", "other", "library", "state.json"):
        flip(saved / name)
        assert damage(saved) == f"{name} has another sha256 than when it was written"
        flip(saved / name)


@pytest.mark.parametrize("harm", ["longer", "gone", "elsewhere"])
def test_a_file_that_is_not_as_it_was_told_is_an_error(harm: str, tmp_path: Path) -> None:
    def write(folder: Path) -> list[written_files.Written]:
        told = written_files.write((tmp_path if harm == "elsewhere" else folder) / "own", b"own")
        if harm == "longer":
            told.path.write_bytes(b"longer")
        if harm == "gone":
            told.path.unlink()
        return [told]

    with pytest.raises(CheckpointError, match="own"):
        save(tmp_path / "checkpoints", 12, write, State(step=12))
    assert names(tmp_path / "checkpoints") == []


# Writers


LOOP = """
import itertools, os, sys
from pathlib import Path
from pydantic import BaseModel
from trainer.disk.checkpoint import latest, save, writing

class State(BaseModel):
    step: int

def write(folder):
    (folder / "deep").mkdir()
    for name in ("a", "deep/b"):
        (folder / name).write_bytes(str(step).encode() * 20_000)

folder = Path(sys.argv[1])
with writing(folder):
    found = latest(folder)
    for step in itertools.count(found.state(State).step + 1 if found else 0):
        save(folder, step, write, State(step=step), keep=2)
        print(step, flush=True)
"""


@pytest.mark.thorough
def test_killed_at_any_moment_a_writer_leaves_a_whole_newest_checkpoint(tmp_path: Path) -> None:
    dice = random.Random(5)
    newest = -1
    for _ in range(10):
        process = subprocess.Popen([sys.executable, "-c", LOOP, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            told = int(process.stdout.readline())
            assert told > newest, "it went on from what was there"
            time.sleep(dice.random() * 0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            told = max([told, *map(int, process.communicate(timeout=30)[0].split())])
        found = read(tmp_path)
        step = found.state(State).step
        assert step == found.step >= told
        assert (found.folder / "deep" / "b").read_bytes() == str(step).encode() * 20_000
        newest = step
    with writing(tmp_path):
        assert all(name.startswith("step-") for name in names(tmp_path)), "what was half done is gone"
    assert len(names(tmp_path)) <= 3  # a kill may come between a new checkpoint and the removal of the oldest


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from trainer.disk.checkpoint import writing\n"
    code += "with writing(Path(sys.argv[1])): print('writing')"

    def other() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)

    with writing(tmp_path):
        assert "CheckpointError: another process writes into" in other().stderr
        assert latest(tmp_path) is None, "reading needs no lock"
    assert other().stdout == "writing\n"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CheckpointError, match=r"cannot write checkpoints into .*file/x: Not a directory"),
        writing(tmp_path / "file" / "x"),
    ):
        pass


def test_an_old_one_that_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one is whole all the same."""
    put(tmp_path, 1, keep=1)

    def refused(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    usual = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, to: (refused if self.name == "step-00000001" else usual)(self, to))
    with pytest.raises(CheckpointError, match=r"step-00000002 is written, and .*step-00000001 cannot be removed"):
        put(tmp_path, 2, keep=1)
    found = latest(tmp_path)
    assert found is not None
    assert found.step == 2
