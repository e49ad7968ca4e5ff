"""Folders that somebody else could write to: what is read is a plain file inside, and nothing outside is changed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from trainer.disk import (
    CheckpointError,
    agree,
    checkpoint,
    metrics_file,
    only_writer,
    plain_files,
    read_records,
)
from trainer.disk.checkpoint import damage, latest, save, writing


class State(BaseModel):
    step: int


def put(folder: Path, step: int = 12) -> Path:
    return save(folder, step, lambda path: (path / "weights").write_text("w" * 50) and None, State(step=step))


def rewrite(saved: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    change(manifest)
    (saved / "manifest.json").write_text(json.dumps(manifest))


def meant(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


NAMES = ["/etc/hostname", "../secret", "a/../../secret", "./weights", "weights/", "a//b", "", ".", "..", "a\0b", "~/x"]


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_names_nothing_outside(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    saved = put(tmp_path / "runs")
    rewrite(saved, lambda manifest: manifest["files"].update({name: meant(tmp_path / "secret")}))
    told = damage(saved)
    assert told.startswith(f"{name}: ")
    assert "bytes" not in told, "not even its size is told"
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        latest(tmp_path / "runs")


@given(st.text(max_size=20) | st.lists(st.sampled_from(["..", ".", "", "a", "/", "b"]), max_size=6).map("/".join))
def test_whatever_its_name_a_file_is_inside_or_refused(name: str) -> None:
    folder = Path("/nowhere/folder")
    try:
        found = plain_files.inside(folder, name)
    except OSError:
        return
    assert found.parent == folder
    assert os.path.normpath(found) == str(found)


def test_a_manifest_that_names_nothing_makes_no_checkpoint_whole(tmp_path: Path) -> None:
    saved = put(tmp_path)
    rewrite(saved, lambda manifest: manifest["files"].clear())
    assert damage(saved) == "manifest.json does not name state.json"


STRANGE: dict[str, Callable[[Path, Path], Any]] = {
    "a link to the same bytes": lambda path, other: (path.rename(other), path.symlink_to(other)),
    "a link to a device": lambda path, other: (path.unlink(), path.symlink_to("/dev/zero")),
    "a link to nothing": lambda path, other: (path.unlink(), path.symlink_to(other)),
    "a pipe": lambda path, other: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path, other: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("file", ["weights", "state.json", "manifest.json"])
def test_what_is_no_plain_file_is_damage(file: str, name: str, tmp_path: Path) -> None:
    """Reading a pipe or `/dev/zero` would never end."""
    saved = put(tmp_path / "runs")
    STRANGE[name](saved / file, tmp_path / "other")
    assert damage(saved).startswith(f"{file}: ")


def test_links_in_the_place_of_folders_are_damage(tmp_path: Path) -> None:
    saved = save(tmp_path / "runs", 1, lambda path: (path / "model").mkdir() or _touch(path / "model/x"), State(step=1))
    (saved / "model").rename(tmp_path / "model")
    (saved / "model").symlink_to(tmp_path / "model")
    assert "no folder" in damage(saved)
    saved.rename(tmp_path / "elsewhere")
    saved.symlink_to(tmp_path / "elsewhere")
    assert damage(saved) == "it is no folder of its own"


def _touch(path: Path) -> None:
    path.touch()


def test_a_link_for_a_checkpoint_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis").write_text("text")
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("step-00000001", "step-00000012", ".tmp-left"):
        (runs / name).symlink_to(tmp_path / "precious")
    with writing(runs):
        put(runs, 12)
        put(runs, 13)
    assert (tmp_path / "precious" / "thesis").read_text() == "text"
    assert sorted(path.name for path in runs.iterdir() if path.is_dir()) == ["step-00000012", "step-00000013"]
    assert not any(path.is_symlink() for path in runs.iterdir())


def test_large_and_strange_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = put(tmp_path)
    for text in (
        "[" * 100_000,
        '{"step": 12, "files": ' * 1000,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        (saved / "manifest.json").write_text(text)
        assert damage(saved).startswith("manifest.json: ")
    (saved / "manifest.json").write_text(" " * 101)
    monkeypatch.setattr(checkpoint, "MAX_MANIFEST", 100)
    assert "more than 100" in damage(saved)


def test_digits_are_ascii_digits(tmp_path: Path) -> None:
    (tmp_path / "step-٠٠٠٠٠٠٩٩").mkdir()
    (tmp_path / ("step-" + "9" * 200)).mkdir()
    put(tmp_path, 12)
    found = latest(tmp_path)
    assert found is not None
    assert (found.step, found.passed_over) == (12, {})


def test_a_state_that_is_gone_by_now_is_named(tmp_path: Path) -> None:
    put(tmp_path)
    found = latest(tmp_path)
    assert found is not None
    (found.folder / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"state\.json cannot be read"):
        found.state(State)


# Metrics, records, locks


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("one line that does not end")
    return path


class Line(BaseModel):
    step: int


WRITERS: dict[str, Callable[[Path], Any]] = {
    "metrics": lambda path: metrics_file.append(path, Line(step=1)),
    "cut metrics": lambda path: metrics_file.cut(path, 1),
    "records": lambda path: list(read_records(path, Line)),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("target", ["precious", "device", "pipe"])
def test_links_are_neither_read_nor_written(name: str, target: str, precious: Path, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    if target == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(precious if target == "precious" else "/dev/zero")
    with pytest.raises(OSError, match=re.escape(str(path))) as caught:
        WRITERS[name](path)
    assert caught.value.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO)
    assert precious.read_text() == "one line that does not end"


def test_what_is_written_beside_a_file_follows_no_link(precious: Path, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1}\n{"step": 2}\n')
    made_by = tmp_path / "made_by.json"
    for beside in (metrics.with_name("metrics.jsonl.tmp"), made_by.with_name("made_by.json.tmp")):
        beside.symlink_to(precious)
    metrics_file.cut(metrics, 1)
    agree(made_by, {"seed": 1}, begun=False)
    assert metrics.read_text() == '{"step": 1}\n'
    assert json.loads(made_by.read_text()) == {"seed": 1}
    assert precious.read_text() == "one line that does not end"


def test_a_lock_that_is_a_link_locks_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "writer.lock").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match=r"writer\.lock"), only_writer(tmp_path / "runs"):
        pass
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"step": "1"}', '{"step": [1]}', '{"step": NaN}', '{"step": true}', "7"]
)
def test_lines_of_metrics_without_a_step_are_dropped(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' + line + "\n")
    metrics_file.cut(path, 1)
    assert path.read_text() == '{"step": 1}\n'


def test_a_deep_description_of_attempts_is_named(tmp_path: Path) -> None:
    path = tmp_path / "made_by.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="does not say how attempts were made"):
        agree(path, {}, begun=True)


def test_a_switch_that_is_new_and_off_is_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "made_by.json"
    agree(path, {"seed": 1}, begun=False)
    agree(path, {"seed": 1, "keep_wrong": False}, begun=True)
    for new in ({"keep_wrong": True}, {"rows": 0}):
        with pytest.raises(ValueError, match=r"holds attempts with (keep_wrong|rows)=null"):
            agree(path, {"seed": 1, **new}, begun=True)
