"""Programs that want to reach what Python knows about itself: classes, frames, namespaces, special methods.

They hand what they get to `keep`. Each works in plain Python; under the policy none may.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import programs

ATTACKS = [
    *programs(
        "mro",
        {
            "mro": "keep(().__class__.__mro__)",
            "mro method": "keep(int.mro())",
            "base and subclasses": "keep(().__class__.__base__.__subclasses__())",
            "metaclass by type": "keep(type(type(1)))",
            "typing.Type": "import typing; keep(typing.Type.mro(int))",
            "type by a method that takes its argument for its own kind": """
            import collections
            keep(collections.Counter.copy(int))
            """,
            "the same method by super": """
            import collections
            class C(collections.Counter):
                def copy(self): pass
                @classmethod
                def f(cls): return super().copy
            keep(C.f()(int))
            """,
            "the same method under another name": """
            import collections
            class C:
                g = collections.Counter.copy
            keep(C.g(int))
            """,
            "class from text": """
            names = type('X', (), {'f': 1}).__dict__
            if '__module__' in names: keep(names)
            """,
            "base": "keep(int.__base__)",
            "subclasses by getattr": "keep(getattr(object, '__sub' + 'classes__')())",
        },
        harmless=["metaclass by type"],
        may_end=["class from text"],
    ),
    *programs(
        "dunder getattr",
        {
            "dunder built up": "keep(getattr(keep, '__glo' + 'bals__'))",
            "dunder by reduce": "import functools; keep(functools.reduce(getattr, ['__class__', '__mro__'], 1))",
            "attrgetter": "import operator; keep(operator.attrgetter('__globals__')(keep))",
            "methodcaller": "import operator; keep(operator.methodcaller('__getattribute__', '__globals__')(keep))",
            "update_wrapper": """
            import functools
            class Box: pass
            box = functools.update_wrapper(Box(), keep, assigned=('__globals__',))
            keep(box.__globals__)
            """,
            "wraps with names": """
            import functools
            class Box: pass
            keep(functools.wraps(keep, assigned=('__globals__',))(Box()).__globals__)
            """,
        },
    ),
    *programs(
        "str subclass",
        {
            "attribute name of a subclass of str": """
            class Name(str):
                def startswith(self, *_): return False
            keep(getattr(keep, Name('__globals__')))
            """,
            "attribute name that lies about equality": """
            class Name(str):
                def __hash__(self): return hash('__globals__')
                def __eq__(self, other): return True
            keep(getattr(keep, Name('__globals__')))
            """,
        },
    ),
    *programs(
        "str.format",
        {
            "format": "keep('{0.__globals__}'.format(keep))",
            "format by map": "keep(list(map('{0.__globals__}'.format, [keep]))[0])",
            "format through the class": "keep(str.format('{0.__globals__}', keep))",
            "format through the class, by map": "keep(list(map(str.format, ['{0.__globals__}'], [keep]))[0])",
            "format_map": "keep('{x.__globals__}'.format_map({'x': keep}))",
            "format item": "keep('{0[k].__globals__}'.format({'k': keep}))",
            "format nested in a spec": """
            class F:
                def __format__(self, spec): keep(spec); return ''
            '{0:{1.__globals__}}'.format(F(), keep)
            """,
            "format of a subclass": """
            class S(str): pass
            keep(S('{0.__globals__}').format(keep))
            """,
            "format by super": """
            class S(str):
                def f(self, *a): return super().format(*a)
            keep(S('{0.__globals__}').f(keep))
            """,
            "format under another name": """
            class S(str):
                f = str.format
            keep(S('{0.__globals__}').f(keep))
            """,
            "format by augmented assignment": """
            class S(str): pass
            class Taker:
                def __radd__(self, other): return other
            s = S('{0.__globals__}')
            s.format += Taker()
            keep(s.format(keep))
            """,
            "format through a subclass of super": """
            class S(str): pass
            class Peek(super): pass
            keep(Peek(S, S('{0.__globals__}')).format(keep))
            """,
        },
    ),
    *programs(
        "string.Formatter",
        {
            "string.Formatter": "import string; keep(string.Formatter().format('{0.__globals__}', keep))",
            "UserString": "import collections; keep(collections.UserString('{0.__globals__}').format(keep))",
        },
    ),
    *programs(
        "frames",
        {
            "generator frame": "g = (x for x in 'a'); keep(g.gi_frame)",
            "generator frame by name": "g = (x for x in 'a'); keep(getattr(g, 'gi_' + 'frame'))",
            "generator code": "g = (x for x in 'a'); keep(getattr(g, 'gi_' + 'code'))",
            "coroutine frame": """
            async def f(): pass
            c = f()
            keep(c.cr_frame)
            c.close()
            """,
            "coroutine frame by name": """
            async def f(): pass
            c = f()
            keep(getattr(c, 'cr_' + 'frame'))
            c.close()
            """,
            "frame of what a generator waits for": """
            def f(): yield from iter('ab')
            g = f()
            next(g)
            keep(g.gi_yieldfrom)
            """,
            "asynchronous generator frame by name": """
            async def f(): yield
            keep(getattr(f(), 'ag_' + 'frame'))
            """,
            "asynchronous generator frame": """
            async def f(): yield
            keep(f().ag_frame)
            """,
        },
    ),
    *programs(
        "traceback",
        {
            "traceback": """
            try: 1 / 0
            except Exception as e: keep(e.__traceback__.tb_frame.f_globals)
            """,
            "traceback by name": """
            try: 1 / 0
            except Exception as e: keep(getattr(e, '__trace' + 'back__'))
            """,
            "traceback in __exit__": """
            class C:
                def __enter__(self): pass
                def __exit__(self, kind, error, trace): keep(getattr(trace, 'tb_' + 'frame')); return True
            with C(): 1 / 0
            """,
            "context of an exception": """
            try:
                try: 1 / 0
                except Exception: raise ValueError
            except Exception as e: keep(e.__context__.__traceback__)
            """,
            "cause of an exception": """
            try:
                try: 1 / 0
                except Exception as e: raise ValueError from e
            except Exception as e: keep(e.__cause__.__traceback__)
            """,
            "traceback by with_traceback": """
            try:
                1 / 0
            except Exception as e:
                keep(getattr(e, '__trace' + 'back__'), e.with_traceback)
            """,
        },
    ),
    *programs(
        "except*",
        {
            "except*": """
            try: raise ExceptionGroup('', [ValueError()])
            except* ValueError as e: keep(e.__traceback__)
            """,
            "except* in a function": """
            def f():
                try: raise ExceptionGroup('', [ValueError()])
                except* ValueError as e: keep(e.exceptions)
            f()
            """,
        },
        harmless=["except* in a function"],
    ),
    *programs(
        "AttributeError.obj",
        {
            "AttributeError.obj": """
            import json
            try: json.nothing
            except AttributeError as e: keep(e.obj)
            """,
            "AttributeError.obj through a class attribute": """
            import json
            class E(AttributeError):
                alias = AttributeError.obj
            keep(E('x', obj=json).alias)
            """,
            "AttributeError.obj by super": """
            import json
            class E(AttributeError):
                def f(self): return super().obj
            keep(E('x', obj=json).f())
            """,
        },
    ),
    *programs(
        "builtins",
        {
            "builtins": "keep(__builtins__)",
            "builtins of the import": "keep(__import__)",
            "vars": "keep(vars(type(keep)))",
            "dir of a module": "import json; keep(vars(json))",
            "builtins by import": "keep(__import__('builtins').open)",
            "self of a builtin": "keep(len.__self__)",
        },
    ),
    *programs(
        "function internals",
        {
            "globals of a function": """
            def f(): pass
            keep(f.__globals__)
            """,
            "code of a function": """
            def f(): pass
            keep(f.__code__)
            """,
            "closure of a function": """
            def f(x): return lambda: x
            keep(f(1).__closure__[0])
            """,
            "wrapped function": """
            import functools
            @functools.lru_cache
            def f(): pass
            keep(f.__wrapped__.__globals__)
            """,
            "method of a class": """
            class A:
                def f(self): pass
            keep(A().f.__func__.__globals__)
            """,
            "globals of a node's method": "from workflow import AgentNode; keep(AgentNode.process.__globals__)",
            "self of a bound method": "keep([].append.__self__)",
        },
    ),
    *programs(
        "unicode",
        {
            "full-width letters": "keep(keep.__ｇｌｏｂａｌｓ__)",
            "full-width letters in text": """
            import unicodedata
            keep(getattr(keep, unicodedata.normalize('NFKC', '__ｇｌｏｂａｌｓ__')))
            """,
            "mathematical letters": "keep(keep.__𝓰𝓵𝓸𝓫𝓪𝓵𝓼__)",
        },
    ),
    *programs(
        "class hooks",
        {
            "class hooks": """
            class A:
                def __init_subclass__(cls): keep(type(cls))
            class B(A): pass
            """,
            "metaclass": """
            class A(metaclass=type): pass
            keep(A.__class__)
            """,
            "own metaclass": """
            class M(type): pass
            keep(M)
            """,
            "class item": """
            class A:
                def __class_getitem__(cls, k): return type(cls)
            keep(A[0])
            """,
            "own getattribute": """
            class A:
                def __getattribute__(self, name): return object.__getattribute__(self, name)
            keep(A().__dict__ or object.__getattribute__)
            """,
            "namespace of a class": """
            class A: x = 1
            if '__module__' in A.__dict__: keep(A.__dict__)
            """,
            "slots descriptor": "import decimal, datetime; keep(datetime.date.year)",
            "enum members": """
            import enum
            class E(enum.Enum): A = 1
            keep(E.__class__)
            """,
            "type with three arguments": "keep(type('A', (), {'__init__': print}))",
            "a descriptor": """
            class A:
                def __get__(self, o, t): keep(o, t)
            class B:
                a = A()
            B().a
            """,
            "__set_name__": """
            class A:
                def __set_name__(self, owner, name): keep(owner)
            class B:
                a = A()
            """,
            "__reduce__ by copy": """
            import copy
            class A:
                def __reduce__(self): return keep, ('ESCAPED',)
            copy.copy(A())
            """,
            "metaclass by keyword of a function": """
            class A(metaclass=lambda name, bases, names: keep(names)): pass
            """,
            "special method found by the class": """
            class A:
                def __new__(cls, *a): keep(cls.__mro__)
            A()
            """,
        },
        harmless=[
            "__set_name__",
            "a descriptor",
            "class hooks",
            "class item",
            "enum members",
            "type with three arguments",
        ],
        may_end=["namespace of a class"],
    ),
    *programs(
        "annotations",
        {
            "text in an annotation": """
            import dataclasses, typing
            @dataclasses.dataclass
            class A:
                x: "keep(__builtins__)"
            typing.get_type_hints(A, {'keep': keep})
            """,
            "annotation of a variable": "x: keep(keep.__globals__) = 1",
            "annotation in a class": """
            class A:
                x: keep(keep.__globals__) = 1
            """,
            "annotation of a parameter": "def f(a: keep(keep.__globals__), *b, c=1): pass",
            "annotation of a result": "def f() -> keep(keep.__globals__): pass",
        },
        harmless=[
            "annotation of a variable",
            "annotation in a class",
            "annotation of a parameter",
            "annotation of a result",
        ],
    ),
]
