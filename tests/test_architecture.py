"""The house rules that a machine can check: light imports, who may import whom, size, docstrings, no private paths."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "workflow",
    "engine",
    "sandbox",
    "tasks",
    "search",
    "templates",
    "designer",
    "trainer",
    "viewer",
    "metaagent",
    "recipes",
    "benchmarks",
    "speedrun",
)
BELOW: dict[str, set[str]] = {
    "workflow": set(),
    "engine": {"workflow"},
    "sandbox": {"workflow", "engine"},
    "tasks": {"workflow", "sandbox"},
    "search": {"workflow", "engine", "sandbox", "tasks"},
    "templates": {"workflow"},
    "designer": {"workflow", "engine", "sandbox", "tasks", "templates"},
    "trainer": {"workflow", "engine", "sandbox", "tasks", "search", "templates", "designer"},
    "viewer": {"workflow", "engine", "sandbox", "tasks", "search", "templates", "designer", "trainer"},
    "metaagent": set(ROOMS),
    "recipes": set(ROOMS),
    "benchmarks": set(ROOMS),
    "speedrun": set(ROOMS),
}
LIGHT = ["workflow", "engine", "sandbox", "tasks", "search", "templates", "designer", "trainer", "viewer", "metaagent"]
HEAVY = ["torch", "ray", "vllm", "deepspeed", "transformers", "openai", "sympy", "math_verify"]
MAX_LINES = 400
MAX_IMPORT_S = 0.2

CODE = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
assert CODE, f"no rooms under {ROOT}"


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# Light imports


def test_import_workflow_is_fast_and_light() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import workflow; took = time.perf_counter() - start; "
        "print(took, 'torch' in sys.modules)"
    )
    runs = [python(code).split() for _ in range(5)]
    assert {loaded for _, loaded in runs} == {"False"}
    assert min(float(took) for took, _ in runs) < MAX_IMPORT_S


def test_the_whole_contract_is_loaded_in_a_second() -> None:
    code = (
        "import time; start = time.perf_counter(); from workflow import *; import workflow; "
        "agent = workflow.AgentNode('a', 'p'); print(time.perf_counter() - start)"
    )
    assert min(float(python(code)) for _ in range(3)) < 1.0


def test_light_rooms_import_nothing_heavy() -> None:
    present = [room for room in LIGHT if list((ROOT / room).glob("*.py"))]
    assert present == LIGHT
    code = f"import {', '.join(LIGHT)}, sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(code).strip() == "[]"


# Who may import whom


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def imports(source: str, room: str) -> list[tuple[int, str]]:
    """(line, top-level module) of every import in a file, those inside functions and `if TYPE_CHECKING` included."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module if node.level == 0 else room
            found.append((node.lineno, (module or "").split(".")[0]))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            said = node.args[0] if node.args else None
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                found.append((node.lineno, said.value.split(".")[0]))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_no_upward_imports(room: str) -> None:
    assert imports_of(room, lambda module: module in ROOMS and module != room and module not in BELOW[room]) == []


def imports_of(room: str, is_wrong: Callable[[str], bool]) -> list[str]:
    return [
        f"{shown(path)}:{line} imports {module}"
        for path in CODE
        if room_of(path) == room
        for line, module in imports(path.read_text(), room)
        if is_wrong(module)
    ]


def test_the_import_reader_sees_every_form() -> None:
    source = (
        "import a.b, c\nfrom d.e import f\ndef g():\n    import h\n    import_module('i.j')\n    __import__('k')\n"
        "from . import x\nfrom .y import z\n"
    )
    assert [module for _, module in sorted(imports(source, "room"))] == [*"acdhik", "room", "room"]


def test_workflow_imports_only_the_standard_library_and_pydantic() -> None:
    # greenlet is the one addition: it lets plain Python nodes wait for replies without threads.
    allowed = sys.stdlib_module_names | {"workflow", "pydantic", "pydantic_core", "typing_extensions", "greenlet"}
    assert imports_of("workflow", lambda module: module not in allowed) == []


def test_workflow_does_no_io_and_knows_no_threads() -> None:
    banned = {"asyncio", "threading", "socket", "subprocess", "multiprocessing", "concurrent", "os", "pathlib", "time"}
    assert imports_of("workflow", lambda module: module in banned) == []


# Readable files


def test_every_module_says_what_it_is_for() -> None:
    # The demo's program is shipped as data, written as programs in the wild are.
    demo = ROOT / "metaagent" / "demo"
    silent = [
        shown(path)
        for path in CODE
        if path.read_text().strip()
        and (path.parent != demo or path.name == "__init__.py")
        and not ast.get_docstring(ast.parse(path.read_text()), clean=False)
    ]
    assert silent == []


def test_files_stay_small() -> None:
    long = {shown(path): len(path.read_text().splitlines()) for path in CODE}
    assert {name: lines for name, lines in long.items() if lines > MAX_LINES} == {}


# Nothing of anybody's own machine

TEXT = {".py", ".md", ".toml", ".txt", ".json", ".jsonl", ".yml", ".yaml", ".cfg", ".sh", ".ini", ""}
HOME = re.compile(r"(?<![\w.~])/(?:root|home/\w+|Users/\w+|work|mnt/\w+)/\w")


def test_no_absolute_home_paths_in_the_tree() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if any((part.startswith(".") and part != ".ci") or part.endswith(".egg-info") for part in parts):
            continue
        if "__pycache__" in parts or not path.is_file() or path.suffix not in TEXT or path == Path(__file__):
            continue
        lines = path.read_text(errors="replace").splitlines()
        wrong += [f"{shown(path)}:{n}: {line.strip()[:100]}" for n, line in enumerate(lines, 1) if HOME.search(line)]
    assert wrong == []


@pytest.mark.parametrize("path", ["/root/x", "cd /home/ann/x", '"/mnt/disk/x"', "(/Users/bob/y)"])
def test_home_paths_are_recognised(path: str) -> None:
    assert HOME.search(path)


@pytest.mark.parametrize(
    "path", ["a/root/x", "/tmp/home/x", "/work in progress", "https://x.org/home/ann", "/proc/1/root/x"]
)
def test_other_paths_are_left_alone(path: str) -> None:
    assert not HOME.search(path)
