"""What the names of a program stand for, as far as that can be told without running it.

`Program.value(expression)` is the value an expression is certain to have: a literal, a class of the contract, a
stand-in for an object built from one (a real but empty instance), a function of the program, or `UNKNOWN`. Nothing
of the program is executed. What is wrong with a program is decided elsewhere (`designer.contract`,
`designer.structure`).
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, NoReturn, TypeGuard, get_type_hints

import workflow
from workflow import RouterNode, WorkflowNode
from workflow.flows import AgentGraph, Workflow, is_pair
from workflow.published import MODULES, contents

CONTRACT: dict[str, Any] = {name: getattr(workflow, name) for name in workflow.__all__}
CLASSES = frozenset(value for value in CONTRACT.values() if isinstance(value, type))
FLOWS = (Workflow, AgentGraph)
create_keyword_router = contents("workflow.nodes.router_node")["create_keyword_router"]


def made_by(function: object) -> type | None:
    """What a function of the contract builds, as far as that says where it may stand; None for anything else."""
    if function is workflow.create_simple_chain:
        return Workflow
    return RouterNode if function is create_keyword_router else None


class Undecided(Exception):
    """Something depends on a value that only a run can tell."""


class Unknown:
    """A value that only a run can tell. Whoever looks into it raises `Undecided`."""

    def _undecided(self, *_: object) -> NoReturn:
        raise Undecided

    __bool__ = __eq__ = __len__ = __iter__ = __contains__ = __getitem__ = __hash__ = _undecided
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = _undecided

    def __getattr__(self, name: str) -> NoReturn:
        raise Undecided

    def __repr__(self) -> str:
        return "?"


UNKNOWN: Any = Unknown()


@dataclass
class Function:
    """Stands for a function or lambda of the program."""

    node: ast.FunctionDef | ast.Lambda

    def __call__(self) -> NoReturn:
        raise Undecided


@dataclass(eq=False)
class Scope:
    """The names that one function, class, comprehension or the module binds, each with what it is bound to.

    A binding is the assigned expression, a definition, an import's alias, or None where nothing can be told.
    """

    parent: Scope | None
    kind: Literal["module", "class", "function", "comprehension"] = "module"
    bindings: dict[str, list[ast.AST | None]] = field(default_factory=dict)
    outer_names: set[str] = field(default_factory=set)
    """Declared global or nonlocal here."""

    def bind(self, name: str, value: ast.AST | None) -> None:
        if name not in self.outer_names:
            self.bindings.setdefault(name, []).append(value)
            return
        scope = self.parent
        while scope is not None:
            scope.bindings.setdefault(name, []).append(None)
            scope = scope.parent


class Program:
    """A parsed program with its scopes. Building one takes time linear in the program."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.module = Scope(None)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._modules: dict[ast.AST, str] = {}
        self._values: dict[ast.AST, Any] = {}
        self._variables: dict[tuple[Scope, str], Any] = {}
        _spell_out_stars(tree)
        for statement in tree.body:
            self._visit(statement, tree, self.module)

    def scope_of(self, name: ast.Name) -> Scope | None:
        """The scope that binds a name where it is used or assigned; None for builtins and undefined names."""
        start = self._scopes[name]
        scope: Scope | None = start
        while scope is not None:
            if name.id in scope.bindings and (scope is start or scope.kind != "class"):
                return scope
            scope = scope.parent
        return None

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def value(self, node: ast.AST | None) -> Any:
        """The certain value of an expression, or `UNKNOWN`. Lists, sets and dicts count only where written out,
        since through a name they may have been changed."""
        if node is None:
            return UNKNOWN
        if node not in self._values:
            self._values[node] = UNKNOWN  # while it is being evaluated: it may refer to itself
            self._values[node] = self._evaluate(node)
        return self._values[node]

    def is_parameter(self, node: ast.AST) -> bool:
        """Whether an expression is a parameter, of which only the annotation is known."""
        if not isinstance(node, ast.Name):
            return False
        scope = self.scope_of(node)
        return scope is not None and any(isinstance(item, ast.arg) for item in scope.bindings[node.id])

    def class_bases(self, definition: ast.ClassDef) -> list[type]:
        """The contract's classes that a class of the program derives from, directly or through its other classes."""
        found: list[type] = []
        seen: set[ast.AST] = set()
        pending: list[ast.AST] = [definition]
        while pending:
            item = pending.pop()
            if not isinstance(item, ast.ClassDef) or item in seen:
                continue
            seen.add(item)
            for base in item.bases:
                value = self.value(base)
                if isinstance(value, type):
                    found.append(value)
                else:
                    pending.append(value)
        return found

    def builds(self, node: ast.AST) -> type | None:
        """The contract's class of the node that a call builds: for a class of the program, the one it derives from."""
        if not isinstance(node, ast.Call):
            return None
        callee = self.value(node.func)
        if made := made_by(callee):
            return made
        if isinstance(callee, type) and issubclass(callee, WorkflowNode):
            return callee
        if isinstance(callee, ast.ClassDef):
            return next((base for base in self.class_bases(callee) if issubclass(base, WorkflowNode)), None)
        return None

    def given_name(self, call: ast.Call) -> Any:
        """The name that a call gives the node it builds, if it is certain, else `UNKNOWN`."""
        given = [keyword.value for keyword in call.keywords if keyword.arg == "name"] or call.args[:1]
        name = self.value(given[0]) if given else UNKNOWN
        return name if isinstance(name, str) else UNKNOWN

    def _visit(self, node: ast.AST, parent: ast.AST, scope: Scope) -> None:
        self.parents[node] = parent
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._visit_function(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope.bind(node.name, node)
            for outside in (*node.decorator_list, *node.bases, *node.keywords):
                self._visit(outside, node, scope)
            inner = Scope(scope, "class")
            for statement in node.body:
                self._visit(statement, node, inner)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            inner = Scope(scope, "comprehension")
            for child in ast.iter_child_nodes(node):
                self._visit(child, node, inner)
        else:
            self._bind(node, scope)
            for child in ast.iter_child_nodes(node):
                self._visit(child, node, scope)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        inner = Scope(scope, "function")
        arguments = node.args
        outside: list[ast.AST | None] = [*arguments.defaults, *arguments.kw_defaults]
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [item for item in (arguments.vararg, arguments.kwarg) if item]
        for argument in named:
            inner.bind(argument.arg, argument)
            outside.append(argument.annotation)
        if not isinstance(node, ast.Lambda):
            scope.bind(node.name, node)
            outside += [*node.decorator_list, node.returns]
            # Names that the function declares as not its own must be known before its body is read.
            for statement in ast.walk(node):
                if isinstance(statement, ast.Global | ast.Nonlocal):
                    inner.outer_names.update(statement.names)
        for item in outside:
            if item is not None:
                self._visit(item, node, scope)
        for item in node.body if isinstance(node.body, list) else [node.body]:
            self._visit(item, node, inner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            self._scopes[node] = scope
            parent = self.parents[node]
            if isinstance(node.ctx, ast.Store):
                while isinstance(parent, ast.NamedExpr) and scope.kind == "comprehension" and scope.parent:
                    scope = scope.parent  # := binds outside of comprehensions
                plain = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr)
                scope.bind(node.id, parent.value if plain else None)
            elif isinstance(node.ctx, ast.Del):
                scope.bind(node.id, None)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self._modules[alias] = alias.name if alias.asname else alias.name.partition(".")[0]
                scope.bind(alias.asname or alias.name.partition(".")[0], alias)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self._modules[alias] = f"{'.' * node.level}{node.module or ''}:{alias.name}"
                scope.bind(alias.asname or alias.name, alias)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            if node.name:
                scope.bind(node.name, None)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.bind(node.rest, None)

    def _evaluate(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.BinOp(op=ast.Add()):
                left, right = self.value(node.left), self.value(node.right)
                return left + right if isinstance(left, str) and isinstance(right, str) else UNKNOWN
            case ast.Tuple() | ast.List():
                items = [UNKNOWN if isinstance(item, ast.Starred) else self.value(item) for item in node.elts]
                if any(isinstance(item, ast.Starred) for item in node.elts):
                    return UNKNOWN
                return tuple(items) if isinstance(node, ast.Tuple) else items
            case ast.Dict():
                return self._dictionary(node)
            case ast.FunctionDef() | ast.Lambda():
                return UNKNOWN if getattr(node, "decorator_list", None) else Function(node)
            case ast.ClassDef():
                return node
            case ast.alias():
                return _imported(self._modules.get(node, ""))
            case ast.arg():
                return self._argument(node)
            case ast.Name():
                return self._named(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._result(node)
        return UNKNOWN

    def _dictionary(self, node: ast.Dict) -> Any:
        result = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            key = self.value(key_node)
            if not isinstance(key, str | int | float):
                return UNKNOWN
            result[key] = self.value(value_node)
        return result

    def _named(self, node: ast.Name) -> Any:
        scope = self.scope_of(node)
        if scope is None:
            return UNKNOWN
        variable = (scope, node.id)
        if variable not in self._variables:
            self._variables[variable] = UNKNOWN  # while its bindings are looked at: it may be bound to itself
            self._variables[variable] = self._bound_to(scope.bindings[node.id])
        return self._variables[variable]

    def _bound_to(self, bindings: list[ast.AST | None]) -> Any:
        values = [self.value(binding) for binding in bindings]
        if len(values) == 1:
            return UNKNOWN if isinstance(values[0], list | dict) else values[0]
        kinds = {type(value) for value in values}
        return stand_in(kinds.pop()) if len(kinds) == 1 and kinds <= CLASSES else UNKNOWN

    def _argument(self, node: ast.arg) -> Any:
        """A parameter annotated with a class of the contract; nodes are left out, as they may be of a subclass."""
        kind = self.value(node.annotation)
        if is_contract_class(kind) and not issubclass(kind, WorkflowNode):
            return stand_in(kind)
        return UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, ModuleType):
            return _imported(f"{owner.__name__}:{node.attr}")
        return UNKNOWN

    def _result(self, node: ast.Call) -> Any:
        callee = self.value(node.func)
        if is_contract_class(callee):
            return stand_in(callee, self.given_name(node))
        if callee is create_keyword_router:
            return stand_in(RouterNode, self.given_name(node))
        if callee is workflow.create_simple_chain:
            return self._chain(node)
        method = self.method(node.func)
        if method is None:
            return UNKNOWN
        receiver, function = method
        returned = get_type_hints(inspect.unwrap(function)).get("return")
        if not is_contract_class(returned):
            return UNKNOWN
        # A method that returns its own node is declared with the base class.
        return receiver if isinstance(receiver, returned) else stand_in(returned)

    def _chain(self, node: ast.Call) -> Any:
        """Of nodes a Workflow, of (name, node) pairs an AgentGraph."""
        given = [self.value(item) for item in (*node.args, *(each.value for each in node.keywords))]
        links = [link for item in given for link in (item if isinstance(item, list) else [item])]
        if any(is_pair(link) for link in links):
            return stand_in(AgentGraph)
        return stand_in(Workflow) if any(isinstance(link, WorkflowNode) for link in links) else UNKNOWN

    def method(self, node: ast.AST) -> tuple[Any, Callable[..., Any]] | None:
        """For `x.name` with x an object of the contract: the stand-in for x and the function, if it is a method."""
        if not isinstance(node, ast.Attribute):
            return None
        receiver = self.value(node.value)
        if not is_stand_in(receiver):
            return None
        function = inspect.getattr_static(type(receiver), node.attr, None)
        return (receiver, function) if inspect.isfunction(function) else None


def _spell_out_stars(tree: ast.Module) -> None:
    """`from workflow import *` as the names that it brings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module in MODULES:
            for star in [alias for alias in node.names if alias.name == "*"]:
                node.names = [ast.copy_location(ast.alias(name), star) for name in MODULES[node.module]]


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is a slip of the pen for, or None: a likeness of sound would mislead."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return close[0] if close else None


def stand_in(kind: type, name: Any = UNKNOWN) -> Any:
    """An empty instance: it has its class and, for nodes, its name, and nothing else."""
    instance = object.__new__(kind)
    if issubclass(kind, WorkflowNode):
        instance.name = name
    return instance


def is_stand_in(value: object) -> bool:
    return type(value) in CLASSES


def is_contract_class(value: object) -> TypeGuard[type]:
    return isinstance(value, type) and value in CLASSES


def _imported(target: str) -> Any:
    """What an import brings: `workflow:AgentNode` a class, `workflow` a module, anything else UNKNOWN."""
    module, _, name = target.partition(":")
    if not name:
        return import_module(module) if module in MODULES else UNKNOWN
    if name in MODULES.get(module, ()):
        return contents(module)[name]
    return import_module(f"{module}.{name}") if f"{module}.{name}" in MODULES else UNKNOWN
