"""Code runs as `python -c` runs it: the same output, traceback and exit status, whatever jail it is in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import zlib

from sandbox.conformance.scripted import SHORT
from sandbox.conformance.subject import Subject
from sandbox.conformance.suite import check, together
from sandbox.protocol import CodeResult

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
    "finaliser_of_old": "import gc\nclass A:\n def __del__(self): print('gone')\n"
    "a = A(); b = [a]; a.b = b\nfor _ in range(3): gc.collect()",
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


def plain(code: str) -> subprocess.CompletedProcess[bytes]:
    """What `python -c` makes of it."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [sys.executable, "-X", "utf8", "-c", code],
            input=STDIN.encode(),
            capture_output=True,
            cwd=folder,
            env={"PATH": "/nonexistent", "PYTHONHASHSEED": "0"},
            check=False,
            timeout=30,
        )


@check("code")
async def code_runs_as_python_runs_it(subject: Subject) -> None:
    inside: dict[str, CodeResult] = await together(
        {name: subject.code(code, stdin=STDIN) for name, code in SNIPPETS.items()}, at_once=16
    )
    names = [name for name, code in SNIPPETS.items() if "\x00" not in code]
    outside = await together({name: asyncio.to_thread(plain, SNIPPETS[name]) for name in names})
    version = (await subject.code("import sys; print(sys.version_info[:2])")).stdout.strip()
    # Later versions show lines of -c code, and threads differ.
    alike = version == str(sys.version_info[:2]) and sys.version_info < (3, 13)
    wrong = {}
    for name in names:
        got, expected = inside[name], outside[name]
        theirs = expected.stderr.decode(errors="replace")
        status, signal = got.exit_status, got.signal
        same = (
            "sandbox" not in got.stderr  # no frames or paths of ours in a traceback
            and got.limit is None
            and got.stdout == expected.stdout.decode(errors="replace")
            and (status if signal is None else -signal) == expected.returncode
            and got.ok == (expected.returncode == 0)
            and got.stderr.splitlines()[-1:] == theirs.splitlines()[-1:]
            and (not alike or name == "thread_error" or got.stderr == theirs)
        )
        if not same:
            wrong[name] = (got, expected)
    assert not wrong, wrong
    null = inside["null_byte"]
    assert null.exit_status == 1
    drawn = [await subject.code("import random; print(random.random(), random.gauss(0, 1))") for _ in range(3)]
    assert len({run.stdout for run in drawn}) == 3, "each run starts with another seed, as each Python does"
    assert "null byte" in null.stderr or "SyntaxError" in null.stderr


@check("code")
async def our_own_packages_are_not_there(subject: Subject) -> None:
    for package in ("sandbox", "workflow", "engine"):
        result = await subject.code(f"import {package}\nprint('imported')")
        assert result.exit_status == 1, package
        assert "imported" not in result.stdout


@check("code")
async def the_environment_is_bare(subject: Subject) -> None:
    result = await subject.code("import os; print(sorted(os.environ), os.path.samefile(os.environ['TMPDIR'], '.'))")
    assert result.stdout == "['HOME', 'LANG', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH', 'TMPDIR'] True\n"


@check("code")
async def output_that_is_not_text_is_kept_as_replacement_characters(subject: Subject) -> None:
    code = "import sys; sys.stdout.buffer.write(b'a\\xff\\x00b\\n'); sys.stderr.buffer.write(b'\\xc3')"
    result = await subject.code(code)
    assert (result.stdout, result.stderr) == ("a\ufffd\x00b\n", "\ufffd")


@check("code")
async def stdin_arrives_whole_or_not_at_all(subject: Subject) -> None:
    assert (await subject.code("print('done')", stdin="x" * 3_000_000)).stdout == "done\n", "nobody reads it"
    text = "0123456789" * 300_000
    result = await subject.code("import sys, zlib; print(zlib.crc32(sys.stdin.buffer.read()))", stdin=text)
    assert result.stdout == f"{zlib.crc32(text.encode())}\n"


@check("code")
async def random_numbers_differ_between_runs(subject: Subject) -> None:
    code = "import random, uuid, os; print(random.random(), uuid.uuid4(), os.urandom(4).hex())"
    first, second = await subject.code(code), await subject.code(code)
    assert all(a != b for a, b in zip(first.stdout.split(), second.stdout.split(), strict=True))


@check("code")
async def threads_are_waited_for_and_daemon_threads_are_not(subject: Subject) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nprint('main is over')"
    result = await subject.code(code, wall_s=0.5)
    assert (result.limit, result.stdout) == ("wall_s", "")
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('over')"
    result = await subject.code(code)
    assert (result.ok, result.stdout) == (True, "over\n")
    assert result.duration_s < SHORT.wall_s


# Conversations with a process that runs

ECHO = "import sys\nfor line in sys.stdin:\n    print('got', line.strip(), flush=True)\nprint('over')"


@check("conversations")
async def an_echo_process_answers_line_by_line(subject: Subject) -> None:
    process = await subject.sandbox.start_code(ECHO, limits=SHORT)
    for n in range(5):
        await process.write(f"{n}\n".encode())
        assert await process.readline() == f"got {n}\n".encode()
    await process.close_stdin()
    assert await process.readline() == b"over\n"
    assert await process.readline() == b""
    assert await process.readline() == b"", "the end stays the end"
    result = await process.wait()
    assert result.ok
    assert result.stdout.splitlines() == [*(f"got {n}" for n in range(5)), "over"]


@check("conversations")
async def a_last_line_without_newline_is_a_line(subject: Subject) -> None:
    process = await subject.sandbox.start_code("print('a'); print('b', end='')", limits=SHORT)
    assert [await process.readline() for _ in range(3)] == [b"a\n", b"b", b""]


@check("conversations")
async def killing_ends_the_process_and_the_lines(subject: Subject) -> None:
    process = await subject.sandbox.start_code(ECHO, limits=SHORT)
    await process.write(b"x\n")
    assert await process.readline() == b"got x\n"
    reading = asyncio.create_task(process.readline())
    await asyncio.sleep(0)
    await process.kill()
    assert await reading == b""
    await subject.all_gone()
    result = await process.wait()
    assert (result.signal, result.exit_status, result.limit) == (9, None, None)


@check("conversations")
async def writing_to_a_process_that_does_not_listen_is_swallowed(subject: Subject) -> None:
    dead = await subject.sandbox.start_code("print('gone')", limits=SHORT)
    await dead.wait()
    for _ in range(10):
        await dead.write(b"anybody there?\n" * 10_000)
    await dead.close_stdin()
    await dead.close_stdin()
    await dead.kill()
    assert (await dead.wait()).stdout == "gone\n"
    code = "import os, sys, time\nos.close(0)\nprint('closed', flush=True)\ntime.sleep(0.2)"
    deaf = await subject.sandbox.start_code(code, limits=SHORT)
    assert await deaf.readline() == b"closed\n"
    for _ in range(10):
        await deaf.write(b"x" * 100_000)
    await deaf.close_stdin()
    assert (await deaf.wait()).ok


@check("conversations")
async def a_writer_waits_while_the_process_does_not_read(subject: Subject) -> None:
    code = (
        "import sys\nprint('up', flush=True)\nwhile len(line := sys.stdin.readline()) < 10: pass\nprint(len(line) - 1)"
    )
    process = await subject.sandbox.start_code(code, limits=SHORT)
    assert await process.readline() == b"up\n"
    await asyncio.wait_for(process.write(b"x" * 3_000_000 + b"\n"), 30)
    assert await process.readline() == b"3000000\n"
    assert (await process.wait()).ok


@check("conversations")
async def limits_end_a_conversation(subject: Subject) -> None:
    limits = SHORT.model_copy(update={"wall_s": 0.3})
    process = await subject.sandbox.start_code("import time; time.sleep(60)", limits=limits)
    assert await process.readline() == b""
    assert (await process.wait()).limit == "wall_s"
    limits = SHORT.model_copy(update={"output_bytes": 5000})
    process = await subject.sandbox.start_code("import os\nwhile True: os.write(1, b'x' * 1000)", limits=limits)
    assert await process.readline() == b"x" * 5000, "a line is never longer than the output limit"
    assert await process.readline() == b""
    assert (await process.wait()).limit == "output_bytes"


@check("conversations")
async def many_conversations_at_once(subject: Subject) -> None:
    async def one(n: int) -> list[bytes]:
        process = await subject.sandbox.start_code(ECHO, limits=SHORT)
        lines = []
        for turn in range(10):
            await process.write(f"{n}.{turn}\n".encode())
            lines.append(await process.readline())
        await process.close_stdin()
        assert (await process.wait()).ok
        return lines

    for n, lines in enumerate(await asyncio.gather(*map(one, range(8)))):
        assert lines == [f"got {n}.{turn}\n".encode() for turn in range(10)]
