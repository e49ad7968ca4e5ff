"""Programs that want more of a module of the standard library than what computes and touches nothing.

What lies behind its names; the machine that its namesake reaches; memory under its objects; what it tells a method of
the program's. Where an attack may come to its end, its hands must be empty.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import programs

BEHIND = {
    "ast": "import ast; keep(ast.sys.modules)",
    "calendar": "import calendar; keep(calendar.sys.modules)",
    "difflib": "import difflib; keep(difflib.SequenceMatcher.__init__.__globals__)",
    "graphlib": "import graphlib; keep(graphlib.TopologicalSorter()._node2info)",
    "hashlib": "import hashlib; keep(hashlib.__get_builtin_constructor)",
    "logging": "import logging; keep(logging.Logger.manager.loggerDict, logging.os)",
    "os.path": "import os.path; keep(os.path.genericpath.os)",
    "pathlib": "import pathlib; keep(pathlib.os.environ)",
    "platform": "import platform; keep(platform.os.environ)",
    "pprint": "import pprint; keep(pprint._sys.modules)",
    "queue": "import queue; keep(queue.threading)",
    "secrets": "import secrets; keep(secrets.SystemRandom)",
    "traceback": "import traceback; keep(traceback.sys.modules)",
    "types": "import types; keep(types.FunctionType, types.CodeType)",
    "urllib.parse": "import urllib.parse; keep(urllib.parse.re.enum.sys)",
    "uuid": "import uuid; keep(uuid.os.environ, uuid.getnode())",
    "warnings": "import warnings; keep(warnings.sys.modules)",
}
MACHINE = {
    "a file by io": "import io; keep(io.open('@CANARY@').read())",
    "a file by io.FileIO": "import io; keep(io.FileIO('@CANARY@').read())",
    "a file by os": "import os; keep(os.open('@CANARY@', 0))",
    "a file by pathlib": "import pathlib; keep(pathlib.Path('@CANARY@').read_text())",
    "is there a file": """
    import os.path, pathlib
    if os.path.exists('@CANARY@'): keep('it is there')
    """,
    "the environment": """
    import os
    if os.environ or os.getenv('PATH'): keep(dict(os.environ))
    """,
    "the folder and the process": """
    import os
    if os.getcwd() != '/' or os.getpid() > 1: keep(os.getcwd(), os.getpid())
    """,
    "the stack": "import traceback; keep(traceback.extract_stack())",
    "the frames of an error": """
    import traceback
    try: 1 / 0
    except ZeroDivisionError as error: keep([frame for frame in traceback.walk_tb(error.__traceback__)])
    """,
}
OTHERS = {
    "a log file": "import logging; logging.basicConfig(filename='@VICTIM@'); logging.error('x'); keep('written')",
    "a handler with a file": "import logging; logging.FileHandler('@VICTIM@', 'w'); keep('opened')",
    "a shell by asyncio": "import asyncio as a; a.run(a.create_subprocess_shell('sleep 60 @MARK@')); keep('on')",
    "a connection by asyncio": "import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', 9)); keep('open')",
    "a shell by os": "import os; os.system('sleep 60 @MARK@'); keep('started')",
    "an abstract class that all derive from": """
    import numbers
    numbers.Number.register(str)
    if isinstance('a', numbers.Number): keep('registered')
    """,
    "a level that others see": "import logging; logging.Logger.level = 3; keep('set')",
}
MEMORY = {
    "a buffer": "import io; keep(io.BytesIO(b'abc').getbuffer())",
    "a buffer by super": """
    import io
    class B(io.BytesIO):
        def f(self): return super().getbuffer()
    keep(B(b'abc').f())
    """,
    "a buffer by its name": "import io, operator; keep(operator.methodcaller('getbuffer')(io.BytesIO(b'abc')))",
    "a buffer by a pattern": """
    import io
    match io.BytesIO(b'abc'):
        case io.BytesIO(getbuffer=f): keep(f())
    """,
    "an address by a name": "import array, operator; keep(operator.attrgetter('buffer_info')(array.array('b', [1]))())",
}
SHRINKING = {
    "an array that shrinks under a number": """
    import array
    a = array.array('d', [0.0]) * 100000
    class F:
        def __float__(self):
            del a[:]
            return 1.0
    a[99999] = F()
    """,
    "a reader in its own lines": """
    import csv
    class Lines:
        asked = 0
        def __iter__(self): return self
        def __next__(self):
            Lines.asked += 1
            if Lines.asked == 1: next(reader)
            if Lines.asked < 4: return 'x,y'
            raise StopIteration
    reader = csv.reader(Lines())
    list(reader)
    """,
    "a reader of dicts in its own lines": """
    import csv
    def lines():
        yield 'a,b'
        next(reader)
        yield '1,2'
    reader = csv.DictReader(lines())
    list(reader)
    """,
}
TOLD = {
    "a function with what stands on a class": """
    import collections, contextlib
    keep(contextlib.contextmanager(collections.Counter).copy(int))
    """,
    "the same by a context manager": """
    import collections, contextlib
    @contextlib.contextmanager
    def f(): yield
    keep(f()(collections.Counter).copy(int))
    """,
    "the same by an asynchronous one": """
    import collections, contextlib
    keep(contextlib.asynccontextmanager(collections.Counter).copy(int))
    """,
    "the function behind a context manager": """
    import contextlib
    keep(contextlib.redirect_stdout(None).__class__.__mro__)
    """,
    "the traceback that a stack hands on": """
    import contextlib
    with contextlib.ExitStack() as stack:
        stack.push(lambda kind, error, trace: keep(getattr(trace, 'tb_' + 'frame')))
        1 / 0
    """,
    "the table of re by a delimiter": """
    import string
    class Text(str):
        def translate(self, table): keep(table); return str(self)
    class T(string.Template):
        delimiter = Text('$')
    """,
    "a function of string.Template": """
    import string
    class Pattern:
        def sub(self, convert, text): keep(convert); return text
    t = string.Template('$a')
    t.pattern = Pattern()
    t.substitute(a=1)
    """,
    "names by attrgetter": "import operator; keep(operator.attrgetter('__class__.__mro__')(1))",
    "what a dispatching function holds": """
    import functools
    @functools.singledispatch
    def f(x): pass
    keep(f.registry, f.__wrapped__)
    """,
}
TOLD_HERE = {
    "names by a text that lies": """
    import operator
    class Name(str):
        def split(self, *given): return [Name('__globals__')]
    keep(operator.attrgetter(Name('x'))(keep))
    """,
    "a module that output is redirected to": """
    import contextlib, json
    with contextlib.redirect_stdout(json): print('x')
    """,
}

ATTACKS = [
    *programs("submodule walk", {f"behind {name}": source for name, source in BEHIND.items()}),
    *programs(
        "modules", MACHINE, may_end=["is there a file", "the environment", "the folder and the process"]
    ),
    *programs("modules", OTHERS, control=False),
    *programs("raw memory", MEMORY, may_end=["a buffer by a pattern"]),
    *programs("raw memory", SHRINKING, control=False),
    *programs("library tells", TOLD, may_end=["the table of re by a delimiter"]),
    *programs("library tells", TOLD_HERE, control=False),
]  # fmt: skip
