"""The page's list of library functions that run on programs' objects is the list of what programs can import."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from policy_helper import contract_modules, no_code

import workflow.tools
from sandbox.language import facade_values, program_globals, standard_facades

PAGE = Path(__file__).parents[3] / "docs" / "sandbox.md"
HEADING = "## Library code that meets a program's objects\n"


def is_ours(value: object) -> bool:
    homes = (getattr(value, "__module__", None), type(value).__module__)
    return any(str(home).partition(".")[0] in ("sandbox", "workflow") for home in homes)


def offered() -> dict[str, dict[str, Any]]:
    """Callables of libraries by module, as programs see them."""
    names = program_globals(question="", write=print, run_code=no_code, seed=0, modules=contract_modules())
    modules = standard_facades(seed=0, run_code=no_code, write=print)
    found = {name: facade_values(module) for name, module in modules.items()} | {"builtins": names["__builtins__"]}
    found = {
        name: {key: value for key, value in values.items() if callable(value) and not is_ours(value)}
        for name, values in found.items()
    }
    return {name: values for name, values in found.items() if values}


def listed() -> dict[str, list[str]]:
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    rows: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[0] != "module" and "---" not in cells[0]:
            assert cells[2], line
            assert cells[3], line
            rows.setdefault(cells[0], []).extend(re.findall(r"`(\w+)`|\*(\w+)\*", cells[1]))
    return {name: [plain or starred for plain, starred in found] for name, found in rows.items()}


def test_each_library_function_has_its_line() -> None:
    page, modules = listed(), offered()
    assert set(page) == set(modules)
    for name, values in modules.items():
        expected = set(values)
        if "exceptions" in page[name]:
            expected -= {
                key for key in expected if isinstance(values[key], type) and issubclass(values[key], BaseException)
            }
        if "all" in page[name]:
            continue
        assert sorted(set(page[name]) - {"exceptions"}) == sorted(expected), name
        assert len(page[name]) == len(set(page[name])), name


def test_no_class_of_the_contract_is_a_pydantic_model() -> None:
    for name in workflow.__all__:
        found = getattr(workflow, name)
        for base in getattr(found, "__mro__", ()):
            assert not base.__module__.startswith("pydantic"), (name, base)
    assert not any(base.__module__.startswith("pydantic") for base in workflow.tools.Tool.__mro__)
