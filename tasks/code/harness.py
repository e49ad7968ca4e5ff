"""The two programs that run inside jails when code is graded, and the wire between them.

`serve_candidate` holds the solution under test and performs calls; `serve_checker` holds the tests and reaches the
solution only through proxies. Their text is sent into the jails by `tasks.code.code_grader`, so this file imports
nothing but the standard library. The candidate's process is wholly untrusted, this file's functions in it included:
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
    if isinstance(value, Remote):
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


# ---- the checker's side


class CandidateError(Exception):
    """The solution raised something that is no builtin exception."""


class Exhausted(CandidateError):
    """The solution raised StopIteration."""


class Remote:
    """Stands in the tests for an object that stays in the candidate's process.

    What an operation on it gives is data that the candidate must know, as with a call: its length, text, items and
    attributes. Two such objects are compared and added by the candidate, whose own both are. It is never told a value
    of the test to compare or compute with: `x == 5` and `abs(x - 0.5) < 1e-6` would be answered by a class that calls
    itself equal to all, or whose differences are 0. Nor does it have a truth value or a hash, and what it does at the
    end of a `with` swallows no failed assertion.
    """

    def __init__(self, number: int, kind: str, ask: Callable[[dict[str, Any]], Any]) -> None:
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_ask", ask)

    def _request(self, do: str, values: list[Any], name: str = "") -> Any:
        number = object.__getattribute__(self, "_number")
        request = {"do": do, "ref": number, "name": name, "values": encode(values)}
        return object.__getattribute__(self, "_ask")(request)

    def _operate(self, name: str, *values: Any) -> Any:
        return self._request("operate", list(values), name)

    def _with(self, name: str, other: object) -> Any:
        """What an operation with another object of the candidate's gives."""
        if type(other) is not Remote:
            raise Ungradable(f"{name} of a {self._kind} of the solution and a value of the test is left to no solution")
        return self._operate(name, other)

    def _compared(self, name: str, other: object) -> bool:
        if type(other) is not Remote:
            raise Opaque(f"the solution gave a {self._kind}, which cannot be compared outside its process")
        answer = self._operate(name, other)
        if type(answer) is not bool:
            raise Opaque(f"comparing a {self._kind} of the solution gave a {type(answer).__name__}, not a bool")
        return answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = [list(args), kwargs]
        number = object.__getattribute__(self, "_number")
        request = {"do": "call", "ref": number, "name": "", "values": encode(values)}
        return object.__getattribute__(self, "_ask")(request, values if number in NAMED else None)

    def __iter__(self) -> Any:
        return iter(self._request("list", []))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._request("get", [], name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._request("set", [value], name)

    def __len__(self) -> int:
        return self._operate("len")

    def __str__(self) -> str:
        return self._operate("str")

    def __repr__(self) -> str:
        return self._operate("repr")

    def __next__(self) -> Any:
        try:
            return self._operate("next")
        except Exhausted:
            raise StopIteration from None

    def __enter__(self) -> Any:
        return self._operate("enter")

    def __exit__(self, kind: object, *error: object) -> bool:
        if kind is None:
            self._operate("exit")
        return False

    def __getitem__(self, key: Any) -> Any:
        return self._operate("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._operate("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._operate("delitem", key)

    def __neg__(self) -> Any:
        return self._operate("neg")

    def __add__(self, other: object) -> Any:
        return self._with("add", other)

    def __sub__(self, other: object) -> Any:
        return self._with("sub", other)

    def __mul__(self, other: object) -> Any:
        return self._with("mul", other)

    def __truediv__(self, other: object) -> Any:
        return self._with("truediv", other)

    def _of_the_test(self, other: object) -> Any:
        return self._with("an operation", None)

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _of_the_test

    def __lt__(self, other: object) -> bool:
        return self._compared("lt", other)

    def __le__(self, other: object) -> bool:
        return self._compared("le", other)

    def __gt__(self, other: object) -> bool:
        return self._compared("gt", other)

    def __ge__(self, other: object) -> bool:
        return self._compared("ge", other)

    def __ne__(self, other: object) -> bool:
        return self._compared("ne", other)

    def __eq__(self, other: object) -> bool:
        return self._compared("eq", other)

    def __bool__(self) -> bool:
        raise Opaque(f"the solution gave a {self._kind}, which has no truth value outside its process")

    def __hash__(self) -> int:
        raise Opaque(f"the solution gave a {self._kind}, which cannot be hashed outside its process")


NAMED: set[int] = set()
"""Numbers of the functions that the tests name. Only these may change arguments: what a test hands to an object and
compares with later stays its own."""


def take_over(mine: Any, theirs: Any) -> Any:
    """`mine` changed in place to hold what `theirs` does, or `theirs` where it cannot."""
    if type(mine) is not type(theirs):
        return theirs
    if type(mine) is list:
        same = [take_over(a, b) for a, b in zip(mine, theirs, strict=False)]
        mine[:] = same + theirs[len(mine) :]
    elif type(mine) is dict:
        items = [(key, take_over(mine[key], value) if key in mine else value) for key, value in theirs.items()]
        mine.clear()
        mine.update(items)
    elif type(mine) is set:
        mine.clear()
        mine.update(theirs)
    elif type(mine) is bytearray:
        mine[:] = theirs
    elif type(mine) is tuple and len(mine) == len(theirs):
        return tuple(take_over(a, b) for a, b in zip(mine, theirs, strict=True))
    else:
        return theirs
    return mine


def serve_checker() -> None:
    """Run the tests of one job. Sends `{"ask": request}` to reach the solution, `{"test": outcome, "detail": ...}`
    after each test, and `{"done": true}` at the end."""
    channel = Channel()
    job = channel.receive() or {}
    raised: list[BaseException] = []

    def ask(request: dict[str, Any], changing: Any = None) -> Any:
        """The solution's answer. `changing` are the arguments of a call that may change them: a function that returns
        nothing works on its arguments, so that these take over what it made of them."""
        channel.send({"ask": request if changing is None else {**request, "after": True}})
        reply = channel.receive()
        if reply is None:
            os._exit(1)  # the host is gone
        if "raised" in reply:
            raised.append(rebuild_error(*reply["raised"]))
            raise raised[-1]

        def find(number: int, kind: str) -> Remote:
            return Remote(number, kind, ask)

        if changing is not None and reply["value"] is None and "after" in reply:
            take_over(changing, decode(reply["after"], find))
        return decode(reply["value"], find)

    module = types.ModuleType("tests")
    sys.modules["tests"] = module
    try:
        for name, target in job["names"].items():
            found = module.__dict__[name] = ask({"do": "find", "name": target})
            if type(found) is Remote:
                NAMED.add(object.__getattribute__(found, "_number"))
        exec(compile(job["setup"], "<setup>", "exec"), module.__dict__)
    except Exception as error:
        for _ in job["tests"]:
            channel.send({"test": "exception", "detail": f"in the setup: {describe(error)}"})
    else:
        for source in job["tests"]:
            try:
                exec(compile(source, "<test>", "exec"), module.__dict__)
            except Exception as error:
                wrong = isinstance(error, AssertionError) and not any(error is known for known in raised)
                outcome = "ungradable" if isinstance(error, Ungradable) else "wrong_answer" if wrong else "exception"
                channel.send({"test": outcome, "detail": describe(error)})
            else:
                channel.send({"test": "pass", "detail": ""})
    channel.send({"done": True})


def rebuild_error(kind: str, message: str) -> Exception:
    """The builtin exception of that name, where it is an ordinary one, else `CandidateError`."""
    if kind == "StopIteration":
        return Exhausted(f"{kind}: {message}")
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(message)
        except TypeError:  # some builtin exceptions need more than a message
            pass
    return CandidateError(f"{kind}: {message}")


def describe(error: BaseException) -> str:
    """Type and message, shortened, for a report."""
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except Exception:  # its words are an object of the solution's, which tells none
        return type(error).__name__
