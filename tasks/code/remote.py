"""The program that holds the tests inside a jail when assertions are graded: it reaches the solution through proxies.

Its text is sent into the jail behind that of `tasks.code.harness`, without the imports above the mark: it uses nothing
but what that file holds or imports itself.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from tasks.code.harness import Channel, Held, Opaque, Ungradable, decode, encode

# ---- the checker's side


class CandidateError(Exception):
    """The solution raised something that is no builtin exception."""


class Exhausted(CandidateError):
    """The solution raised StopIteration."""


class Remote(Held):
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
