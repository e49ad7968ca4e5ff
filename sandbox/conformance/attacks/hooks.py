"""Programs that misuse what ordinary Python lets a class, a match statement, a coroutine or `eval` do.

The idea behind most: library or interpreter code that calls back into a program, and then acts on what it is given.
Where an attack may come to its end, its hands must be empty: it calls `keep` only for what it was after.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import programs

LIAR = "class Liar(tuple):\n    def __iter__(self): return iter(())\n"
PROBE = "class Probe:\n    def __init__(self, *given): keep('called', given)\n"

MATCH = {
    "globals by a pattern": """
    match keep:
        case object(__globals__=g): keep(g)
    """,
    "a frame by a pattern": """
    match (x for x in 'a'):
        case object(gi_frame=f): keep(f)
    """,
    "a frame by __match_args__": """
    class Frame:
        __match_args__ = ('gi_frame',)
    Frame.__instancecheck__ = None
    match (x for x in 'a'):
        case object(gi_code=c): keep(c)
    """,
    "special names in __match_args__": """
    class A:
        __match_args__ = ('__dict__', '__class__')
    match A():
        case A(d, c): keep(d, c)
    """,
    "__match_args__ made up": """
    class A:
        __match_args__ = tuple(['__cla' + 'ss__'])
    match A():
        case A(c): keep(c)
    """,
    "__match_args__ set later": """
    class A: pass
    setattr(A, '__match_' + 'args__', ('__class__',))
    match A():
        case A(c): keep(c)
    """,
}
COROUTINES = {
    "frame of a coroutine by a pattern": """
    async def f(): pass
    c = f()
    match c:
        case object(cr_frame=frame): keep(frame)
    c.close()
    """,
    "coroutine of a task": """
    import asyncio
    async def f(): pass
    async def main():
        task = asyncio.create_task(f())
        keep(task.get_coro().cr_frame)
    asyncio.run(main())
    """,
    "traceback of a gathered error": """
    import asyncio
    async def f(): 1 / 0
    async def main():
        for error in await asyncio.gather(f(), return_exceptions=True):
            keep(getattr(error, '__trace' + 'back__'))
    asyncio.run(main())
    """,
    "import in an executor": """
    import asyncio
    async def main():
        loop = asyncio.get_running_loop()
        keep(await loop.run_in_executor(None, __import__, 'os'))
    asyncio.run(main())
    """,
    "insides of an event loop": """
    import asyncio
    async def main(): keep(asyncio.get_running_loop()._default_executor, asyncio.get_running_loop()._ready)
    asyncio.run(main())
    """,
    "insides of a pool": "import concurrent.futures.thread as t; keep(t.threading._active)",
    "all threads": "import threading; keep(threading.enumerate(), threading._active)",
    "frames of all threads": "import sys; keep(sys._current_frames())",
}
EVAL = {
    "builtins": "keep(eval('__builtins__'))",
    "a class by attributes": "keep(eval('().__class__.__mro__[-1].__subclasses__()'))",
    "a format": "keep(eval('\"{0.__globals__}\".format(keep)'))",
    "a lambda for later": "keep(eval('lambda: keep.__globals__')())",
    "eval in eval": 'keep(eval(\'eval("__imp" + "ort__")\'))',
    "a name bound inside": "keep(eval('[b := __builtins__, b][1]'))",
    "code from a text that lies": """
    class Text(str):
        def strip(self, *given): return '__builtins__'
        def encode(self, *given): return b'__builtins__'
    keep(eval(Text('keep.__globals__')))
    """,
}
GUARDS_FOR_EVAL = {
    "a guard among the names": "eval('keep.x', {'_getattr_': lambda obj, name: keep('read'), 'keep': keep})",
    "a guard under a name that lies": """
    class Name(str):
        def startswith(self, *given): return False
    eval('keep.x', {Name('_getattr_'): lambda obj, name: keep('read'), 'keep': keep})
    """,
    "a guard from a mapping of one's own": """
    class Names(dict):
        def keys(self): return ['_getattr_', 'keep']
        def items(self): return [('_getattr_', self['_getattr_'])]
        def __getitem__(self, key): return (lambda obj, name: keep('read')) if key == '_getattr_' else keep
    eval('keep.x', Names(keep=keep))
    """,
    "a guard bound inside": "eval('[_getattr_ := (lambda obj, name: keep(\"read\")), keep.x]')",
}
HOOKS = {
    "a base class that a tuple hides": LIAR
    + """
class S(str): pass
Peek = type('Peek', Liar((super,)), {})
keep(Peek(S, S('{0.__globals__}')).format(keep))
""",
    "an exception group that a tuple hides": LIAR + "keep(type('G', Liar((ExceptionGroup,)), {}))",
    "a member of an enumeration that is none": PROBE
    + """
import enum
class E(enum.Enum):
    def __new__(cls, *given): return Probe
    A = (1, 2)
""",
    "the same by a class mixed in": PROBE
    + """
import enum
class Mixed:
    def __new__(cls, *given): return Probe
class E(Mixed, enum.Enum):
    A = (1, 2)
""",
    "names that a library writes": """
    import contextlib
    class Spy:
        def __setattr__(self, name, value): keep(name, value)
    class Stack(contextlib.ExitStack):
        made = None
        def __new__(cls): return cls.made or super().__new__(cls)
    stack = Stack()
    Stack.made = Spy()
    stack.pop_all()
    """,
    "names that a library reads": """
    import contextlib
    class A:
        def __getattr__(self, name):
            if name.startswith('__'): keep(name)
            raise AttributeError(name)
    contextlib.contextmanager(A())
    """,
    "the same by a class method": """
    import contextlib
    class A:
        __getattr__ = classmethod(lambda cls, name: keep(name) if name.startswith('__') else 1)
    contextlib.contextmanager(A())
    """,
    "the same by a property": """
    import contextlib
    class A:
        __getattr__ = property(lambda self: lambda name: keep(name) if name.startswith('__') else 1)
    contextlib.contextmanager(A())
    """,
    "a reduction by three arguments": """
    import copy
    copy.copy(type('A', (), {'__reduce_ex__': lambda self, protocol: (keep, ('made',))})())
    """,
    "an attribute of a message, unchecked": """
    from workflow import Message
    m = Message('x')
    object.__setattr__(m, 'content', 5)
    if m.content == 5: keep(m)
    """,
    "the same by its namespace": """
    from workflow import Message
    class M(Message): pass
    m = M('x')
    object.__setattr__(m, 'content', 5)
    if m.content == 5: keep(m)
    """,
    "an agent that nobody has made": "from workflow import AgentNode; keep(object.__new__(AgentNode))",
    "a number of a UUID": "import uuid; u = uuid.uuid4(); object.__setattr__(u, 'int', 3); keep(u)",
    "namespace of a contract class": "from workflow import AgentNode; keep(vars(AgentNode))",
    "namespace of an agent": "from workflow import AgentNode; keep(AgentNode('a', 'b').__dict__)",
    "namespace of a module": "import json; keep(json.__dict__)",
    "descriptors of slots": """
    class A: __slots__ = ('x',)
    for value in vars(A).values(): keep(value)
    """,
    "defaults of a function": "def f(a=keep): pass\nkeep(f.__defaults__)",
    "an attribute on a library's function": "import json; json.dumps.mark = 1; keep(json.dumps.mark)",
    "a property computed on an agent": """
    import functools
    from workflow import AgentNode
    class A:
        run_again = functools.cached_property(lambda self: 7)
    a = AgentNode('a', 'b')
    A.run_again.__get__(a)
    keep(a.run_again)
    """,
}
REFUSED_HOOKS = {
    "a date that is a tuple": """
    import datetime
    class D(datetime.datetime):
        def __new__(cls, *given): return (1, 2, 3)
    D.fromtimestamp(0)
    """,
    "a dict's copy that is a module": """
    import collections, json
    class D(collections.UserDict):
        made = None
        def __new__(cls, *given): return cls.made or super().__new__(cls)
    d = D()
    D.made = json
    d.copy()
    keep(json.data)
    """,
    "a list's copy that is a module": """
    import collections, json
    class D(collections.UserList):
        made = None
        def __new__(cls, *given): return cls.made or super().__new__(cls)
    d = D()
    d.loads = keep
    D.made = json
    d.copy()
    json.loads('1')
    """,
    "a special name under a hash that lies": """
    class Name(str):
        asked = 0
        def __hash__(self):
            Name.asked += 1
            return hash('__init__' if Name.asked < 3 else '__getattribute__')
        def __eq__(self, other): return True
    type('A', (), {Name('__getattribute__'): lambda self, name: keep(name)})().x
    """,
    "a private argument of a metaclass": "import enum\nclass E(enum.Enum, _simple=True): A = 1\nkeep(E)",
    "a path that makes others": """
    import pathlib
    class P(pathlib.PurePosixPath):
        def with_segments(self, *parts): return keep
    P('a/b').parent
    """,
    "a special name in a namespace": "class A: pass\na = A()\na.__dict__['__class__'] = int\nkeep(a)",
}

ATTACKS = [
    *programs("match", MATCH, may_end=["a frame by a pattern"]),
    *programs("coroutines", COROUTINES, may_end=["frame of a coroutine by a pattern"]),
    *programs("eval", EVAL),
    *programs("guard of eval", GUARDS_FOR_EVAL, may_end=["a guard bound inside"], control=False),
    *programs("class hooks", HOOKS, may_end=["names that a library reads", "descriptors of slots"]),
    *programs("class hooks", REFUSED_HOOKS, control=False),
]
