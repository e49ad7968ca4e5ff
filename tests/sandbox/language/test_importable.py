"""The modules of programs: they do what the originals do, repeat with the seed, and stay what they are."""

from __future__ import annotations

import json
import textwrap

import pytest
from policy_helper import run, run_plain

from sandbox.language.classes import facade_values
from sandbox.language.stdlib.clock import EPOCH_S
from sandbox.language.stdlib.importable import HINTS, facade, standard_facades
from workflow.requests import CodeReply, CodeRun

SAME = {
    "json": """
        import json
        print(json.dumps({"b": [1, 2.5, None], "a": "é"}, indent=1, sort_keys=True, ensure_ascii=False))
        print(json.loads('{"x": [1, true]}')["x"], json.JSONDecoder().raw_decode('{"a": 1} rest'))
        try: json.loads("{")
        except json.JSONDecodeError as error: print(error, error.pos, error.lineno)
        class Enc(json.JSONEncoder):
            def default(self, o): return sorted(o) if isinstance(o, set) else super().default(o)
        print(json.dumps({"s": {2, 1}}, cls=Enc), json.dumps(1j, default=str))
        """,
    "re": r"""
        import re
        print(re.findall(r"\d+", "a1b22"), re.sub(r"(\w)-", lambda m: m.group(1).upper(), "a-b-c"))
        print(re.split("[,;]", "a,b;c"))
        m = re.compile(r"(?P<k>\w+)=(?P<v>.*)", re.IGNORECASE | re.DOTALL).search("A=b\nc")
        print(m["k"], m.group("v"), m.groupdict(), m.span())
        print(m.re.pattern, bool(re.fullmatch("a+", "aaa")), re.escape("a.b"))
        try: re.compile("(")
        except re.error as error: print(error.msg)
        """,
    "collections": """
        from collections import Counter, ChainMap, OrderedDict, defaultdict, deque
        c = Counter("abcab"); c["z"] += 2; c.update("a"); d = defaultdict(list); d["k"].append(1); d["m"] += [3]
        q = deque([1, 2], maxlen=2); q.append(3); q[0] = 9; o = OrderedDict(a=1); o.move_to_end("a"); o["b"] = 2
        print(c.most_common(2), dict(d), q, o, ChainMap({"a": 1}, {"b": 2})["b"], c.total(), sum(c.values()))
        """,
    "itertools, functools, operator": """
        import itertools as it, functools, operator
        print(list(it.combinations("abc", 2)), list(it.islice(it.count(5), 3)))
        print(list(it.chain.from_iterable([[1], [2]])))
        print([(k, list(g)) for k, g in it.groupby("aab")], list(it.accumulate([1, 2, 3], operator.mul)))
        print(list(it.product([0, 1], "a")))
        print(sorted([3, 1], key=functools.cmp_to_key(lambda a, b: b - a)), operator.itemgetter(1, 0)("ab"))
        print(operator.add(1, 2))
        @functools.cache
        def f(x): return x + 1
        print(f(1), f(1), f.cache_info().hits, functools.partial(int, base=2)("101"))
        """,
    "math, statistics, fractions, decimal": """
        import math, statistics as st
        from decimal import Decimal, ROUND_HALF_UP, getcontext, localcontext, InvalidOperation
        from fractions import Fraction
        print(math.sqrt(2), math.gcd(12, 18), math.comb(5, 2), math.isclose(0.1 + 0.2, 0.3))
        print(math.inf, math.prod([2, 3]))
        print(st.mean([1, 2, 4]), st.median([3, 1]), st.stdev([1, 2, 4]), st.mode("aab"), st.NormalDist(0, 1).cdf(0))
        f = Fraction(1, 3) + Fraction("1/6"); print(f, f.numerator, f.limit_denominator(10), float(f), f.real)
        with localcontext() as context:
            context.prec = 5
            print(Decimal(1) / 3, getcontext().prec)
        print(Decimal("2.675").quantize(Decimal("0.01"), rounding=ROUND_HALF_UP), Decimal(2).sqrt())
        try: Decimal("x")
        except InvalidOperation: print("invalid")
        """,
    "heapq, bisect, string, textwrap, copy": """
        import bisect, copy, heapq, string, textwrap
        h = [3, 1, 2]; heapq.heapify(h); heapq.heappush(h, 0)
        print(heapq.heappop(h), heapq.nlargest(2, h), list(heapq.merge([1, 4], [2])), bisect.bisect([1, 2, 2, 3], 2))
        print(string.ascii_lowercase[:3], string.capwords("a b"), textwrap.dedent("  a\\n  b"))
        print(textwrap.fill("a b c", 3), textwrap.shorten("hello world", 8))
        class A:
            def __init__(self): self.x = [1]
        a = A(); b, c = copy.copy(a), copy.deepcopy(a); a.x.append(2)
        print(b.x, c.x, copy.deepcopy({"k": [1]}))
        """,
    "what C code imports": r"""
        import re, time
        from datetime import datetime
        n = 7 ** 40000
        print(re.compile(r"(a)(b)").sub(r"\2\1-", "abab"), (10 ** 40000 // n) % 1000)
        print(datetime.strptime("2024", "%Y").year)
        """,
    "typing": """
        from typing import Any, Callable, Dict, Iterable, List, Optional, TypeVar, Union, cast, TYPE_CHECKING
        import typing as t
        import collections.abc
        from collections.abc import Mapping
        Answer = Union[str, List[Dict[str, Any]]]
        Maybe = Optional[int] | None
        Mode = t.Literal["a", "b"]
        def f(x: Callable[[int], str], y: t.Tuple[int, ...] = ()) -> Iterable[Answer]: return cast(int, x)
        print(f(3), TYPE_CHECKING, isinstance({}, Mapping))
        print(isinstance([], collections.abc.Sequence), isinstance(f, Callable))
        class Bag(t.List[int]): pass
        class State(t.TypedDict):
            a: int
        class Named(t.Protocol):
            name: str
        print(Bag([1]), State(a=1), dict[str, int], list[int])
        """,
    "datetime": """
        from datetime import date, datetime, timedelta, timezone
        d = datetime(2024, 2, 28, 12) + timedelta(days=2)
        print(d, d.year, d.date(), d.strftime("%Y/%m/%d"), d.isoformat(), (d - datetime(2024, 1, 1)).days, repr(d))
        print(datetime.fromisoformat("2024-01-02T03:04:05"), date(2024, 1, 2).weekday())
        print(datetime.strptime("1/2/24", "%d/%m/%y"))
        print(datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp(), isinstance(datetime(2024, 1, 1), date))
        print(timedelta(hours=1).total_seconds())
        """,
}


@pytest.mark.parametrize("name", SAME)
def test_a_module_does_what_the_original_does(name: str) -> None:
    source = textwrap.dedent(SAME[name])
    ours, plain = run(source), run_plain(source)
    assert ours.reason == ""
    assert plain.error is None
    assert ours.printed == plain.printed


RANDOM = """
import random
from random import Random, choice, shuffle
xs = list(range(10)); shuffle(xs)
print(random.random(), random.randint(1, 100), choice("abc"), xs, random.sample(range(50), 3), random.gauss(0, 1))
print(Random().random(), Random().random(), Random(5).random(), random.choices("ab", weights=[1, 9], k=3))
random.seed(); print(random.random())
random.seed(7); print(random.random(), random.uniform(1, 2))
"""


def test_random_repeats_with_the_seed_and_differs_without() -> None:
    first, again, other = run(RANDOM, seed=3), run(RANDOM, seed=3), run(RANDOM, seed=4)
    assert first.reason == ""
    assert first.printed == again.printed
    assert first.printed != other.printed
    # What the program seeds itself is as in plain Python.
    assert first.printed.splitlines()[-1] == run_plain(RANDOM).printed.splitlines()[-1]
    assert len(set(first.printed.split()[-10:])) > 5


def test_time_is_virtual_and_repeats() -> None:
    source = """
import time
from datetime import date, datetime, timezone
start = time.time()
time.sleep(3600)
print(round(time.time() - start), start, time.strftime("%Y-%m-%d"), time.localtime().tm_year)
deadline, loops = time.monotonic() + 0.5, 0
while time.monotonic() < deadline: loops += 1
print(loops, time.perf_counter() > 3600, type(time.time_ns()).__name__, time.ctime(0))
print(datetime.now(), date.today(), datetime.now(timezone.utc).tzinfo, datetime.today() > datetime(2024, 1, 1))
print(datetime.now().timestamp() - time.time(), datetime.utcnow().year, datetime.fromtimestamp(0))
try: time.sleep(-1)
except ValueError as error: print(error)
"""
    first, again = run(source), run(source)
    assert first.reason == ""
    assert first.printed == again.printed
    lines = first.printed.splitlines()
    assert lines[0] == f"3600 {EPOCH_S + 0.001} 2025-01-01 2025"
    assert 400 <= int(lines[1].split()[0]) <= 500
    assert lines[2].startswith("2025-01-01 01:00:00.")
    assert lines[3].endswith("2025 1970-01-01 00:00:00")


# subprocess


def _served(source: str, reply: CodeReply | None = None) -> tuple[str, str, list[CodeRun]]:
    asked: list[CodeRun] = []

    def run_code(request: CodeRun) -> CodeReply:
        asked.append(request)
        return reply or CodeReply(0, "out\n", "err\n")

    outcome = run("import subprocess, sys\n" + textwrap.dedent(source), run_code=run_code)
    return outcome.printed, outcome.reason, asked


def test_python_code_is_served_by_the_code_runner() -> None:
    printed, reason, asked = _served(
        """
        done = subprocess.run([sys.executable, "-c", "c1"], capture_output=True, text=True, timeout=5, input="in")
        print(done.returncode, done.stdout, done.stderr, done.args[1])
        done = subprocess.run(("python3", "-u", "-c", "c2"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(done.stdout, done.stderr)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        done = subprocess.run(["/usr/bin/python3", "-c", "c3"], **quiet)
        print(done.stdout, done.stderr)
        print(subprocess.check_output(["python", "-c", "c4"], text=True))
        subprocess.run(["python", "-c", "c5"], input=b"raw")
        """
    )
    assert reason == ""
    captured = "0 out\n err\n -c\nb'out\\nerr\\n' None\nNone err\n\n"
    passed_on = "err\nout\n\n" + "out\nerr\n"
    assert printed == captured + passed_on
    assert asked == [
        CodeRun("c1", "in", 5),
        CodeRun("c2"),
        CodeRun("c3"),
        CodeRun("c4"),
        CodeRun("c5", "raw"),
    ]


def test_a_timeout_and_a_failure_are_those_of_subprocess() -> None:
    source = """
        try: subprocess.run(["python", "-c", "x"], capture_output=True, text=True, timeout=2)
        except subprocess.TimeoutExpired as error: print("late", error.timeout, error.stdout)
        """
    for limit in ("wall_s", "cpu_s"):
        assert _served(source, CodeReply(-9, "part", "", limit=limit))[:2] == ("late 2 part\n", "")
    source = """
        try: subprocess.run(["python", "-c", "x"], capture_output=True, text=True, check=True)
        except subprocess.SubprocessError as error: print(error.returncode, error.stderr, type(error).__name__)
        """
    assert _served(source, CodeReply(1, "", "boom"))[:2] == ("1 boom CalledProcessError\n", "")


@pytest.mark.parametrize(
    "call",
    [
        "run('ls', shell=True)",
        "run(['ls'])",
        "run(['bash', '-c', 'ls'])",
        "run(['python', 'script.py'])",
        "run(['python', '-m', 'http.server'])",
        "run(['python', '-c', 'x', 'argument'])",
        "run(['python', '-m', '-c', 'x'])",
        "run(['python', '-c', 'x'], shell=True)",
        "run(['python', '-c', 'x'], env={'A': '1'})",
        "run(['python', '-c', 'x'], cwd='/')",
        "run(['python', '-c', 'x'], stdout=sys.stdout)",
        "run(['python', '-c', 'x'], preexec_fn=print)",
        "run([b'python', '-c', 'x'])",
        "run(['xpython', '-c', 'x'])",
        "Popen(['python', '-c', 'x'])",
        "call(['ls'])",
        "getoutput('ls')",
    ],
)
def test_every_other_use_of_subprocess_is_refused_in_words(call: str) -> None:
    _, reason, asked = _served(f"subprocess.{call}")
    assert asked == []
    assert reason.startswith("PermissionError")
    assert 'subprocess.run([sys.executable, "-c", code])' in reason


# sys, print, imports


def test_output_goes_to_one_sink_in_order() -> None:
    outcome = run(
        """
import sys
def f(): print("b", "c", sep="-", end=";")
print("a"); f(); sys.stdout.write("d\\n"); print("e", file=sys.stderr, flush=True); sys.stderr.write("f"); print()
sys.stdout.flush()
"""
    )
    assert outcome.reason == ""
    assert outcome.printed == "a\nb-c;d\ne\nf\n"


def test_sys_and_exit() -> None:
    outcome = run("import sys\nprint(sys.version_info >= (3, 11), sys.maxsize > 0, sys.argv[1:])\nsys.exit(3)\n")
    assert outcome.printed == "True True []\n"
    assert isinstance(outcome.error, SystemExit)
    assert outcome.error.code == 3


@pytest.mark.parametrize("module", [*HINTS, "unheard_of", "json.tool"])
def test_other_imports_name_the_module_the_fix_and_what_there_is(module: str) -> None:
    outcome = run(f"import {module}\n{module}\n")
    assert isinstance(outcome.error, ImportError)
    assert outcome.reason.startswith(f"ImportError: programs cannot import {module}")
    assert HINTS.get(module, "") in outcome.reason
    assert "available modules: abc, array, ast" in outcome.reason
    if module.startswith("workflow"):
        return  # what is imported from the contract is meant
    unused = run(f"import {module} as x\nfrom {module} import y\nprint('on')\n")
    assert (unused.reason, unused.printed) == ("", "on\n"), "an import that nothing uses hurts nobody"


def test_missing_names_are_told_with_those_there_are() -> None:
    assert "it offers: attrgetter" in run("from operator import call\ncall\n").reason
    assert "'sys' has no 'stdin' in programs; it offers:" in run("import sys\nsys.stdin.read()\n").reason
    assert "programs cannot import .nodes" in run("from .nodes import x\nx\n").reason


def test_a_failed_import_can_be_caught() -> None:
    outcome = run("try:\n    import numpy as np\nexcept ImportError:\n    np = None\nprint(np)\n")
    assert (outcome.reason, outcome.printed) == ("", "None\n")


@pytest.mark.parametrize(
    "source",
    [
        "import workflow.nodes\nprint(workflow.nodes.AgentNode.__name__, workflow.Workflow.__name__)",
        "import workflow.nodes as n\nimport workflow\nprint(n.AgentNode.__name__, workflow.Workflow.__name__)",
        "from workflow import nodes, Workflow\nprint(nodes.AgentNode.__name__, Workflow.__name__)",
        "def f():\n    from workflow.nodes import AgentNode as A\n    return A\nfrom workflow import Workflow as W\n"
        "print(f().__name__, W.__name__)",
    ],
)
def test_every_way_to_import_the_contract(source: str) -> None:
    outcome = run(source)
    assert (outcome.reason, outcome.printed) == ("", "AgentNode Workflow\n")


def test_a_facade_holds_no_module_and_no_private_name() -> None:
    with pytest.raises(TypeError, match="real module"):
        facade("x", {"json": json})
    with pytest.raises(ValueError, match="private"):
        facade("x", {"_json": 1})
    made = facade("x", {"a": 1})
    with pytest.raises(TypeError, match="cannot be changed"):
        made.a = 2
    with pytest.raises(TypeError, match="cannot be changed"):
        del made.a


def test_two_programs_share_nothing() -> None:
    facades = [standard_facades(seed=1, run_code=lambda r: CodeReply(0, "", ""), write=print) for _ in range(2)]
    first, second = ([f["random"].random() for _ in range(3)] for f in facades)
    assert first == second
    facades[0]["sys"].argv.append("x")
    assert facades[1]["sys"].argv == ["program.py"]


def test_ids_do_not_depend_on_memory() -> None:
    source = "a, b = [], []\nprint(id(a), id(b), id(a), id(a) == id(b), len({id(object()) for _ in range(50)}))\n"
    assert run(source).printed == "1 2 1 False 50\n"


def test_copies_of_streams_and_modules_are_the_originals() -> None:
    outcome = run("import copy, sys\nprint(copy.deepcopy(sys.stdout) is sys.stdout, copy.deepcopy(copy) is copy)\n")
    assert (outcome.reason, outcome.printed) == ("", "True True\n")


@pytest.mark.thorough
def test_nothing_that_is_not_iterable_can_be_iterated_without_end() -> None:
    """Python asks objects that have `__getitem__` and no `__iter__` for item 0, 1, 2, ... until one raises."""
    facades = standard_facades(seed=1, run_code=lambda r: CodeReply(0, "", ""), write=print)
    names = {f"{module}.{name}" for module, values in facades.items() for name in facade_values(values)} | {"type"}
    for path in sorted(names):
        module, _, _ = path.rpartition(".")
        read = f"import {module}\n" if module else ""
        read += f"try:\n    x = iter({path})\nexcept TypeError:\n    x = []\n"
        assert run(f"{read}for n, _ in enumerate(x):\n    if n > 9999: raise ValueError\n").reason == "", path
