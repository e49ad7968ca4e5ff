"""Before the policy looks at a program: its names are hidden, and imports that it does not use are dropped.

Which nodes and names are refused otherwise is `sandbox.language.compiler`'s.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from sandbox.language.vocabulary import MARK, SYNTAX_FIXES, hide, mangled
from workflow.failures import Finding

# Every field of a syntax node that holds a name, and those that hold other text. A name in any other place is
# refused, so that syntax added to Python later cannot bind names unseen.
_NAME_FIELDS = {
    ("Name", "id"),
    ("Attribute", "attr"),
    ("FunctionDef", "name"),
    ("AsyncFunctionDef", "name"),
    ("ClassDef", "name"),
    ("arg", "arg"),
    ("alias", "asname"),
    ("ExceptHandler", "name"),
    ("Global", "names"),
    ("Nonlocal", "names"),
    ("MatchAs", "name"),
    ("MatchStar", "name"),
    ("MatchMapping", "rest"),
    ("MatchClass", "kwd_attrs"),
}
_BINDING_FIELDS = _NAME_FIELDS - {("Name", "id"), ("Attribute", "attr"), ("MatchClass", "kwd_attrs")}
_TEXT_FIELDS = {
    ("Constant", "value"),
    ("Constant", "kind"),
    ("ImportFrom", "module"),
    ("alias", "name"),
    ("keyword", "arg"),  # not always a name: dict(_a=1); see visit_Call
}


_IMPORTS = (ast.Import, ast.ImportFrom)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NEEDED = (ast.ClassDef, ast.Try, ast.TryStar)
"""An import right in one of these is there for its own sake."""


def unused_imports(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """Import statements none of whose names are read anywhere: they need not be there, whatever they import.

    Inside `try` an import asks whether there is such a module, in the body of a class it makes an attribute, and with
    `eval` any name may be read.
    """
    read = {"*"}
    imports: list[ast.Import | ast.ImportFrom] = []
    pending: list[Any] = [tree]
    needed: list[Any] = []
    while pending or needed:
        body = pending or needed
        node = body.pop()
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Store:
                read.add(node.id)
        elif kind in _IMPORTS:
            if body is pending:
                imports.append(node)
        elif kind is not ast.Constant and issubclass(kind, ast.AST):
            body = needed if kind in _NEEDED else pending if kind in _FUNCTIONS else body
            for field in kind._fields:
                value = getattr(node, field, None)
                if type(value) is list:
                    body += value
                elif isinstance(value, ast.AST):
                    body.append(value)
    if read & {"eval", "__all__"}:
        return []
    return [node for node in imports if read.isdisjoint(_bound_names(node)) and not _is_kept(node)]


def _bound_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]


def _is_kept(node: ast.Import | ast.ImportFrom) -> bool:
    """What is imported from the contract is the check's business, and `__future__` the compiler's."""
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("__future__", "workflow")


def drop(tree: ast.AST, statements: Sequence[ast.stmt]) -> None:
    dropped = set(statements)
    for node in ast.walk(tree) if dropped else ():
        for place in ("body", "orelse", "finalbody"):
            found = getattr(node, place, None)
            body: list[Any] = found if isinstance(found, list) else []
            for index, each in enumerate(body):
                if each in dropped:
                    body[index] = ast.copy_location(ast.Pass(), each)


def hide_names(tree: ast.AST, findings: list[Finding]) -> set[str]:
    """Rename the program's `_names`; return every name that it binds. Reports names where none may be."""
    bound: set[str] = set()
    pending = [(tree, "")]
    while pending:
        node, owner = pending.pop()
        kind, line = type(node).__name__, getattr(node, "lineno", 0)
        inside = node.name if isinstance(node, ast.ClassDef) else owner
        for place, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            child_owner = inside if place == "body" else owner
            pending += [(child, child_owner) for child in values if isinstance(child, ast.AST)]
            names = [name for name in values if isinstance(name, str)]
            if not names or (kind, place) in _TEXT_FIELDS:
                continue
            if (kind, place) not in _NAME_FIELDS:
                findings.append(refused_syntax(kind, line))
                continue
            if any(name.startswith(MARK) for name in names):
                message = f"the name {names[0]!r} begins with U+02CD, which is reserved"
                findings.append(Finding(line=line, code="forbidden-name", message=message, fix="choose another name"))
            hidden = [hide(mangled(name, owner)) for name in names]
            setattr(node, place, hidden if isinstance(value, list) else hidden[0])
            if (kind, place) in _BINDING_FIELDS or isinstance(getattr(node, "ctx", None), ast.Store):
                bound.update(hidden)
        if isinstance(node, ast.alias) and node.asname is None:
            bound.add(node.name.partition(".")[0])
    return bound


def refused_syntax(kind: str, line: int) -> Finding:
    what, fix = SYNTAX_FIXES.get(kind, (f"{kind} syntax", "leave it out"))
    return Finding(line=line, code="forbidden-syntax", message=f"{what} cannot be used in programs", fix=fix)
