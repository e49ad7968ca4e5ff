"""Looks at a program as a whole: is there a workflow, is every node used, can its tools be called, is anybody
asked for an answer that can be found?

Purely static; the graph of a program that builds comes from the sandbox. Single calls are `designer.contract`'s.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from designer.program import CONTRACT, FLOWS, Function, Program, Scope, made_by
from workflow import AgentNode, ToolRegistry, Workflow, WorkflowNode
from workflow.checks import nearest
from workflow.failures import Finding

ANSWER_MARKS = ("\\boxed", "<solution>", "```python", "<delivery>")
"""What a prompt may ask for so that the answer can be found in the reply."""

Variable = tuple[Scope, str]
_CONTAINERS = (ast.keyword, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.IfExp, ast.BoolOp, ast.BinOp)


def structure_findings(program: Program) -> list[Finding]:
    """Findings about the whole: workflows, unused nodes, tools and answer formats."""
    return _Structure(program).findings()


def node_lines(program: Program) -> dict[str, int]:
    """The line on which each node whose name is certain is built."""
    lines: dict[str, int] = {}
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Call) and program.builds(node):
            name = program.given_name(node)
            if isinstance(name, str):
                lines.setdefault(name, node.lineno)
    return lines


class _Structure:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.calls = [node for node in ast.walk(program.tree) if isinstance(node, ast.Call)]
        self.loads: dict[Variable, list[ast.Name]] = {}
        """Where each variable is read."""
        self.built: list[tuple[Variable, ast.Call, type]] = []
        """Variables that are assigned a new node, with the call and the node's class."""
        self.mentioned: set[str] = set()
        """Names of the contract that the program refers to."""
        self._live: dict[Variable, bool] = {}
        for node in ast.walk(program.tree):
            if isinstance(node, ast.Name | ast.Attribute):
                self._note_reference(node)
        if "create_simple_chain" in self.mentioned:
            self.mentioned.add(Workflow.__name__)

    def findings(self) -> list[Finding]:
        return [
            *self._workflow_findings(),
            *self._unused_findings(),
            *(found for call in self.calls for found in self._tool_findings(call)),
            *self._turn_findings(),
            *self._prompt_findings(),
        ]

    def _note_reference(self, node: ast.Name | ast.Attribute) -> None:
        value = self.program.value(node)
        if isinstance(value, type):
            self.mentioned.add(value.__name__)
        elif made := made_by(value):
            self.mentioned.add(made.__name__)
        self.mentioned |= {node.id if isinstance(node, ast.Name) else node.attr} & set(CONTRACT)
        variable = self._variable(node)
        if variable is None or not isinstance(node, ast.Name):
            return
        if isinstance(node.ctx, ast.Load):
            self.loads.setdefault(variable, []).append(node)
        parent = self.program.parents[node]
        if isinstance(node.ctx, ast.Store) and _target_of(parent) is node and variable[0].kind != "class":
            assert isinstance(parent, ast.Assign | ast.AnnAssign), "only these have a target of their own"
            kind = self.program.builds(parent.value) if parent.value else None
            if kind and isinstance(parent.value, ast.Call):
                self.built.append((variable, parent.value, kind))

    def _variable(self, node: ast.AST) -> Variable | None:
        scope = self.program.scope_of(node) if isinstance(node, ast.Name) else None
        return (scope, node.id) if scope and isinstance(node, ast.Name) else None

    def _argument(self, call: ast.Call, function: Any, name: str) -> ast.expr | None:
        """The expression passed for a parameter of a contract class or method, if it is passed plainly."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        index = [item for item in inspect.signature(function).parameters if item != "self"].index(name)
        plain = call.args[: index + 1]
        return plain[index] if len(plain) > index and not any(isinstance(a, ast.Starred) for a in plain) else None

    # Workflows

    def _workflow_findings(self) -> Iterator[Finding]:
        flows = {name for name in self.mentioned if _is_class(CONTRACT[name], FLOWS)}
        nodes = {name for name in self.mentioned if _is_class(CONTRACT[name], (WorkflowNode,))}
        fix = "build agents with AgentNode(...) and put them in a workflow = Workflow(...) with workflow.add_node(...)"
        if not nodes:
            message = "the program builds no workflow: it uses no node of the contract (from workflow import ...)"
            yield Finding(line=0, code="no-workflow", message=message, fix=fix)
        elif not flows:
            message = "the program builds nodes but no workflow; only the last node it defines will be run"
            yield Finding(line=0, code="no-workflow", message=message, fix=fix, severity="warning")
        for variable, call, kind in self.built:
            scope, name = variable
            of_contract = self.program.value(call.func) is kind and issubclass(kind, FLOWS)
            if not of_contract or scope.bindings[name] != [call]:
                continue
            if all(self._leaves_empty(load, kind) for load in self.loads.get(variable, [])):
                message = f"{kind.__name__} {name!r} has no nodes: nothing is ever added to it"
                fix = f"add: {name}.add_node(...)"
                yield Finding(line=call.lineno, code="empty-workflow", message=message, fix=fix)

    def _leaves_empty(self, load: ast.Name, kind: type) -> bool:
        """Whether this use is a method call that adds nothing."""
        attribute = self.program.parents[load]
        call = self.program.parents.get(attribute)
        if not isinstance(attribute, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not attribute:
            return False
        # An unknown method, such as a misspelt add_node, is reported as such.
        return hasattr(kind, attribute.attr) and not attribute.attr.startswith("add")

    # Nodes that nothing uses

    def _unused_findings(self) -> Iterator[Finding]:
        last = [variable for variable, _, _ in self.built if variable[0] is self.program.module][-1:]
        flows = any(_is_class(CONTRACT[name], FLOWS) for name in self.mentioned)
        for variable, _, kind in self.built:
            if issubclass(kind, FLOWS) or (not flows and variable in last):
                self._live[variable] = True
        for variable, call, kind in self.built:
            if not self._is_live(variable):
                yield self._unused(call, kind, f" (variable {variable[1]})", f"workflow.add_node({variable[1]})")
        for call in self.calls:
            kind = self.program.builds(call)
            if kind and not issubclass(kind, FLOWS) and isinstance(self.program.parents[call], ast.Expr):
                yield self._unused(call, kind, "", "workflow.add_node(...)")

    def _unused(self, call: ast.Call, kind: type, variable: str, remedy: str) -> Finding:
        name = self.program.given_name(call)
        what = (f"{kind.__name__} {name!r}" if isinstance(name, str) else kind.__name__) + variable
        message = f"{what} is built but never used: it is part of no workflow and of no other node"
        fix = f"add it with {remedy}, pass it to another node, or delete it"
        return Finding(line=call.lineno, code="unreachable-node", message=message, fix=fix, severity="warning")

    def _is_live(self, variable: Variable) -> bool:
        """Whether what a variable holds may reach something that runs. Doubt counts as yes."""
        if variable not in self._live:
            self._live[variable] = False  # a cycle of variables keeps nothing alive
            self._live[variable] = any(self._keeps_alive(load) for load in self.loads.get(variable, []))
        return self._live[variable]

    def _keeps_alive(self, load: ast.Name) -> bool:
        node: ast.AST = load
        for parent in self.program.ancestors(load):
            if isinstance(parent, ast.Attribute):
                return parent.attr in dir(WorkflowNode) or not isinstance(self.program.value(node), WorkflowNode)
            if isinstance(parent, ast.Call):
                if node is parent.func or not self.program.builds(parent):
                    return True
            elif isinstance(parent, ast.Expr):
                return False
            elif isinstance(parent, ast.Assign | ast.AnnAssign) and (target := _target_of(parent)):
                variable = self._variable(target)
                return variable is None or variable[0].kind == "class" or self._is_live(variable)
            elif not isinstance(parent, _CONTAINERS):
                return True
            node = parent
        return True

    # Tools

    def _tool_findings(self, call: ast.Call) -> Iterator[Finding]:
        method = self.program.method(call.func)
        if method is None or method[1] is not ToolRegistry.register:
            return
        register = ToolRegistry.register
        function = self.program.value(self._argument(call, register, "func"))
        given = self._argument(call, register, "parameters")
        schema = self.program.value(given) if given else {}
        if not isinstance(function, Function) or not isinstance(schema, dict):
            return
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            return
        tool = self.program.value(self._argument(call, register, "name"))
        who = f"tool {tool!r}" if isinstance(tool, str) else "tool"
        accepted, needed, takes_any = _parameters(function)
        keys = [key for key in properties if isinstance(key, str)]
        if not keys:
            if needed:
                message = f"{who}: agents are not told the arguments {', '.join(map(repr, needed))}"
                shape = ", ".join(f'"{name}": {{"type": "string"}}' for name in needed)
                fix = f'pass parameters={{"type": "object", "properties": {{{shape}}}}}'
                line = (given or call).lineno
                yield Finding(line=line, code="tool-arguments", message=message, fix=fix, severity="warning")
            return
        line = given.lineno if given else call.lineno
        strange = [key for key in keys if key not in accepted and not takes_any]
        for key in strange:
            hint = nearest(key, accepted) or next((name for name in needed if name not in keys), None)
            fix = f"did you mean {hint!r}?" if hint else f"add the parameter {key!r} to the function"
            message = f"{who}: its schema has {key!r}, but its function has no such parameter"
            yield Finding(line=line, code="tool-arguments", message=message, fix=fix)
        for name in needed:
            if name not in keys and not strange:
                message = f"{who}: its function needs {name!r}, which its schema does not have, so every call fails"
                fix = f"add {name!r} to the schema's properties, or give the parameter a default"
                yield Finding(line=line, code="tool-arguments", message=message, fix=fix)
        for name in required:
            if isinstance(name, str) and name not in keys:
                message = f"{who}: its schema requires {name!r}, which is not among its properties"
                fix = f"add {name!r} to the properties, or take it out of required"
                yield Finding(line=line, code="tool-arguments", message=message, fix=fix)

    def _turn_findings(self) -> Iterator[Finding]:
        filled = {
            variable
            for variable, loads in self.loads.items()
            for load in loads
            if isinstance(parent := self.program.parents[load], ast.Attribute) and parent.attr == "register"
        }
        for call in self.calls:
            if self.program.value(call.func) is not AgentNode:
                continue
            registry = self._argument(call, AgentNode, "tool_registry")
            turns = self._argument(call, AgentNode, "max_turns")
            value = self.program.value(turns)
            if registry and turns and self._variable(registry) in filled and isinstance(value, int) and value == 1:
                name = self.program.given_name(call)
                who = f"AgentNode {name!r}" if isinstance(name, str) else "AgentNode"
                message = f"{who} has tools but max_turns=1, so that it never sees what a tool returned"
                fix = "write max_turns=5 or more, or leave out tool_registry"
                yield Finding(line=turns.lineno, code="tools-unused", message=message, fix=fix, severity="warning")

    # Prompts

    def _prompt_findings(self) -> Iterator[Finding]:
        texts = [(node.lineno, node.value) for node in ast.walk(self.program.tree) if isinstance(node, ast.Constant)]
        texts = [(line, text) for line, text in texts if isinstance(text, str)]
        garbled = [line for line, text in texts if "\boxed" in text]
        for line in garbled:
            message = r"a plain string turns \boxed into a backspace and 'oxed'"
            fix = r"write \\boxed, or put r before the string"
            yield Finding(line=line, code="bad-escape", message=message, fix=fix, severity="warning")
        agents = any(issubclass(kind, AgentNode) for call in self.calls if (kind := self.program.builds(call)))
        plays = any(isinstance(node, ast.Name) and node.id == "environment" for node in ast.walk(self.program.tree))
        if agents and not plays and not garbled and not any(mark in text for _, text in texts for mark in ANSWER_MARKS):
            message = r"no prompt asks for an answer format, so that no answer can be found in the replies"
            fix = (
                r"end the last agent's system_prompt with: Put the final answer in \\boxed{}. "
                "(for code: Put the program in <solution>...</solution>.)"
            )
            yield Finding(line=0, code="no-answer-format", message=message, fix=fix, severity="warning")


def _is_class(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, type) and issubclass(value, kinds)


def _target_of(statement: ast.AST) -> ast.Name | None:
    """The variable that a plain assignment of one name assigns."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:
        return None
    return target if isinstance(target, ast.Name) else None


def _parameters(function: Function) -> tuple[list[str], list[str], bool]:
    """Names that a function accepts by keyword, those that it needs, and whether it takes any."""
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    needed = positional[: len(positional) - len(arguments.defaults)]
    needed += [
        item for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    ]
    accepted = [item.arg for item in (*arguments.args, *arguments.kwonlyargs)]
    return accepted, [item.arg for item in needed], arguments.kwarg is not None
