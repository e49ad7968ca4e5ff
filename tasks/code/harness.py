"""The program that holds the solution inside a jail when code is graded, and the wire to it.

`serve_candidate` holds the solution under test and performs calls; `serve_checker`, in `tasks.code.remote`, holds the
tests and reaches the solution only through proxies. Their text is sent into the jails by `tasks.code.asserts` and
`tasks.code.code_grader`, so this file imports nothing but the standard library.

The candidate's process is wholly untrusted, this file's functions in it included:
nothing here protects a grade. What does is that tests and expected values never enter it, and that what leaves it is
plain JSON, compared elsewhere.

The wire: None, bool, int, float, str and lists are themselves in JSON; every other value is an object with one key,
its tag: `{"tuple": [...]}`. Instances of subclasses travel as their builtin base. A value with no such form stays
where it is and travels as `{"ref": [number, type name]}`.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import operator
import os
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

BIG_INT = 10_000
"""Integers of more bits travel in hexadecimal, as Python limits the length of decimal ones."""


OPERATIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "str": str,
    "repr": repr,
    "next": next,
    "enter": lambda value: type(value).__enter__(value),
    "exit": lambda value: type(value).__exit__(value, None, None, None),
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "neg": operator.neg,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
}
"""What tests may have done to objects of the candidate, by name."""


class Held:
    """Base of what stands in the tests for an object of the candidate's (`tasks.code.remote.Remote`)."""


class Opaque(TypeError):
    """A value that cannot leave its process."""


class Ungradable(Opaque):
    """A test does what cannot be done outside of the solution's process: a limit of the grader, not a wrong answer."""


def encode(value: Any, keep: Callable[[Any], int] | None = None) -> Any:
    """Wire form of `value`. `keep` stores a value that has none and returns its number; without it, raises `Opaque`."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        value = int.__pos__(value)
        return {"int": hex(value)} if value.bit_length() > BIG_INT else value
    if isinstance(value, float):
        value = float.__pos__(value)
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        return [encode(item, keep) for item in list.__iter__(value)]
    if isinstance(value, dict):
        return {"dict": [[encode(key, keep), encode(item, keep)] for key, item in dict.items(value)]}
    if isinstance(value, tuple) and isinstance(fields := getattr(type(value), "_fields", None), tuple):
        return {"named": [type(value).__name__, list(fields), [encode(item, keep) for item in tuple.__iter__(value)]]}
    for tag, kind in (("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, kind):
            items: Any = kind.__iter__
            return {tag: [encode(item, keep) for item in items(value)]}
    for tag, kind in (("bytes", bytes), ("bytearray", bytearray)):
        if isinstance(value, kind):
            return {tag: bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    for tag, kind in (("Decimal", Decimal), ("Fraction", Fraction)):
        if isinstance(value, kind):
            return {tag: str(value)}
    if type(value) is type and getattr(builtins, value.__name__, None) is value:
        return {"type": value.__name__}
    if isinstance(value, Held):
        return {"ref": [object.__getattribute__(value, "_number"), "Remote"]}
    if keep is None:
        raise Ungradable(f"a {type(value).__name__} cannot be handed from one process to another")
    return {"ref": [keep(value), type(value).__name__]}


def decode(wire: Any, find: Callable[[int, str], Any]) -> Any:
    """The value of a wire form; `find(number, type name)` supplies what a reference stands for.

    Raises ValueError, TypeError, KeyError or ArithmeticError on a malformed form, RecursionError on a deep one.
    """
    if isinstance(wire, list):
        return [decode(item, find) for item in wire]
    if not isinstance(wire, dict):
        return wire
    ((tag, content),) = wire.items()
    if tag == "dict":
        return {decode(key, find): decode(item, find) for key, item in content}
    if tag == "named":
        name, fields, items = content
        return namedtuple(name, fields)(*(decode(item, find) for item in items))  # pyright: ignore
    if tag == "ref":
        return find(*content)
    if tag == "int":
        return int(content, 16)
    if tag == "complex":
        return complex(*(float(part) for part in content))
    if tag in ("bytes", "bytearray"):
        return {"bytes": bytes, "bytearray": bytearray}[tag].fromhex(content)
    if tag == "type":
        return {kind.__name__: kind for kind in vars(builtins).values() if isinstance(kind, type)}[content]
    if tag in ("float", "Decimal", "Fraction"):
        return {"float": float, "Decimal": Decimal, "Fraction": Fraction}[tag](content)
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[tag](decode(item, find) for item in content)


class Channel:
    """JSON lines on private copies of fds 0 and 1; what other code then prints goes to stderr, and stdin is empty."""

    def __init__(self) -> None:
        self._in = os.fdopen(os.dup(0), "r", encoding="ascii", newline="\n")
        self._out = os.fdopen(os.dup(1), "w", encoding="ascii", newline="\n")
        empty, closed = os.pipe()
        os.close(closed)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)

    def receive(self) -> dict[str, Any] | None:
        line = self._in.readline()
        return json.loads(line) if line else None

    def send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()


# ---- the candidate's side


def serve_candidate() -> None:
    """Perform requests until there are no more. Each reply repeats the request's nonce."""
    channel = Channel()
    kept: list[Any] = []
    module = types.ModuleType("solution")
    sys.modules["solution"] = module

    numbers: dict[int, int] = {}

    def keep(value: Any) -> int:
        if id(value) not in numbers:
            kept.append(value)
            numbers[id(value)] = len(kept) - 1
        return numbers[id(value)]

    def perform(request: dict[str, Any], reply: dict[str, Any]) -> Any:
        if request["do"] == "load":
            return load(module, request["prompt"], request["solution"], request["names"])
        if request["do"] == "find":
            return resolve(module, request["name"])
        target = kept[request["ref"]]
        values = decode(request["values"], lambda number, _: kept[number])
        if request["do"] == "call":
            sent = encode(values, keep) if request.get("after") else None
            result = target(*values[0], **values[1])
            if sent is not None and result is None and (left := encode(values, keep)) != sent:
                reply["after"] = left
            return result
        if request["do"] == "operate":
            return OPERATIONS[request["name"]](target, *values)
        if request["do"] == "set":
            return setattr(target, request["name"], *values)
        return getattr(target, request["name"]) if request["do"] == "get" else list(target)

    while (request := channel.receive()) is not None:
        reply: dict[str, Any] = {}
        try:
            reply["value"] = encode(perform(request, reply), keep)
        except BaseException as error:  # SystemExit too: whatever ends a call is told, and judged outside
            reply = {"raised": [type(error).__name__, str(error)[:500]]}
        channel.send({"nonce": request["nonce"], **reply})
    os._exit(0)  # threads that the solution left behind do not hold up the end


def load(module: types.ModuleType, prompt: str, solution: str, names: list[str]) -> None:
    """Run `prompt`, then `solution`, in `module`; a solution that does not define `names` continues the prompt."""
    whole = not prompt or names_bound(solution).issuperset(names)
    for source in [prompt, solution] if whole else [prompt + solution]:
        exec(compile(source, "<solution>", "exec"), module.__dict__)


def names_bound(source: str) -> set[str]:
    """Functions and classes defined, and names assigned, at the top level of `source`; empty if it does not parse."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return set()
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return defined | {target.id for target in targets if isinstance(target, ast.Name)}


def resolve(module: types.ModuleType, name: str) -> Any:
    """What the solution calls `name`: at its top level, or a method of its class `Solution`."""
    if hasattr(module, name):
        return getattr(module, name)
    if hasattr(module, "Solution") and hasattr(module.Solution, name):
        return getattr(module.Solution(), name)
    raise NameError(f"the solution does not define {name}")
