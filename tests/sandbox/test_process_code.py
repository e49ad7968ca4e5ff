"""Code runs: they behave as `python -c` does, in both modes, and every limit is reported as itself."""

import subprocess
import sys

import pytest
from jails import SHORT, Jail

SNIPPETS = {
    "print": "print('a', 1, sep='-')",
    "stderr": "import sys; print('x'); print('e', file=sys.stderr)",
    "stdin_lines": "import sys\nfor line in sys.stdin: print(line.strip().upper())",
    "stdin_all": "import sys; print(len(sys.stdin.read()))",
    "input": "print(input('? ') + input())",
    "input_at_end": "input(); input(); input()",
    "stdin_bytes": "import sys; print(sys.stdin.buffer.read())",
    "stdin_fd": "import os; print(os.read(0, 100))",
    "streams": "import sys; print([(s.seekable(), s.isatty(), s.encoding, s.errors) for s in "
    "(sys.stdin, sys.stdout, sys.stderr)], file=sys.stderr)",
    "exit_none": "import sys; print(1); sys.exit()",
    "exit_zero": "raise SystemExit(0)",
    "exit_number": "import sys; sys.exit(7)",
    "exit_negative": "import sys; sys.exit(-1)",
    "exit_large": "import sys; sys.exit(1000)",
    "exit_true": "import sys; sys.exit(True)",
    "exit_text": "import sys; sys.exit('bye')",
    "exit_tuple": "raise SystemExit(1, 2)",
    "exit_120": "raise SystemExit(120)",
    "exit_121": "raise SystemExit(121)",
    "exit_unprintable": "class E:\n def __str__(self): raise ValueError\nraise SystemExit(E())",
    "os_exit": "import os; print('lost'); os._exit(5)",
    "quit": "print(1); quit(3)",
    "raise": "def f():\n    raise ValueError('no: \u00e9')\nf()",
    "raise_chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "raise_in_class": "class A:\n    x = 1 / 0",
    "raise_group": "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
    "raise_interrupt_in_generator": "def g():\n    yield 1\n    raise RuntimeError('g')\nlist(g())",
    "syntax_error": "print('never')\nif:",
    "null_byte": "x = 1\x00",
    "assertion": "assert 1 == 2, 'differ'",
    "import_error": "import no_such_module_anywhere",
    "excepthook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0",
    "atexit": "import atexit; atexit.register(print, 'last'); print('first')",
    "atexit_after_error": "import atexit; atexit.register(print, 'last'); 1 / 0",
    "thread": "import threading\nt = threading.Thread(target=lambda: print('in thread'))\nt.start()",
    "thread_error": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join(); print('on')",
    "pool": "from concurrent.futures import ThreadPoolExecutor as P\n"
    "with P(4) as p: print(sum(p.map(lambda x: x * x, range(50))))",
    "asyncio": "import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x\n"
    "async def main(): print(await asyncio.gather(*map(f, range(5))))\nasyncio.run(main())",
    "asyncio_thread": "import asyncio\nasync def main(): print(await asyncio.to_thread(sum, [1]))\nasyncio.run(main())",
    "alarm": "import signal, time\ndef ring(*a): raise TimeoutError('rang')\n"
    "signal.signal(signal.SIGALRM, ring)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(5)",
    "unicode": "print('\u65e5\u672c \U0001f600 \u00e9')",
    "surrogate": "print('\\ud800')",
    "open_file_at_end": "f = open('kept', 'w'); f.write('hi')\nimport atexit; atexit.register(lambda: print(f.name))",
    "replaced_stdout": "import io, sys; print('kept'); sys.stdout = io.StringIO(); print('lost')",
    "no_stdout": "import sys; print('a'); sys.stdout = None; print('b')",
    "closed_stdout": "import sys; print('a'); sys.stdout.close()",
    "finaliser": "class A:\n def __del__(self): print('gone')\na = A(); b = [a]; a.b = b",
    "main_module": "import sys; m = sys.modules['__main__']\n"
    "print(__name__, vars(m) is globals(), sys.argv, __builtins__.len)",
    "pickle": "import pickle\nclass P:\n    x = 3\nprint(pickle.loads(pickle.dumps(P())).x)",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass D:\n x: int = 1\nprint(D(2), __annotations__)",
    "typing": "x: int = 3\nfrom typing import get_type_hints\nclass C:\n    y: 'int'\nprint(get_type_hints(C))",
    "recursion": "def f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError: print('deep')",
    "temporary": "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'x'); f.seek(0); print(f.read())\n"
    "with tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').write('y')\nprint('ok')",
    "files": "import os, shutil\nos.mkdir('d'); open('d/a', 'w').write('1'); shutil.copy('d/a', 'd/b')\n"
    "os.rename('d/b', 'c'); print(open('c').read(), sorted(os.listdir('.'))); shutil.rmtree('d')",
    "libraries": "import json, decimal, sqlite3, zlib, hashlib, csv, uuid, random, heapq, bisect, statistics, ctypes\n"
    "print(hashlib.sha256(zlib.compress(b'x')).hexdigest()[:4], sqlite3.connect(':memory:').execute('select 6 * 7')"
    ".fetchone())",
    "deep_thread": "import sys, threading\nsys.setrecursionlimit(50_000)\nthreading.stack_size(64 << 20)\n"
    "def f(n): return n and f(n - 1)\nt = threading.Thread(target=lambda: print(f(20_000)))\nt.start()\nt.join()",
    "selector": "import selectors, os\ns = selectors.DefaultSelector()\nr, w = os.pipe()\n"
    "s.register(r, selectors.EVENT_READ)\nos.write(w, b'x')\nprint(len(s.select(1)))",
    "segfault": "import ctypes; print('lost'); ctypes.string_at(0)",
}
STDIN = "one\ntwo\n"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[bytes]]:
    """What `python -c` makes of each snippet."""
    results = {}
    for name, code in SNIPPETS.items():
        if "\x00" in code:
            continue
        results[name] = subprocess.run(
            [sys.executable, "-X", "utf8", "-c", code],
            input=STDIN.encode(),
            capture_output=True,
            cwd=tmp_path_factory.mktemp(name),
            env={"PATH": "/nonexistent", "PYTHONHASHSEED": "0"},
            check=False,
            timeout=30,
        )
    return results


@pytest.fixture(scope="module")
def inside(jail: Jail) -> dict:
    runs = {name: jail.sandbox.run_code(code, stdin=STDIN, limits=SHORT) for name, code in SNIPPETS.items()}
    return jail.run_all(runs, at_once=50)


@pytest.mark.parametrize("name", SNIPPETS)
def test_code_runs_as_python_runs_it(name, inside, plain):
    got = inside[name]
    assert "sandbox" not in got.stderr, "frames or paths of ours in a traceback"
    assert got.limit is None
    if name == "null_byte":
        assert (got.exit_status, got.stderr.splitlines()[-1][:6]) == (1, "Syntax") or "null byte" in got.stderr
        return
    expected = plain[name]
    assert got.stdout == expected.stdout.decode(errors="replace")
    if expected.returncode < 0:
        assert (got.exit_status, got.signal) == (None, -expected.returncode)
    else:
        assert (got.exit_status, got.signal) == (expected.returncode, None)
    theirs = expected.stderr.decode(errors="replace")
    if sys.version_info < (3, 13) and name != "thread_error":  # later ones show lines of -c code, and threads differ
        assert got.stderr == theirs
    assert got.stderr.splitlines()[-1:] == theirs.splitlines()[-1:]
    assert got.ok == (expected.returncode == 0)


@pytest.mark.parametrize("package", ["sandbox", "workflow", "engine", "called_functions"])
def test_our_own_packages_are_not_there(jail, package):
    result = jail.code(f"import {package}\nprint('imported')")
    assert result.exit_status == 1
    assert "imported" not in result.stdout


def test_the_environment_is_bare(jail):
    result = jail.code("import os; print(sorted(os.environ), os.path.samefile(os.environ['TMPDIR'], '.'))")
    assert result.stdout == "['HOME', 'LANG', 'PATH', 'TMPDIR'] True\n"


def test_output_that_is_not_text_is_kept_as_replacement_characters(jail):
    result = jail.code("import sys; sys.stdout.buffer.write(b'a\\xff\\x00b\\n'); sys.stderr.buffer.write(b'\\xc3')")
    assert (result.stdout, result.stderr) == ("a\ufffd\x00b\n", "\ufffd")


def test_stdin_that_nobody_reads_does_no_harm(jail):
    assert jail.code("print('done')", stdin="x" * 3_000_000).stdout == "done\n"


def test_large_stdin_arrives_whole(jail):
    text = "0123456789" * 300_000
    result = jail.code("import sys, zlib; print(zlib.crc32(sys.stdin.buffer.read()))", stdin=text)
    import zlib

    assert result.stdout == f"{zlib.crc32(text.encode())}\n"


def test_random_numbers_differ_between_runs(jail):
    code = "import random, uuid, os; print(random.random(), uuid.uuid4(), os.urandom(4).hex())"
    first, second = jail.code(code), jail.code(code)
    assert all(a != b for a, b in zip(first.stdout.split(), second.stdout.split(), strict=True))


def test_a_thread_that_never_ends_is_waited_for_until_the_wall_limit(jail):
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nprint('main is over')"
    result = jail.code(code, wall_s=0.5)
    assert (result.limit, result.stdout) == ("wall_s", "")


def test_a_daemon_thread_is_not_waited_for(jail):
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('over')"
    result = jail.code(code)
    assert result.ok
    assert result.stdout == "over\n"
    assert result.duration_s < 10


LIMITED = {
    "sleep": ("import time; time.sleep(60)", {"wall_s": 0.4}, "wall_s"),
    "spin": ("while True: pass", {"cpu_s": 1}, "cpu_s"),
    "spin_in_threads": (
        "import threading, zlib\ndata = b'x' * 10**7\ndef f():\n while True: zlib.crc32(data)\n"
        "for _ in range(4): threading.Thread(target=f).start()",
        {"cpu_s": 1},
        "cpu_s",
    ),
    "allocate": ("x = ' ' * 10**12", {}, "memory_mb"),
    "allocate_in_steps": ("x = []\nwhile True: x.append(bytearray(1 << 20))", {"memory_mb": 64}, "memory_mb"),
    "stdout": ("while True: print('x' * 1000)", {"output_bytes": 10_000}, "output_bytes"),
    "stderr": ("import sys\nwhile True: sys.stderr.write('x' * 1000)", {"output_bytes": 10_000}, "output_bytes"),
    "stdout_without_newline": ("import os\nwhile True: os.write(1, b'x' * 65536)", {}, "output_bytes"),
    "silent_after_much_output": (
        "import sys, time; sys.stdout.write('x' * 20_000); sys.stdout.flush(); time.sleep(60)",
        {"output_bytes": 10_000},
        "output_bytes",
    ),
}


@pytest.fixture(scope="module")
def limited(jail: Jail) -> dict:
    return jail.run_all(
        {
            name: jail.sandbox.run_code(code, limits=SHORT.model_copy(update=limits))
            for name, (code, limits, _) in LIMITED.items()
        }
    )


@pytest.mark.parametrize("name", LIMITED)
def test_each_limit_is_reported_as_itself(name, limited):
    result = limited[name]
    _, limits, expected = LIMITED[name]
    assert result.limit == expected
    assert not result.ok
    if expected == "output_bytes":
        assert len(result.stdout + result.stderr) == limits.get("output_bytes", SHORT.output_bytes)
    if expected == "memory_mb":
        assert result.exit_status == 1
        assert result.stderr.splitlines()[-1] == "MemoryError"
    if expected in ("wall_s", "cpu_s"):
        assert (result.exit_status, result.signal) == (None, 9)


def test_output_of_exactly_the_limit_is_no_excess(jail):
    result = jail.code("import sys; sys.stdout.write('x' * 500); sys.stderr.write('y' * 500)", output_bytes=1000)
    assert result.ok
    assert (len(result.stdout), len(result.stderr)) == (500, 500)
    assert jail.code("import sys; sys.stdout.write('x' * 1001)", output_bytes=1000).limit == "output_bytes"


def test_memory_within_the_limit_may_be_used(jail):
    assert jail.code("x = b'x' * (200 << 20); print(len(x))", memory_mb=256).ok
    assert jail.code("x = b'x' * (300 << 20); print(len(x))", memory_mb=256).limit == "memory_mb"


def test_a_caught_memory_error_is_no_excess(jail):
    result = jail.code("try: ' ' * 10**12\nexcept MemoryError: print('caught')")
    assert result.ok
    assert result.stdout == "caught\n"


def test_a_file_cannot_grow_past_the_disk_limit(jail):
    code = "f = open('big', 'wb')\nfor _ in range(8): f.write(b'x' * (1 << 20)); f.flush()"
    result = jail.code(code, disk_mb=2)
    assert result.exit_status == 1
    assert "File too large" in result.stderr or "No space left" in result.stderr
    assert jail.code(code, disk_mb=9).ok


def test_all_files_together_cannot_grow_past_the_disk_limit(jail):
    if jail.mode == "j0":
        pytest.skip("mode j0 limits single files only")
    code = "for n in range(8):\n with open(str(n), 'wb') as f: f.write(b'x' * (1 << 20))"
    result = jail.code(code, disk_mb=4)
    assert "No space left on device" in result.stderr
    result = jail.code("for n in range(10_000): open(str(n), 'w').close()")
    assert "No space left on device" in result.stderr, "the number of files is limited too"
