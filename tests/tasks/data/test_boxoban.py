"""Boxoban's files: levels as they stand there, and what is wrong told with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import READERS, DatasetError, read_task
from tasks.environments import reset

ROOM = """\
##########
##########
##########
#######  #
######## #
#   ###. #
#   $    #
#  $$ .. #
#@  $  . #
##########"""
SMALL = "#####\n#@$.#\n#####"


def test_levels_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "000.txt"
    path.write_text(f"; 0\n{ROOM}\n\n; 1\n{SMALL}\n\n")
    first, second = read_task(f"boxoban:{path}")
    assert [first.id, second.id] == ["boxoban/000/0", "boxoban/000/1"]
    assert reset(first).board == ROOM
    assert reset(first).kind == "sokoban"
    assert ROOM in first.question
    assert second.environment is not None
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_task(f"boxoban:{path}") == [first, second]
    path.write_text(f"; 0\n{ROOM}")
    assert read_task(f"boxoban:{path}") == [first]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no problems"),
        (SMALL, "line 1: expected '; NUMBER' before a level, got '#####'"),
        (f"; 0\n{SMALL}\n; 1\n{SMALL}", "line 5: no blank line behind the level before"),
        (f"; 0\n{SMALL}\n\n{SMALL}", "line 6: expected '; NUMBER'"),
        (f"; 0\n{SMALL}\n\n; 0\n{SMALL}", "line 6: level '0' is at line 1, too"),
        ("; 7\n\n", "line 1: level '7' has no map"),
        (f";\n{SMALL}", "line 1: a level without a number"),
        (
            f"; 0\n{SMALL}\n\n; 1\n#####\n#@x.#\n#####",
            "line 8, column 3: 'x' is no symbol of sokoban. Fix: use # blank",
        ),
        ("; 0\n#####\n#@$ #\n#####", "line 3, column 3: boxes: 1, goals: 0"),
        ("; 0\n#####\n#$@.#\n#####", "line 2: no moves bring all boxes onto goals"),
        ("; 0\n#####\n#@$.#\n####", "line 4, column 5: 4 columns, the first line has 5"),
    ],
)
def test_what_is_no_level_is_told_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "levels.txt"
    path.write_text(text)
    with pytest.raises(DatasetError) as error:
        read_task(f"boxoban:{path}")
    assert said in str(error.value)
    assert str(path) in str(error.value)


@given(data=st.binary(max_size=80) | st.text("# .$@*+;0\n", max_size=80).map(str.encode))
def test_files_of_any_bytes(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(data)
    said = str(path)
    try:
        assert read_task(f"boxoban:{path}")
    except DatasetError as error:
        said = str(error)
    assert str(path) in said
    assert len(said) < 2000


@pytest.mark.parametrize("path", ["no/such.txt", "/", "a\0b"])
def test_paths_of_any_kind(path: str) -> None:
    with pytest.raises(DatasetError):
        read_task(f"boxoban:{path}")


def test_a_file_without_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.data.boxoban.LARGEST", 1 << 16)
    with pytest.raises(DatasetError, match="more than 65,536 bytes"):
        READERS["boxoban"](Path("/dev/zero"))
