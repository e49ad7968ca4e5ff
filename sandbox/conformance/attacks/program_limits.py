# ruff: noqa: E501  (hostile one-liners)
"""Programs that use things up: memory, time, the compiler, the stack, output, tool runs."""

from __future__ import annotations

from sandbox.conformance.attacks.attack import REFUSED, Attack

LIMITS: dict[str, float] = {"cpu_s": 1, "wall_s": 5, "memory_mb": 64, "output_bytes": 1 << 16}
QUICK = {**LIMITS, "wall_s": 0.3}
ENDS = (*REFUSED, "limit:cpu_s", "limit:wall_s", "limit:memory_mb", "limit:output_bytes", "limit:tool_calls")


def _bomb(family: str, name: str, source: str, limits: dict[str, float] = LIMITS, *, may_end: bool = False) -> Attack:
    ends = (*ENDS, "answer") if may_end else ENDS
    return Attack(family, name, "program", source + "\n", ends=ends, limits=limits, lasts=True)


ATTACKS = [
    _bomb("allocation", "in a loop", "x = []\nwhile True: x.append(' ' * 10**6)"),
    _bomb("allocation", "iterators without end", "import itertools\nlist(itertools.count())"),
    _bomb("allocation", "a list that doubles", "x = [0]\nwhile True: x += x"),
    _bomb("giant string", "one multiplication", "x = ' ' * 10**12"),
    _bomb("giant string", "a format width", "x = f'{1:>{10**12}}'"),
    _bomb("giant string", "join", "x = 'a'\nwhile True: x = x.join([x] * 100)"),
    _bomb("giant number", "a tower", "x = 9 ** 9 ** 9", QUICK),
    _bomb("giant number", "a shift", "x = 1 << 10**13"),
    _bomb("int to str", "str", "x = str(3 ** 10**6)"),
    _bomb("int to str", "format", "x = f'{3 ** 10**6}'"),
    _bomb("int to str", "parsing", "x = int('9' * 10**6)"),
    _bomb("regex backtracking", "alternatives", "import re\nre.match(r'(a|aa)+$', 'a' * 60 + 'b')", QUICK),
    _bomb("regex backtracking", "nested stars", "import re\nre.match(r'(a*)*$', 'a' * 60 + 'b')", QUICK),
    _bomb("compile bomb", "minus signs", "x = " + "-" * 200_000 + "1"),
    _bomb("compile bomb", "a sum", "x = " + "+".join(["1"] * 20_000)),
    _bomb("compile bomb", "brackets", "x = " + "(" * 5000 + ")" * 5000),
    _bomb("compile bomb", "comprehensions", "x = " + "[" * 150 + "1" + " for a in b]" * 150),
    _bomb("compile bomb", "constants to fold", "x = " + "'a' * 4096 * " * 20 + "1"),
    _bomb("compile bomb", "attributes", "x = question" + ".x" * 50_000),
    _bomb("compile bomb", "indentation", "".join(" " * n + "if 1:\n" for n in range(150)) + " " * 150 + "x = 1"),
    _bomb("recursion", "a function", "def f(n): return f(n + 1)\nf(0)"),
    _bomb("recursion", "a workflow in itself", "from workflow import Workflow\nw = Workflow('w')\nw.add_node(w)\nw.run(question)"),
    _bomb("recursion", "nested generators", "def g(n): yield from g(n + 1)\nlist(g(0))"),
    _bomb("cyclic repr", "a class", "class A:\n    def __repr__(self): return repr([self])\nprint(A())"),
    _bomb(
        "cyclic repr",
        "a message",
        "from workflow import Message\nm = Message('x')\nm.metadata['me'] = m\nprint(m)\nx = m == m",
        may_end=True,
    ),
    _bomb("cyclic repr", "an exception", "class E(Exception):\n    def __str__(self): return str(self)\nraise E()"),
    _bomb("json bomb", "brackets", "import json\njson.loads('[' * 1_000_000)"),
    _bomb("json bomb", "a cycle to write", "import json\nx = []\nx.append(x)\njson.dumps(x)"),
    _bomb("output flood", "print", "while True: print('flood ' * 100)"),
    _bomb("output flood", "one line", "print('x' * 20_000_000)"),
    _bomb("endless sleep", "sleep", "import time\ntime.sleep(10**9)\nwhile True: time.sleep(1)", QUICK),
    _bomb(
        "endless sleep",
        "every error swallowed",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        QUICK,
    ),
    _bomb("task flood", "tasks that nobody awaits", "import asyncio\nasync def f():\n    while True: asyncio.create_task(f())\nasyncio.run(f())"),
    _bomb("task flood", "a pool in a pool", "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor()\ndef f(): return p.submit(f).result()\nf()"),
    _bomb("task flood", "branches without end", "import asyncio\nasync def f(): asyncio.create_task(f())\nasync def main():\n    while True: await asyncio.gather(*(f() for _ in range(100)))\nasyncio.run(main())"),
    _bomb("task flood", "a callback that starts the next", "import asyncio\nasync def f(): pass\nasync def main():\n    def again(task): asyncio.create_task(f()).add_done_callback(again); time.sleep(1)\n    again(None)\nimport time\nasyncio.run(main())\n1 / 0"),
    _bomb(
        "fork bomb",
        "tool code",
        "import subprocess\nwhile True: subprocess.run(['python', '-c', '1'])",
        {**LIMITS, "tool_calls": 10},
    ),
    _bomb(
        "output flood",
        "of a tool",
        "import subprocess\nprint(subprocess.run(['python', '-c', 'while True: print(1)']).returncode)\n1 / 0",
    ),
    _bomb(
        "allocation",
        "agents without end",
        "from workflow import AgentNode, EnsembleNode\n"
        "EnsembleNode('e', [AgentNode(str(n), 'x') for n in range(10**4)]).process(None)",
    ),
]  # fmt: skip
