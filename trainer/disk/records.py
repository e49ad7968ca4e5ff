"""Records of graded work on disk: how it is made, in one JSON file, and one line of JSON per finished piece.

They survive a kill: lines are written whole and at once, and a torn last one is cut off when they are read again. What
a piece of work is belongs to `trainer.evaluate.attempts` (evaluations) and `trainer.distill.distill_log`
(distillation).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from engine.known_engines import Identity, identity
from engine.protocol import Engine
from tasks.problems import Problem
from trainer.disk import plain_files

Record = TypeVar("Record", bound=BaseModel)
_DIGEST = "_digest"


def agree(
    path: Path, made_by: Mapping[str, Any], *, begun: bool, today: Callable[[Any], Any] = lambda written: written
) -> None:
    """Write down how attempts are made. Where some have `begun`, ValueError if something else is written there, or
    nothing: what is there is then somebody else's, and so it is where something is written that no attempts need.
    `today` says in the terms of today what was written by an earlier version. Of an engine `x` its digest may stand in
    `x_digest`: it is then known by that, whatever its path (`engine.known_engines`)."""
    check_regular(path)
    if begun and not path.exists():
        raise ValueError(f"{path.parent} holds attempts, and no {path.name} that says whose. Fix: use another folder")
    try:
        before = json.loads(plain_files.read(path)) if path.exists() else dict(made_by)
        if not begun:
            if not isinstance(before, dict) or not before.keys() & made_by.keys():
                raise ValueError("it is somebody else's file")
            plain_files.replace(path, (json.dumps(made_by, indent=1) + "\n").encode())
            return
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} does not say how attempts were made: {error}. Fix: use another folder") from None
    before, now = today(before), json.loads(json.dumps(made_by))
    before = _with_same_engines(before, now) if isinstance(before, dict) else before
    for name in {**now, **before} if isinstance(before, dict) else ["everything"]:
        then = before.get(name) if isinstance(before, dict) else before
        if then != now.get(name) and not (then is None and now.get(name) is False):  # a switch that was not there yet
            where, was, wanted = _first_difference(name, then, now.get(name))
            raise ValueError(
                f"{path.parent} holds attempts with {where}={_short(was)}, not {_short(wanted)}. "
                "Fix: use another folder, or the same settings"
            )


def made_by_engine(role: str, engine: Engine) -> dict[str, str]:
    """What `agree` compares an engine by."""
    name, digest = identity(engine)
    return {role: name} | ({f"{role}{_DIGEST}": digest} if digest else {})


def _with_same_engines(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What was written, with the engines that are the same as those now called as they are now."""
    for role in {key.removesuffix(_DIGEST) for key in (*before, *now) if key.endswith(_DIGEST)}:
        keys = role, f"{role}{_DIGEST}"
        then, this = (Identity(*(str(made.get(key) or "") for key in keys)) for made in (before, now))
        if then.is_same(this):
            before = {key: said for key, said in before.items() if key not in keys}
            before |= {key: now[key] for key in keys if key in now}
    return before


def agree_on_settings(path: Path, settings: BaseModel) -> None:
    """Write down the settings of all that is in a folder. ValueError where others are written there. A key that the
    settings have got since has its default in what an earlier version wrote."""

    def today(written: Any) -> Any:
        try:
            return type(settings).model_validate(written).model_dump(mode="json")
        except ValidationError:
            return written

    agree(path, settings.model_dump(mode="json"), begun=path.exists(), today=today)


def _first_difference(name: str, then: Any, now: Any) -> tuple[str, Any, Any]:
    """The key that is otherwise, as deep as there are keys, and its values."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in {**now, **then}:
            if then.get(key) != now.get(key):
                return _first_difference(f"{name}.{key}", then.get(key), now.get(key))
    return name, then, now


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def check_regular(path: Path) -> None:
    """ValueError where there is something but a file: a link leads out of the folder, a pipe is waited for."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError(f"{path} is no file but a link, a folder or a device. Fix: remove it, or use another folder")


def has_lines(path: Path) -> bool:
    """Whether the file holds anything. ValueError where it is no file."""
    check_regular(path)
    return path.exists() and path.stat().st_size > 0


def line_of(record: BaseModel) -> str:
    """One line of JSON, without fields that are None: what may be None has that as its default. Halves of
    surrogate pairs, which are no text, become `?`."""
    line = json.dumps(record.model_dump(mode="json", exclude_none=True), ensure_ascii=False)
    return line.encode(errors="replace").decode() + "\n"


def read_records(path: Path, kind: type[Record]) -> Iterator[tuple[int, Record]]:
    """Each record with the byte at which its line begins. A torn last line is cut off the file when it is reached.

    Raises ValueError, naming file and line, for a line that is no such record.
    """
    with open(plain_files.opened(path, os.O_RDWR), "r+b") as file:
        begin = number = 0
        while line := file.readline():
            number += 1
            if not line.endswith(b"\n"):
                file.truncate(begin)
                return
            yield begin, _record(line, kind, f"{path}, line {number}")
            begin += len(line)


def _record(line: bytes, kind: type[Record], place: str) -> Record:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the line"
        raise ValueError(
            f"{place}: {first['msg']} ({field}). Fix: delete the line; what it stands for is then made again"
        ) from None


def problem_digest(problem: Problem) -> str:
    """Tells whether a problem is the one that was attempted before."""
    return hashlib.blake2b(json.dumps(problem.model_dump(mode="json")).encode(), digest_size=8).hexdigest()


def check_same(problem: str, digest: str, now: str | None, folder: Path | None) -> None:
    """ValueError where a problem (its id) is another one `now`; None is one that is not asked for now."""
    if now is not None and now != digest:
        raise ValueError(f"problem {problem!r} has changed since {folder} was begun. Fix: use another folder")


def check_ids(problems: Sequence[Problem]) -> None:
    """ValueError where two problems have one id."""
    twice = next((name for name, count in Counter(problem.id for problem in problems).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"two problems have the id {twice!r}. Fix: give them different ids")
