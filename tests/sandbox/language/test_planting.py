# ruff: noqa: E501  (lists of pieces of programs)
"""The old code that the planting attacks beat, and that they beat nothing now.

`Old` holds the pieces as they were: a tool that was a pydantic model, the rule that let its methods be read, and the
library's own copying. Put back, they let the attacks through; so the attacks are sound.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import signal
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_helper import run
from pydantic import BaseModel, ConfigDict
from test_policy_attacks import attack, forbidden

import workflow.tools
from sandbox.conformance.attacks import planting
from sandbox.language import access
from sandbox.language.classes import is_program_object
from sandbox.language.stdlib import copying, data_classes

ATTACKS = {each.id: each for each in planting.ATTACKS}
CHAIN = ("planted key", "an object's own word", "any attribute of any object")
BEATEN_BY_NOTHING = {
    "program: planted key: asdict of a default dict",  # the library's function raises before it copies
    "program: planted key: astuple of a default dict",
    "program: any attribute of any object: the contract's message",  # a model then; its class has slots today
    "program: any attribute of any object: the contract's context",
}


class OldTool(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    __module__ = "workflow.tools"

    name: str
    func: Callable[..., Any]
    description: str = ""
    parameters: dict[str, Any] = {}

    def __init__(self, name: str, func: Any, description: str, parameters: dict[str, Any]) -> None:
        super().__init__(name=name, func=func, description=description, parameters=parameters)


WRITTEN_ON = (workflow.Message, workflow.AgentNode, workflow.Workflow, workflow.Context, workflow.ToolRegistry)


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    readable = access._is_readable

    def with_models(cls: type, mro: tuple[type, ...], on_class: bool, name: str) -> bool:
        return (issubclass(cls, BaseModel) and name == "model_copy") or readable(cls, mro, on_class, name)

    monkeypatch.setattr(workflow.tools, "Tool", OldTool)
    monkeypatch.setattr(access, "_is_readable", with_models)
    monkeypatch.setattr(access, "_is_readable_always", lambda cls, on, name: with_models(cls, cls.__mro__, on, name))
    monkeypatch.setattr(copying, "deep_copy", copy.deepcopy)
    monkeypatch.setattr(copying, "shallow_copy", copy.copy)
    for name in ("asdict", "astuple", "fields"):
        monkeypatch.setattr(data_classes, name, getattr(dataclasses, name))
    before = {cls: dict(vars(cls)) for cls in WRITTEN_ON}
    yield
    for cls, names in before.items():
        for name, value in dict(vars(cls)).items():
            if name not in names:
                delattr(cls, name)
            elif names[name] is not value:
                setattr(cls, name, names[name])


@pytest.mark.parametrize("name", [name for name, each in ATTACKS.items() if each.family in CHAIN])
def test_the_attack_beats_the_old_code(name: str, old: None) -> None:
    kept, _, _ = attack(ATTACKS[name].source, plain=False)
    assert kept or name in BEATEN_BY_NOTHING


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_gets_nothing_now(name: str) -> None:
    kept, outcome, _ = attack(ATTACKS[name].source, plain=False)
    assert kept == []
    assert outcome.refused


# Chains of reach, plant and trigger, out of everything that programs can import.

REACH = [
    "X()", "D()", "Pair(1, 2)", "E('x')", "L([1])", "M(a=1)", "S('x')", "N(1)", "C.RED", "agent", "message", "context",
    "registry", "registry.get_tool('t')", "steps", "steps.__class__", "print", "copy.deepcopy", "json.dumps",
    "json.JSONDecoder()", "json.JSONEncoder()", "functools.partial(len)", "cached", "random.Random(1)", "re.compile('a')",
    "re.match('a', 'a')", "dataclasses.fields(D)[0]", "Decimal(1)", "decimal.getcontext()", "Fraction(1, 2)", "caught",
    "collections.Counter(a=1)", "collections.ChainMap({})", "collections.deque([1])", "datetime.datetime.now()", "(n for n in [1])",
    "iter([1])", "len", "[].append", "int", "type", "Message", "Workflow", "question", "sys.stdout", "sys", "list[int]",
    "subprocess.run", "subprocess.CompletedProcess(['x'], 0)", "typing.Any", "itertools.repeat(1, 2)", "operator.itemgetter(0)",
    "statistics.NormalDist()", "enum.auto()", "X().method", "super(X, X())", "property(len)", "staticmethod(len)", "range(3)",
]  # fmt: skip
KEYS = [
    "__deepcopy__", "__copy__", "__reduce_ex__", "__reduce__", "__class__", "__dict__", "__getstate__", "__setstate__",
    "__dataclass_fields__", "__wrapped__", "__globals__", "__code__", "__func__", "__self__", "__pydantic_fields__",
    "_tools", "_fill", "_decoder", "func", "name", "content", "steps", "process", "default", "args", "obj", "maps", "key",
]  # fmt: skip
PLANT = [
    "setattr(x, {key!r}, hook)", "x.{public} = hook", "x[{key!r}] = hook", "x.update({{{key!r}: hook}})",
    "x = dataclasses.replace(x, **{{{key!r}: hook}})", "x = type(x)(**{{{key!r}: hook}})", "x.__init__(**{{{key!r}: hook}})",
    "x = functools.partial(x, **{{{key!r}: hook}})", "x = holding(x, {key!r})", "x.keywords[{key!r}] = hook",
    "x.add_note({key!r})", "x.metadata[{key!r}] = hook", "x.state[{key!r}] = hook", "x.config[{key!r}] = hook",
    "x = x.model_copy(update={{{key!r}: hook}})", "x = collections.namedtuple('T', [{key!r}])(hook)", "delattr(x, {key!r})",
    "x = x({key!r})", "x = [x]", "x = {{'k': x}}", "x = D(x)", "x.register({key!r}, hook)", "x.send(hook)", "x += x",
    "x = getattr(x, {key!r})", "x = x.{public}", "pass",
]  # fmt: skip
TRIGGER = [
    "copy.copy(x)", "copy.deepcopy(x)", "copy.deepcopy([x, {{'a': x}}])", "dataclasses.asdict(x)", "dataclasses.astuple(x)",
    "dataclasses.fields(x)", "dataclasses.is_dataclass(x)", "dataclasses.replace(x)", "json.dumps(x)",
    "json.dumps([x], default=hook)", "json.dumps(x, cls=x)", "json.loads('[1]', object_hook=x)", "json.loads(x)", "repr(x)",
    "str(x)", "format(x)", "'%s' % (x,)", "hash(x)", "sorted([x, x])", "isinstance(x, x)", "issubclass(x, X)", "iter(x)",
    "functools.lru_cache(x)", "functools.cache(x)()", "functools.wraps(x)(hook)", "functools.total_ordering(x)",
    "functools.reduce(x, [1, 2])", "statistics.mean([x, x])", "Fraction(x)", "Decimal(x)", "math.floor(x)", "int(x)",
    "random.choice(x)", "random.Random(x)", "re.sub('a', x, 'a')", "re.compile(x)", "textwrap.wrap(x)", "string.capwords(x)",
    "heapq.merge(x, x)", "collections.Counter(x)", "collections.ChainMap(x)['a']", "Message(x)", "AgentNode(x, x)",
    "Workflow('w').add_node(x)", "Context(state=x)", "registry.register('u', x)", "registry.call_tool('t', x)", "next(x)",
    "x(hook)", "x()", "x.run('q')", "type('', (x,), {{}})", "class_of(x)", "enum.unique(x)", "subprocess.run(x)", "print(x)",
    "typing.cast(x, x)", "datetime.datetime.strptime(x, x)", "operator.itemgetter(x)(x)", "list(itertools.chain(x, x))", "abs(x)",
]  # fmt: skip
PRELUDE = """
import collections, copy, dataclasses, datetime, decimal, enum, functools, heapq, itertools, json, math, operator, random
import re, statistics, string, subprocess, sys, textwrap, typing
from decimal import Decimal
from fractions import Fraction
from workflow import AgentNode, Context, Message, ToolRegistry, Workflow
class X:
    def method(self): return self
@dataclasses.dataclass
class D:
    a: object = None
class E(AttributeError): pass
class L(list): pass
class M(dict): pass
class S(str): pass
class N(int): pass
class C(enum.Enum):
    RED = 1
Pair = collections.namedtuple("Pair", "a b")
agent, message, context, registry = AgentNode("a", "b"), Message("x"), Context.for_question("q"), ToolRegistry()
registry.register("t", lambda: 0)
steps = agent.steps(context)
@functools.cache
def cached(n=0): return n
try:
    None.x
except AttributeError as error:
    caught = error
def class_of(x): return x.__class__
def hook(*given, **named):
    keep(*given, *named.values())
    return 1
def holding(part, key):
    x = X()
    setattr(x, key, part)
    return x
"""


@st.composite
def chains(draw: st.DrawFn) -> str:
    lines = [f"x = {draw(st.sampled_from(REACH))}"]
    for _ in range(draw(st.integers(1, 4))):
        key = draw(st.sampled_from(KEYS))
        lines.append(draw(st.sampled_from(PLANT)).format(key=key, public=key.strip("_") or "a"))
        if draw(st.booleans()):
            lines.append(f"x = {draw(st.sampled_from(TRIGGER)).format()}")
    lines.append(f"x = {draw(st.sampled_from(TRIGGER)).format()}\nkeep(x)")
    return PRELUDE + "".join(
        f"try:\n    {line}\nexcept Exception as error:\n    x = x\n" for line in "\n".join(lines).split("\n")
    )


class TooLong(BaseException):
    """Not an Exception: the programs catch those."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """A program that does not end is a matter of the jail's clocks; here nothing else would stop it."""

    def stop(*_: object) -> None:
        raise TooLong

    handler = signal.signal(signal.SIGALRM, stop)
    before = signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler)


@pytest.mark.thorough
@settings(max_examples=400, deadline=None)
@given(chains())
def test_no_chain_of_reach_plant_and_trigger_gets_anything_forbidden(source: str) -> None:
    before = {
        cls: dict(vars(cls)) for cls in (workflow.Message, workflow.AgentNode, workflow.Workflow, workflow.Context)
    }
    with within(5):
        kept, _, loot = attack(source, plain=False)
    assert loot == []
    for value in kept:
        ours = is_program_object(value) or isinstance(value, WRITTEN_ON)
        held = vars(value) if ours and hasattr(value, "__dict__") and not isinstance(value, Enum) else {}
        assert not any(name.startswith("__") and name.endswith("__") and name != "__notes__" for name in held), held
        assert not any(map(forbidden, held.values()))
    for cls, names in before.items():
        assert dict(vars(cls)) == names, f"{cls} was changed"


def test_most_chains_run() -> None:
    """Else they would prove nothing: what is refused before it runs reaches no library."""
    for reach in REACH:
        outcome = run(
            "def keep(*loot): pass\n" + PRELUDE + f"try:\n    x = {reach}\nexcept TypeError as e:\n    pass\n"
        )
        assert not outcome.findings, (reach, outcome.reason)
