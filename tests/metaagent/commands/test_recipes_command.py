"""Recipes are found by name wherever the command is called, and are part of what is installed."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from command_line import document, invoke

from recipes import FOLDER, recipe_names, recipe_path, recipe_summary

ROOT = Path(__file__).parents[3]


def test_they_are_listed_with_what_they_are() -> None:
    lines = invoke("recipes").stdout.splitlines()
    assert [line.partition("\t")[0] for line in lines] == recipe_names()
    assert all(recipe_summary(name) for name in recipe_names())
    listed = {each["name"]: each["summary"] for each in document(invoke("recipes", "--json"))["recipes"]}
    assert listed["tiny"].startswith("The paper's setting in miniature, for two CPU cores")
    assert "ablations/coupled" in listed


def test_one_is_printed_as_it_is() -> None:
    assert invoke("recipes", "ablations/coupled").stdout == (FOLDER / "ablations" / "coupled.toml").read_text()
    unknown = invoke("recipes", "tinny")
    assert unknown.exit_code == 2
    assert "there is no recipe 'tinny'. Fix: one of " in unknown.stderr


@pytest.mark.parametrize("name", ["tiny", "tiny.toml", "ablations/coupled"])
def test_training_finds_them_by_name(name: str) -> None:
    result = invoke("train", name, "--dry-run")
    assert result.exit_code == 2, "its model and data are not here"
    assert f"Configuration  {name}" in result.stdout
    assert "error: policies.p0.model: " in result.stderr


def test_a_file_goes_before_a_recipe_and_a_folder_does_not(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    assert "Configuration  tiny" in invoke("train", "tiny", "--dry-run").stdout
    (tmp_path / "speedrun").write_text("no TOML")
    assert "speedrun" in invoke("train", "speedrun", "--dry-run").stderr
    assert "there is no file none.toml, and there is no recipe" in invoke("train", "none.toml", "--dry-run").stderr


def test_everything_of_them_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "recipes*" in settings["packages"]["find"]["include"]
    patterns = settings["package-data"]["recipes"]
    files = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.*") if path.suffix in (".toml", ".py")]
    assert [name for name in files if name != "__init__.py" and not any(fnmatch(name, each) for each in patterns)] == []
    assert recipe_path("tiny").is_file()
