"""Names that a program uses without defining them, and format strings that must fail.

Pyflakes decides what is undefined; this module picks the messages that stand for an exception at run time and says
what to write instead. Unused names and style are nobody's business here.
"""

from __future__ import annotations

import ast
import builtins

from pyflakes import messages
from pyflakes.checker import Checker

from designer.imports import import_for
from designer.program import CONTRACT, Program, Scope, near
from workflow.failures import Finding

GIVEN_NAMES = frozenset({"environment", "question", "__name__"})
"""Names that a program may use without defining them, besides the builtins."""

_PROBLEM = frozenset(
    {"code", "description", "input", "instruction", "problem", "puzzle", "query", "question", "statement", "task"}
)
"""Words in a name that stand for the problem's text, which is in `question`."""

MAX_NAMES = 50
"""Undefined names that are reported at most."""

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


class _Checker(Checker):
    """Pyflakes, minus annotations: in a program nothing evaluates them."""

    def handleAnnotation(self, annotation: ast.AST, node: ast.AST) -> None: ...


def name_findings(program: Program) -> list[Finding]:
    """One finding per undefined name (at its first use) and per format call that cannot succeed."""
    checker = _Checker(program.tree, builtins=GIVEN_NAMES)
    uses: dict[tuple[str, int, int], ast.Name] = {}
    bound: dict[str, list[ast.AST]] = {}
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Name):
            uses[node.id, node.lineno, node.col_offset] = node
        for name in _binds(node):
            bound.setdefault(name, []).append(node)
    findings: dict[str, Finding] = {}
    formats: list[Finding] = []
    for message in sorted(checker.messages, key=lambda item: (item.lineno, item.col)):
        if isinstance(message, messages.UndefinedName | messages.UndefinedLocal):
            arguments = message.message_args
            name = str(arguments[0] if isinstance(arguments, tuple) else arguments)
            use = uses.get((name, message.lineno, message.col))  # none for a name inside a quoted annotation
            if use is not None and name not in findings and len(findings) < MAX_NAMES:
                findings[name] = _undefined(program, use, bound)
        elif isinstance(message, _FORMAT_FAILURES):
            formats.append(_bad_format(message))
    return [*findings.values(), *formats]


def _binds(node: ast.AST) -> list[str]:
    """The names that a node binds by itself."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(name=name, asname=asname):
            return [(asname or name).partition(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def _undefined(program: Program, use: ast.Name, bound: dict[str, list[ast.AST]]) -> Finding:
    name, line = use.id, use.lineno
    scope = program.scope_of(use)
    elsewhere = [getattr(node, "lineno", 0) for node in bound.get(name, [])]
    if scope is not None:
        lines = [getattr(node, "lineno", 0) for node in bound.get(name, []) if _in_scope(program, node, scope)]
        return _too_early(program, use, min(lines or elsewhere or [line]))
    own = near(name, [*bound, *GIVEN_NAMES])
    missing_import = import_for(name)
    if elsewhere:
        fix = f"the name of line {min(elsewhere)} is not visible here; pass its value in as an argument"
    elif missing_import and (own is None or name[0].isupper() or missing_import == f"import {name}"):
        fix = f"add: {missing_import}"
    elif own:
        fix = f"did you mean {own!r}?"
    elif _PROBLEM & set(name.lower().split("_")) and not _is_called(program, use):
        fix = f"write question instead of {name}: it holds the problem's text"
    else:
        hint = near(name, [*CONTRACT, *dir(builtins)])
        fix = f"did you mean {hint!r}?" if hint else f"define {name} before line {line}, or import it"
    return Finding(line=line, code="undefined-name", message=f"{name!r} is not defined", fix=fix)


def _is_called(program: Program, use: ast.Name) -> bool:
    above = program.parents.get(use)
    return isinstance(above, ast.Call) and above.func is use


def _in_scope(program: Program, node: ast.AST, scope: Scope) -> bool:
    return not isinstance(node, ast.Name) or program.scope_of(node) is scope


def _too_early(program: Program, use: ast.Name, defined: int) -> Finding:
    name, line = use.id, use.lineno
    if defined < line:
        message = f"{name!r} is no longer defined here: it ends with its except block, or was deleted"
        fix = "keep the value under another name"
        return Finding(line=line, code="undefined-name", message=message, fix=fix)
    # A loop may bind the name in one pass and use it in the next: doubtful, but not certain to fail.
    looped = False
    for above in program.ancestors(use):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
        if isinstance(above, ast.For | ast.AsyncFor | ast.While):
            looped = looped or any(name in _binds(node) for node in ast.walk(above))
    return Finding(
        line=line,
        code="use-before-definition",
        message=f"{name!r} is used before it is defined (line {defined})",
        fix=f"define {name} above line {line}",
        severity="warning" if looped else "error",
    )


def _bad_format(message: messages.Message) -> Finding:
    text = message.message % message.message_args
    if isinstance(message, messages.PercentFormatExpectedMapping | messages.PercentFormatInvalidFormat):
        fix = "write %% for a percent sign, or use an f-string"
    elif type(message).__name__.startswith("Percent"):
        fix = "give one value for each placeholder, or use an f-string"
    else:
        fix = "double every brace that is not a placeholder ({{ and }}), use an f-string, or join the parts with +"
    return Finding(line=message.lineno, code="bad-format", message=f"this raises: {text}", fix=fix)
