"""The language of programs: checks a program's source and compiles it so that every risky step asks a guard.

Built on RestrictedPython, which refuses every kind of syntax it does not know. Restored here, because real programs
use it: annotations, augmented assignment to items and attributes, `nonlocal`, `super()`, `__name__`, common special
methods, names with a leading underscore. The guards that the compiled code calls are in `sandbox.language.guards`.
This is a policy with good messages, not the boundary: the jail is.
"""

from __future__ import annotations

import ast
import types
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

from RestrictedPython.transformer import INSPECT_ATTRIBUTES, IOPERATOR_TO_STR, RestrictingNodeTransformer

from sandbox.language.hiding import drop, hide_names, refused_syntax, unused_imports
from sandbox.language.match_statements import Matching
from sandbox.language.vocabulary import (
    BY_CLASS,
    DUNDER_FIXES,
    MAGIC_METHODS,
    MODULE_NAMES,
    NAMES_OF_ATTRIBUTES,
    READABLE,
    UNAVAILABLE,
    hide,
    mangled,
    shown,
)
from workflow.failures import Finding

MAX_SOURCE = 400_000
"""Longest program that is compiled, in characters."""


@dataclass
class CompileResult:
    """`code` is None exactly when `findings` holds an error."""

    code: types.CodeType | None = None
    findings: list[Finding] = field(default_factory=list)


def compile_program(source: str, filename: str = "<program>") -> CompileResult:
    """Check and compile a program. Never raises for what the source says; `findings` name line, culprit and fix."""
    if len(source) > MAX_SOURCE:
        message = f"the program has {len(source):,} characters; the limit is {MAX_SOURCE:,}"
        return CompileResult(findings=[Finding(line=0, code="too-complex", message=message, fix="shorten it")])
    return _compiled(source, filename, "exec")


def compile_expression(source: str) -> types.CodeType:
    """One expression under the same policy, for `eval`. Raises SyntaxError with what the policy says of it."""
    compiled = _compiled(source.strip(), "<expression>", "eval")
    if compiled.code is None:
        raise SyntaxError("; ".join(f"{finding.message} ({finding.fix})" for finding in compiled.findings))
    return compiled.code


def _compiled(source: str, filename: str, mode: Literal["exec", "eval"]) -> CompileResult:
    findings: list[Finding] = []
    code = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about style, such as an escape like "\d"
            tree = ast.parse(source, filename, mode)
            drop(tree, unused_imports(tree))
            bound = hide_names(tree, findings)
            tree = _Policy(findings, bound).visit(tree)
            if not findings:
                ast.fix_missing_locations(tree)
                code = compile(tree, filename, mode, dont_inherit=True, optimize=0)
    except SyntaxError as error:
        text = f": {error.text.strip()[:120]!r}" if error.text else ""
        around = "; a program is plain Python, without fences or other text around it"
        findings.append(
            Finding(
                line=error.lineno or 0,
                code="syntax",
                message=shown(f"{error.msg}{text}"),
                fix="correct this line" + (around if "```" in text or error.lineno == 1 else ""),
            )
        )
    except (MemoryError, RecursionError, OverflowError, SystemError) as error:
        message = f"the program nests too deeply to be compiled ({type(error).__name__})"
        findings.append(Finding(line=0, code="too-complex", message=message, fix="split long expressions"))
    except ValueError as error:  # null bytes, lone surrogates
        findings.append(Finding(line=0, code="syntax", message=str(error), fix="give the program as plain text"))
    findings.sort(key=lambda finding: finding.line)
    return CompileResult(code if not findings else None, list(dict.fromkeys(findings)))


class _Policy(RestrictingNodeTransformer):
    """Rewrites a parsed program, whose names are hidden already; what it refuses becomes a finding."""

    def __init__(self, findings: list[Finding], bound: set[str]) -> None:
        super().__init__()
        self._findings = findings
        self._bound = bound
        self._scopes = ["module"]
        self._class = ""
        self._matching = Matching(self.visit)

    # Refusing

    def _refuse(self, node: ast.AST, code: str, message: str, fix: str) -> None:
        self._findings.append(Finding(line=getattr(node, "lineno", 0), code=code, message=message, fix=fix))

    def error(self, node: ast.AST, info: str) -> None:
        """What RestrictedPython itself refuses and this class has no words of its own for."""
        self._refuse(node, "forbidden-syntax", info.rstrip("."), "write it another way")

    def not_allowed(self, node: ast.AST) -> None:
        self._findings.append(refused_syntax(type(node).__name__, getattr(node, "lineno", 0)))

    def check_name(self, node: ast.AST, name: str | None, allow_magic_methods: bool = False) -> None:
        """Refuse names with leading underscores; a class body may bind the special methods of `MAGIC_METHODS`."""
        if name is None or name == "_" or not name.startswith("_"):
            return
        if (self._scopes[-1] == "class" and name in MAGIC_METHODS) or name in MODULE_NAMES:
            return
        if name.startswith("__") and name.endswith("__"):
            self._refuse(node, "forbidden-name", f"the special name {name} cannot be used", "leave it out")
        else:
            self._refuse(node, "forbidden-name", f"the name {name} cannot be used", "start it with a letter")

    def _call(self, guard: str, node: ast.AST, *args: ast.expr) -> ast.Call:
        function = ast.copy_location(ast.Name(guard, ast.Load()), node)
        return ast.copy_location(ast.Call(func=function, args=list(args), keywords=[]), node)

    # Names and attributes

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load):
            if node.id == "__name__":
                return node
            if node.id in UNAVAILABLE and node.id not in self._bound:
                self._refuse(node, "forbidden-name", f"{node.id} is not available", UNAVAILABLE[node.id])
                return node
        self.check_name(node, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = node.attr
        reads = isinstance(node.ctx, ast.Load)
        if name in INSPECT_ATTRIBUTES:
            message = f"the attribute .{name} cannot be used"
            self._refuse(node, "forbidden-attribute", message, "programs cannot look inside functions or frames")
            return node
        if name.startswith("_") and name != "_":
            if reads and (name in READABLE or name in BY_CLASS or (name in MAGIC_METHODS and _is_super(node.value))):
                return self._call("_special_", node, self.visit(node.value), ast.Constant(name))
            fix = DUNDER_FIXES.get(name, "use plain attributes and operators")
            self._refuse(node, "forbidden-attribute", f"the attribute .{name} cannot be used", fix)
            return node
        value = self.visit(node.value)
        if reads:
            return self._call("_getattr_", node, value, ast.Constant(name))
        node.value = self._call("_write_", node.value, value)
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        """Rebinds variables of the program's own functions only; guards are globals under names it cannot write."""
        for name in node.names:
            self.check_name(node, name)
        return node

    # Assignment

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if self._scopes[-1] == "class" and isinstance(target, ast.Name) and target.id in NAMES_OF_ATTRIBUTES:
            return self._names_of_attributes(node, target.id)
        return self.node_contents_visit(node)  # unpacking as in plain Python: iteration needs no guard here

    def _names_of_attributes(self, node: ast.Assign, what: str) -> ast.AST:
        """`__slots__ = ("x", "_y")`: the names become what the program's attributes are called."""
        items = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else [node.value]
        names = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        special = [name for name in names if name.startswith("__") and name.endswith("__") and name != "__dict__"]
        if len(names) != len(items) or len(node.targets) > 1 or special:
            fix = "write the names out, as in ('x', 'y'), without special ones"
            self._refuse(node, "forbidden-name", f"this value of {what} cannot be used", fix)
            return node
        hidden = [ast.Constant(hide(mangled(name, self._class))) for name in names]
        node.value = ast.copy_location(ast.Tuple(list(hidden), ast.Load()), node.value)
        return node

    def guard_iter(self, node: ast.For | ast.comprehension) -> ast.AST:
        return self.node_contents_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        return self.node_contents_visit(node)

    # What RestrictedPython does not know, and needs no guard of its own

    visit_AsyncFor = visit_AsyncWith = visit_Await = visit_TryStar = visit_Expression = visit_With  # type: ignore[assignment]

    def visit_Match(self, node: ast.Match) -> Any:
        for part in ast.walk(node):
            names = [getattr(part, "name", None), getattr(part, "rest", None)] if isinstance(part, ast.pattern) else []
            for name in [*names, *(part.kwd_attrs if isinstance(part, ast.MatchClass) else [])]:
                self.check_name(part, name)
        return self._matching.statement(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Keep what an annotation does and drop what it says: text in it might be evaluated by somebody later.

        `ClassVar[...]` becomes a plain assignment; `InitVar` and `KW_ONLY` stay, since `dataclass` asks for them.
        """
        target, head = node.target, _head(node.annotation)
        in_class = self._scopes[-1] == "class"
        value = None if node.value is None else self.visit(node.value)
        if isinstance(target, ast.Name) and not (in_class and head == "ClassVar"):
            keeps = in_class and head in ("InitVar", "KW_ONLY")
            annotation = self.visit(node.annotation) if keeps else ast.Constant(None)
            plain = ast.AnnAssign(self.visit(target), annotation, value, node.simple)
        elif value is not None:
            plain = ast.Assign(targets=[self.visit(target)], value=value)
        elif isinstance(target, ast.Name):
            plain = ast.Pass()
        else:
            plain = ast.Expr(self.visit(target.value))
        return ast.copy_location(plain, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`o.a += v` becomes `_augment_(_attribute_(o, "a"), "+=", v)`, and `o[k] += v` likewise with `_item_`.

        As in plain Python, o and k are evaluated once, and the old value is read before v is evaluated.
        """
        target = node.target
        if isinstance(target, ast.Name):
            return self.node_contents_visit(node)
        place: ast.AST = self.visit(ast.copy_location(_evaluated(target), target))
        if not isinstance(place, ast.Call):
            return node  # refused
        assert isinstance(place.func, ast.Name), "the two visits above make calls of guards by name"
        guard = {"_getattr_": "_attribute_", "_getitem_": "_item_"}.get(place.func.id)
        if guard is None:
            self._refuse(node, "forbidden-attribute", "a special attribute cannot be assigned", "leave it out")
            return node
        place.func.id = guard
        operator = ast.Constant(IOPERATOR_TO_STR[type(node.op)])
        call = self._call("_augment_", node, place, operator, self.visit(node.value))
        return ast.copy_location(ast.Expr(call), node)

    # Imports

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.module == "__future__" and not node.level:
            return ast.copy_location(ast.Pass(), node)  # annotations are never evaluated anyway
        if any(alias.name == "*" for alias in node.names):
            if node.level or not (node.module or "").startswith("workflow"):
                fix = "name the imports; only the names of workflow may be imported as *"
                self._refuse(node, "forbidden-syntax", f"from {node.module} import * cannot be used", fix)
            return node
        return self.check_import_names(node)

    # Definitions

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self.visit_FunctionDef(node)

    def visit_FunctionDef(self, node: Any) -> Any:
        self.check_name(node, node.name)
        node.returns = None
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg):
                arg.annotation = None
        self._scopes.append("function")
        self.check_function_argument_names(node)
        node = self.node_contents_visit(node)
        self._scopes.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.check_name(node, node.name)
        bases = self._bases_of_metaclass(node)
        annotations = {
            shown(each.target.id): shown(ast.unparse(each.annotation))
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        self._scopes.append("class")
        outer, self._class = self._class, node.name
        node = self.node_contents_visit(node)
        self._class = outer
        self._scopes.pop()
        node.bases += bases
        node.keywords.append(ast.keyword("metaclass", ast.Name("__metaclass__", ast.Load())))
        if annotations:
            texts = ast.Dict(list(map(ast.Constant, annotations)), list(map(ast.Constant, annotations.values())))
            node.decorator_list.append(self._call("_annotated_", node, texts))
        return node

    def _bases_of_metaclass(self, node: ast.ClassDef) -> list[ast.expr]:
        """`metaclass=ABCMeta` becomes the base class ABC; no other one can be named. Takes it out of the keywords."""
        bases: list[ast.expr] = []
        for keyword in list(node.keywords):
            if keyword.arg == "metaclass" and _head(keyword.value) == "ABCMeta":
                node.keywords.remove(keyword)
                bases.append(ast.copy_location(ast.Name("_abc_", ast.Load()), keyword.value))
            elif keyword.arg is not None and keyword.arg != "metaclass":
                self.check_name(node, hide(keyword.arg))
                keyword.arg = hide(keyword.arg)
            else:
                message = f"class {node.name}: the class argument {keyword.arg or '**'} cannot be used"
                fix = "derive from ABC" if keyword.arg else "leave it out"
                self._refuse(node, "forbidden-syntax", shown(message), fix)
        return bases

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self.node_contents_visit(node)

    # Calls

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`f(**k)` and `f(_a=1)` become `_apply_(f, ...)`: who is called decides what such names stand for."""
        names = [keyword.arg for keyword in node.keywords]
        for name in names:
            self.check_name(node, name and hide(name))
        is_str = isinstance(node.func, ast.Name) and node.func.id == "str" and "str" not in self._bound
        node = self.node_contents_visit(node)
        if is_str and len(node.args) == 1 and not names and not isinstance(node.args[0], ast.Starred):
            return self._call("_text_", node, node.args[0], ast.Constant("s"))
        if any(name is None or name != hide(name) for name in names):
            node.args.insert(0, node.func)
            node.func = ast.copy_location(ast.Name("_apply_", ast.Load()), node)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """`f"{x!r}"` becomes `f"{_text_(x, 'r')}"`, which tells no addresses."""
        node = self.node_contents_visit(node)
        conversion = "" if node.conversion < 0 else chr(node.conversion)
        node.value, node.conversion = self._call("_text_", node.value, node.value, ast.Constant(conversion)), -1
        return node

    def visit_TemplateStr(self, node: ast.AST) -> None:
        self.not_allowed(node)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _head(annotation: ast.expr) -> str:
    """The last name before any subscript: `ClassVar` for `typing.ClassVar[int]`."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.Attribute):
        return annotation.attr
    return annotation.id if isinstance(annotation, ast.Name) else ""


def _evaluated(target: ast.Attribute | ast.Subscript) -> ast.expr:
    """The expression that reads an assignment's target."""
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
