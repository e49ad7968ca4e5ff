"""Recipes of somebody who means ill: each ends in a `ConfigError`, soon and of bounded size."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.config import ConfigError, read_config, to_toml
from trainer.config.toml_values import LARGEST_FILE, MAX_DEPTH

GOOD = '[policies.p0]\nmodel = "m"\n[[data]]\nformat = "problems"\npath = "d.jsonl"\n'
SURROGATE = os.fsdecode(b"\xff")
HUGE = "1" * 5000
TEXTS = {
    "open lists": f"x = {'[' * 100_000}",
    "lists": f"x = {'[' * 5000}{']' * 5000}\n{GOOD}",
    "lists that the parser takes": f"x = {'[' * 100}{']' * 100}\n{GOOD}",
    "tables": "x = " + "{a = " * 50_000,
    "dotted keys": ".".join("a" * 50_000) + f" = 1\n{GOOD}",
    "dotted keys that the parser takes": ".".join("a" * 150) + f" = 1\n{GOOD}",
    "dotted tables": f"[{'.'.join('a' * 50_000)}]",
    "many lines of dots": (".".join("a" * 190) + "\n") * 600,
    "digits": f"seed = {HUGE}\n{GOOD}",
    "hexadecimal digits": f"seed = 0x{'f' * 5000}\n{GOOD}",
    "steps": f"steps = 1_000_000_000_000\n{GOOD}",
    "many keys": "".join(f"k{n} = 1\n" for n in range(20_000)) + GOOD,
    "size": GOOD + "#" * LARGEST_FILE,
    "control character": '"\x1b[2J" = 1',
    "name of a file": GOOD.replace("p0", "p" * 65),
    "date for a path": GOOD.replace('"d.jsonl"', "1979-05-27"),
    "date for a model": GOOD.replace('"m"', "1979-05-27T07:32:00Z"),
    "time": f"{GOOD}[policies.p0.engine.options]\nx = 07:32:00",
    "NUL in a path": GOOD.replace("d.jsonl", "a\\u0000b"),
    "NUL in a model": GOOD.replace('"m"', '"a\\u0000b"'),
    "NUL in what it extends": f'extends = "a\\u0000b"\n{GOOD}',
    "extends nothing": f'extends = ""\n{GOOD}',
    "extends a folder": f'extends = "/"\n{GOOD}',
    "extends a device": f'extends = "/dev/zero"\n{GOOD}',
    "extends a pipe": f'extends = "pipe"\n{GOOD}',
}
NUMBERS = [
    "format_weight",
    *(f"policies.p0.{name}" for name in ("learning_rate", "weight_decay", "max_gradient_norm", "engine.options.x")),
    "data.0.share",
    "rollout.executor_temperature",
    "rollout.limits.wall_s",
]


def refused(path: Path, *overrides: str) -> str:
    started = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        read_config(path, overrides)
    assert time.monotonic() - started < 20, "the parser alone takes a hundred seconds for the worst of these"
    assert len(str(caught.value)) < 20_000
    return str(caught.value)


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_is_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "run.toml"
    path.write_text(TEXTS[name])
    assert "run.toml" in refused(path)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a = 1\0", b"a = \xff"])
def test_bytes_that_are_no_toml_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(data)
    refused(path)


def test_a_device_is_not_read_without_end() -> None:
    assert "more than" in refused(Path("/dev/zero"))


def test_marks_and_line_ends_of_other_systems_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert read_config(path).policies["p0"].model == "m"


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400"])
def test_numbers_are_finite(value: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(GOOD)
    for place in NUMBERS:
        said = refused(path, f"{place}={value}")
        assert said.startswith(f"override '{place}={value}': {place} = ")


def test_chains_of_files_end(tmp_path: Path) -> None:
    for number in range(MAX_DEPTH + 2):
        (tmp_path / f"{number}.toml").write_text(f'extends = "{number + 1}.toml"\n')
    (tmp_path / f"{MAX_DEPTH + 2}.toml").write_text(GOOD)
    assert "extend each other" in refused(tmp_path / "0.toml")
    assert read_config(tmp_path / "4.toml").policies


@pytest.mark.parametrize(
    "override",
    [
        f"rollout.designs={'[' * 100_000}",
        f"rollout.designs={HUGE}",
        ".".join("a" * 1000) + "=1",
        f"policies.p0.model={SURROGATE}",
        f"policies.{SURROGATE}.model=m",
        "data.0.path=a\0b",
        "data.²=1",
        "data.-1=1",
    ],
)
def test_hostile_overrides_are_refused(override: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(GOOD)
    refused(path, override)


def test_a_folder_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    """The configuration of a run is written down as UTF-8."""
    (tmp_path / SURROGATE).mkdir()
    (tmp_path / SURROGATE / "run.toml").write_text(GOOD)
    assert "data.0.path = '" in refused(tmp_path / SURROGATE / "run.toml")


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.dates() | st.times() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["seed", "steps", "schedule", "policies", "data", "rollout", "roles", "objective", "extends", ""]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(KEYS, VALUES, max_size=3))
def test_any_table_is_read_or_refused(values: dict[str, object], tmp_path: Path) -> None:
    tomli_w = pytest.importorskip("tomli_w")
    path = tmp_path / "run.toml"
    try:
        path.write_text(tomli_w.dumps({**values}) + ("" if {"policies", "data"} & set(values) else GOOD), "utf-8")
    except (ValueError, TypeError):
        return  # no TOML has such keys
    try:
        config = read_config(path)
    except ConfigError:
        return
    json.dumps(config.model_dump(mode="json"), allow_nan=False)
    to_toml(config).encode()
