"""Rows of data files, checked one by one: JSON lines, or one JSON list. What they mean is their readers' business.

Files come from anywhere: what is too long, too deep, no text, or a number that JSON does not have is a `DatasetError`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

Row = TypeVar("Row", bound=BaseModel)

LONGEST_LINE = 1 << 26
"""Bytes of one row: a file without line ends must not be read whole."""
LARGEST_LIST = 1 << 30
"""Bytes of a file that is one list, which has to be read whole."""
MAX_DEPTH = 60
"""Of lists and objects within each other; jails take little more (`sandbox.frames`)."""


class DatasetError(ValueError):
    """A data file is not what its format says."""


def rows(path: Path, model: type[Row]) -> Iterator[Row]:
    """Every row of a file as `model`. Raises `DatasetError` that names the file, the line or item, and the field."""
    return (row for _, row in placed_rows(path, model))


def placed_rows(path: Path, model: type[Row]) -> Iterator[tuple[str, Row]]:
    """Every row as in `rows`, with the line or item where it stands."""
    for place, row in _records(Path(path)):
        yield place, checked(row, model, f"{path}, {place}")


def checked(row: Any, model: type[Row], place: str) -> Row:
    """A record as `model`. Raises `DatasetError` that names the place and the field."""
    try:
        return model.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "(whole row)"
        raise DatasetError(f"{place}, field {field}: {first['msg'].removeprefix('Value error, ')}") from None


def parsed(text: str) -> Any:
    """What a JSON text says. ValueError where it is none, or says what is no text or no number, or goes too deep."""
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        if "\\u" in text:  # JSON can spell half a character
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(_DEEP) from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair (\\ud800 to \\udfff) is no text") from None
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


_DEEP = f"nested deeper than {MAX_DEPTH} levels"


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:20])


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(_DEEP)


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """(where it stands, record) for each item of a JSON list or each line of a JSON lines file."""
    if "\0" in str(path):
        raise DatasetError(f"{str(path)!r} is no name of a file")
    with path.open("rb") as file:
        if path.suffix == ".json":
            whole = file.read(LARGEST_LIST + 1)
            if len(whole) > LARGEST_LIST:
                raise DatasetError(f"{path}: a list of more than {LARGEST_LIST:,} bytes. Fix: make it JSON lines")
            items = json_of(whole, str(path))
            if not isinstance(items, list):
                raise DatasetError(f"{path}: expected a JSON list, got {type(items).__name__}")
            yield from ((f"item {number}", item) for number, item in enumerate(items, 1))
            return
        for number in count(1):
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                return
            if len(line) > LONGEST_LINE:
                raise DatasetError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes")
            if line.strip():
                yield f"line {number}", json_of(line, f"{path}, line {number}", skip_mark=number == 1)


def json_of(data: bytes, place: str, *, skip_mark: bool = True) -> Any:
    """The JSON value in some bytes, with the mark of UTF-8 before it where that may stand. Raises `DatasetError`."""
    try:
        return parsed(data.decode("utf-8-sig" if skip_mark else "utf-8"))
    except UnicodeDecodeError as error:
        raise DatasetError(f"{place}: not UTF-8 text (byte {error.start})") from None
    except ValueError as error:
        raise DatasetError(f"{place}: not JSON: {error}") from None
