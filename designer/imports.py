"""Checks what a program imports against what programs are offered: the contract, and facades of standard modules.

The tables are the sandbox's own (`sandbox.language.stdlib`). Undefined names are `designer.names`'s business.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NoReturn

from designer.program import CONTRACT, Program, near
from sandbox.language import HINTS, contract_facades, facade_values, standard_facades, unused_imports
from workflow.failures import Finding


def _never(*_: object) -> NoReturn:
    raise AssertionError("the check only reads which names there are")


@cache
def _offers() -> Mapping[str, frozenset[str]]:
    """The names in each module that programs may import."""
    known = {**standard_facades(seed=0, run_code=_never, write=_never), **contract_facades(_never)}
    offers = {name: frozenset(facade_values(module)) for name, module in known.items()}
    for name in list(offers):
        parent, _, child = name.rpartition(".")
        if parent:
            offers[parent] |= {child}
    return offers


def import_findings(program: Program) -> list[Finding]:
    """Findings about imports, and about what is read from imported modules by attribute."""
    findings: list[Finding] = []
    unused = {id(node) for node in unused_imports(program.tree)}
    for node in ast.walk(program.tree):
        found: list[Finding] = []
        if isinstance(node, ast.Import):
            found += [_unknown_module(program, node, alias.name) for alias in node.names if alias.name not in _offers()]
        elif isinstance(node, ast.ImportFrom):
            found += _from_findings(program, node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = _module_of(program, node.value)
            if module in _offers() and node.attr not in _offers()[module]:
                found.append(_unknown_name(program, node, module, node.attr))
        findings += [_unused(each) for each in found] if id(node) in unused else found
    return _modules_said_once(findings)


def _unused(finding: Finding) -> Finding:
    """Nothing reads what it would bring, and a run leaves it out."""
    changes = {"code": "unused-import", "severity": "warning", "fix": "delete this line: nothing uses it"}
    return finding.model_copy(update=changes)


def _modules_said_once(findings: list[Finding]) -> list[Finding]:
    """The list of modules is long: it stands in the first finding that has it."""
    modules, told = _modules(), 0
    for index, finding in sorted(enumerate(findings), key=lambda item: item[1].line):
        if finding.fix == modules and told:
            findings[index] = finding.model_copy(update={"fix": f"use one of the modules listed for line {told}"})
        elif finding.fix == modules:
            told = finding.line
    return findings


def _modules() -> str:
    """Those to choose from: without those where the published contract has what `workflow` offers, too."""
    advised = (name for name in _offers() if name == "workflow.nodes" or not name.startswith(("workflow.", "utils")))
    return f"available modules: {', '.join(sorted(advised))}"


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
        if module.startswith("workflow.") and all(name in CONTRACT or name == "*" for name in wanted):
            fix = f"write: from workflow import {', '.join(wanted)}"
            return [_finding(program, node, f"programs cannot import from {module!r}", fix)]
        return [_unknown_module(program, node, module)]
    unknown = [alias for alias in node.names if alias.name not in _offers()[module] and alias.name != "*"]
    if unknown and module.startswith("workflow") and all(alias.name in CONTRACT for alias in node.names):
        names = ", ".join(f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in node.names)
        message = f"module {module!r} has no {unknown[0].name!r} in programs"
        return [_finding(program, node, message, f"write: from workflow import {names}")]
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
    close = near(module, _offers())
    fix = hint or (f"did you mean {close!r}?" if close else _modules())
    return _finding(program, node, f"programs cannot import {module!r}", fix)


def _unknown_name(program: Program, node: ast.alias | ast.Attribute, module: str, name: str) -> Finding:
    # A part of a name (`load` of `loads`) or a word with another sense (`exc_info`, `version_info`) would mislead.
    close = near(name, _offers()[module]) or _misspelt(name, _offers()[module])
    if name in CONTRACT and module.startswith("workflow"):
        fix = f"write: from workflow import {name}"
    elif close:
        fix = f"did you mean {close!r}?"
    else:
        fix = f"it offers: {', '.join(sorted(_offers()[module]))}"
    return _finding(program, node, f"module {module!r} has no {name!r} in programs", fix)


def _misspelt(name: str, known: Iterable[str]) -> str | None:
    """The one known name that differs in its small and large letters or its underscores alone."""
    plain = name.replace("_", "").lower()
    return next((each for each in sorted(known) if each.replace("_", "").lower() == plain), None)


def _finding(program: Program, node: Any, message: str, fix: str) -> Finding:
    """An error, unless the program is prepared for it with `try`."""
    tried = any(isinstance(above, ast.Try | ast.TryStar) for above in program.ancestors(node))
    severity = "warning" if tried else "error"
    return Finding(line=node.lineno, code="unknown-import", message=message, fix=fix, severity=severity)
