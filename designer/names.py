"""Names that a program uses without defining them, and format strings that must fail.

Pyflakes does the scoping; this module picks the messages that stand for an exception at run time and says what
to write instead. Unused names and style are nobody's business here.
"""

from __future__ import annotations

import ast
import builtins

from pyflakes import messages
from pyflakes.checker import Checker

import workflow
from workflow.checks import nearest
from workflow.failures import Finding

GIVEN_NAMES = frozenset({"question", "__name__"})
"""Names that a program may use without defining them, besides the builtins."""

_FORMAT_FAILURES = (
    messages.PercentFormatExpectedMapping,
    messages.PercentFormatInvalidFormat,
    messages.PercentFormatMissingArgument,
    messages.PercentFormatPositionalCountMismatch,
    messages.PercentFormatUnsupportedFormatCharacter,
    messages.StringDotFormatInvalidFormat,
    messages.StringDotFormatMissingArgument,
    messages.StringDotFormatMixingAutomatic,
)
_MAX_NAMES = 50
"""Undefined names that are reported at most."""


class _Checker(Checker):
    """Pyflakes, minus annotations: in a program nothing evaluates them."""

    def handleAnnotation(self, annotation: ast.expr, node: ast.AST) -> None: ...

    def handleStringAnnotation(self, *_: object) -> None: ...


def undefined_names(tree: ast.Module) -> list[Finding]:
    """One finding per undefined name (at its first use) and per format call that cannot succeed."""
    checker = _Checker(tree, builtins=GIVEN_NAMES)
    defined = _bound_names(tree)
    findings: list[Finding] = []
    seen: set[str] = set()
    for message in sorted(checker.messages, key=lambda item: (item.lineno, item.col)):
        if isinstance(message, messages.UndefinedName | messages.UndefinedLocal):
            args = message.message_args
            name = str(args[0] if isinstance(args, tuple) else args)
            if name not in seen and len(seen) < _MAX_NAMES:
                seen.add(name)
                findings.append(_undefined(tree, name, message.lineno, message.col, defined))
        elif isinstance(message, _FORMAT_FAILURES):
            findings.append(_bad_format(message))
    return findings


def _bound_names(tree: ast.Module) -> dict[str, int]:
    """Every name that the program binds anywhere, with the first line where it does."""
    bound: dict[str, int] = {}
    for node in ast.walk(tree):
        for name in _binds(node):
            line = getattr(node, "lineno", 0)
            bound[name] = min(line, bound.get(name, line))
    return bound


def _binds(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Store) else []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).partition(".")[0]]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    return []


def _undefined(tree: ast.Module, name: str, line: int, column: int, defined: dict[str, int]) -> Finding:
    scope, loops = _surroundings(tree, line, column)
    bound_here = [node.lineno for node in _own_nodes(scope) if name in _binds(node) and hasattr(node, "lineno")]
    if bound_here:
        # A loop may bind the name in one pass and use it in the next: doubtful, but not certain to fail.
        looped = any(name in _binds(node) for loop in loops for node in ast.walk(loop))
        return Finding(
            line=line,
            code="use-before-definition",
            message=f"{name!r} is used before it is defined (line {min(bound_here)})",
            fix=f"define {name} above line {line}",
            severity="warning" if looped else "error",
        )
    if name in workflow.__all__:
        fix = f"add: from workflow import {name}"
    else:
        hint = nearest(name, [*defined, *GIVEN_NAMES, *workflow.__all__, *dir(builtins)])
        fix = f"did you mean {hint!r}?" if hint else f"define {name} before line {line}, or import it"
    if name in defined:
        fix = f"the name is bound elsewhere (line {defined[name]}) but not visible here; pass it in as an argument"
    return Finding(line=line, code="undefined-name", message=f"{name!r} is not defined", fix=fix)


def _surroundings(tree: ast.Module, line: int, column: int) -> tuple[ast.AST, list[ast.AST]]:
    """The innermost function (or the module) around a position, and the loops around it within that."""
    scope: ast.AST = tree
    loops: list[ast.AST] = []
    for node in ast.walk(tree):  # breadth first: outer nodes come before those inside them
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.For | ast.While):
            continue
        end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
        body_starts = node.body.lineno if isinstance(node, ast.Lambda) else node.body[0].lineno
        inside = (node.lineno, node.col_offset) <= (line, column) <= end
        if inside and isinstance(node, ast.For | ast.While):
            loops.append(node)
        elif inside and line >= body_starts:
            scope, loops = node, []
    return scope, loops


def _own_nodes(scope: ast.AST) -> list[ast.AST]:
    """All nodes of a function or module that do not belong to a function, class or lambda inside it."""
    own: list[ast.AST] = []
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        own.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return own


def _bad_format(message: messages.Message) -> Finding:
    text = message.message % message.message_args
    fix = "double every brace that is not a placeholder ({{ and }}), use an f-string, or join the parts with +"
    if isinstance(message, messages.PercentFormatExpectedMapping | messages.PercentFormatInvalidFormat):
        fix = "write %% for a percent sign, or use an f-string"
    elif type(message).__name__.startswith("Percent"):
        fix = "give one value for each placeholder, or use an f-string"
    return Finding(line=message.lineno, code="bad-format", message=f"this raises: {text}", fix=fix)
