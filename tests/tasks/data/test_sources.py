"""Files of published sets in every form: good ones, broken ones, and rows that cannot be read."""

import hashlib
import os
import struct
from pathlib import Path

import pytest
from published import FORMS, GOOD, POLARIS, write

from tasks.data import DatasetError, rows
from tasks.data.sources import sha256, source_rows, train_files


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", GOOD)
def test_rows_are_the_same_in_every_form(name: str, form: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"train.{form}", GOOD[name])
    columns = list(GOOD[name][0])
    read = list(source_rows(path, columns))
    assert [row.fields for row in read] == GOOD[name]
    assert read[1].place == f"train.{form}, {'row' if form == 'parquet' else 'line'} 2"
    assert read[-1].read == 1.0


def test_of_parquet_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [POLARIS] * 100)
    (first, *_), *rest = ([row.fields for row in source_rows(path, columns)] for columns in (["answer", "none"], []))
    assert first == {"answer": POLARIS["answer"]}
    assert rest == [[{}] * 100]


def test_json_lines_that_are_no_rows_are_told_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LONGEST_LINE", 100)
    lines = [
        b'\xef\xbb\xbf{"a": 1}',
        b"",
        b'{"a": "\xff"}',
        b"{",
        b"[1]",
        b'{"a": ' + b"9" * 90 + b"}" + b" " * 50,
        b'{"a": "\\ud800"}',
        b'{"a": "\\u0000"}',
        b"[" * 90,
        b'{"a": NaN}',
        b"x" * 1000,
    ]
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join(lines))
    assert [(row.place, row.fields or row.wrong.partition(":")[0]) for row in source_rows(path, [])] == [
        ("x.jsonl, line 1", {"a": 1}),
        ("x.jsonl, line 3", "not UTF-8 text"),
        ("x.jsonl, line 4", "not JSON"),
        ("x.jsonl, line 5", "no JSON object"),
        ("x.jsonl, line 6", "longer than 100 bytes"),
        ("x.jsonl, line 7", "not JSON"),
        ("x.jsonl, line 8", {"a": "\0"}),
        ("x.jsonl, line 9", "not JSON"),
        ("x.jsonl, line 10", "not JSON"),
        ("x.jsonl, line 11", "longer than 100 bytes"),
    ]


def test_integers_that_python_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": ' + "1" * 5000 + '}\n{"a": 2}\n')
    first, second = source_rows(path, [])
    assert "4300 digits" in first.wrong
    assert second.fields == {"a": 2}


def test_text_of_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ends = arrow.py_buffer(struct.pack("<4i", 0, 2, 4, 6))
    texts = arrow.Array.from_buffers(arrow.string(), 3, [None, ends, arrow.py_buffer(b"ok\xff\xfehm")])
    parquet.write_table(arrow.table({"problem": texts, "answer": ["1", "2", "3"]}), tmp_path / "x.parquet")
    read = list(source_rows(tmp_path / "x.parquet", ["problem", "answer"]))
    assert [row.wrong for row in read] == ["", "problem: not UTF-8 text", ""]
    assert read[2].fields == {"problem": "hm", "answer": "3"}


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_file_that_is_cut_short_is_an_error(form: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"x.{form}", [{**POLARIS, "problem": os.urandom(300).hex()} for _ in range(300)])
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-6], b"junk" * 100):
        path.write_bytes(damaged)
        if form == "jsonl.gz" and not damaged:
            continue  # no members at all are no rows
        with pytest.raises(DatasetError, match=r"broken or cut short .*Fix: download it again"):
            list(source_rows(path, ["problem"]))


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for form in ("parquet", "jsonl.zst"):
        (tmp_path / f"x.{form}").write_bytes(b"x")
        with pytest.raises(DatasetError, match=r"needs pyarrow to be read. Fix: pip install 'metaagent\[data\]'"):
            list(source_rows(tmp_path / f"x.{form}", []))


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["train.jsonl", "test.jsonl", "apps.py", "README.md"], ["train.jsonl"]),
        (["data/train-00000-of-00001.parquet", "data/test-0-of-1.parquet"], ["data/train-00000-of-00001.parquet"]),
        (["default/train/0001.parquet", "default/train/0000.parquet", "default/partial-valid/0000.parquet"],
         ["default/train/0000.parquet", "default/train/0001.parquet"]),
        ([".cache/huggingface/download/x.jsonl", "polaris-data-53K.jsonl"], ["polaris-data-53K.jsonl"]),
        (["latest.jsonl", "contest.jsonl"], ["contest.jsonl", "latest.jsonl"]),
    ],
)  # fmt: skip
def test_the_files_of_the_training_split(tmp_path: Path, names: list[str], found: list[str]) -> None:
    assert train_files(folder(tmp_path, *names)) == [tmp_path / name for name in found]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["test.jsonl", "x.py"], "holds no rows for training"),
        (["a.jsonl", "a.parquet"], "holds a.jsonl and a.parquet, maybe the same rows. Fix: name one"),
        (
            [f"data/train-{number:05d}-of-00009-0a1b.parquet" for number in (0, 8)],
            "of the 9 files data/train-* 7 are missing (00001, 00002, 00003, 00004, 00005, ...). Fix: download again",
        ),
    ],
)
def test_folders_that_are_not_whole_or_not_clear(tmp_path: Path, names: list[str], said: str) -> None:
    with pytest.raises(DatasetError) as caught:
        train_files(folder(tmp_path, *names))
    assert said in str(caught.value)


def test_one_file_is_taken_as_named(tmp_path: Path) -> None:
    path = folder(tmp_path, "train-00007-of-00039.parquet", "x.csv") / "train-00007-of-00039.parquet"
    assert train_files(path) == [path]
    os.mkfifo(tmp_path / "pipe.jsonl")
    for wrong, said in (("x.csv", "is no data file. Fix"), ("none.jsonl", "no file"), ("pipe.jsonl", "no file")):
        with pytest.raises(DatasetError, match=said):
            train_files(tmp_path / wrong)


def test_files_are_told_by_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * 3_000_000)
    assert sha256(tmp_path / "x") == hashlib.sha256(b"a" * 3_000_000).hexdigest()
    with pytest.raises(DatasetError, match="cannot read"):
        sha256(tmp_path)
