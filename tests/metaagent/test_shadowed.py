"""Modules of somebody else in the place of our rooms are named; folders that are no packages are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metaagent.shadowed import ROOMS, in_the_way


def python_m(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    places = filter(None, (path, os.environ["PYTHONPATH"]))
    return subprocess.run(
        [sys.executable, "-m", "metaagent", *arguments],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )  # fmt: skip


def test_nothing_is_in_the_way_here() -> None:
    assert in_the_way() == ""
    assert python_m("--version").stdout.startswith("metaagent ")


@pytest.mark.parametrize("name", ["workflow.py", "tasks/__init__.py", "recipes.py"])
def test_what_is_in_the_way_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x = 1\n")
    ended = python_m("--version")
    assert ended.returncode == 2
    shown = tmp_path / name.removesuffix("/__init__.py")
    assert ended.stderr.startswith(f"error: {shown} is imported in the place of metaagent's own package ")
    assert "Traceback" not in ended.stderr


def test_a_place_on_the_path_counts_too(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "engine.py").write_text("x = 1\n")
    assert f"error: {tmp_path}/lib/engine.py is imported" in python_m("templates", path="lib").stderr


def test_a_folder_that_is_no_package_is_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "templates").mkdir()
    assert python_m("--version").returncode == 0


def test_every_room_that_is_installed_is_looked_for() -> None:
    root = Path(__file__).parents[2]
    packages = {path.parent.name for path in root.glob("*/__init__.py")}
    assert packages - {"metaagent", "benchmarks", "speedrun", "tests"} == set(ROOMS)
