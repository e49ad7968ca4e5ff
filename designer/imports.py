"""Checks what a program imports against what programs are offered: the contract, and facades of standard modules.

The tables are the sandbox's own (`sandbox.facades`). Undefined names are `designer.names`'s business.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn

from designer.program import CONTRACT, Program, names_of
from sandbox.classes import facade_values
from sandbox.facades import HINTS, standard_facades
from workflow.checks import nearest
from workflow.failures import Finding


def _never(*_: object) -> NoReturn:
    raise AssertionError("the check only reads which names there are")


@cache
def _offers() -> Mapping[str, frozenset[str]]:
    """The names in each module that programs may import."""
    standard = standard_facades(seed=0, run_code=_never, write=_never)
    offers = {name: frozenset(facade_values(module)) for name, module in standard.items()}
    for name in ("workflow", "workflow.nodes"):
        offers[name] = frozenset(names_of(name))
    for name in list(offers):
        parent, _, child = name.rpartition(".")
        if parent:
            offers[parent] |= {child}
    return offers


def import_findings(program: Program) -> list[Finding]:
    """Findings about imports, and about what is read from imported modules by attribute."""
    findings: list[Finding] = []
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in _offers():
                    findings.append(_unknown_module(program, node, alias.name))
        elif isinstance(node, ast.ImportFrom):
            findings += _from_findings(program, node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = _module_of(program, node.value)
            if module in _offers() and node.attr not in _offers()[module]:
                findings.append(_unknown_name(program, node, module, node.attr))
    return findings


def import_for(name: str) -> str | None:
    """The import statement that would define a name, or None."""
    if name in CONTRACT:
        return f"from workflow import {name}"
    if name in _offers():
        return f"import {name}"
    modules = sorted((module for module, names in _offers().items() if name in names), key=lambda m: (m == "typing", m))
    return f"from {modules[0]} import {name}" if modules else None


def _from_findings(program: Program, node: ast.ImportFrom) -> list[Finding]:
    module = "." * node.level + (node.module or "")
    if module == "__future__":
        return []
    if module not in _offers():
        wanted = [alias.name for alias in node.names]
        if module.startswith("workflow.") and all(name in CONTRACT for name in wanted):
            fix = f"write: from workflow import {', '.join(wanted)}"
            return [_finding(program, node, f"programs cannot import from {module!r}", fix)]
        return [_unknown_module(program, node, module)]
    unknown = [alias for alias in node.names if alias.name not in _offers()[module] and alias.name != "*"]
    return [_unknown_name(program, alias, module, alias.name) for alias in unknown]


def _module_of(program: Program, name: ast.Name) -> str:
    """The module that a name stands for, if it is bound once, by `import module`; else the empty string."""
    scope = program.scope_of(name)
    bindings = scope.bindings[name.id] if scope else []
    if len(bindings) != 1 or not isinstance(bindings[0], ast.alias):
        return ""
    alias = bindings[0]
    if not isinstance(program.parents[alias], ast.Import):
        return ""
    return alias.name if alias.asname else alias.name.partition(".")[0]


def _unknown_module(program: Program, node: ast.stmt, module: str) -> Finding:
    hint = HINTS.get(module) or HINTS.get(module.partition(".")[0])
    close = nearest(module, _offers())
    fix = hint or (f"did you mean {close!r}?" if close else f"available modules: {', '.join(sorted(_offers()))}")
    return _finding(program, node, f"programs cannot import {module!r}", fix)


def _unknown_name(program: Program, node: ast.alias | ast.Attribute, module: str, name: str) -> Finding:
    close = nearest(name, _offers()[module])
    if name in CONTRACT and module.startswith("workflow"):
        fix = f"write: from workflow import {name}"
    elif close:
        fix = f"did you mean {close!r}?"
    else:
        fix = f"it offers: {', '.join(sorted(_offers()[module]))}"
    return _finding(program, node, f"module {module!r} has no {name!r} in programs", fix)


def _finding(program: Program, node: Any, message: str, fix: str) -> Finding:
    """An error, unless the program is prepared for it with `try`."""
    tried = any(isinstance(above, ast.Try) for above in program.ancestors(node))
    severity = "warning" if tried else "error"
    return Finding(line=node.lineno, code="unknown-import", message=message, fix=fix, severity=severity)
