"""Rows of data files, checked one by one: JSON lines, or one JSON list. What they mean is their readers' business."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Row = TypeVar("Row", bound=BaseModel)


class DatasetError(ValueError):
    """A data file is not what its format says."""


def rows(path: Path, model: type[Row]) -> Iterator[Row]:
    """Every row of a file as `model`. Raises `DatasetError` that names the file, the line or item, and the field."""
    return (row for _, row in placed_rows(path, model))


def placed_rows(path: Path, model: type[Row]) -> Iterator[tuple[str, Row]]:
    """Every row as in `rows`, with the line or item where it stands."""
    for place, row in _records(Path(path)):
        try:
            yield place, model.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "(whole row)"
            raise DatasetError(f"{path}, {place}, field {field}: {first['msg']}") from None


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """(where it stands, record) for each item of a JSON list or each line of a JSON lines file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        try:
            items = json.loads(text)
        except ValueError as error:
            raise DatasetError(f"{path}: not JSON: {error}") from None
        if not isinstance(items, list):
            raise DatasetError(f"{path}: expected a JSON list, got {type(items).__name__}")
        yield from ((f"item {number}", item) for number, item in enumerate(items, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except ValueError as error:
                raise DatasetError(f"{path}, line {number}: not JSON: {error}") from None
