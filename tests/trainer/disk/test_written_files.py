"""Files that are hashed while they are written, and folders that are synced."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from trainer.disk.written_files import Written, hashing, read_back, synced, write


def test_what_is_written_is_hashed(tmp_path: Path) -> None:
    pieces = [b"", os.urandom(5), memoryview(bytearray(os.urandom(1 << 20))), memoryview(b""), b"end"]
    with hashing(tmp_path / "file") as file:
        for piece in pieces:
            file.write(piece)
    data = b"".join(map(bytes, pieces))
    assert (tmp_path / "file").read_bytes() == data
    expected = Written(tmp_path / "file", len(data), hashlib.sha256(data).hexdigest())
    assert file.written() == expected
    assert read_back([tmp_path / "file"]) == [expected]
    assert write(tmp_path / "other", data) == Written(tmp_path / "other", len(data), expected.sha256)


def test_it_is_on_disk_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: on_disk.append(os.fstat(descriptor).st_size))

    def broken_off() -> None:
        with hashing(tmp_path / "other") as file:
            file.write(b"123")
            raise KeyError

    write(tmp_path / "file", b"12345")
    with pytest.raises(KeyError):
        broken_off()
    assert on_disk == [5]


def test_a_file_that_is_there_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("mine", "link"):
        with pytest.raises(FileExistsError), hashing(tmp_path / name):
            pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_files_are_read_back_in_their_order(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(20)]
    for path in paths:
        path.write_bytes(os.urandom(1000))
    assert [each.path for each in read_back(paths)] == paths
    assert [each.sha256 for each in read_back(paths)] == [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths]


def test_files_are_synced_side_by_side_and_folders_after_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    for name in ("a", "deep/b", "deep/deeper/c", "deep/deeper/d"):
        (tmp_path / name).touch()
    together = threading.Barrier(4)
    order: list[int] = []
    real = os.fsync

    def slow(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if not found.st_nlink > 1 and found.st_size == 0:
            together.wait(10)  # all four files at the same time
        real(descriptor)
        order.append(found.st_ino)

    monkeypatch.setattr(os, "fsync", slow)
    synced(tmp_path)
    numbers = {path: path.stat().st_ino for path in [tmp_path, *tmp_path.rglob("*")]}
    assert sorted(order) == sorted(numbers.values())
    assert order[-3:] == [numbers[tmp_path / "deep" / "deeper"], numbers[tmp_path / "deep"], numbers[tmp_path]]
