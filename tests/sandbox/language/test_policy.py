"""The language of programs: what the policy restores means what it means in plain Python."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_helper import run, run_plain

from sandbox.language.compiler import MAX_SOURCE, compile_program
from sandbox.language.vocabulary import MARK

SAME = {
    "annotations": """
        from __future__ import annotations
        x: int = 1
        y: "not even Python"
        z: list[int] = [1, 2]
        def f(a: int, *rest: Nowhere, key: dict[str, Missing] | None = None) -> Elsewhere:
            total: int = a
            unset: int
            return total, rest, key
        class Point:
            kind: str = "point"
            side: int
            def __init__(self, a: int):
                self.a: int = a
        p = Point(3)
        box = {}
        box["k"]: int = 5
        print(x, z, f(1, 2, key={}), p.a, p.kind, box)
    """,
    "local annotation makes a local name": """
        x = 1
        def f():
            x: int
            try:
                return x
            except UnboundLocalError:
                return "unbound"
        print(f())
    """,
    "dataclass": """
        from dataclasses import KW_ONLY, InitVar, asdict, astuple, dataclass, field, fields, replace
        from typing import ClassVar, List, Optional
        @dataclass
        class Vote:
            who: str
            weight: float = 1.0
            tags: List[str] = field(default_factory=list)
            parent: Optional["Vote"] = None
            count: ClassVar[int] = 0
            doubled: InitVar[bool] = False
            _: KW_ONLY
            note: str = ""
            def __post_init__(self, doubled):
                if doubled:
                    self.weight *= 2
        a, b = Vote("ann", 2), Vote("bob", doubled=True, note="x")
        b.tags.append("t")
        print(a, b, a == Vote("ann", 2), asdict(b), astuple(a), [f.name for f in fields(a)])
        print(replace(a, who="cyd", doubled=False), Vote.count)
        @dataclass(frozen=True, order=True)
        class Pair:
            left: int
            right: int = 0
        print(sorted([Pair(2), Pair(1, 5)]), hash(Pair(1)) == hash(Pair(1)))
        try:
            a2 = Pair(1)
            a2.left = 5
        except AttributeError as error:
            print(type(error).__name__)
    """,
    "augmented assignment to items and attributes": """
        class Box:
            def __init__(self):
                self.n = 1
                self.items = [1]
        box, d = Box(), {"k": {"m": 2}, "l": [1, 2, 3]}
        box.n += 1; box.n -= 5; box.n *= -3; box.n **= 2; box.n //= 4; box.n %= 7; box.n |= 8; box.n ^= 3
        box.n &= 14; box.n <<= 2; box.n >>= 1
        box.items += [2]
        d["k"]["m"] += 40; d["l"][1:] += [9]; d["l"][0] /= 4
        alias = box.items
        box.items += (5,)
        print(box.n, box.items is alias, alias, d)
        Box.shared = 1
        Box.shared += 1
        print(Box.shared)
    """,
    "augmented assignment evaluates once and in order": """
        log = []
        class Box:
            total = 10
            def add(self):
                self.total += 100
                return 1
        box, row = Box(), [0, 0]
        def thing(): log.append("thing"); return row
        def key(): log.append("key"); return 1
        def value(): log.append("value"); row[1] = 50; return 5
        thing()[key()] += value()
        box.total += box.add()
        row[0] += (n := 4)
        def gen():
            row[0] += yield 1
        g = gen(); next(g)
        try:
            g.send(10)
        except StopIteration:
            pass
        print(log, row, box.total, n)
    """,
    "errors of augmented assignment": """
        for attempt in (lambda: None, 1):
            try:
                d = {}
                d["missing"] += 1
            except KeyError as error:
                print(error)
        class A: pass
        try:
            A().x += 1
        except AttributeError:
            print("no x")
    """,
    "main": """
        def main():
            print("ran")
        if __name__ == "__main__":
            main()
    """,
    "super": """
        class A:
            kind = "a"
            def __init__(self, x, **rest): self.x, self.rest = x, rest
            def who(self): return "A"
            @classmethod
            def make(cls): return cls(1)
            def __repr__(self): return f"A({self.x})"
            def __eq__(self, other): return self.x == other.x
        class B(A):
            def __init__(self, x, *args, **rest):
                super().__init__(x + 1, *args, **rest)
            def who(self): return super().who() + "B"
            @classmethod
            def make(cls): return super().make().x
            def __repr__(self): return "B:" + super().__repr__()
            def kinds(self): return super().kind, super(B, self).kind, [super(B, self).kind for _ in "x"]
        class C(A):
            def __init__(self): A.__init__(self, 9, a=1)
        print(B(1, a=3), B(1).who(), B.make(), B(1).rest, B(2).kinds(), C().x, C().rest)
        class E(Exception):
            def __init__(self, message, code):
                super().__init__(message)
                self.code = code
        try:
            raise E("bad", 3)
        except E as error:
            print(error, error.code, error.args)
    """,
    "nonlocal and global": """
        total = 0
        def counter():
            n = 0
            def step(by=1):
                nonlocal n
                global total
                n += by
                total += by
                return n
            return step
        one, two = counter(), counter()
        print(one(), one(5), two(), total)
    """,
    "private names": """
        _limit = 3
        def _helper(_x, *_rest, _key=1, **_more): return _x, _rest, _key, _more
        class Box:
            _shared = 7
            def __init__(self): self._items = []
            def _push(self, x): self._items.append(x); return self
            def push(self, x): return self._push(x)
        box = Box().push(1)
        box._items += [2]
        setattr(box, "_extra", 5)
        setattr(box, "_gone", 5)
        del box._gone
        _a, (_b, *_c) = 1, (2, 3, 4)
        for _i, _ in enumerate("ab"): pass
        try: 1 / 0
        except ZeroDivisionError as _error: print(_error)
        print(_helper(1, 2, _key=3), _helper(4, **{"_key": 5}), _limit, Box._shared, box._items, getattr(box, "_items"))
        print(hasattr(box, "_extra"), hasattr(box, "_push"), _a, _b, _c)
        print(_i, dict(_id=1, **{"_z": 2}), [_q for _q in "a"])
        print("{_a}".format(_a=1), (lambda _v: _v + 1)(1), (_w := 3))
    """,
    "class-private names": """
        class Account:
            __count = 0
            def __init__(self, owner):
                self.__owner = owner
                self.__items: list = []
                Account.__count += 1
            def __check(self, __x=1): return (self.__owner, __x)
            def check(self): return self.__check(2), [self.__owner for __ in range(2)]
            def count(self): return Account.__count
        class Savings(Account):
            def __init__(self):
                super().__init__("base")
                self.__owner = "derived"
            def both(self): return self.__owner, self._Account__owner, getattr(self, "_Savings__owner")
        a, s = Account("ann"), Savings()
        for __ in range(2): pass
        __ignored = 1
        print(a.check(), a.count(), s.both(), s.check(), hasattr(a, "__owner"), __ignored)
        try: a.__owner
        except AttributeError: print("private")
    """,
    "try, with, raise": """
        class Guard:
            def __enter__(self): print("in"); return (1, (2, 3))
            def __exit__(self, kind, error, trace): print("out", kind and kind.__name__, error); return kind is KeyError
        with Guard() as (a, (b, c)), Guard():
            print(a, b, c)
            raise KeyError("k")
        def f():
            try: return int("x")
            except (TypeError, ValueError) as error:
                try: raise RuntimeError("worse") from error
                except RuntimeError as inner: return str(inner)
                else: return 0
            finally: print("finally")
        print(f())
    """,
    "functions": """
        from functools import lru_cache, partial, reduce, wraps
        def twice(function):
            @wraps(function)
            def inner(*args, **kwargs):
                "inner doc"
                return function(*args, **kwargs), function(*args, **kwargs)
            return inner
        @twice
        def area(a, b=2, /, *c, d: int = 4, **e):
            "area doc"
            return a * b, c, d, e
        print(area(1), area(1, 3, 5, d=6, f=7), area(*[1, 2, 3], **{"d": 1, "z": 2}), area.__name__, area.__doc__)
        @lru_cache(maxsize=None)
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        print(fib(60), fib.cache_info().hits > 0, partial(pow, 2)(5), reduce(lambda a, b: a * b, [1, 2, 3]))
        def gen(n):
            got = yield n
            yield from range(got or n)
            return "end"
        g = gen(2)
        print(next(g), g.send(3), list(g), sum(x * x for x in gen(2)))
        print((lambda *a, k=1, **kw: (a, k, kw))(1, 2, k=3, z=4))
    """,
    "expressions": """
        rows = [(1, ("a", 2.5)), (2, ("b", 3.5))]
        print([n + v for n, (s, v) in rows if n], {s: n for n, (s, _) in rows}, {n % 2 for n, _ in rows})
        a, *b, c = range(5); [d, e] = "xy"; x = y, z = 1, 2; m = n = []
        print(a, b, c, d, e, x, y, z, m is n)
        s = "abcdef"
        print(s[1:4], s[::-2], s[-1], [1, 2, 3][slice(0, 2)], {**{"a": 1}, "b": 2}, [*b, 9], (*"hi",))
        print(f"{a!r:>4}|{3.14159:.{a + 2}f}|{s=}|{{}}", 1 < 2 < 3, not a, 7 // 2, -7 % 3, 2 ** 10, ~5, 5 ^ 3)
        print("yes" if a else "no", a or "or", b and "and", 3 in b, "%s-%03d" % ("x", 7), "%(k)s" % {"k": 1})
        if (n := len(s)) > 3: print(n)
        while n: 
            n -= 1
            if n == 3: continue
            if n == 1: break
        else: print("never")
        del s, rows[0], m[:]
        print(rows, 0x1F, 1e3, 2j, b"by", ..., None, True)
    """,
    "special methods": """
        class Vec:
            def __init__(self, *xs): self.xs = xs
            def __repr__(self): return f"Vec{self.xs}"
            __str__ = __repr__
            def __add__(self, other): return Vec(*[a + b for a, b in zip(self.xs, other.xs)])
            def __radd__(self, other): return self
            def __iadd__(self, other): self.xs += other.xs; return self
            def __mul__(self, k): return Vec(*(x * k for x in self.xs))
            __rmul__ = __mul__
            def __neg__(self): return self * -1
            def __len__(self): return len(self.xs)
            def __getitem__(self, i): return self.xs[i]
            def __setitem__(self, i, v): self.xs = self.xs[:i] + (v,) + self.xs[i + 1:]
            def __delitem__(self, i): self[i] = 0
            def __iter__(self): return iter(self.xs)
            def __contains__(self, x): return x in self.xs
            def __call__(self, x): return x in self
            def __bool__(self): return bool(self.xs)
            def __hash__(self): return hash(self.xs)
            def __eq__(self, other): return isinstance(other, Vec) and self.xs == other.xs
            def __lt__(self, other): return self.xs < other.xs
        v = Vec(1, 2)
        v += Vec(3); v[0] += 9; del v[1]
        print(v, 2 * v, sum([v, Vec(1)]), len(v), v[0], 3 in v, v(3), -v, {v: 1}[v], sorted([v, Vec(0)]), bool(Vec()))
        print(*v, sep="|", end="!\\n")
    """,
    "classes": """
        from abc import ABC, abstractmethod
        from collections import namedtuple
        from enum import Enum, IntEnum, StrEnum, auto, unique
        from functools import total_ordering
        from typing import Generic, NamedTuple, TypeVar
        class Shape(ABC):
            @property
            @abstractmethod
            def area(self): ...
            @staticmethod
            def unit(): return "m2"
        class Square(Shape):
            def __init__(self, side): self._side = side
            @property
            def side(self): return self._side
            @side.setter
            def side(self, value): self._side = value
            @property
            def area(self): return self.side ** 2
        sq = Square(3); sq.side += 1
        print(sq.area, sq.unit(), isinstance(sq, Shape))
        try: Shape()
        except TypeError: print("abstract")
        @unique
        class Color(Enum):
            RED = 1
            BLUE = auto()
            def low(self): return self.name.lower()
        class Level(IntEnum):
            LOW = 1
            HIGH = 2
        class Word(StrEnum):
            YES = "yes"
            NO = auto()
        print(Color.RED, Color(2), Color["BLUE"].low(), list(Color))
        print(Color.RED is Color(1), Level.HIGH > 1, Word.NO + "!")
        P = namedtuple("P", "x y", defaults=[0]); p = P(1)
        class Q(NamedTuple):
            x: int
            y: int = 5
            def total(self): return self.x + self.y
        class R(namedtuple("R", ["a"])):
            def twice(self): return self.a * 2
        print(p, p.x, p._asdict(), p._replace(y=4), P._fields)
        print(P._make([7, 8]), Q(1).total(), Q(1)._replace(x=2), R(4).twice())
        T = TypeVar("T")
        class Stack(Generic[T]):
            def __init__(self): self.xs: list[T] = []
        print(Stack[int]().xs)
        @total_ordering
        class Age:
            def __init__(self, n): self.n = n
            def __eq__(self, o): return self.n == o.n
            def __lt__(self, o): return self.n < o.n
        print(Age(1) >= Age(0), max(Age(1), Age(3)).n)
        class Node:
            def __init__(self, v, nxt=None): self.v, self.next = v, nxt
        n = Node(1, Node(2)); n.next.v += 5
        print(n.next.v, n.__class__.__name__, type(n).__name__, type(n) is Node)
        print(Node.__name__, type(3) == int, type(None))
    """,
    "str.format": """
        print("{} {}".format(1, "a"), "{1}{0}".format(1, 2), "{x:>{w}}|{y!r}".format(x=3, w=5, y="q"), "{{}}".format())
        print(list(map("<{:03d}>".format, [1, 2])), "{:.2f}%".format(12.345), "{0!s:^7}".format(None))
        for bad in ("{", "{x}", "{5}"):
            try: bad.format(1)
            except (ValueError, KeyError, IndexError) as error: print(type(error).__name__)
    """,
    "getattr and friends": """
        class A: x = 1
        a = A()
        setattr(a, "y", 2); a.z = 3; delattr(a, "z")
        print(getattr(a, "x"), getattr(a, "q", "default"), hasattr(a, "y"), hasattr(a, "z"), hasattr([], "__len__"))
        print(callable(A), isinstance(a, (int, A)), issubclass(bool, int), getattr(A, "__name__", "?"))
        try: a.missing
        except AttributeError as error: print("missing" in str(error))
    """,
    "builtins": """
        print(abs(-3), all([1, 0]), any([0, 1]), bin(5), bool([]), bytes([65]), chr(66), complex(1, 2), divmod(7, 3))
        print(list(enumerate("ab", 1)), list(filter(None, [0, 1])), float("1.5"), frozenset([1]), hex(255), int("7", 8))
        print(len("abc"), list(map(str, [1])), max([1, 5], default=0), min(3, 2), oct(8))
        print(ord("a"), pow(2, 5, 7), repr("x"))
        print(list(reversed([1, 2])), round(2.567, 1), sorted("cab", reverse=True), sum([1, 2], 10), tuple("ab"))
        print(list(zip("ab", [1, 2], strict=True)), list(range(0, 10, 3)), next(iter([5])))
        print(format(3.14159, ".2f"), ascii("é"))
        it = iter([1, 2, 3].pop, 1)
        print(list(it), isinstance(3, int | str), object() != object(), slice(1, 2).stop)
        print({1, 2} | {3}, str(b"a", "utf8"))
    """,
}


@pytest.mark.parametrize("name", SAME)
def test_a_program_means_what_it_means_in_plain_python(name: str) -> None:
    source = textwrap.dedent(SAME[name])
    ours, plain = run(source), run_plain(source)
    assert ours.reason == ""
    assert plain.error is None
    assert plain.printed
    assert ours.printed == plain.printed


def test_lines_of_errors_are_those_of_the_program() -> None:
    source = "x = 1\n\nclass A:\n    def f(self):\n        self.n = 0\n        self.n += [][0]\n\nA().f()\n"
    trace = run(source).error.__traceback__  # type: ignore[union-attr]
    lines = []
    while trace:
        if trace.tb_frame.f_code.co_filename == "<program>":
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    assert lines == [8, 6]


# A published program uses a tool built on subprocess, an ensemble with a judge, and prints its result.
PUBLISHED = '''
from workflow import AgentNode, Workflow, ToolRegistry
from workflow.nodes import EnsembleNode, ReflectionNode
import subprocess

tool_registry = ToolRegistry()

def execute_code(code: str) -> str:
    """Execute Python code."""
    try:
        result = subprocess.run(["python", "-c", code], capture_output=True, text=True, timeout=30)
        output = ""
        if result.stdout:
            output += f"stdout:\\n{result.stdout}\\n"
        return output or "(no output)"
    except subprocess.TimeoutExpired:
        return "Error: timed out"

tool_registry.register(
    name="execute_code", func=execute_code, description="Run code",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
solver = AgentNode(
    name="Solver",
    system_prompt="Solve it. " "Use \\\\boxed{}.",
    tool_registry=tool_registry,
    max_turns=5
)
judge = AgentNode(name="Judge", system_prompt="Judge.", max_turns=1)
ensemble = EnsembleNode(name="E", agents=[solver, judge], strategy="consensus", consensus_agent=judge)
workflow = Workflow(name="w")
workflow.add_node(ensemble)
workflow.add_node(ReflectionNode(name="R", agent=solver, critic_agent=judge, num_iterations=2))
print(execute_code("print(1)"), question, [node.name for node in workflow.nodes])
'''


def test_the_constructs_of_published_programs_run() -> None:
    from workflow.requests import CodeReply

    outcome = run(PUBLISHED, run_code=lambda request: CodeReply(0, f"<{request.code}>", ""))
    assert outcome.reason == ""
    assert outcome.printed == "stdout:\n<print(1)>\n What is 6 * 7? ['E', 'R']\n"


def test_a_node_of_the_programs_own() -> None:
    outcome = run(
        """
from workflow import Context, Message, MessageType, WorkflowNode
class Upper(WorkflowNode):
    retries: int = 2
    def __init__(self, name, **config):
        super().__init__(name, **config)
        self._calls = 0
    def process(self, context: Context) -> Message:
        self._calls += 1
        context.state["seen"] = context.get_state("seen", 0) + 1
        context.state["seen"] += 1
        last = context.get_latest_message(MessageType.USER_INPUT)
        return Message(content=last.content.upper(), message_type=MessageType.AGENT_RESPONSE, sender=self.name)
context = Context()
context.add_message(Message("hello", MessageType.USER_INPUT))
node = Upper("up")
message = node.process(context)
message.content += "!"
print(message.content, message.sender, context.state, node._calls, node.name, MessageType.ERROR.value)
"""
    )
    assert outcome.reason == ""
    assert outcome.printed == "HELLO! up {'seen': 2} 1 up error\n"


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("x = 1\nmatch x:\n    case str(__len__=y): pass\n", 3, "__len__"),
        ("match 1:\n    case __y__: pass\n", 2, "__y__"),
        ("async def __f__(): pass\n", 1, "__f__"),
        ("try: pass\nexcept* ValueError as __e__: pass\n", 2, "__e__"),
        ("from math import *\n", 1, "from math import *"),
        ("x = 1\ny = open('f')\n", 2, "open is not available"),
        ("input()\n", 1, "input is not available"),
        ("exec('1')\n", 1, "exec is not available"),
        ("[].__dict__ = {}\n", 1, ".__dict__"),
        ("n = [].__len__()\n", 1, "len(x)"),
        ("class A(metaclass=int): pass\n", 1, "metaclass"),
        ("class A:\n    def __getattribute__(self, n): pass\n", 2, "__getattribute__"),
        ("class A:\n    __slots__ = names\n", 2, "__slots__"),
        ("class A:\n    __slots__ = ('__class__',)\n", 2, "__slots__"),
        ("class A[T]: pass\n" if sys.version_info >= (3, 12) else "class A(**{}): pass\n", 1, "cannot be used"),
        ("__secret__ = 1\n", 1, "__secret__"),
        ("def f(:\n", 1, "invalid syntax"),
        ("```python\nx = 1\n```\n", 1, "without fences"),
        ("x = 1\n  y = 2\n", 2, "unexpected indent"),
        ("return 1\n", 1, "'return' outside function"),
        ("x = 'a\0b'\n", 0, "null bytes"),
    ],
)
def test_findings_name_line_culprit_and_fix(source: str, line: int, said: str) -> None:
    result = compile_program(source)
    assert result.code is None
    finding = result.findings[0]
    assert finding.line == line
    assert said in str(finding)
    assert finding.fix
    assert MARK not in str(finding)


def test_all_findings_of_a_program_are_told_once_in_order() -> None:
    source = "a = open('x')\nb = a.__globals__ + a.__globals__\nglobals()\nc = input()\n"
    assert [finding.line for finding in compile_program(source).findings] == [1, 2, 3, 4]


def test_builtins_that_are_missing_may_be_names_of_the_program() -> None:
    outcome = run("def compile(x): return x + 1\ninput = [1, 2]\nprint(compile(1), input)\n")
    assert (outcome.reason, outcome.printed) == ("", "2 [1, 2]\n")


@pytest.mark.parametrize(
    "bomb",
    [
        "-" * 200_000 + "1",
        "+".join(["1"] * 20_000),
        "(" * 100_000,
        "x" + ".a" * 50_000,
        "f" + "()" * 50_000,
        "lambda:" * 20_000 + "1",
        "if 1: pass\n" + "elif 1: pass\n" * 20_000,
        "1" * 5_000,
        "'\ud800'",
        "x" * (MAX_SOURCE + 1),
    ],
    ids=lambda bomb: bomb[:12].encode("ascii", "replace").decode(),
)
def test_compile_bombs_are_findings(bomb: str) -> None:
    result = compile_program(bomb)
    assert result.code is None
    assert result.findings


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_code_or_findings(text: str) -> None:
    result = compile_program(text)
    assert (result.code is None) == bool(result.findings)


_TOKENS = (
    "def class x y _a __b__ f( ) ( [ ] { } : , . = += := == * ** @ \n \n\t lambda async await match case try except* "
    "finally with as import from global nonlocal yield return del if else for in not is 1 2.0 'a' f'{x}' -> ... ; \\ # "
    "ˍz print super().__init__ __name__"
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_TOKENS.split(" ")), max_size=25))
def test_any_tokens_give_code_or_findings(tokens: list[str]) -> None:
    result = compile_program(" ".join(tokens))
    assert (result.code is None) == bool(result.findings)


# Random programs: the policy changes how they are compiled, not what they compute.

_NAMES = st.sampled_from(["a", "b", "c", "_d"])
_LEAVES = st.one_of(
    st.integers(-9, 9).map(str),
    _NAMES,
    st.sampled_from(["'s'", "[1, 2, 3]", "{'k': 1, 2: 3}", "(1, 2)", "box.n", "box.items", "_d", "{1, 2}"]),
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "==", "<", "in", "and", "or"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        pair.map(lambda p: f"[{p[0]}, *[{p[1]}]]"),
        pair.map(lambda p: f"{{{p[0]!r}: {p[1]}}}"),
        pair.map(lambda p: f"{p[0]}[{p[1]}]"),
        pair.map(lambda p: f"({p[0]} if {p[1]} else _d)"),
        inner.map(lambda e: f"[x for x in {e}]"),
        inner.map(lambda e: f"(lambda _x: (_x, {e}))(1)"),
        inner.map(lambda e: f"f({e}, _k={e})"),
        inner.map(lambda e: f"str({e})"),
        inner.map(lambda e: f"f'<{{{e}!s:>4}}>'" if "'" not in e and "{" not in e else f"repr({e})"),
        inner.map(lambda e: f"sorted({e}, key=str)"),
        inner.map(lambda e: f"'{{}}-{{}}'.format({e}, 1)"),
        inner.map(lambda e: f"box.put({e})"),
    )


_EXPRESSIONS = st.recursive(_LEAVES, _larger, max_leaves=6)
_OPERATORS = st.sampled_from(["+=", "-=", "*=", "//=", "%=", "|="])
_LINES = st.one_of(
    st.tuples(_NAMES, _EXPRESSIONS).map(lambda p: f"{p[0]} = {p[1]}"),
    st.tuples(_NAMES, _EXPRESSIONS).map(lambda p: f"{p[0]}: int = {p[1]}"),
    st.tuples(_NAMES, _OPERATORS, _EXPRESSIONS).map(lambda p: f"{p[0]} {p[1]} {p[2]}"),
    st.tuples(_OPERATORS, _EXPRESSIONS).map(lambda p: f"box.n {p[0]} {p[1]}"),
    st.tuples(_OPERATORS, _EXPRESSIONS).map(lambda p: f"box._hidden {p[0]} {p[1]}"),
    st.tuples(_EXPRESSIONS, _OPERATORS, _EXPRESSIONS).map(lambda p: f"box.items[{p[0]}] {p[1]} {p[2]}"),
    st.tuples(_EXPRESSIONS, _EXPRESSIONS).map(lambda p: f"d[{p[0]}] = {p[1]}"),
    st.tuples(_NAMES, _NAMES, _EXPRESSIONS).map(lambda p: f"{p[0]}, *{p[1]} = {p[2]}"),
    st.tuples(_NAMES, _EXPRESSIONS, _EXPRESSIONS).map(lambda p: f"for {p[0]} in {p[1]}: d[{p[0]!r}] = {p[2]}"),
    _EXPRESSIONS.map(lambda e: f"print({e})"),
)
_PRELUDE = """
class Box:
    def __init__(self):
        self.n, self.items, self._hidden = 1, [1, 2, 3], 0
    def put(self, x):
        if len(self.items) < 20:
            self.items.append(x)
        self.n += 1
        return self.n
def f(x, _k=0):
    return (x, _k)
a, b, c, _d, d, box = 1, 'bc', [4, 5], {'k': 6}, {}, Box()
"""


def _attempts(lines: list[str]) -> str:
    parts = [f"try:\n    {line}\nexcept Exception as error:\n    print(type(error).__name__)" for line in lines]
    return _PRELUDE + "\n".join(parts) + "\nprint(a, b, c, _d, d, box.n, box.items, box._hidden)\n"


@pytest.mark.thorough
@settings(max_examples=250, deadline=None)
@given(st.lists(_LINES, min_size=1, max_size=8))
def test_random_programs_compute_what_they_compute_in_plain_python(lines: list[str]) -> None:
    source = _attempts(lines)
    ours, plain = run(source), run_plain(source)
    assert ours.reason == ""
    assert plain.error is None
    assert ours.printed == plain.printed


def test_importing_the_policy_is_light() -> None:
    code = (
        "import sys, sandbox.language.compiler, sandbox.language.guards, sandbox.language.stdlib.importable\n"
        "heavy = {'torch', 'ray', 'vllm', 'deepspeed', 'transformers', 'openai', 'math_verify', 'sympy', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
