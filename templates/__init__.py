"""The template bank: hand-written programs, each a runnable script that carries its own metadata.

A script `NAME.py` in this folder opens with a docstring (what it does, then "Use when ...") and an inline metadata
block of type `template` (the format of PEP 723, TOML in comments). Scripts use only what any program may use;
those with a `GUIDANCE` or `CHECKS` constant leave these as places for advice on one problem. Not here: choosing,
changing or running one (`designer.bank`, `sandbox`).
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workflow.graph import Structure

_BLOCK = re.compile(r"^# /// template\n((?:#(?! ///)(?: .*)?\n)++)# ///\n+", re.MULTILINE)

SLOTS = ("GUIDANCE", "CHECKS")
"""Constants that a template may leave for one problem: advice for those who solve, checks for those who review."""


class Template(BaseModel):
    """One program of the bank and what a designer needs to know to choose it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """File name without `.py`; the script's workflow has the same name."""
    summary: str = Field(min_length=1)
    use_when: str = Field(pattern="^Use when ")
    pattern: str = Field(min_length=1)
    """How its agents work together, in a few words."""
    domain: Literal["math", "code", "any"]
    structure: Structure
    """As `workflow.graph.structure` names it."""
    agent_calls: tuple[int, int]
    """Fewest and most agent calls of one run."""
    slots: tuple[str, ...]
    """Which of `SLOTS` the script defines."""
    source: str
    """The whole script."""

    @property
    def program(self) -> str:
        """The script without its metadata block, as a designer would write it."""
        return _BLOCK.sub("", self.source, count=1)


def parse_template(name: str, source: str) -> Template:
    """Read a script and its metadata. Raises ValueError that names the template and what is missing or wrong."""
    block = _BLOCK.search(source)
    if block is None:
        raise ValueError(
            f"template {name!r} has no metadata block; open it with '# /// template' and close it with '# ///'"
        )
    try:
        tree = ast.parse(source)
        metadata = tomllib.loads("".join(line[2:] or "\n" for line in block[1].splitlines(keepends=True)))
        summary, _, use_when = (ast.get_docstring(tree) or "").partition("\n\n")
        assigned = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        return Template(
            name=name,
            summary=" ".join(summary.split()),
            use_when=" ".join(use_when.split()),
            slots=tuple(slot for slot in SLOTS if slot in assigned),
            source=source,
            **metadata,
        )
    except (SyntaxError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ValueError(f"template {name!r}: {error}") from error


@cache
def _bank() -> dict[str, Template]:
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".py")]
    scripts = sorted((file.name.removesuffix(".py"), file) for file in files if not file.name.startswith("_"))
    return {name: parse_template(name, file.read_text(encoding="utf-8")) for name, file in scripts}


def load_templates() -> list[Template]:
    """All templates, ordered by name."""
    return list(_bank().values())


def get_template(name: str) -> Template:
    """The template of this name. Raises ValueError that lists the names there are."""
    try:
        return _bank()[name]
    except KeyError:
        raise ValueError(f"no template {name!r}; there are: {', '.join(_bank())}") from None
