# ruff: noqa: E501  (hostile one-liners)
"""Wrong solutions that want to pass their tests, by any means but solving them.

The problem: `square(x)` returns the square of a number, tested by asserts, by calls, and as a script (`__main__` reads a
number and prints). Contained means that no test passes. Solving is done elsewhere: whoever runs these brings a grader.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import Attack

EQUAL = "class E{base}:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
VERDICT = '{"test": "pass", "detail": ""}'
WRONG = "\ndef square(x): return -7\n"
SOLUTIONS = {
    "equal to everything": EQUAL.format(base="") + "    def __bool__(self): return True\ndef square(x): return E()",
    "an int equal to everything": EQUAL.format(base="(int)") + "def square(x): return E(7)",
    "a list equal to everything": EQUAL.format(base="(list)") + "def square(x): return E()",
    "verdicts printed": f"print('{VERDICT}\\n{{\"done\": true}}')" + WRONG,
    "verdicts on every descriptor": (
        "import os\nfor fd in range(1, 20):\n"
        f"    try: os.write(fd, b'{VERDICT}\\n' * 3)\n    except OSError: pass" + WRONG
    ),
    "leaves at once": "import os\nos._exit(0)",
    "leaves when called": "import os\ndef square(x): os._exit(0)",
    "exits when called": "import sys\ndef square(x): sys.exit(0)",
    "asserts switched off": "import builtins, sys\nbuiltins.AssertionError = type('A', (Exception,), {})\nsys.flags = None"
    + WRONG,
    "comparison replaced": "import builtins, operator\nbuiltins.bool = builtins.all = lambda *a: True\noperator.eq = lambda a, b: True"
    + WRONG,
    "JSON replaced": "import json\njson.dumps = lambda *a, **k: '{\"value\": 9}'\njson.loads = lambda *a, **k: {}"
    + WRONG,
    "the harness replaced": (
        "import gc, types\nfor o in gc.get_objects():\n"
        "    if type(o) is types.FunctionType and o.__module__ == '__main__' and o.__name__ != 'square':\n"
        "        try: o.__code__ = (lambda *a, **k: 9).__code__\n        except (ValueError, TypeError): pass" + WRONG
    ),
    "frames searched for the expected value": (
        "import sys\ndef square(x):\n    f = sys._getframe()\n    while f:\n"
        "        for n, v in f.f_locals.items():\n            if n in ('expected', 'want', 'gold', 'right'): return v\n"
        "        f = f.f_back\n    return -7"
    ),
    "files searched for the tests": (
        "import os, re\ndef square(x):\n    for root in ('.', '/proc/self/fd', '/tmp', os.path.expanduser('~')):\n"
        "        try: names = os.listdir(root)\n        except OSError: continue\n        for name in names:\n"
        "            try: found = re.search(r'== (\\d+)', open(os.path.join(root, name)).read(10000))\n"
        "            except (OSError, UnicodeDecodeError, ValueError): continue\n"
        "            if found: return int(found[1])\n    return -7"
    ),
    "stdin read ahead": "import sys\nahead = sys.stdin.readline()\nprint(ahead)" + WRONG,
    "a flood instead of an answer": "def square(x):\n    while True: print('9')",
    "memory instead of an answer": "def square(x):\n    return [0] * 10**10",
    "sleep instead of an answer": "import time\ndef square(x): time.sleep(600)",
    "a nonce guessed": "import json\nfor n in range(1000): print(json.dumps({'nonce': '%016x' % n, 'value': 9}))"
    + WRONG,
}
ATTACKS = [Attack("grade changed", name, "grade", source + "\n", lasts=True) for name, source in SOLUTIONS.items()]
