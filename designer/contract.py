"""Checks how a program uses the contract: the arguments it passes and the attributes it reads.

Signatures, types and rules are those of the real classes: arguments are bound to the real signature, values that
are certain are validated against the real annotations, and the real constructor (ours, never the program's) is
run on stand-ins to find arguments that do not go together. What only a run can tell is left to a run.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import EnumType
from functools import cache
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from designer.program import Program, Undecided, Unknown, is_contract_class, is_stand_in, made_by
from workflow import Context, MessageType, WorkflowNode
from workflow.checks import IGNORED_ARGUMENTS, nearest, other_names_of
from workflow.failures import ContractError, Finding


def contract_findings(program: Program) -> list[Finding]:
    """Findings about calls of the contract's classes and methods, and about attributes of its objects."""
    findings: list[Finding] = []
    excused = _attributes_that_the_program_makes(program.tree)
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Call):
            findings += _call_findings(program, node)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr not in excused:
            findings += _attribute_findings(program, node)
        elif isinstance(node, ast.ClassDef):
            findings += _class_findings(program, node)
    return findings


_MEANS = {
    **dict.fromkeys(("text", "body", "response", "output", "answer", "result"), "content"),
    **dict.fromkeys(("instructions", "system_message", "prompt", "system"), "system_prompt"),
    **dict.fromkeys(("members", "nodes", "workers"), "agents"),
}
"""What other libraries call things of the contract."""


def _closest(name: str, known: list[str]) -> str | None:
    """The known name that was probably meant, also where only one of its words was given: `promt`, `tools`."""
    if _MEANS.get(name) in known:
        return _MEANS[name]
    words: dict[str, list[str]] = {}
    for item in known:
        for word in item.split("_"):
            words.setdefault(word, []).append(item)
    having = words.get(nearest(name, words) or "", [])
    alike = sorted((item for item in known if item.startswith(name.partition("_")[0] + "_")), key=len)
    if "_" in name and alike and all(item.startswith(alike[0]) for item in alike):  # `add_agent` for `add_node`
        having = having if len(having) == 1 else alike[:1]
    return nearest(name, known) or (having[0] if len(having) == 1 else None)


def _did_you_mean(name: str, known: list[str], otherwise: str) -> str:
    hint = _closest(name, known)
    return f"did you mean {hint!r}?" if hint else f"{otherwise}: {', '.join(known)}"


# Calls


@dataclass
class _Signature:
    """What may be passed to a class or method of the contract."""

    parameters: dict[str, inspect.Parameter]
    """By name, without `self`."""
    hints: dict[str, Any]
    """Annotations to validate against; empty where nothing validates at run time."""
    ignored: frozenset[str]
    takes_any: bool
    takes_more: bool
    """Any number of arguments by position."""
    other_names: dict[str, str]
    """Further names of parameters."""
    positional: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.positional = [name for name, parameter in self.parameters.items() if parameter.kind == kind]

    @property
    def required(self) -> list[str]:
        return [name for name in self.positional if self.parameters[name].default is inspect.Parameter.empty]


@cache
def _signature(function: Callable[..., Any], is_method: bool) -> _Signature:
    is_class = isinstance(function, type)
    parameters = dict(inspect.signature(function).parameters)
    if is_method:
        parameters.pop(next(iter(parameters)))
    kinds = {parameter.kind for parameter in parameters.values()}
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = {name: item for name, item in parameters.items() if item.kind not in several}
    initializer = inspect.unwrap(function.__init__) if is_class else inspect.unwrap(function)
    validated = is_class or hasattr(function, "__wrapped__")
    hints = get_type_hints(initializer, include_extras=True) if validated else {}
    node_like = is_class and issubclass(function, WorkflowNode)
    is_contract = hasattr(function.__init__ if is_class else function, "__wrapped__")
    ignored = IGNORED_ARGUMENTS if node_like or is_contract else frozenset()
    takes_any, takes_more = (kind in kinds for kind in several)
    return _Signature(parameters, hints, ignored, takes_any, takes_more, other_names_of(function))


def _call_findings(program: Program, node: ast.Call) -> list[Finding]:
    callee, method = program.value(node.func), program.method(node.func)
    if method is not None:
        receiver, function = method
        owner = f"{type(receiver).__name__}.{function.__name__}"
    elif made_by(callee) or (is_contract_class(callee) and callee is not MessageType):
        owner, function = callee.__name__, callee
    else:
        return []
    return _Call(program, node, owner, function, _signature(function, method is not None)).findings()


class _Call:
    """One call of a class or method of the contract."""

    def __init__(
        self, program: Program, node: ast.Call, owner: str, function: Callable[..., Any], signature: _Signature
    ) -> None:
        self.program = program
        self.node = node
        self.function = function
        self.signature = signature
        self.open_ended = any(isinstance(item, ast.Starred) for item in node.args)
        self.open_ended |= any(keyword.arg is None for keyword in node.keywords)
        self.given: dict[str, ast.expr] = {}
        doubtful = isinstance(node.func, ast.Attribute) and _is_doubtful(program, node.func.value)
        self.severity: Literal["error", "warning"] = "warning" if doubtful else "error"
        name = program.given_name(node) if signature.positional[:1] == ["name"] else None
        self.who = f"{owner} {name!r}" if isinstance(name, str) else owner

    def findings(self) -> list[Finding]:
        findings = self._bound()
        values = {name: self.program.value(expression) for name, expression in self.given.items()}
        findings += [found for name, value in values.items() if (found := self._wrong_value(name, value))]
        if not findings and not self.open_ended:
            findings += self._construction(values)
        return findings

    def _found(self, node: ast.AST, code: str, problem: str, fix: str) -> Finding:
        line = getattr(node, "lineno", self.node.lineno)
        return Finding(line=line, code=code, message=f"{self.who}: {problem}", fix=fix, severity=self.severity)

    def _bound(self) -> list[Finding]:
        """Assign arguments to parameters; report those that do not fit and those that are missing."""
        findings = []
        known = list(self.signature.parameters)
        positional = self.signature.positional
        starred = [index for index, item in enumerate(self.node.args) if isinstance(item, ast.Starred)]
        plain = self.node.args[: starred[0]] if starred else self.node.args
        for name, expression in zip(positional, plain, strict=False):
            self.given[name] = expression
        if len(plain) > len(positional) and not self.signature.takes_more:
            extra = plain[len(positional)]
            problem = f"{len(plain)} positional arguments where at most {len(positional)} are allowed"
            findings.append(self._found(extra, "too-many-arguments", problem, f"valid arguments: {', '.join(known)}"))
        replaced = set()
        for keyword in self.node.keywords:
            name = self.signature.other_names.get(keyword.arg or "", keyword.arg)
            if name is None or name in self.signature.ignored:
                continue
            if name in self.given:
                fix = f"pass {name!r} once"
                findings.append(self._found(keyword, "repeated-argument", f"argument {name!r} is given twice", fix))
            elif name in known:
                self.given[name] = keyword.value
            elif not self.signature.takes_any:
                free = [item for item in known if item not in self.given and not self._is_keyword(item)]
                replaced.add(_closest(name, free))
                fix = _did_you_mean(name, free, "leave it out; valid arguments") if free else "leave it out"
                findings.append(self._found(keyword, "unknown-argument", f"unknown argument {name!r}", fix))
        missing = [name for name in self.signature.required if name not in self.given and name not in replaced]
        if missing and not self.open_ended:
            listed = ", ".join(map(repr, missing))
            fix = "add " + ", ".join(f"{name}=..." for name in missing)
            what = "argument" if len(missing) == 1 else "arguments"
            findings.append(self._found(self.node, "missing-argument", f"{what} {listed} missing", fix))
        return findings

    def _is_keyword(self, name: str) -> bool:
        return any(keyword.arg == name for keyword in self.node.keywords)

    def _wrong_value(self, name: str, value: Any) -> Finding | None:
        if name not in self.signature.hints or not _is_certain(value):
            return None
        adapter = _adapter(self.function, name)
        if adapter is None:
            return None
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            expression = self.given[name]
            fix = "; ".join(dict.fromkeys(item["msg"] for item in error.errors()[:3]))
            if get_origin(self.signature.hints[name]) is Literal and isinstance(value, str):
                choices = [str(choice) for choice in get_args(self.signature.hints[name])]
                fix = _did_you_mean(value, choices, "valid values")
            shown = shortened(ast.unparse(expression))
            if isinstance(value, str | int | float) and not isinstance(expression, ast.Constant):
                shown += f", which is {shortened(repr(value))}"
            return self._found(expression, "wrong-value", f"argument {name!r} cannot be {shown}", fix)
        return None

    def _construction(self, values: dict[str, Any]) -> list[Finding]:
        """What the real constructor says to these arguments, as far as it looks only at what is certain."""
        kind = self.function
        if not isinstance(kind, type) or not issubclass(kind, WorkflowNode) or kind is WorkflowNode:
            return []
        arguments = dict(values)
        if not isinstance(arguments.get("name", ""), str):
            arguments["name"] = "?"
        try:
            inspect.unwrap(kind.__init__)(object.__new__(kind), **arguments)
        except ContractError as error:
            problem = str(error).removeprefix(f"{kind.__name__} {arguments.get('name')!r}: ")
            if " needs " in problem:
                problem, _, fix = problem.partition(" needs ")
                return [self._found(self.node, "missing-argument", f"{problem} lacks an argument", f"add {fix}")]
            problem, _, fix = problem.partition("; ")
            return [self._found(self.node, "wrong-value", problem, fix)]
        except (Undecided, AttributeError):
            return []  # it looked at what only a run can tell, or at what a stand-in has not got
        return []


def shortened(text: str, longest: int = 80) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _is_certain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_certain, value))
    if isinstance(value, dict):
        return all(map(_is_certain, value.values()))
    if isinstance(value, ast.AST | ModuleType):
        return False  # a class of the program, or a module: nothing is known of how it would be used
    return not isinstance(value, Unknown)


@cache
def _adapter(function: Callable[..., Any], name: str) -> TypeAdapter[Any] | None:
    """A validator for one argument, or None for types that pydantic does not check either."""
    hint = _signature(function, not isinstance(function, type)).hints[name]
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticSchemaGenerationError:
        return None


# Attributes and classes


def _attributes_that_the_program_makes(tree: ast.Module) -> set[str]:
    """Attributes that are assigned somewhere, or whose presence the program itself asks about."""
    made = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            made.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            made |= {item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    return made


@cache
def _attributes(kind: type) -> frozenset[str]:
    """What an object of a class of the contract has: methods, properties and what its constructors assign."""
    names = set(dir(kind))
    for base in kind.__mro__:
        initializer = vars(base).get("__init__")
        if inspect.isfunction(initializer):
            names |= set(inspect.unwrap(initializer).__code__.co_names)
    return frozenset(names)


def _attribute_findings(program: Program, node: ast.Attribute) -> list[Finding]:
    owner = program.value(node.value)
    parent = program.parents.get(node)
    if isinstance(owner, EnumType):
        if hasattr(owner, node.attr):
            return []
        known, code, owner_name = list(owner.__members__), "unknown-attribute", owner.__name__
    elif is_stand_in(owner) and node.attr not in _attributes(type(owner)):
        called = isinstance(parent, ast.Call) and parent.func is node
        code, owner_name = "unknown-method" if called else "unknown-attribute", type(owner).__name__
        known = _public(type(owner), called)
    else:
        return []
    doubtful = _is_doubtful(program, node.value) or any(isinstance(above, ast.Try) for above in program.ancestors(node))
    return [
        Finding(
            line=node.end_lineno or node.lineno,
            code=code,
            message=f"{owner_name} has no {'method' if code == 'unknown-method' else 'attribute'} {node.attr!r}",
            fix=_did_you_mean(node.attr, known, "it has"),
            severity="warning" if doubtful else "error",
        )
    ]


def _is_doubtful(program: Program, owner: ast.AST) -> bool:
    """Whether only an annotation says what an object is; a parameter that is called a Context is believed to be one."""
    return program.is_parameter(owner) and not isinstance(program.value(owner), Context)


def _public(kind: type, called: bool) -> list[str]:
    names = [name for name in dir(kind) if not name.startswith("_")]
    names += [name for name in inspect.signature(kind).parameters if name not in names]
    return [name for name in names if callable(getattr(kind, name, None)) == called] or names


def _class_findings(program: Program, node: ast.ClassDef) -> list[Finding]:
    """A node of the program's own must say what it does."""
    if len(node.bases) != 1 or program.value(node.bases[0]) is not WorkflowNode:
        return []
    defined = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    built = (item for item in ast.walk(program.tree) if isinstance(item, ast.Call))
    if defined & {"process", "steps"} or not any(program.value(call.func) is node for call in built):
        return []
    message = f"class {node.name} derives from WorkflowNode but defines no process method"
    fix = "add: def process(self, context): ... return Message(text)"
    if hint := nearest("process", sorted(defined)):
        fix = f"rename {hint!r} to 'process', with one parameter: context"
    return [Finding(line=node.lineno, code="missing-process", message=message, fix=fix)]
