"""Hostile programs: first against policy and jail together, then unguarded ones against the jail alone.

One entry or more for each family of attack. A program that gets hold of something says `ESCAPED`; `Outside` watches
from the other side, whatever it says. The policy's own tests are elsewhere; these run in real jails.
"""

import json
import re

import pytest
from jails import Jail, Scripted, jailed_processes, until, workflow_of
from outside import Outside

from engine.session import Run
from workflow.limits import Limits
from workflow.trace import AgentTurn, Trace

END = """
from workflow import AgentNode, Workflow
workflow = Workflow('w')
workflow.add_node(AgentNode('a', 'b'))
"""

# Introspection and modules: each must be refused before it runs, or fail, or print "blocked".
REFUSED = {
    "introspection: mro and subclasses": "print('ESCAPED', ().__class__.__mro__[1].__subclasses__())",
    "introspection: base": "print('ESCAPED', int.__base__)",
    "introspection: dunder built up for getattr": "print('ESCAPED', getattr((), '__cl' + 'ass__').mro())",
    "introspection: subclasses by getattr": "print('ESCAPED', getattr(object, '__sub' + 'classes__')())",
    "introspection: a str subclass as attribute name": """
class Name(str):
    def startswith(self, *a): return False
    def __eq__(self, other): return True
    def __hash__(self): return 0
print('ESCAPED', getattr((), Name('__class__')))
""",
    "introspection: str.format": "print('ESCAPED', '{0.__class__.__mro__}'.format(()))",
    "introspection: str.format by way of the class": "print('ESCAPED', str.format('{0.__class__}', ()))",
    "introspection: str.format in map": "print('ESCAPED', list(map('{0.__class__}'.format, [()])))",
    "introspection: str.format unbound in map": "print('ESCAPED', list(map(str.format, ['{0.__class__}'], [()])))",
    "introspection: format_map": "print('ESCAPED', '{a.__class__}'.format_map({'a': ()}))",
    "introspection: string.Formatter": "import string\nprint('ESCAPED', string.Formatter().format('{0.x}', ()))",
    "introspection: __format__ of a str subclass": """
class T(str):
    def __format__(self, spec): return 'ESCAPED'.lower()
print('ESCAPED' if '{0.__class__}'.format(T('x')) != 'escaped' else 'x')
""",
    "introspection: generator frame": "g = (x for x in [1])\nprint('ESCAPED', g.gi_frame)",
    "introspection: generator frame by getattr": "g = (x for x in [1])\nprint('ESCAPED', getattr(g, 'gi_' + 'frame'))",
    "introspection: generator code": "g = (x for x in [1])\nprint('ESCAPED', g.gi_code)",
    "introspection: coroutine frame": "async def f(): pass\nprint('ESCAPED', f().cr_frame)",
    "introspection: async generator frame": "async def f(): yield 1\nprint('ESCAPED', f().ag_frame)",
    "introspection: traceback frames": """
try:
    1 / 0
except Exception as e:
    print('ESCAPED', e.__traceback__.tb_frame.f_globals)
""",
    "introspection: traceback by with_traceback": """
try:
    1 / 0
except Exception as e:
    print('ESCAPED', getattr(e, '__trace' + 'back__'), e.with_traceback)
""",
    "introspection: context of an exception": """
try:
    try:
        1 / 0
    except Exception:
        raise ValueError
except Exception as e:
    print('ESCAPED', e.__context__)
""",
    "introspection: the object of an AttributeError": """
try:
    question.nothing
except AttributeError as e:
    print('ESCAPED', e.obj)
""",
    "introspection: builtins": "print('ESCAPED', __builtins__)",
    "introspection: builtins by import": "print('ESCAPED', __import__('builtins').open)",
    "introspection: function globals": "def f(): pass\nprint('ESCAPED', f.__globals__)",
    "introspection: function code": "def f(): pass\nprint('ESCAPED', f.__code__)",
    "introspection: globals of a node's method": (
        "from workflow import AgentNode\nprint('ESCAPED', AgentNode.process.__globals__)"
    ),
    "introspection: closure": "def f():\n    x = 1\n    return lambda: x\nprint('ESCAPED', f().__closure__)",
    "introspection: full-width names": "print('ESCAPED', ().\uff3f\uff3fclass\uff3f\uff3f)",
    "introspection: full-width names in getattr": "print('ESCAPED', getattr((), '\uff3f\uff3fclass\uff3f\uff3f'))",
    "introspection: self of a builtin": "print('ESCAPED', print.__self__)",
    "introspection: self of a bound method": "print('ESCAPED', [].append.__self__)",
    "introspection: a guard shadowed by assignment": "_getattr_ = lambda o, n: 'ESCAPED'\nprint(question.upper)",
    "introspection: a guard shadowed by an argument": "def f(_getattr_, /):\n    return ().x\nprint('ESCAPED', f(max))",
    "introspection: a guard shadowed by a star argument": "def f(*_getattr_): return ().x\nprint('ESCAPED', f(max))",
    "introspection: a guard shadowed by a lambda": "print('ESCAPED', (lambda _getattr_: ().x)(max))",
    "introspection: a guard shadowed by an import": "import math as _getattr_\nprint('ESCAPED', math.x)",
    "introspection: a guard shadowed by except": (
        "try:\n    1 / 0\nexcept Exception as _getattr_:\n    print('ESCAPED', ().x)"
    ),
    "introspection: a guard shadowed by with": "with open() as _getattr_:\n    print('ESCAPED', ().x)",
    "introspection: a guard shadowed by a walrus": "print('ESCAPED', [_getattr_ := max, ().x])",
    "introspection: a guard shadowed by for": "for _getattr_ in [max]:\n    print('ESCAPED', ().x)",
    "introspection: a guard shadowed by a comprehension": "print('ESCAPED', [().x for _getattr_ in [max]])",
    "introspection: a guard shadowed by a class": "class _getattr_: pass\nprint('ESCAPED', ().x)",
    "introspection: a guard shadowed by a match": ("match max:\n    case _getattr_:\n        print('ESCAPED', ().x)"),
    "introspection: a guard shadowed by del": "del _getattr_\nprint('ESCAPED', ().x)",
    "introspection: a guard shadowed by global": (
        "def f():\n    global _getattr_\n    _getattr_ = max\nf()\nprint('ESCAPED', ().x)"
    ),
    "introspection: except*": "try:\n    1 / 0\nexcept* Exception as e:\n    print('ESCAPED', e)",
    "introspection: __init_subclass__": """
from workflow import AgentNode
class A(AgentNode):
    def __init_subclass__(cls, **k): print('ESCAPED', cls)
class B(A): pass
""",
    "introspection: a metaclass": "class M(type): pass\nclass A(metaclass=M): pass\nprint('ESCAPED', A)",
    "introspection: type with three arguments": "print('ESCAPED', type('A', (), {'__init__': print}))",
    "introspection: __class_getitem__": "class A:\n    def __class_getitem__(cls, k): return k\nprint('ESCAPED', A[1])",
    "introspection: __getattribute__": "class A:\n    def __getattribute__(self, n): return 'ESCAPED'\nprint(A().x)",
    "introspection: a descriptor": "class A:\n    def __get__(self, o, t): print('ESCAPED', o, t)\n"
    "class B:\n    a = A()\nB().a",
    "introspection: __set_name__": """
class A:
    def __set_name__(self, owner, name): print('ESCAPED', owner)
class B:
    a = A()
""",
    "introspection: __reduce__ by copy": "import copy\nclass A:\n    def __reduce__(self): return print, ('ESCAPED',)\n"
    "copy.copy(A())",
    "introspection: eval in an annotation": "import typing\nclass A:\n    x: \"print('ESCAPED')\" = 1\n"
    "typing.get_type_hints(A)",
    "introspection: namedtuple with code for a name": (
        "from collections import namedtuple\nnamedtuple('A', ['x=print(1)'])\nprint('ESCAPED')"
    ),
    "modules: os": "import os\nprint('ESCAPED', os.environ)",
    "modules: os from inside another": "import random\nprint('ESCAPED', random._os)",
    "modules: sys.modules": "import sys\nprint('ESCAPED', sys.modules)",
    "modules: sys frames": "import sys\nprint('ESCAPED', sys._getframe())",
    "modules: ctypes": "import ctypes\nprint('ESCAPED', ctypes)",
    "modules: importlib": "import importlib\nprint('ESCAPED', importlib.import_module('os'))",
    "modules: a walk through submodules": "import json\nprint('ESCAPED', json.codecs.builtins.open)",
    "modules: a deeper walk": "import json\nprint('ESCAPED', json.decoder.scanner.re.enum.sys)",
    "modules: collections.abc.sys": "import collections.abc\nprint('ESCAPED', collections.abc.sys)",
    "modules: from a submodule": "from json import codecs\nprint('ESCAPED', codecs)",
    "modules: relative": "from . import process\nprint('ESCAPED', process)",
    "modules: star": "from math import *\nprint('ESCAPED', pi)",
    "modules: the sandbox itself": "import sandbox\nprint('ESCAPED', sandbox)",
    "modules: the worker": "import sandbox.worker\nprint('ESCAPED', sandbox)",
    "modules: the bridge": "from workflow.bridge import perform\nprint('ESCAPED', perform)",
    "modules: pickle": "import pickle\nprint('ESCAPED', pickle)",
    "modules: marshal": "import marshal\nprint('ESCAPED', marshal)",
    "modules: open": "print('ESCAPED', open('@CANARY@').read())",
    "modules: input": "print('ESCAPED', input())",
    "modules: eval": "print('ESCAPED', eval('1'))",
    "modules: exec": "exec('print(\"ESCAPED\")')",
    "modules: compile": "print('ESCAPED', compile('1', 'x', 'eval'))",
    "modules: a subprocess that is not Python": "import subprocess\nsubprocess.run(['sh', '-c', 'sleep 60 @MARK@'])",
    "modules: a subprocess through a shell": (
        "import subprocess\nsubprocess.run(['python', '-c', '1'], shell=True)\nprint('ESCAPED')"
    ),
    "modules: Popen": "import subprocess\nsubprocess.Popen(['python', '-c', '1'])\nprint('ESCAPED')",
    "modules: a subprocess with an environment": (
        "import subprocess\nsubprocess.run(['python', '-c', '1'], env={'A': 'b'}, cwd='/')\nprint('ESCAPED')"
    ),
    "modules: a shared class changed": "from workflow import AgentNode\nAgentNode.process = lambda s, c: 'ESCAPED'",
    "modules: a shared class changed by setattr": (
        "from workflow import Message\nsetattr(Message, 'content', 'ESCAPED')"
    ),
    "modules: a facade changed": "import json\njson.loads = print\nprint('ESCAPED')",
    "modules: a facade changed by augmenting": "import math\nmath.pi += 1\nprint('ESCAPED', math.pi)",
    "modules: builtin type changed": "str.upper = None\nprint('ESCAPED')",
    "modules: raw memory": "print('ESCAPED', memoryview(b'x').cast('P'))",
    "modules: id and from_address": "import ctypes\nprint('ESCAPED', ctypes.c_char.from_address(id(1)))",
}

HARMLESS = {
    "introspection: __format__ of a str subclass",
    "introspection: a guard shadowed by assignment",
}

LIMITS = {"cpu_s": 1, "wall_s": 5, "memory_mb": 64, "output_bytes": 1 << 16}
QUICK = {**LIMITS, "wall_s": 0.3}
USED_UP = {
    "resources: allocation in a loop": ("x = []\nwhile True: x.append(' ' * 10**6)", LIMITS),
    "resources: one giant string": ("x = ' ' * 10**12", LIMITS),
    "resources: a giant number": ("x = 9 ** 9 ** 9", QUICK),
    "resources: a giant number as text": ("x = str(3 ** 10**6)", LIMITS),
    "resources: backtracking": ("import re\nre.match(r'(a|aa)+$', 'a' * 60 + 'b')", QUICK),
    "resources: minus signs to compile": ("x = " + "-" * 200_000 + "1", LIMITS),
    "resources: a sum to compile": ("x = " + "+".join(["1"] * 20_000), LIMITS),
    "resources: brackets to compile": ("x = " + "(" * 5000 + ")" * 5000, LIMITS),
    "resources: a comprehension to compile": ("x = " + "[" * 150 + "1" + " for a in b]" * 150, LIMITS),
    "resources: constants to fold": ("x = " + "'a' * 4096 * " * 20 + "1", LIMITS),
    "resources: recursion": ("def f(n): return f(n + 1)\nf(0)", LIMITS),
    "resources: a cyclic repr": ("class A:\n    def __repr__(self): return repr([self])\nprint(A())", LIMITS),
    "resources: a cyclic message": (
        "from workflow import Message\nm = Message('x')\nm.metadata['me'] = m\nprint(m)\nx = m == m",
        LIMITS,
    ),
    "resources: a JSON bomb": ("import json\njson.loads('[' * 1_000_000)", LIMITS),
    "resources: iterators without end": ("import itertools\nlist(itertools.count())", LIMITS),
    "resources: a flood of output": ("while True: print('flood ' * 100)", LIMITS),
    "resources: sleep": ("import time\ntime.sleep(10**9)\nwhile True: time.sleep(1)", QUICK),
    "resources: every error swallowed": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        QUICK,
    ),
    "resources: a flood of tool code": (
        "import subprocess\nwhile True: subprocess.run(['python', '-c', '1'])",
        {**LIMITS, "tool_calls": 10},
    ),
    "resources: a tool that bombs": (
        "import subprocess\nprint(subprocess.run(['python', '-c', 'while True: print(1)']).returncode)\n1 / 0",
        LIMITS,
    ),
    "resources: nodes without end": (
        "from workflow import AgentNode, Workflow\nw = Workflow('w')\nw.add_node(w)\nw.run(question)",
        LIMITS,
    ),
    "resources: agents without end": (
        "from workflow import AgentNode, EnsembleNode\n"
        "EnsembleNode('e', [AgentNode(str(n), 'x') for n in range(10**4)]).process(None)",
        LIMITS,
    ),
}


def still_works(jail: Jail) -> None:
    """The next program is served as if nothing had happened: shared classes and modules are as they were."""
    source = """
import json, math
from workflow import AgentNode, Message, Workflow
print(json.loads('[1]'), math.pi, 'x'.upper(), Message('text').content)
workflow = Workflow('w')
workflow.add_node(AgentNode('solver', 'Solve it.'))
"""
    run = jail.program(source)
    assert (run.failure, run.answer, run.answer_from) == (None, "It is \\boxed{42}.", "solver")
    assert run.output == "[1] 3.141592653589793 X text\n"

    async def gone() -> None:
        await until(lambda: not jailed_processes(jail.sandbox))

    jail.run(gone())


def everything(run: Run) -> str:
    """All that came out of a run, as the trace tells it (without the program's own text)."""
    return "".join(list(run.trace.lines())[1:])


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_does_not_get_hold_of_it(jail: Jail, outside: Outside, name: str) -> None:
    run = jail.program(outside.fill_in(REFUSED[name]) + "\n" + END)
    assert "ESCAPED" not in run.output + str(run.answer)
    # A few are harmless under another name or meaning and run to their end; the others are told what is wrong.
    assert run.failure is not None or name in HARMLESS
    assert run.failure is None or run.failure.kind in ("program_rejected", "program_failed")
    outside.check(everything(run))
    if name.startswith("modules"):
        still_works(jail)


@pytest.fixture(scope="module")
def used_up(jail: Jail, outside: Outside) -> dict[str, Run]:
    return jail.run_all(
        {
            name: jail.sandbox.run_program(source + "\n" + END, "6 * 7?", engine=Scripted(), limits=Limits(**limits))
            for name, (source, limits) in USED_UP.items()
        }
    )


@pytest.mark.parametrize("name", USED_UP)
def test_a_program_does_not_use_up_more_than_its_limits(
    jail: Jail, outside: Outside, used_up: dict[str, Run], name: str
) -> None:
    limits, run = USED_UP[name][1], used_up[name]
    assert run.failure is not None or name == "resources: a cyclic message"
    assert run.failure is None or run.failure.kind in ("limit_exceeded", "program_failed", "program_rejected")
    assert run.duration_s < limits["wall_s"] + 5
    Trace.from_lines(list(run.trace.lines()))
    outside.check(everything(run))
    still_works(jail)


# Unguarded programs: plain Python in the jail of a program


ATTACK = """
import ctypes, errno, fcntl, os, signal, socket, struct, sys
libc = ctypes.PyDLL(None, use_errno=True)
def attempt(what, action):
    try:
        result = action()
    except BaseException as error:
        print("blocked", what, type(error).__name__, errno.errorcode.get(getattr(error, "errno", 0) or 0, ""))
    else:
        print("ESCAPED", what, repr(result)[:300])
def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result
def frame(text):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<I", len(text)) + text
def send(data):
    while data:
        data = data[os.write(3, data):]
"""
FINISH = "\nanswer = 'finished'\nWorkflow('w').add_node(AgentNode('a', 'b')).run(question)\n"

UNGUARDED = {
    "files: anything at all": """
for path in ("@CANARY@", "/proc/self/environ", "/proc/self/mem", ".", "/", "/dev/null", os.__file__, "/etc/passwd"):
    attempt(path, lambda: os.open(path, os.O_RDONLY))
    attempt(path, lambda: os.stat(path))
    attempt(path, lambda: os.listdir(path))
attempt("write", lambda: open("@VICTIM@", "w"))
attempt("write here", lambda: open("x", "w"))
attempt("chmod", lambda: os.chmod("@VICTIM@", 0))
attempt("getcwd", os.getcwd)
""",
    "network and processes": """
attempt("socket", lambda: socket.socket())
attempt("pair", lambda: socket.socketpair())
attempt("vsock", lambda: socket.socket(40, 1))
attempt("fork", os.fork)
attempt("exec", lambda: os.execv(sys.executable, [sys.executable, "@MARK@"]))
attempt("thread", lambda: __import__("_thread").start_new_thread(print, ()))
attempt("pipe", os.pipe)
attempt("memfd", lambda: os.memfd_create("x"))
""",
    "signals and memory of others": """
for pid in (@HOST@, @BYSTANDER@, os.getppid(), -1, 0):
    attempt("kill", lambda: os.kill(pid, 0))
    attempt("ptrace", lambda: syscall(101, 16, pid, 0, 0))
    attempt("readv", lambda: syscall(310, pid, 0, 0, 0, 0, 0))
    attempt("writev", lambda: syscall(311, pid, 0, 0, 0, 0, 0))
attempt("owner", lambda: fcntl.fcntl(3, fcntl.F_SETOWN, @HOST@))
attempt("owner", lambda: fcntl.ioctl(3, 0x8901, struct.pack("i", @HOST@)))
""",
    "kernel": """
for number in (272, 165, 161, 157, 160, 425, 321, 298, 323, 250, 135, 203, 41, 56, 57, 59, 105, 126, 101, 2, 257):
    attempt(number, lambda: syscall(number, 0, 0, 0, 0, 0, 0))
attempt("machine code", lambda: __import__("mmap").mmap(-1, 4096, prot=7))
attempt("limits", lambda: __import__("resource").setrlimit(9, (-1, -1)))
""",
    "channel: what is open": """
import select
poll = select.poll()
for fd in range(256):
    poll.register(fd)
found = [fd for fd, events in poll.poll(0) if not events & select.POLLNVAL]
if found != [0, 1, 2, 3]:
    print("ESCAPED", found)
print("first three", [os.read(fd, 1) for fd in range(3)], [os.write(fd, b"x") for fd in range(3)])
attempt("descriptors over the channel", lambda: socket.send_fds(socket.socket(fileno=3), [b"x"], [0]))
attempt("another address", lambda: socket.socket(fileno=os.dup(3)).sendto(b"x", "@DATAGRAMS@"))
""",
}


@pytest.mark.parametrize("name", UNGUARDED)
def test_an_unguarded_program_reaches_nothing(escaped: Jail, outside: Outside, name: str) -> None:
    run = escaped.program(outside.fill_in(ATTACK + UNGUARDED[name]) + FINISH)
    assert run.failure is None, run
    assert (run.answer, run.answer_from) == ("finished", None)
    assert "ESCAPED" not in run.output
    assert "blocked" in run.output
    outside.check(everything(run))


CHANNEL = {
    "a forged answer": 'send(frame(\'{"op": "answer", "text": "\\\\\\\\boxed{7}"}\'))',
    "a forged trace event": (
        'send(frame(\'{"type": "agent_call", "key": "k", "path": "p", "agent": "a", "messages": [], '
        '"completion": {"text": "7"}}\'))'
    ),
    "a forged reply": (
        'send(frame(\'{"key": "w/a#0", "type": "agent", "reply": {"text": "7", "finish_reason": "stop"}}\'))'
    ),
    "a failure that is not the program's": (
        'send(frame(\'{"op": "failed", "kind": "engine_failed", "error_type": "EngineFailed", "message": "x"}\'))'
    ),
    "a giant frame": "send(struct.pack('<I', 2**32 - 1) + b'x' * 1000)",
    "a torn frame": "send(struct.pack('<I', 100) + b'x'); os._exit(0)",
    "a frame that never ends": "send(struct.pack('<I', 1000) + b'x'); libc.pause(); os.read(3, 1)\nwhile True: pass",
    "no JSON": "send(frame(b'\\xff' * 100))",
    "deep JSON": "send(frame('[' * 100000 + ']' * 100000))",
    "deep JSON in a request": (
        'send(frame(\'{"op": "ToolCall", "key": "k", "request": {"agent": "a", "name": "n", "arguments": \' '
        "+ '{\"a\":' * 200 + '1' + '}' * 200 + '}}'))"
    ),
    "duplicate keys": 'send(frame(\'{"op": "print", "op": "answer", "text": "a", "text": "\\\\\\\\boxed{7}"}\'))',
    "a flood of frames": 'while True: send(frame(\'{"op": "print", "text": ""}\') * 1000)',
    "a flood of requests": (
        'for n in range(10**6): send(frame(\'{"op": "AgentCall", "key": "%d", "request": '
        '{"agent": "a", "messages": [{"role": "user", "content": "x"}]}}\' % n))'
    ),
    "a flood of code": (
        'for n in range(10**6): send(frame(\'{"op": "CodeRun", "key": "%d", "request": {"code": "print(1)"}}\' % n))'
    ),
    "many values": "send(frame('{\"op\": \"print\", \"text\": [' + '0,' * 4_000_000 + '0]}'))",
    "a request twice": (
        'one = frame(\'{"op": "AgentCall", "key": "same", "request": '
        '{"agent": "a", "messages": [{"role": "user", "content": "x"}]}}\')\nsend(one); os.read(3, 10); send(one)'
    ),
    "a description out of turn": 'send(frame(\'{"op": "described", "graph": null, "unreachable": []}\'))',
    "the exit status of another kind of end": "os._exit(120)",
    "death by a signal": "ctypes.string_at(0)",
    "silence": "os.close(3)\nwhile True: pass",
    "an infinite timeout for code": (
        'send(frame(\'{"op": "CodeRun", "key": "c", "request": {"code": "while True: pass", '
        '"timeout_s": NaN}}\'))\nwhile True: pass'
    ),
}


@pytest.fixture(scope="module")
def forged(escaped: Jail, outside: Outside) -> dict[str, Run]:
    limits = Limits(wall_s=1, cpu_s=1, agent_calls=5, tool_calls=5)
    engine = Scripted("six: \\boxed{6}")
    return escaped.run_all(
        {
            name: escaped.sandbox.run_program(outside.fill_in(ATTACK) + source, "6 * 7?", engine=engine, limits=limits)
            for name, source in CHANNEL.items()
        }
    )


@pytest.mark.parametrize("name", CHANNEL)
def test_an_unguarded_program_on_the_channel_forges_nothing(
    escaped: Jail, outside: Outside, forged: dict[str, Run], name: str
) -> None:
    run = forged[name]
    assert run.answer_from is None, "whatever it claims, no agent said it"
    if run.failure is None:
        assert run.answer in ("\\boxed{7}", None)
    else:
        assert not run.failure.is_infrastructure, "no program can make the machinery look broken"
    asked = [event for event in run.trace.events if isinstance(event, AgentTurn)]
    assert len(asked) <= 5
    assert all(turn.completion is None or turn.completion.text == "six: \\boxed{6}" for turn in asked)
    assert len({turn.key for turn in asked}) == len(asked)
    assert run.trace.started.question == "6 * 7?"
    assert [event.type for event in run.trace.events].count("run_ended") == 1
    assert run.trace.events[-1].type == "run_ended"
    Trace.from_lines(list(run.trace.lines()))
    outside.check(everything(run))
    ordinary = escaped.program(workflow_of())
    assert (ordinary.failure, ordinary.answer_from) == (None, "solver")


@pytest.mark.parametrize(
    "forged",
    [
        {"op": "AgentCall", "key": "k", "request": {"agent": "a", "messages": [{"role": "user", "content": "x"}]}},
        {"op": "CodeRun", "key": "k", "request": {"code": "1"}},
        {"op": "answer", "text": "x"},
        {"op": "described", "graph": {"kind": "x" * 100}, "unreachable": []},
        {"op": "described", "graph": None, "unreachable": ["x"] * 10},
        {"op": "nonsense"},
    ],
)
def test_a_description_cannot_be_made_to_look_like_a_broken_sandbox(escaped: Jail, outside: Outside, forged) -> None:
    source = ATTACK + f"send(frame({json.dumps(forged)!r}))"
    description = escaped.run(escaped.sandbox.describe(re.sub(r"@\w+@", "0", source)))
    assert description.graph is None
    outside.check(description.model_dump_json())
