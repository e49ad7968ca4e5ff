"""The language of programs: checks a program's source and compiles it so that every risky step asks a guard.

Built on RestrictedPython, which refuses every kind of syntax it does not know. Restored here, because real programs
use it: annotations, augmented assignment to items and attributes, `nonlocal`, `super()`, `__name__`, common special
methods, names with a leading underscore. The guards that the compiled code calls are in `sandbox.guards`.
This is a policy with good messages, not the boundary: the jail is.
"""

from __future__ import annotations

import ast
import types
import warnings
from dataclasses import dataclass, field

from RestrictedPython.transformer import INSPECT_ATTRIBUTES, IOPERATOR_TO_STR, RestrictingNodeTransformer

from sandbox.language import (
    DUNDER_FIXES,
    MAGIC_METHODS,
    MARK,
    READABLE,
    SYNTAX_FIXES,
    UNAVAILABLE,
    hide,
    mangled,
    shown,
)
from workflow.failures import Finding

MAX_SOURCE = 400_000
"""Longest program that is compiled, in characters."""

# Every field of a syntax node that holds a name, and those that hold other text. A name in any other place is
# refused, so that syntax added to Python later cannot bind names unseen.
_NAME_FIELDS = {
    ("Name", "id"),
    ("Attribute", "attr"),
    ("FunctionDef", "name"),
    ("ClassDef", "name"),
    ("arg", "arg"),
    ("alias", "asname"),
    ("ExceptHandler", "name"),
    ("Global", "names"),
    ("Nonlocal", "names"),
}
_BINDING_FIELDS = _NAME_FIELDS - {("Name", "id"), ("Attribute", "attr")}
_TEXT_FIELDS = {
    ("Constant", "value"),
    ("Constant", "kind"),
    ("ImportFrom", "module"),
    ("alias", "name"),
    ("keyword", "arg"),  # not always a name: dict(_a=1); see visit_Call
}


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
    findings: list[Finding] = []
    code = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about style, such as an escape like "\d"
            tree = ast.parse(source, filename)
            bound = _hide_names(tree, findings)
            tree = _Policy(findings, bound).visit(tree)
            if not findings:
                ast.fix_missing_locations(tree)
                code = compile(tree, filename, "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        text = f": {error.text.strip()[:120]!r}" if error.text else ""
        findings.append(
            Finding(
                line=error.lineno or 0,
                code="syntax",
                message=shown(f"{error.msg}{text}"),
                fix="correct this line; a program is plain Python, without fences or other text around it",
            )
        )
    except (MemoryError, RecursionError, OverflowError, SystemError) as error:
        message = f"the program nests too deeply to be compiled ({type(error).__name__})"
        findings.append(Finding(line=0, code="too-complex", message=message, fix="split long expressions"))
    except ValueError as error:  # null bytes, lone surrogates
        findings.append(Finding(line=0, code="syntax", message=str(error), fix="give the program as plain text"))
    findings.sort(key=lambda finding: finding.line)
    return CompileResult(code if not findings else None, list(dict.fromkeys(findings)))


def _hide_names(tree: ast.AST, findings: list[Finding]) -> set[str]:
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
                findings.append(_refused_syntax(kind, line))
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


def _refused_syntax(kind: str, line: int) -> Finding:
    what, fix = SYNTAX_FIXES.get("Match" if kind.startswith("Match") else kind, (f"{kind} syntax", "leave it out"))
    return Finding(line=line, code="forbidden-syntax", message=f"{what} cannot be used in programs", fix=fix)


class _Policy(RestrictingNodeTransformer):
    """Rewrites a parsed program, whose names are hidden already; what it refuses becomes a finding."""

    def __init__(self, findings: list[Finding], bound: set[str]) -> None:
        super().__init__()
        self._findings = findings
        self._bound = bound
        self._scopes = ["module"]

    # Refusing

    def _refuse(self, node: ast.AST, code: str, message: str, fix: str) -> None:
        self._findings.append(Finding(line=getattr(node, "lineno", 0), code=code, message=message, fix=fix))

    def error(self, node: ast.AST, info: str) -> None:
        """What RestrictedPython itself refuses and this class has no words of its own for."""
        self._refuse(node, "forbidden-syntax", info.rstrip("."), "write it another way")

    def not_allowed(self, node: ast.AST) -> None:
        self._findings.append(_refused_syntax(type(node).__name__, getattr(node, "lineno", 0)))

    def check_name(self, node: ast.AST, name: str | None, allow_magic_methods: bool = False) -> None:
        """Refuse names with leading underscores; a class body may bind the special methods of `MAGIC_METHODS`."""
        if name is None or name == "_" or not name.startswith("_"):
            return
        if self._scopes[-1] == "class" and name in MAGIC_METHODS:
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
            if reads and (name in READABLE or name == "__init__" or (name in MAGIC_METHODS and _is_super(node.value))):
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
        return self.node_contents_visit(node)  # unpacking as in plain Python: iteration needs no guard here

    def guard_iter(self, node: ast.For | ast.comprehension) -> ast.AST:
        if isinstance(node, ast.comprehension) and node.is_async:
            self._findings.append(_refused_syntax("AsyncFor", getattr(node.target, "lineno", 0)))
        return self.node_contents_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        return self.node_contents_visit(node)

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
            self._refuse(node, "forbidden-syntax", f"from {node.module} import * cannot be used", "name the imports")
            return node
        return self.check_import_names(node)

    # Definitions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
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
        for keyword in node.keywords:
            fix = "derive from ABC" if keyword.arg == "metaclass" else "leave it out"
            message = f"class {node.name}: the class argument {keyword.arg or '**'} cannot be used"
            self._refuse(node, "forbidden-syntax", shown(message), fix)
        node.keywords = []
        self._scopes.append("class")
        node = self.node_contents_visit(node)
        self._scopes.pop()
        node.keywords = [ast.keyword("metaclass", ast.Name("__metaclass__", ast.Load()))]
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self.node_contents_visit(node)

    # Calls

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`f(**k)` and `f(_a=1)` become `_apply_(f, ...)`: who is called decides what such names stand for."""
        names = [keyword.arg for keyword in node.keywords]
        for name in names:
            self.check_name(node, name and hide(name))
        node = self.node_contents_visit(node)
        if any(name is None or name != hide(name) for name in names):
            node.args.insert(0, node.func)
            node.func = ast.copy_location(ast.Name("_apply_", ast.Load()), node)
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
