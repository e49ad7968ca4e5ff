"""Where things lie: folders with a door, no circles of imports, names that mean one thing, a map that is true."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("workflow", "engine", "sandbox", "tasks", "search", "templates", "designer", "trainer", "viewer", "metaagent")
OUTSIDE = ("benchmarks", "speedrun")
"""Run from a checkout; they use the rooms as anybody would."""
FILES = sorted(path for room in (*ROOMS, *OUTSIDE) for path in (ROOT / room).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}
DOORS = sorted(name for name in PACKAGES if name.count(".") == 1)
"""The folders inside rooms."""


def imported(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of every import, those inside functions and `if TYPE_CHECKING` included. `import a.b` has no
    name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            said = node.args[0] if node.args else None
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                yield node.lineno, said.value, ""


def edges(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which module imports which, among those given. `from package import module` is an import of the module."""
    found: dict[str, set[str]] = {name: set() for name in sources}
    for name, source in sources.items():
        for _, module, what in imported(source):
            target = f"{module}.{what}" if f"{module}.{what}" in sources else module
            if target in sources and target != name:
                found[name].add(target)
    return found


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for after in sorted(graph[node]):
            if after not in order:
                visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], order[after])
        if low[node] == order[node]:
            together = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(together) > 1:
                found.append(sorted(together))

    for node in graph:
        if node not in order:
            visit(node)
    return found


SOURCES = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}


# Circles


@cache
def own_edges() -> dict[str, set[str]]:
    return edges(SOURCES)


def test_no_module_imports_itself_by_way_of_others() -> None:
    # A package's own __init__ loads its modules; they import each other, not the package.
    assert circles({name: to - PACKAGES for name, to in own_edges().items()}) == []


def test_no_folder_imports_itself_by_way_of_others() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for name, to in own_edges().items():
        if not name.endswith("__main__"):  # a command of a folder may use what stands on that folder
            graph[folder_of(name)] |= {folder_of(other) for other in to} - {folder_of(name)}
    for folder in list(graph):
        for other in graph[folder]:
            graph.setdefault(other, set())
    assert circles(graph) == []


def folder_of(module: str) -> str:
    """The folder inside a room, or for a module at a room's door the module itself."""
    parts = module.split(".")
    return ".".join(parts[:2])


def test_circles_are_found_however_they_are_written() -> None:
    late = "def f():\n    from room import b\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import room.c\n"
    spelt = "import importlib\nimportlib.import_module('room.a')\n"
    graph = edges({"room": "", "room.a": late, "room.b": typed, "room.c": spelt, "room.d": "import room.a\n"})
    assert circles(graph) == [["room.a", "room.b", "room.c"]]


# Doors


def exported(package: str) -> list[str]:
    return importlib.import_module(package).__all__


def past_the_door(name: str, source: str) -> list[str]:
    """Imports by the module `name` that reach past a folder's `__init__`, or take what it does not offer."""
    wrong = []
    for line, module, what in imported(source):
        door = next((door for door in DOORS if module == door or module.startswith(door + ".")), None)
        if door is None or name == door or name.startswith(door + "."):
            continue
        if door == "metaagent.commands" and (name == "metaagent.cli" or what in ("options", "inputs")):
            continue
        if module != door or (what and what not in exported(door)):
            wrong.append(f"{name}:{line} takes {module}.{what}; {door} offers {', '.join(exported(door))}")
    return wrong


@pytest.mark.parametrize("room", [*ROOMS, *OUTSIDE])
def test_nobody_reaches_past_a_folders_door(room: str) -> None:
    wrong = [each for name in SOURCES if name.split(".")[0] == room for each in past_the_door(name, SOURCES[name])]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "from trainer.credit.rules import RULES",
        "import trainer.credit.rules",
        "from trainer.credit import _within",
        "def late():\n    from trainer.update.loss import policy_terms",
        "import importlib\nimportlib.import_module('trainer.update.torch_backend')",
    ],
)
def test_reaching_past_a_door_is_noticed(source: str) -> None:
    assert past_the_door("metaagent.commands.train", source)
    assert not past_the_door("trainer.credit.rules", "from trainer.credit.reward import paper_reward")


@pytest.mark.parametrize("package", DOORS)
def test_a_door_offers_what_there_is(package: str) -> None:
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", []):
        try:
            getattr(module, name, None) or importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as missing:
            if missing.name not in ("torch", "transformers", "docker"):
                raise


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_folder_says_what_it_is_for_and_what_it_is_not(package: str) -> None:
    said = ast.get_docstring(ast.parse(SOURCES[package])) or ""
    assert said.split(".")[0], package
    if package not in ("speedrun.templates",):
        assert re.search(r"\bNot\s+here:", said), f"{package}/__init__.py does not say what is not there"


# Names

ONE_NAME_ONE_THING = {
    "protocol": "what a room offers, whoever stands behind it",
    "check": "the command is named after what it calls",
    "trace": "the command is named after what it reads",
    "train": "the benchmark is named after the command that it measures",
    "simulate": "the command is named after what it calls",
    "grading": "the benchmark is named after what it measures",
    "problems": "the command is named after what it writes",
    "templates": "the command is named after what it lists",
    "sync": "the benchmark is named after what it measures",
    "branching": "the benchmark is named after what it measures",
    "search": "command and benchmark are named after what they run and measure",
    "common": "what the modules of one folder share",
    "pretrained": "a model that others have trained: the engine loads one, the speedrun fetches one",
}
"""Stems that stand in several rooms, and why a reader is not misled."""


def test_a_name_means_one_thing_in_all_rooms() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        room, *_, file = path.relative_to(ROOT).parts
        if not file.startswith("__") and room != "templates":
            places[path.stem].add(room)
    several = {stem for stem, rooms in places.items() if len(rooms) > 1}
    assert several <= set(ONE_NAME_ONE_THING), several - set(ONE_NAME_ONE_THING)


def test_no_two_files_of_tests_have_one_name() -> None:
    # pytest puts each of their folders on the path: the second is an error, or the first is taken for it.
    tests = ROOT / "tests"
    folders = {path.parent for path in tests.rglob("test_*.py")}
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        if path.name not in ("conftest.py", "__init__.py"):
            places[path.stem].append(path.relative_to(tests).as_posix())
    assert {stem: paths for stem, paths in places.items() if len(paths) > 1} == {}
    assert set(places).isdisjoint({*ROOMS, *OUTSIDE, *sys.stdlib_module_names})


# The map

PAGE = ROOT / "docs" / "architecture.md"
MAP = re.compile(r"<!-- map -->\n\n```text\n(.*?)```", re.DOTALL)


def drawn(text: str) -> dict[str, set[str]]:
    """Folder to the modules that the map names in it. `  folder/` opens one, deeper by two spaces for each level; the
    line after may name modules, and so may further ones."""
    found: dict[str, set[str]] = {}
    path: list[str] = []
    for line in text.splitlines():
        name, _, _ = line.strip().partition("  ")
        if name.endswith("/"):
            depth = (len(line) - len(line.lstrip())) // 2
            path = [*path[:depth], name.rstrip("/")]
            found["/".join(path)] = set()
        elif line.strip():
            found["/".join(path)] |= set(line.split())
    return found


def test_the_map_shows_the_tree() -> None:
    match = MAP.search(PAGE.read_text(encoding="utf-8"))
    assert match, "docs/architecture.md has no map"
    there: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        folder = path.parent.relative_to(ROOT).as_posix()
        if folder in ("templates", "speedrun/templates", "metaagent/demo", "sandbox/conformance/attacks"):
            there[folder] |= set()  # scripts and data, listed nowhere one by one
        elif path.name != "__init__.py":
            there[folder].add(path.stem)
        else:
            there[folder] |= set()
    shown = drawn(match[1])
    assert {folder: sorted(shown.get(folder, {"(not shown)"}) ^ names) for folder, names in there.items()} == {
        folder: [] for folder in there
    }
    assert set(shown) - set(there) <= {
        "metaagent/policy",
        "recipes",
        "recipes/ablations",
        "recipes/cluster",
        "recipes/programs",
        "docs",
        "tests",
    }
