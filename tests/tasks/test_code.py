import textwrap
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandbox.protocol import Sandbox
from tasks import AssertTests, CallTest, CallTests, CodeGrade, CodeTests, StdinTest, StdinTests, grade_code
from workflow.limits import CodeLimits

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]

DOUBLE = StdinTests(tests=[StdinTest(stdin="2\n", stdout="4\n"), StdinTest(stdin="5\n", stdout="10\n")])
ADD = CallTests(fn_name="add", tests=[CallTest(args=[1, 2], expected=3), CallTest(args=[[1], [2]], expected=[1, 2])])
SQUARE = AssertTests(
    names={"candidate": "square"},
    setup="def square(x):\n    return x * x\n",
    tests=["assert candidate(3) == 9", "assert candidate(-4) == square(4)", "assert candidate(0) == 0"],
    prompt='import math\n\ndef square(x: int) -> int:\n    """The square."""\n',
)
QUICK = CodeLimits(wall_s=1.5, cpu_s=5, memory_mb=256, output_bytes=1 << 20)


def grade(in_jail: InJail, solution: str, tests: CodeTests, **options: Any) -> CodeGrade:
    return in_jail(lambda sandbox: grade_code(sandbox, solution, tests, **{"limits": QUICK, **options}))


def outcomes(graded: CodeGrade) -> list[str]:
    return [test.outcome for test in graded.tests]


FUNCTION = CallTests(fn_name="f", tests=[CallTest(args=[1], expected=1)])
ASSERTED = AssertTests(names={"candidate": "f"}, tests=["assert candidate(1) == 1"])
WAITS, COMPUTES = "import time\ntime.sleep(60)\n", "while True: pass\n"


@pytest.mark.parametrize("tests", [DOUBLE, FUNCTION, ASSERTED], ids=["script", "function", "asserts"])
@pytest.mark.parametrize("where", ["loading", "called"])
def test_what_a_clock_ended_is_told_apart_from_what_computed_too_long(
    in_jail: InJail, tests: CodeTests, where: str
) -> None:
    for code, limits in ((WAITS, {"wall_s": 1}), (COMPUTES, {"wall_s": 30, "cpu_s": 1})):
        solution = (
            code
            if where == "loading"
            else "def f(x):\n" + textwrap.indent(code, "    ") + "\nf(1)\n" * (tests is DOUBLE)
        )
        graded = grade(in_jail, solution, tests, limits=QUICK.model_copy(update=limits), stop_at_failure=True)
        assert (outcomes(graded)[0], graded.by_clock) == ("timeout", code is WAITS), graded
        assert not graded.correct


def test_a_solution_that_waits_a_little_in_each_of_many_tests_is_ended(
    in_jail: InJail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reward would never come, and stop the training that waits for it."""
    monkeypatch.setattr("tasks.code.code_grader.ALL_TESTS_S", 1.0)
    tests = StdinTests(tests=[StdinTest(stdin="", stdout="1\n")] * 20)
    graded = grade(
        in_jail, "import time\ntime.sleep(0.4)\nprint(1)", tests, limits=QUICK.model_copy(update={"wall_s": 10})
    )
    assert (graded.by_clock, graded.correct) == (True, False)
    assert 1 <= graded.passed <= 3
    assert outcomes(graded)[graded.passed :] == ["timeout"] + ["not_run"] * (19 - graded.passed)
    assert grade(in_jail, "print(1)", StdinTests(tests=tests.tests[:2])).correct


def test_a_test_that_waits_by_itself_is_no_fault_of_the_solution(in_jail: InJail) -> None:
    waits = AssertTests(names={"candidate": "f"}, tests=["import time; time.sleep(60); assert candidate(1) == 1"])
    graded = grade(in_jail, "def f(x): return x", waits)
    assert (outcomes(graded), graded.by_clock) == (["timeout"], True)
    right = grade(in_jail, "def f(x): return x", ASSERTED)
    assert (right.correct, right.by_clock) == (True, False)


# ---- scripts


def test_script(in_jail: InJail) -> None:
    graded = grade(in_jail, "print(int(input()) * 2)", DOUBLE)
    assert (graded.correct, graded.passed, graded.total) == (True, 2, 2)


def test_script_that_fails_in_each_way(in_jail: InJail) -> None:
    graded = grade(in_jail, "n = int(input())\nprint(n * 2 if n < 5 else n)", DOUBLE)
    assert outcomes(graded) == ["pass", "wrong_answer"]
    assert "'5" in graded.tests[1].detail
    assert not graded.correct
    assert outcomes(grade(in_jail, "print(4)\n1 / 0", DOUBLE)) == ["exception", "exception"]
    assert outcomes(grade(in_jail, "while True: pass", DOUBLE, stop_at_failure=True)) == ["timeout", "not_run"]
    assert outcomes(grade(in_jail, "import os; os._exit(0)", DOUBLE)) == ["wrong_answer", "wrong_answer"]
    hungry = grade(in_jail, "x = [0] * (10**10)", DOUBLE, stop_at_failure=True)
    assert outcomes(hungry) == ["memory", "not_run"]


# ---- functions


@pytest.mark.parametrize(
    "solution",
    [
        "def add(a, b):\n    return a + b",
        "class Solution:\n    def add(self, a: List[int], b: List[int]):\n        return a + b",
        "from __future__ import annotations\nimport operator\nadd = operator.add",
        "def add(a, b):\n    print('seen', flush=True)\n    return a + b\nif __name__ == '__main__':\n    add(input())",
        "def add(a, b):\n    return tuple(a) + tuple(b) if isinstance(a, list) else a + b",
    ],
)
def test_function(in_jail: InJail, solution: str) -> None:
    graded = grade(in_jail, solution, ADD)
    assert graded.correct, graded


def test_function_with_two_right_values(in_jail: InJail) -> None:
    tests = CallTests(fn_name="f", tests=[CallTest(args=[value], expected=[3], also=[3]) for value in (3, [3], 4, [4])])
    assert outcomes(grade(in_jail, "f = lambda x: x", tests)) == ["pass", "pass", "wrong_answer", "wrong_answer"]


@pytest.mark.parametrize(
    ("solution", "outcome"),
    [
        ("def add(a, b):\n    return a", "wrong_answer"),
        ("def add(a, b):\n    raise ValueError('no')", "exception"),
        ("def other(a, b):\n    return a + b", "exception"),
        ("def add(a, b) return", "exception"),
        ("import os\nos._exit(0)", "exited"),
        ("import sys\nsys.exit(0)", "exception"),
        ("import os\ndef add(a, b): os.kill(os.getpid(), 9)", None),
        ("def add(a, b):\n    while True: pass", "timeout"),
        ("def add(a, b):\n    return [0] * 10**10", "memory"),
        ("def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x", "exception"),
        ("class E:\n    def __eq__(self, o): return True\ndef add(a, b): return E()", "wrong_answer"),
        ("class E(int):\n    def __eq__(self, o): return True\ndef add(a, b): return E(77)", "wrong_answer"),
        ("import builtins, json\nbuiltins.len = lambda x: 0\njson.dumps = str\ndef add(a, b): return 0", None),
        ("import os\nos.write(3, b'{\"value\": 3}\\n')\nos.write(4, b'{\"value\": 3}\\n')", "exception"),
    ],
)  # fmt: skip
def test_function_that_fails(in_jail: InJail, solution: str, outcome: str | None) -> None:
    graded = grade(in_jail, solution, ADD, stop_at_failure=True)
    assert not graded.correct
    assert graded.tests[1].outcome == "not_run"
    assert outcome is None or graded.tests[0].outcome == outcome


# ---- Python assertions


@pytest.mark.parametrize(
    "solution",
    [
        "def square(x):\n    return x * x",
        "    return int(math.pow(x, 2))",  # continues the prompt
        "def square(x):\n    return math.prod([x, x])",  # uses what the prompt imports
        "from __future__ import annotations\ndef square(x):\n    print('{}', flush=True)\n    return x ** 2",
        "square = lambda x: x * x",
        "def square(x):\n    try: input()\n    except EOFError: return x * x",
    ],
)
def test_asserts(in_jail: InJail, solution: str) -> None:
    graded = grade(in_jail, solution, SQUARE)
    assert graded.correct, graded
    assert graded.total == 3


def test_no_tests_prove_nothing() -> None:
    assert not CodeGrade(tests=()).correct


def test_wrong_answers_and_exceptions_are_told_apart(in_jail: InJail) -> None:
    graded = grade(in_jail, "def square(x):\n    return [][x] if x == 0 else x * abs(x)", SQUARE)
    assert outcomes(graded) == ["pass", "wrong_answer", "exception"]
    assert "IndexError" in graded.tests[2].detail
    stopped = grade(in_jail, "def square(x):\n    return -1", SQUARE, stop_at_failure=True)
    assert outcomes(stopped) == ["wrong_answer", "not_run", "not_run"]


EQUAL = "class E{base}:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
FORGERIES = {
    "equal to everything": EQUAL.format(base="") + "    def __bool__(self): return True\ndef square(x): return E()",
    "an int equal to everything": EQUAL.format(base="(int)") + "def square(x): return E(7)",
    "a list equal to everything": EQUAL.format(base="(list)") + "def square(x): return E()",
    "prints verdicts": "print('{\"test\": \"pass\", \"detail\": \"\"}\\n{\"done\": true}')\ndef square(x): return 7",
    "writes verdicts to every fd": (
        "import os\n"
        "for fd in range(1, 20):\n"
        "    try: os.write(fd, b'{\"test\": \"pass\", \"detail\": \"\"}\\n' * 3)\n"
        "    except OSError: pass\n"
        "def square(x): return 7"
    ),
    "leaves at once": "import os\nos._exit(0)",
    "leaves when called": "import os\ndef square(x): os._exit(0)",
    "exits at once": "import sys\nsys.exit(0)",
    "exits when called": "import sys\ndef square(x): sys.exit(0)",
    "raises what a test might swallow": "def square(x): raise AssertionError('fine')",
    "turns off assertions": (
        "import builtins, sys\n"
        "builtins.AssertionError = ZeroDivisionError\n"
        "builtins.isinstance = lambda *a: True\n"
        "def square(x): return 7"
    ),
    "rewrites the harness": (
        "import sys\n"
        "main = sys.modules['__main__']\n"
        "main.encode = lambda value, keep=None: {'ref': [0, 'int']}\n"
        "def square(x): return 7"
    ),
    "rewrites the channel": (
        "import sys\n"
        "main = sys.modules['__main__']\n"
        "send = main.Channel.send\n"
        "main.Channel.send = lambda self, message: send(self, {**message, 'test': 'pass', 'done': True})\n"
        "def square(x): return 7"
    ),
    "answers nobody": "import sys\nsys.modules['__main__'].Channel.send = lambda *a: None\ndef square(x): return 7",
    "reads the channel": "import os\nwhile os.read(3, 1): pass\ndef square(x): return 7",
    "sends a bomb": (
        "import sys\nmain = sys.modules['__main__']\n"
        "main.Channel.send = lambda self, m: self._out.write('[' * 10**6 + '\\n') and self._out.flush()\n"
        "def square(x): return 7"
    ),
    "floods the channel": (
        "import sys\nmain = sys.modules['__main__']\n"
        "main.Channel.send = lambda self, m: [self._out.write('x' * 10**6) for _ in range(50)]\n"
        "def square(x): return 7"
    ),
    "answers twice": (
        "import sys\nmain = sys.modules['__main__']\nsend = main.Channel.send\n"
        "main.Channel.send = lambda self, m: (send(self, m), send(self, m))\n"
        "def square(x): return x * x"
    ),
    "floods": "def square(x):\n    while True: print('x' * 10**6)",
    "never returns": "def square(x):\n    while True: pass",
    "takes all memory": "def square(x): return [0] * 10**10",
    "does not compile": "def square(x: return",
    "is empty": "",
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_fail(in_jail: InJail, name: str) -> None:
    graded = grade(in_jail, FORGERIES[name], SQUARE)
    assert graded.total == 3
    assert graded.passed == 0, graded


def test_truth_tests_do_not_ask_the_solution(in_jail: InJail) -> None:
    truthy = EQUAL.format(base="") + "    def __bool__(self): return {}\ndef f(): return E()"
    tests = AssertTests(
        names={"f": "f"}, tests=["assert f()", "assert not f()", "assert f() in [1]", "assert f() != 2"]
    )
    for value in ("True", "False"):
        assert outcomes(grade(in_jail, truthy.format(value), tests)) == ["exception"] * 4


def test_classes_of_the_solution_work_through_references(in_jail: InJail) -> None:
    tree = AssertTests(
        names={"Node": "Node", "depth": "depth", "walk": "walk"},
        setup="root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)\n",
        tests=[
            "assert depth(root) == 3",
            "assert root.left.value == 2",
            "assert list(walk(root)) == [1, 2, 3]",
            "assert depth(root=root.left) == 2",
        ],
    )
    solution = """
class Node:
    def __init__(self, value):
        self.value, self.left, self.right = value, None, None
def depth(root):
    return 0 if root is None else 1 + max(depth(root.left), depth(root.right))
def walk(root):
    if root is not None:
        yield root.value
        yield from walk(root.left)
        yield from walk(root.right)
"""
    graded = grade(in_jail, solution, tree)
    assert graded.correct, graded
    assert outcomes(grade(in_jail, solution.replace("class Node", "class Other"), tree)) == ["exception"] * 4


ARGUMENTS = AssertTests(
    names={"f": "f"},
    tests=[
        "l = [2, 1, 3]\nf(l)\nassert l == [1, 2, 3]",
        "m = [[2, 1]]\nrow = m[0]\nf(row)\nassert m == [[1, 2]]",
    ],
)


def test_functions_that_return_nothing_change_arguments(in_jail: InJail) -> None:
    assert grade(in_jail, "def f(l): l.sort()", ARGUMENTS).correct
    assert grade(in_jail, "def f(l): l.sort(reverse=True)", ARGUMENTS).passed == 0
    cheat = "class E(list):\n    def __eq__(self, o): return True\ndef f(l): l[:] = [E()]"
    assert grade(in_jail, cheat, ARGUMENTS).passed == 0


def test_a_function_cannot_change_what_its_answer_is_compared_with(in_jail: InJail) -> None:
    tests = AssertTests(names={"f": "f"}, tests=["l = [2, 1]\nassert f(l) == sorted(l)"])
    assert outcomes(grade(in_jail, "def f(l):\n    l.clear()\n    return []", tests)) == ["wrong_answer"]


OBJECTS = AssertTests(
    names={name: name for name in ("V", "gen", "point")},
    tests=[
        "assert len(V(3)) == 3",
        "assert (V(1) + V(2)).x == 3",
        "assert V(1) + V(2) == V(3) and (V(1) + V(2)).x == 3",
        "assert V(4)[5] == 9",
        "with V(1) as v:\n    assert v.x == 2",
        "it = gen()\nassert next(it) == 1 and list(it) == [2]",
        "assert next(gen()) == 1 and [x for x in gen()] == [1, 2]",
        "assert str(V(7)) == 'V7' and repr(V(8)) == 'V(8)' and f'{V(9)}' == 'V9'",
        "assert point().x == 1 and point() == (1, 2)",
        "assert sorted([V(2), V(1)])[0].x == 1",
    ],
)
VECTOR = """
from collections import namedtuple
class V:
    def __init__(self, x): self.x = x
    def __len__(self): return self.x
    def __add__(self, other): return V(self.x + other.x)
    def __eq__(self, other): return self.x == other.x
    def __lt__(self, other): return self.x < other.x
    def __getitem__(self, i): return self.x + i
    def __enter__(self): return V(self.x + 1)
    def __exit__(self, *error): return True
    def __str__(self): return f"V{self.x}"
    def __repr__(self): return f"V({self.x})"
def gen():
    yield 1
    yield 2
def point(): return namedtuple("P", "x y")(1, 2)
"""


def test_operations_on_objects_of_the_solution(in_jail: InJail) -> None:
    graded = grade(in_jail, VECTOR, OBJECTS, limits=QUICK.model_copy(update={"wall_s": 10}))
    assert graded.correct, graded


LIAR = """
class E:
    def __eq__(self, other): return True
    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __len__(self): return 0
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __abs__ = __sub__
    def __enter__(self): return self
    def __exit__(self, *error): return True
    def __getitem__(self, i): return E()
    def __str__(self): return "lie"
def f(*args): return E()
"""


def test_objects_of_the_solution_answer_for_no_value_of_the_test(in_jail: InJail) -> None:
    tests = AssertTests(
        names={"f": "f"},
        tests=[
            "assert f() == 5",
            "assert 5 == f()",
            "assert f() != 5",
            "assert abs(f() - 0.5) < 1e-6",
            "assert abs(0.5 - f()) < 1e-6",
            "assert f() * 2 == 0",
            "assert f()[0] == 5",
            "assert [f()] == [5]",
            "assert f() in (5, 6)",
            "assert len(f()) == 5",
            "assert f() > 5",
            "assert 5 < f()",
            "assert f() + f() == 5",
            "assert str(f()) == '5'",
            "with f() as c:\n    assert c == 5",
            "with f():\n    assert False",
        ],
    )
    assert grade(in_jail, LIAR, tests, limits=QUICK.model_copy(update={"wall_s": 10})).passed == 0


def test_what_the_grader_cannot_do_is_no_wrong_answer(in_jail: InJail) -> None:
    tests = AssertTests(names={"ap": "ap", "V": "V"}, tests=["assert ap(lambda v: v + 1, 2) == 3", "V(1) * 3"])
    graded = grade(in_jail, "def ap(f, x): return f(x)\nclass V:\n    def __init__(self, x): pass", tests)
    assert outcomes(graded) == ["ungradable", "ungradable"]
    assert (graded.ungradable, graded.correct) == (2, False)


def test_the_solution_cannot_shadow_what_tests_use(in_jail: InJail) -> None:
    tests = AssertTests(names={"f": "f"}, tests=["assert abs(f(1) - 0.5) < 1e-6", "assert len(f(2)) == 3"])
    graded = grade(in_jail, "def f(x): return 7\nabs = len = lambda x: 0", tests)
    assert outcomes(graded) == ["wrong_answer", "exception"]


def test_values_of_every_builtin_type_cross(in_jail: InJail) -> None:
    tests = AssertTests(
        names={"echo": "echo"},
        tests=[
            "v = (1, {2, 3}, {'a': [b'x', None, True]}, 1+2j, frozenset({4}), -0.0, 10**5000)\nassert echo(v) == v",
            "assert [type(x) for x in echo(v)] == [type(x) for x in v]",
            "assert echo(float('inf')) > 1 and echo(float('nan')) != echo(float('nan'))",
            "assert echo({1: (2,)}) == {1: (2,)} and echo(int) is int",
            "try:\n    echo()\nexcept TypeError as told:\n    assert 'argument' in str(told)\nelse:\n    assert False",
        ],
    )
    graded = grade(in_jail, "def echo(value): return value", tests)
    assert graded.correct, graded


def test_a_test_that_ends_its_own_process_does_not_pass(in_jail: InJail) -> None:
    tests = AssertTests(names={"f": "f"}, tests=["assert f() == 1", "import sys; sys.exit(0)", "assert True"])
    assert outcomes(grade(in_jail, "def f(): return 1", tests)) == ["pass", "exited", "not_run"]
