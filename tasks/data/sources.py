"""Rows of data sets as they were published: parquet and JSON lines, plain or compressed; one row at a time.

A row that cannot be read is told, and the next one read; a file that is broken or cut short is a `DatasetError`.
Parquet and zstandard need pyarrow. Not here: which rows are wanted (`tasks.data.published_sets`), and downloads
(`tasks.data.hub`).
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import importlib
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tasks.data import rows
from tasks.data.rows import DatasetError

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst")
AT_ONCE = 16
"""Rows of a parquet file in memory: those of CodeContests have megabytes of tests."""
_CHUNK = 1 << 20
_OTHER_SPLIT = re.compile(r"(?:^|[-_.])(?:test|valid|validation|dev)(?:[-_.]|$)")
_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)\b")


class SourceRow(NamedTuple):
    place: str
    """File and line, or file and row."""
    fields: dict[str, Any] | None
    wrong: str
    """Why there are no fields."""
    read: float
    """Share of the file up to here, 0 to 1."""


def train_files(source: Path) -> list[Path]:
    """The file `source`, or all files in that folder that can be read, but for those of a test or validation split.

    Sorted by name. Raises `DatasetError` where there are none, where there are several formats (the same rows would
    come twice), or where numbered files (`train-00007-of-00039`) are missing.
    """
    if not source.is_dir():
        if not source.is_file():
            raise DatasetError(f"there is no file {source}")
        _suffix(source)
        return [source]
    inside = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    shown = [path for path in inside if not any(part.startswith(".") for part in path.parts)]
    found = [path for path in shown if path.name.endswith(SUFFIXES) and not any(map(_OTHER_SPLIT.search, path.parts))]
    if not found:
        raise DatasetError(f"{source} holds no rows for training. Fix: name a folder with {', '.join(SUFFIXES)} files")
    kinds = {_suffix(path): path for path in found}
    if len(kinds) > 1:
        several = " and ".join(map(str, kinds.values()))
        raise DatasetError(
            f"{source} holds {several}, maybe the same rows. Fix: name one file, or a folder with one kind"
        )
    _check_shards(source, found)
    return [source / path for path in found]


def sha256(path: Path) -> str:
    """Raises `DatasetError` for a file that cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest()


def source_rows(path: Path, columns: Sequence[str]) -> Iterator[SourceRow]:
    """Every row of a file; of parquet these columns alone, where there are such. Raises `DatasetError`."""
    suffix = _suffix(path)
    try:
        yield from _parquet_rows(path, columns) if suffix == ".parquet" else _json_rows(path, suffix)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.EISDIR):
            raise DatasetError(f"cannot read {path}: {error.strerror}") from None
        raise DatasetError(_broken(path, error)) from None
    except (EOFError, zlib.error) as error:
        raise DatasetError(_broken(path, error)) from None


def _suffix(path: Path) -> str:
    suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
    if suffix is None:
        raise DatasetError(f"{path} is no data file. Fix: name one that ends in {', '.join(SUFFIXES)}")
    return suffix


def _check_shards(source: Path, found: Sequence[Path]) -> None:
    series: dict[tuple[str, int], set[int]] = {}
    for path in found:
        if shard := _SHARD.match(str(path)):
            series.setdefault((shard[1], int(shard[3])), set()).add(int(shard[2]))
    for (name, count), there in series.items():
        missing = sorted(set(range(count)) - there)
        if missing:
            shown = ", ".join(f"{number:05d}" for number in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise DatasetError(
                f"{source}: of the {count} files {name}-* {len(missing)} are missing ({shown}). Fix: download again, "
                "which goes on where it stopped; or name single files"
            )


def _broken(path: Path, error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    return f"{path} is broken or cut short ({said}). Fix: download it again"


def _pyarrow(module: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DatasetError(f"{path} needs pyarrow to be read. Fix: pip install 'metaagent[data]'") from None


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[SourceRow]:
    arrow, parquet = _pyarrow("pyarrow", path), _pyarrow("pyarrow.parquet", path)
    number = 0
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=_CHUNK) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            count = file.metadata.num_rows
            for batch in file.iter_batches(AT_ONCE, columns=there, use_threads=False):
                for place in range(batch.num_rows):
                    number += 1
                    fields, wrong = _fields(batch, place)
                    yield SourceRow(f"{path.name}, row {number}", fields, wrong, number / count)
    except arrow.ArrowException as error:
        raise DatasetError(_broken(path, error)) from None


def _fields(batch: Any, place: int) -> tuple[dict[str, Any] | None, str]:
    fields: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            fields[name] = column[place].as_py()
        except UnicodeDecodeError:
            return None, f"{name}: not UTF-8 text"
    return fields, ""


def _json_rows(path: Path, suffix: str) -> Iterator[SourceRow]:
    size = max(path.stat().st_size, 1)
    with path.open("rb") as raw, _plain(raw, suffix, path) as file:
        number = 0
        while line := file.readline(rows.LONGEST_LINE + 1):
            number += 1
            whole = len(line) <= rows.LONGEST_LINE
            wrong = "" if whole else f"longer than {rows.LONGEST_LINE:,} bytes"
            while len(line) > rows.LONGEST_LINE and not line.endswith(b"\n"):
                line = file.readline(rows.LONGEST_LINE + 1)
            if whole and not line.strip():
                continue
            fields, wrong = _object(line) if whole else (None, wrong)
            yield SourceRow(f"{path.name}, line {number}", fields, wrong, min(raw.tell() / size, 1.0))


def _plain(raw: BinaryIO, suffix: str, path: Path) -> Any:
    if suffix == ".jsonl.gz":
        return gzip.open(raw)
    if suffix == ".jsonl.zst":
        return io.BufferedReader(_pyarrow("pyarrow", path).CompressedInputStream(raw, "zstd"), _CHUNK)
    return raw


def _object(line: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        value = rows.parsed(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None, "not UTF-8 text"
    except ValueError as error:
        return None, f"not JSON: {error}"
    return (value, "") if isinstance(value, dict) else (None, "no JSON object")
