"""Reads Boxoban's level files (google-deepmind/boxoban-levels): Sokoban levels of 10 x 10 with 4 boxes."""

from __future__ import annotations

from pathlib import Path

from tasks.data.rows import DatasetError
from tasks.environments import LevelError, check_level, problem_of
from tasks.problems import Problem, SokobanLevel

LARGEST = 1 << 26
"""Bytes of a file."""


def read_boxoban(path: Path) -> list[Problem]:
    """A `.txt` file: each level is a line `; NUMBER` and the lines of its map; blank lines stand between levels.

    Ids are the file's name and the number. How many moves a level takes is not worked out.
    """
    problems: list[Problem] = []
    places: dict[str, int] = {}
    level: list[str] = []
    name, began = "", 0
    for number, line in enumerate([*_lines(path), ""], 1):
        if line.startswith(";"):
            _nothing_before(path, number, level)
            name, began = line[1:].strip(), number
            if name in places:
                raise DatasetError(
                    f"{path}, line {number}: level {name!r} is at line {places[name]}, too. Fix: rename one"
                )
            if not name:
                raise DatasetError(
                    f"{path}, line {number}: a level without a number. Fix: write '; 0', '; 1' and so on"
                )
            places[name] = number
        elif line.strip():
            if not began:
                raise DatasetError(f"{path}, line {number}: expected '; NUMBER' before a level, got {line[:40]!r}")
            level.append(line)
        elif level:
            problems.append(_problem(path, name, "\n".join(level), number - len(level)))
            level, began = [], 0
    if began:
        raise DatasetError(f"{path}, line {began}: level {name!r} has no map")
    return problems


def _lines(path: Path) -> list[str]:
    if "\0" in str(path):
        raise DatasetError(f"{str(path)!r} is no name of a file")
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise DatasetError(f"{path}: more than {LARGEST:,} bytes. Fix: divide it")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 text (byte {error.start})") from None


def _nothing_before(path: Path, number: int, level: list[str]) -> None:
    if level:
        raise DatasetError(f"{path}, line {number}: no blank line behind the level before. Fix: put one in")


def _problem(path: Path, name: str, level: str, first: int) -> Problem:
    environment = SokobanLevel(level=level)
    try:
        check_level(environment)
    except LevelError as error:
        place = f"line {first + error.line - 1}, column {error.column}: " if error.line else f"line {first}: "
        raise DatasetError(f"{path}, {place}{error.what}") from None
    return problem_of(environment, f"boxoban/{path.stem}/{name}")
