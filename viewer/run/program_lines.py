"""On which lines of a program its nodes are built, and which of them belong to an agent of a run.

Reads the text of a program that nobody trusts: it is parsed, never run. A name that only running the program would
tell is not guessed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import workflow

MOST_CHARACTERS = 200_000
NODE_CLASSES = frozenset(
    {
        *("WorkflowNode", "AgentNode", "EnsembleNode", "DebateNode", "ReflectionNode", "RouterNode"),
        *("Workflow", "ConditionalWorkflow", "LoopWorkflow", "AgentGraph"),
    }
)
assert frozenset(workflow.__all__) >= NODE_CLASSES

Pieces = tuple[str, ...]
"""Of a name: the fixed texts around what an f-string fills in. A fixed name has one."""


@dataclass(frozen=True, slots=True)
class Built:
    """A call of a node's class."""

    line: int
    kind: str
    name: Pieces = ()
    """Empty where only running the program would tell."""


@dataclass(frozen=True, slots=True)
class ProgramLines:
    built: tuple[Built, ...] = ()
    texts: tuple[tuple[int, str], ...] = ()
    """Lines and values of all short texts in the program."""
    problem: str = ""
    """Why the program could not be read."""

    @property
    def lines(self) -> frozenset[int]:
        """On which a node is built."""
        return frozenset(built.line for built in self.built)

    def of(self, agent: str) -> list[int]:
        """Where the node of this name is built; else where its name stands."""
        exact = [built.line for built in self.built if built.name == (agent,)]
        made = exact or [built.line for built in self.built if len(built.name) > 1 and fits(agent, built.name)]
        return sorted(set(made or [line for line, text in self.texts if text == agent]))


def fits(name: str, pieces: Pieces) -> bool:
    """Whether a name can come of an f-string with these fixed texts."""
    first, *middle, last = pieces
    if not name.startswith(first) or not name[len(first) :].endswith(last):
        return False
    rest = name[len(first) : len(name) - len(last)]
    for piece in filter(None, middle):
        _, found, rest = rest.partition(piece)
        if not found:
            return False
    return any(piece for piece in pieces)  # a name of nothing fixed fits all


def program_lines(source: str) -> ProgramLines:
    """Never raises: a program that cannot be read has no lines, and says why."""
    if len(source) > MOST_CHARACTERS:
        return ProgramLines(problem=f"the program has more than {MOST_CHARACTERS:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return ProgramLines(problem=f"{type(error).__name__}: {error}")
    classes = _classes(nodes)
    constants = _constants(nodes)
    built: list[Built] = []
    texts: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Call) and (kind := classes.get(_called(node.func))):
            built.append(Built(node.lineno, kind, _name(node, constants)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 200:
            texts.append((node.lineno, node.value))
    return ProgramLines(tuple(sorted(built, key=lambda each: each.line)), tuple(texts))


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _classes(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """The names under which the program has classes of nodes, its own ones included, and what to call these."""
    known = {name: name for name in NODE_CLASSES}
    own = [node for node in nodes if isinstance(node, ast.ClassDef)]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            known |= {each.asname: each.name for each in node.names if each.asname and each.name in NODE_CLASSES}
    for _ in range(4):  # a class of a class of a class
        known |= {node.name: node.name for node in own if any(_called(base) in known for base in node.bases)}
    return known


def _constants(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Variables that are given one text and nothing else."""
    given: dict[str, list[ast.expr | None]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    given.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            given.setdefault(node.id, [])
        elif isinstance(node, ast.arg):
            given.setdefault(node.arg, []).append(None)
    found: dict[str, str] = {}
    for name, values in given.items():
        if len(values) == 1 and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
            found[name] = values[0].value
    return found


def _name(call: ast.Call, constants: dict[str, str]) -> Pieces:
    given = next((word.value for word in call.keywords if word.arg == "name"), call.args[0] if call.args else None)
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        return (given.value,)
    if isinstance(given, ast.Name) and given.id in constants:
        return (constants[given.id],)
    if isinstance(given, ast.JoinedStr):
        pieces = [""]
        for value in given.values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                pieces[-1] += value.value
            elif isinstance(value, ast.FormattedValue):
                pieces.append("")
        return tuple(pieces)
    return ()
