"""Reads a training configuration from a TOML file with dotted overrides, and writes it back.

What the keys mean is said in `trainer.config.schema`; nothing here opens a data file, a model or an engine. Beyond
plain TOML:

- `extends = "other.toml"`: the file's tables are laid over those of the other file; lists are replaced as a whole.
- The string "none" stands for no value wherever none is allowed (TOML has no null).
- Relative paths mean files beside the file that names them; those of an override, files in the current folder.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trainer.config.schema import TrainConfig
from trainer.config.toml_values import LARGEST_FILE, LONGEST_SHOWN, MAX_DEPTH, Place, parsed, unwritable
from workflow.checks import nearest

NONE = "none"
MOST_SHOWN = 30
"""Wrong places that are named."""


class ConfigError(ValueError):
    """A configuration that cannot be used; `problems` has one line for each thing that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Override:
    text: str
    place: Place
    value: Any


def read_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """The configuration in a TOML file, with overrides such as `rollout.designs=8` or `data.0.path=train.jsonl`.

    An override's value is read as TOML; what is not TOML is a string. Raises `ConfigError` with all that is wrong at
    once: unknown keys with the nearest valid one, values of a wrong type with what is expected, missing keys.
    """
    files = _files(Path(path), ())
    values: dict[str, Any] = {}
    for file in files:
        values = _merged(values, file.values)
    problems: list[str] = []
    applied: list[_Override] = []
    for text in overrides:
        try:
            override = _override(text)
            _set(values, override)
            applied.append(override)
        except ConfigError as error:
            problems += error.problems
    problems = problems or [f"{_origin(place, files, applied)}: {wrong}" for place, wrong in unwritable(values)]
    if problems:
        raise ConfigError(_some(problems))
    try:
        # JSON, since strict JSON takes text for a path but "8" for no number.
        return TrainConfig.model_validate_json(json.dumps(_nones(values, TrainConfig)), strict=True)
    except ValidationError as error:
        raise ConfigError(_some(_problems(error, values, files, applied))) from None


def to_toml(config: TrainConfig) -> str:
    """The whole configuration as TOML, defaults included. `read_config` reads it back as equal where its paths are
    absolute, as those that `read_config` gives are."""
    import tomli_w

    return tomli_w.dumps(_written(config.model_dump(mode="json")))


def _written(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _written(item) for key, item in value.items()}
    return [_written(item) for item in value] if isinstance(value, list) else NONE if value is None else value


# Files


def _files(path: Path, below: tuple[Path, ...]) -> list[_File]:
    """The file and what it extends, the one that is laid over the others last."""
    path = Path(os.path.abspath(path))
    if path in below:
        chain = " -> ".join(file.name for file in (*below[below.index(path) :], path))
        raise ConfigError([f"{path}: it extends itself: {chain}. Fix: remove one `extends`"])
    extended = f" (which {below[-1]} extends)" if below else ""
    if len(below) == MAX_DEPTH:
        raise ConfigError([f"{path}{extended}: more than {MAX_DEPTH} files extend each other. Fix: lay some together"])
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        values = parsed(data)
    except OSError as error:
        raise ConfigError([f"cannot read {path}{extended}: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}{extended} is not UTF-8 text (byte {error.start})"]) from None
    except ValueError as error:
        raise ConfigError([f"{path}{extended} is not TOML: {error}"]) from None
    base = values.pop("extends", None)
    if base is not None and (not isinstance(base, str) or _is_no_file(path.parent / base)):
        raise ConfigError([f"{path}: extends = {_shown(base)} should be the name of one TOML file"])
    under = [] if base is None else _files(path.parent / base, (*below, path))
    return [*under, _File(str(path), _resolved(values, path.parent, ()))]


def _is_no_file(path: Path) -> bool:
    """Whether there is something else, such as a pipe, which would be waited for."""
    return os.path.exists(path) and not os.path.isfile(path)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _resolved(value: Any, folder: Path, place: Place) -> Any:
    """The value with relative paths made absolute: of data, programs, models of values, and policies'
    models where there is such a folder."""
    if isinstance(value, dict):
        return {key: _resolved(item, folder, (*place, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, folder, (*place, str(number))) for number, item in enumerate(value)]
    if not isinstance(value, str) or not value:
        return value
    path = os.path.abspath(folder / os.path.expanduser(value))
    match place:
        case ("data", _, "path"):
            return path
        case ("rollout", "program") if value != NONE:
            return path
        case ("reward", "prm") if value != NONE:
            return path
        case ("policies", _, "model") if os.path.isdir(path):
            return path
    return value


# Overrides


def _override(text: str) -> _Override:
    name, mark, written = text.partition("=")
    place = tuple(key.strip() for key in name.split("."))
    text = text if len(text) <= 2 * LONGEST_SHOWN else text[: 2 * LONGEST_SHOWN - 3] + "..."
    if not mark or not all(place) or len(place) > MAX_DEPTH:
        raise ConfigError([f"override {text!r} is not KEY=VALUE. Fix: write it like rollout.designs=8"])
    value: Any = written.strip()
    try:
        said = parsed(f"value = {written}".encode())
        value = said["value"] if len(said) == 1 else value
    except UnicodeEncodeError:
        pass  # `unwritable` names it
    except ValueError as error:
        if value.startswith(("'", '"', "[", "{")):
            raise ConfigError([f"override {text!r}: the value is not TOML: {error}"]) from None
    return _Override(text, place, _resolved(value, Path.cwd(), place))


def _set(values: dict[str, Any], override: _Override) -> None:
    """Put the override's value where its place says, making tables on the way; an item after the last is added."""
    at: Any = values
    for depth, key in enumerate(override.place, 1):
        where = ".".join(override.place[: depth - 1])
        if isinstance(at, list):
            if not key.isdecimal() or int(key) > len(at):
                items = f"0 to {len(at) - 1}, and {len(at)} adds one" if at else "none yet, and 0 adds one"
                raise ConfigError([f"override {override.text!r}: {where} has no item {key!r}. It has items {items}"])
            if int(key) == len(at):
                at.append({})
            spot: Any = int(key)
        elif isinstance(at, dict):
            spot = key
            if at.get(key, NONE) == NONE:
                at[key] = {}
        else:
            raise ConfigError([f"override {override.text!r}: {where} = {_shown(at)} is not a table"])
        if depth == len(override.place):
            at[spot] = override.value
        at = at[spot]


# The schema, walked beside the values


def _members(kind: Any) -> list[Any]:
    """The kinds that a value may have, without None."""
    return [member for member in get_args(kind) if member is not NoneType] if NoneType in get_args(kind) else [kind]


def _within(kind: Any, key: str) -> Any:
    """The kind of what stands under a key of a table, or of a list's items; None where the schema knows no such key."""
    for member in _members(kind):
        if isinstance(member, type) and issubclass(member, BaseModel):
            field = member.model_fields.get(key)
            return field.annotation if field else None
        if get_origin(member) in (dict, list):
            return get_args(member)[-1]
    return None


def _nones(value: Any, kind: Any) -> Any:
    """The value with "none" made None wherever its kind allows it."""
    if value == NONE and NoneType in get_args(kind):
        return None
    if isinstance(value, dict):
        return {key: _nones(item, _within(kind, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_nones(item, _within(kind, "")) for item in value]
    return value


def _keys(kind: Any, place: Place = ()) -> Iterator[Place]:
    """Every key that a configuration may have; NAME and N stand for names of policies and numbers of items."""
    for member in _members(kind):
        if isinstance(member, type) and issubclass(member, BaseModel):
            for name, field in member.model_fields.items():
                yield (*place, name)
                yield from _keys(field.annotation, (*place, name))
        elif get_origin(member) in (dict, list):
            yield from _keys(get_args(member)[-1], (*place, "NAME" if get_origin(member) is dict else "N"))


# What is wrong


def _some(problems: Iterable[str]) -> list[str]:
    """The first few, and a word on the others."""
    named = list(islice(iter(problems), MOST_SHOWN + 1))
    return [*named[:MOST_SHOWN], "and more; mend these first"] if len(named) > MOST_SHOWN else named


def _problems(
    error: ValidationError, values: dict[str, Any], files: Sequence[_File], overrides: Sequence[_Override]
) -> Iterator[str]:
    """One line for each place where something is wrong."""
    found: dict[Place, list[ErrorDetails]] = {}
    for item in error.errors():
        place = tuple(str(part) for part in item["loc"])
        while item["type"] != "missing" and place and not _holds(values, place):
            place = place[:-1]  # a member of a union, or "[key]": pydantic's parts, not the file's
        found.setdefault(place, []).append(item)
    for place, items in found.items():
        origin = _origin(place, files, overrides)
        yield from (f"{origin}: {line}" for line in _problem(place, items).splitlines())


def _problem(place: Place, items: list[ErrorDetails]) -> str:
    name = ".".join(place)
    first = items[0]
    if first["type"] == "missing":
        return f"{name} is missing"
    if first["type"] == "extra_forbidden":
        return f"unknown key {name}; {_hint(place)}"
    if not place:
        return first["msg"].removeprefix("Value error, ")
    told = list(dict.fromkeys(item["msg"].replace("an object", "a table") for item in items))
    if all(message.startswith("Input ") for message in told):
        expected = " or ".join(message.removeprefix("Input ") for message in told).replace(" or should be ", " or ")
        return f"{name} = {_shown(first['input'])} {expected}"
    return f"{name} = {_shown(first['input'])}: {'; '.join(told).removeprefix('Value error, ')}"


def _hint(place: Place) -> str:
    """What the unknown key at a place was probably meant to be: the same key of another table, a similar or longer one
    of this table, or a very similar one of another table."""
    *table, key = place
    kind: Any = TrainConfig
    for part in table:
        kind = _within(kind, part)
    here = [keys[-1] for keys in _keys(kind) if len(keys) == 1]
    anywhere = {keys[-1]: keys for keys in sorted(_keys(TrainConfig), key=len, reverse=True)}  # the shortest place wins
    near = nearest(key, here) or next((each for each in here if each.startswith(f"{key}_")), None)
    if near and key not in anywhere:
        return f"did you mean {'.'.join((*table, near))}?"
    alike = [key] if key in anywhere else difflib.get_close_matches(key, anywhere, n=1, cutoff=0.75)
    if not alike:
        return f"known here: {', '.join(here)}"
    meant = anywhere[alike[0]]
    if meant[0] == place[0] and meant[1:2] in (("NAME",), ("N",)):
        meant = (meant[0], place[1], *meant[2:])  # the policy or the item that was named
    return f"did you mean {'.'.join(meant)}?"


def _origin(place: Place, files: Sequence[_File], overrides: Sequence[_Override]) -> str:
    """The override or the file that a value came from; for what stands nowhere, the file that was asked for."""
    for override in reversed(overrides):
        if place[: len(override.place)] == override.place:
            return f"override {override.text!r}"
    return next((file.name for file in reversed(files) if place and _holds(file.values, place)), files[-1].name)


def _holds(values: Any, place: Place) -> bool:
    for key in place:
        if isinstance(values, list) and key.isdecimal() and int(key) < len(values):
            values = values[int(key)]
        elif isinstance(values, dict) and key in values:
            values = values[key]
        else:
            return False
    return True


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
