# ruff: noqa: E501  (hostile one-liners)
"""Code that uses things up, crashes, or lies about how it ended: each must end as its limits say."""

from __future__ import annotations

from sandbox.conformance.attacks.attack import Attack

LIMITS: dict[str, float] = {"wall_s": 20, "cpu_s": 10, "memory_mb": 256}
TIGHT: dict[str, float] = {**LIMITS, "cpu_s": 1, "wall_s": 20}
QUICK: dict[str, float] = {**LIMITS, "wall_s": 0.25}
SMALL: dict[str, float] = {**LIMITS, "memory_mb": 64}
IGNORE = """\
import signal, time
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
"""
MEMORY, WALL, CPU, OUTPUT = "limit:memory_mb", "limit:wall_s", "limit:cpu_s", "limit:output_bytes"
FAILS = ("exit", MEMORY, WALL, CPU)


def _bomb(
    family: str,
    name: str,
    source: str,
    *ends: str,
    says: tuple[str, ...] = (),
    limits: dict[str, float] = LIMITS,
) -> Attack:
    return Attack(family, name, "code", source + "\n", ends=ends, says=says, limits=limits, lasts=True)


ATTACKS: list[Attack] = [
    _bomb("allocation", "in a loop", "x = []\nwhile True: x.append([0] * 10**6)", MEMORY),
    _bomb("allocation", "outside Python's heap", "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 24))", "exit", MEMORY),
    _bomb("giant string", "one multiplication", "' ' * 10**12", MEMORY),
    _bomb("giant number", "a tower", "9 ** 9 ** 9", WALL, MEMORY, limits=QUICK),
    _bomb("giant number", "a shift", "1 << 10**13", *FAILS, limits=TIGHT),
    _bomb("int to str", "without the guard", "import sys; sys.set_int_max_str_digits(0); len(str(3 ** 10**7))", WALL, limits=QUICK),
    _bomb("int to str", "with the guard", "str(3 ** 10**6)", "exit", says=("Exceeds the limit",), limits=TIGHT),
    _bomb("regex backtracking", "alternatives", "import re; re.match(r'(a|aa)+$', 'a' * 60 + 'b')", WALL, limits=QUICK),
    _bomb("regex backtracking", "in a thread",
          "import re, threading\nthreading.Thread(target=re.match, args=(r'(a*)*$', 'a' * 60 + 'b')).start()", WALL, limits=QUICK),
    _bomb("compile bomb", "a long expression", "eval('+'.join(['1'] * 200_000))", *FAILS, limits=TIGHT),
    _bomb("compile bomb", "deep brackets", "eval('(' * 100_000 + ')' * 100_000)", *FAILS, limits=TIGHT),
    _bomb("compile bomb", "a constant to fold", "exec('x = ' + '-' * 200_000 + '1')", *FAILS, limits=TIGHT),
    _bomb("recursion", "unbounded",
          "import sys; sys.setrecursionlimit(10**9)\ndef f(): return [f() for _ in (1,)]\nf()", limits={**QUICK, "memory_mb": 64}),
    _bomb("recursion", "bounded by Python", "def f(): return f()\nf()", "exit", says=("RecursionError",), limits=TIGHT),
    _bomb("cyclic repr", "a class", "class A:\n def __repr__(self): return repr([self])\nrepr(A())", "exit", says=("RecursionError",)),
    _bomb("cyclic repr", "deeply nested", "x = []\nfor _ in range(10**6): x = [x]\nrepr(x)", "exit", "signal:11", WALL, MEMORY, CPU, limits=TIGHT),
    _bomb("zip bomb", "zlib",
          "import zlib\nbomb = zlib.compress(bytes(10**7), 9)\nx = []\nwhile True: x.append(zlib.decompress(bomb))", MEMORY, limits=SMALL),
    _bomb("zip bomb", "an archive",
          "import io, zipfile\nf = io.BytesIO()\nz = zipfile.ZipFile(f, 'w', zipfile.ZIP_DEFLATED)\nz.writestr('x', bytes(60 << 20))\n"
          "x = []\nwhile True: x.append(z.read('x'))", MEMORY, limits={**LIMITS, "memory_mb": 128}),
    _bomb("json bomb", "brackets", "import json; json.loads('[' * 10**6)", "exit", says=("RecursionError",)),
    _bomb("json bomb", "XML entities",
          "import xml.dom.minidom as m\n"
          "e = ''.join(f'<!ENTITY e{n} \"' + f'&e{n-1};' * 10 + '\">' for n in range(1, 12))\n"
          "m.parseString('<!DOCTYPE x [<!ENTITY e0 \"ha\">' + e + ']><x>&e11;</x>')", *FAILS, limits=TIGHT),
    _bomb("thread bomb", "of threading",
          "import threading, time\nthreading.stack_size(32768)\n"
          "while True:\n threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", limits={**LIMITS, "wall_s": 0.8}),
    _bomb("thread bomb", "of pools",
          "from concurrent.futures import ThreadPoolExecutor as P\nimport time\n"
          "while True: P(50).map(time.sleep, [600] * 50)", limits={**LIMITS, "wall_s": 0.8}),
    _bomb("fork bomb", "fork", "import os\nwhile True:\n try: os.fork()\n except OSError: pass", WALL, limits=QUICK),
    _bomb("fork bomb", "exec",
          "import os, sys\nwhile True:\n try: os.posix_spawn(sys.executable, ['x', '@MARK@'], {})\n except OSError: pass", WALL,
          limits=QUICK),
    _bomb("descriptors used up", "files",
          "import os\nfds = []\ntry:\n while True: fds.append(os.open('.', os.O_RDONLY))\n"
          "except OSError as e: print(e.errno == 24, len(fds) < 1100)", "ok", says=("True True",)),
    _bomb("descriptors used up", "pipes and socket pairs full of data",
          "import os, socket\nn = 0\ntry:\n while True:\n  a, b = socket.socketpair(); a.setblocking(False)\n"
          "  try:\n   while True: n += a.send(b'x' * 65536)\n  except BlockingIOError: pass\n"
          "  a.detach(); b.detach()\nexcept OSError as e: print(e.errno in (24, 105), n < 64 << 20)", "ok", says=("True True",)),
    _bomb("disk fill", "many files",
          "n = 0\ntry:\n while True:\n  with open(str(n), 'wb') as f: f.write(bytes(1 << 20)); n += 1\n  assert n < 200\n"
          "except (OSError, AssertionError) as e: print(n < 66, type(e).__name__)"),
    _bomb("disk fill", "a sparse file",
          "f = open('x', 'wb')\ntry: f.truncate(1 << 40); print('ESCAPED')\nexcept OSError as e: print('refused')", "ok", says=("refused",)),
    _bomb("disk fill", "one file",
          "f = open('x', 'wb')\ntry:\n for n in range(200): f.write(bytes(1 << 20)); f.flush()\n print('ESCAPED')\n"
          "except OSError as e: print('refused')", "ok", says=("refused",)),
    _bomb("output flood", "stdout", "while True: print('flood ' * 1000)", OUTPUT),
    _bomb("output flood", "stderr", "import os\nwhile True: os.write(2, b'flood ' * 1000)", OUTPUT),
    _bomb("output flood", "one line without end", "import os\nwhile True: os.write(1, b'x' * 65536)", OUTPUT),
    _bomb("endless sleep", "all signals ignored", IGNORE + "while True: time.sleep(1000)", WALL, limits={**LIMITS, "wall_s": 0.5}),
    _bomb("endless sleep", "burning with all signals ignored", IGNORE + "while True: pass", CPU, limits={**TIGHT, "wall_s": 60}),
    _bomb("endless sleep", "an exit that hangs", "import atexit, time\natexit.register(time.sleep, 600)", WALL,
          limits={**LIMITS, "wall_s": 0.5}),
    _bomb("endless sleep", "a finaliser that hangs", "class A:\n def __del__(self):\n  while True: pass\na = A()", WALL, limits=QUICK),
    _bomb("raw memory", "a null pointer", "import ctypes; ctypes.string_at(0)", "signal:11"),
    _bomb("raw memory", "a smashed stack",
          "import ctypes; ctypes.memset(ctypes.addressof(ctypes.create_string_buffer(8)) - 10**6, 65, 10**9)",
          "signal:11", "signal:6", "signal:7"),
    _bomb("pickle and marshal", "nonsense as code",
          "import types\nf = lambda: 0\nf.__code__ = f.__code__.replace(co_code=b'\\x64\\xff' * 50, co_consts=())\nf()", limits=TIGHT),
    _bomb("pickle and marshal", "a pickle that runs code",
          "import pickle, os\nclass E:\n def __reduce__(self): return os.kill, (@HOST@, 10)\n"
          "try: pickle.loads(pickle.dumps(E()))\nexcept OSError: print('refused')", "ok", says=("refused",)),
    _bomb("pickle and marshal", "marshalled bytes",
          "import marshal, os\ntry: exec(marshal.loads(os.urandom(1000)))\nexcept (ValueError, EOFError, TypeError): print('refused')",
          limits=TIGHT),
    _bomb("forged end", "exit statuses with a meaning", "import os; os.write(2, b'jail: OSError: no walls'); os._exit(120)",
          "exit", says=("no walls",)),
    _bomb("forged end", "a claim to have run out of memory", "import os; os.write(2, b'MemoryError'); os._exit(121)", MEMORY, "exit"),
    _bomb("forged end", "streams closed and swapped",
          "import os\nos.dup2(1, 0); os.close(1); os.close(2); os.dup2(0, 2)\nos.write(2, b'through\\n')\nos._exit(0)"),
    _bomb("shared class changed", "the interpreter turned inside out",
          "import sys, builtins, os, json\nsys.modules.clear(); builtins.__dict__.clear()"),
    _bomb("shared class changed", "modules and what the worker holds",
          "import json, os, gc\njson.poison = json.dumps = lambda *a: 'poisoned'\nos.read = os.write\n"
          "for o in gc.get_objects():\n"
          " if type(o) is dict and 'OUT_OF_MEMORY' in o: o['OUT_OF_MEMORY'] = 0; o['_status_of'] = print\n"
          "print(json.dumps(1))", "ok", says=("poisoned",)),
    _bomb("shared class changed", "a file left in the working folder",
          "open('json.py', 'w').write('poison = 1')\nopen('sitecustomize.py', 'w').write('print(1)')\nprint('left')", "ok", says=("left",)),
]  # fmt: skip
