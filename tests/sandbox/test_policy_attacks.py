"""Attacks on the policy. Each is first shown to work in plain Python, then to reach nothing under the policy.

A program hands its loot to `keep`. The oracle looks at what was kept, not at how the attack was refused.
"""

from __future__ import annotations

import builtins
import collections
import functools
import json
import textwrap
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from policy_helper import Outcome, contract_modules, no_code, run, run_plain

import sandbox.policy
import workflow
from sandbox.access import read_attribute
from sandbox.classes import Facade, ProgramMeta
from sandbox.guards import program_globals
from workflow.tools import Tool

_NEVER_TYPES = (
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.CellType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
_NEVER_BUILTINS = "open eval exec compile __import__ getattr setattr delattr globals locals vars dir input breakpoint"
_NEVER = [getattr(builtins, name) for name in _NEVER_BUILTINS.split()]
_NEVER += [type, ProgramMeta, memoryview, str.format, str.format_map, object.__getattribute__, type.__call__]


def forbidden(value: Any) -> bool:
    """True for what no program may hold: modules, frames, code, namespaces, metaclasses, unguarded builtins."""
    if issubclass(type(value), _NEVER_TYPES) or any(value is item for item in _NEVER):
        return True
    if issubclass(type(value), type) and issubclass(value, type):
        return True
    if type(value) is types.BuiltinMethodType and not isinstance(value.__self__, types.ModuleType):
        return value.__name__ in ("format", "format_map", "__getattribute__", "mro")
    if isinstance(value, (dict, types.MappingProxyType)):
        return any(key in value for key in ("__builtins__", "__build_class__", "__module__"))
    if isinstance(value, (list, tuple)):
        return object in value or any(forbidden(item) for item in value)
    return isinstance(value, str) and ("__builtins__" in value or "<module " in value)


def attack(source: str, *, plain: bool) -> tuple[Outcome, list[Any]]:
    """Run an attack; return what happened and the forbidden loot."""
    loot: list[Any] = []

    def keep(value: Any) -> None:
        loot.append(value)

    if plain:
        outcome = run_plain(textwrap.dedent(source), {"keep": keep})
    else:
        outcome = run("from vault import keep\n" + textwrap.dedent(source), vault={"keep": keep})
    return outcome, [value for value in loot if forbidden(value)]


READS = {
    "mro": "keep(().__class__.__mro__)",
    "mro method": "keep(int.mro())",
    "base and subclasses": "keep(().__class__.__base__.__subclasses__())",
    "metaclass by type": "keep(type(type(1)))",
    "class from text": "keep(type('X', (), {'f': 1}).__dict__)",
    "dunder built up": "keep(getattr(keep, '__glo' + 'bals__'))",
    "dunder by reduce": "import functools\nkeep(functools.reduce(getattr, ['__class__', '__mro__'], 1))",
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
    "string.Formatter": "import string\nkeep(string.Formatter().format('{0.__globals__}', keep))",
    "UserString": "import collections\nkeep(collections.UserString('{0.__globals__}').format(keep))",
    "generator frame": "g = (x for x in 'a')\nkeep(g.gi_frame)",
    "generator frame by name": "g = (x for x in 'a')\nkeep(getattr(g, 'gi_' + 'frame'))",
    "generator code": "g = (x for x in 'a')\nkeep(getattr(g, 'gi_' + 'code'))",
    "coroutine frame": "async def f(): pass\nc = f()\nkeep(c.cr_frame)\nc.close()",
    "asynchronous generator frame": "async def f(): yield\nkeep(f().ag_frame)",
    "traceback": "try: 1 / 0\nexcept Exception as e: keep(e.__traceback__.tb_frame.f_globals)",
    "traceback by name": "try: 1 / 0\nexcept Exception as e: keep(getattr(e, '__trace' + 'back__'))",
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
    "except*": "try: raise ExceptionGroup('', [ValueError()])\nexcept* ValueError as e: keep(e.__traceback__)",
    "AttributeError.obj": "import json\ntry: json.nothing\nexcept AttributeError as e: keep(e.obj)",
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
    "builtins": "keep(__builtins__)",
    "builtins of the import": "keep(__import__)",
    "globals of a function": "def f(): pass\nkeep(f.__globals__)",
    "code of a function": "def f(): pass\nkeep(f.__code__)",
    "closure of a function": "def f(x): return lambda: x\nkeep(f(1).__closure__[0])",
    "wrapped function": "import functools\n@functools.lru_cache\ndef f(): pass\nkeep(f.__wrapped__.__globals__)",
    "method of a class": "class A:\n    def f(self): pass\nkeep(A().f.__func__.__globals__)",
    "full-width letters": "keep(keep.__ｇｌｏｂａｌｓ__)",
    "full-width letters in text": """
        import unicodedata
        keep(getattr(keep, unicodedata.normalize('NFKC', '__ｇｌｏｂａｌｓ__')))
        """,
    "attrgetter": "import operator\nkeep(operator.attrgetter('__globals__')(keep))",
    "methodcaller": "import operator\nkeep(operator.methodcaller('__getattribute__', '__globals__')(keep))",
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
    "class hooks": """
        class A:
            def __init_subclass__(cls): keep(type(cls))
        class B(A): pass
        """,
    "metaclass": "class A(metaclass=type): pass\nkeep(A.__class__)",
    "own metaclass": "class M(type): pass\nkeep(M)",
    "class item": "class A:\n    def __class_getitem__(cls, k): return type(cls)\nkeep(A[0])",
    "own getattribute": """
        class A:
            def __getattribute__(self, name): return object.__getattribute__(self, name)
        keep(A().__dict__ or object.__getattribute__)
        """,
    "namespace of a class": "class A: x = 1\nkeep(A.__dict__)",
    "slots descriptor": "import decimal, datetime\nkeep(datetime.date.year)",
    "text in an annotation": """
        import dataclasses, typing
        @dataclasses.dataclass
        class A:
            x: "keep(__builtins__)"
        typing.get_type_hints(A, {'keep': keep})
        """,
    "annotation of a variable": "x: keep(keep.__globals__) = 1",
    "annotation in a class": "class A:\n    x: keep(keep.__globals__) = 1",
    "annotation of a parameter": "def f(a: keep(keep.__globals__), *b, c=1): pass",
    "annotation of a result": "def f() -> keep(keep.__globals__): pass",
    "vars": "keep(vars(type(keep)))",
    "dir of a module": "import json\nkeep(vars(json))",
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
    "typing.Type": "import typing\nkeep(typing.Type.mro(int))",
    "enum members": "import enum\nclass E(enum.Enum): A = 1\nkeep(E.__class__)",
}


NOT_REFUSED = {"metaclass by type", "enum members"} | {name for name in READS if name.startswith("annotation ")}
"""`type(x)` then gives something to print, and annotations are dropped."""


@pytest.mark.parametrize("name", READS)
def test_reading_attacks_reach_nothing(name: str) -> None:
    outcome, loot = attack(READS[name], plain=True)
    assert loot, f"the attack must work in plain Python, or it tests nothing: {outcome.reason}"
    outcome, loot = attack(READS[name], plain=False)
    assert loot == []
    assert outcome.refused or name in NOT_REFUSED


MODULES = (
    "os subprocess.os ctypes importlib pickle marshal socket threading gc inspect builtins json.codecs json.decoder "
    "re.enum random._os statistics.sys dataclasses.sys typing.sys collections._sys string._re copy.copyreg "
    "functools.namedtuple enum.sys fractions.sys sys.modules decimal.DefaultContext textwrap.re heapq.sys "
    "random.SystemRandom functools.update_wrapper operator.attrgetter dataclasses.make_dataclass string.Formatter "
    "typing.get_type_hints typing.ForwardRef sys._getframe sys.settrace abc.ABCMeta enum.EnumType copy.dispatch_table"
)


@pytest.mark.parametrize("path", MODULES.split())
def test_modules_and_their_insides_cannot_be_had(path: str) -> None:
    """By import, from-import, attribute, getattr. The refusal says what there is instead."""
    module, _, name = path.partition(".")
    if not name:
        outcome = run(f"import {module}\n")
        assert isinstance(outcome.error, ImportError)
        assert "available modules: abc, bisect" in outcome.reason
        return
    for source in (
        f"from {module} import {name}",
        f"import {path}",
        f"import {path} as x",
        f"import {module}\n{module}.{name}",
        f"import {module}\ngetattr({module}, {name!r})",
    ):
        outcome = run(source)
        assert outcome.refused, source
        assert outcome.findings or isinstance(outcome.error, (ImportError, AttributeError)), outcome.reason


WRITES = [
    "import json; json.loads = 1",
    "import math; math.pi += 1",
    "import math; del math.pi",
    "import math; setattr(math, 'pi', 3)",
    "import json; json.JSONEncoder.default = lambda self, o: 1",
    "import json; setattr(json.JSONEncoder, 'default', None)",
    "import json; delattr(json.JSONEncoder, 'default')",
    "import json; json.JSONEncoder.item_separator += 'x'",
    "from dataclasses import dataclass; import json; dataclass(json.JSONEncoder)",
    "from dataclasses import dataclass; from workflow import AgentNode; dataclass(AgentNode)",
    "from functools import total_ordering; from fractions import Fraction; total_ordering(Fraction)",
    "from workflow import AgentNode; AgentNode.steps = None",
    "from workflow import AgentNode; setattr(AgentNode, 'steps', None)",
    "from workflow import Message; Message.content = 'x'",
    "from workflow import MessageType; MessageType.ERROR.label = 1",
    "from workflow import MessageType; MessageType.ERROR = 1",
    "import workflow; workflow.AgentNode = None",
    "import workflow.nodes; workflow.nodes.AgentNode = None",
    "from workflow import AgentNode; AgentNode.__init__ = None",
    "from workflow import AgentNode; AgentNode.process.x = 1",
    "print.x = 1",
    "question.x = 1",
    "from collections.abc import Sequence; Sequence.register(int)",
    "from abc import ABC; ABC.register(int)",
    "from workflow import WorkflowNode; WorkflowNode.config.x = 1",
    "str.x = 1",
    "ValueError.x = 1",
    "import random; random.Random.random = lambda self: 4",
    "import datetime; datetime.datetime.now = None",
    "import sys; sys.stdout.write = print",
    "class A: pass\nsetattr(A(), '__class__', int)",
    "class A: pass\nA().__class__ = int",
    "class A: pass\nA.__name__ = 'B'",
    "import enum; enum.Enum('X', {'A': 1, '__reduce_ex__': lambda self, p: (print, ())})",
    "import enum; enum.Enum('X', names={'A': 1})",
    "import enum; enum.Enum.__call__('X', {'A': 1})",
    "from workflow import ToolRegistry\nt = ToolRegistry()\nt.register('n', print)\nt.get_tool('n').parse_raw('')",
    "from workflow import ToolRegistry\nt = ToolRegistry()\nt.register('n', print)\nt.get_tool('n').model_config",
    "from workflow import ToolRegistry\nt = ToolRegistry()\nt.register('n', print)\nt.get_tool('n').model_fields",
    "from workflow import ToolRegistry\nt = ToolRegistry()\nt.register('n', print)\nt.get_tool('n').model_rebuild()",
    "from workflow import ToolRegistry\nt = ToolRegistry()\nt.register('n', print)\ntype(t.get_tool('n')).parse_raw",
    "from workflow import AgentNode, Workflow\nAgentNode.__init__(Workflow(), 'n', 'p')",
    "from workflow import AgentNode, WorkflowNode\nWorkflowNode.__init__(AgentNode('n', 'p'), 'other')",
    "type('X', (), {})",
    "import decimal; decimal.DefaultContext.prec = 3",
    "from workflow import Message; Message.delivery.fget",
    "from workflow import AgentNode, Context; next(AgentNode.steps(3, Context()))",
    "class A: pass\nsuper(A).x",
    "import copy; copy.deepcopy([], {})",
]


@pytest.fixture
def shared_state() -> Iterator[None]:
    """Fails if a program changed something that it shares with others."""
    workflow.ToolRegistry().register("warm", print)  # builds its model on first use
    watched = [json.JSONEncoder, workflow.AgentNode, workflow.Message, workflow.WorkflowNode, workflow.MessageType]
    watched += [Tool, collections.OrderedDict, functools.partial]
    before = [dict(vars(item)) for item in watched]
    yield
    assert [dict(vars(item)) for item in watched] == before
    assert not isinstance(3, Sequence)


@pytest.mark.parametrize("source", WRITES)
def test_nothing_shared_can_be_changed(source: str, shared_state: None) -> None:
    outcome = run(source)
    assert outcome.refused
    assert outcome.findings or isinstance(outcome.error, (TypeError, AttributeError, ImportError)), outcome.reason


def test_wraps_and_abstractmethod_change_copies_only() -> None:
    name, doc = json.dumps.__name__, json.dumps.__doc__
    outcome = run(
        "import json, functools\nfrom abc import abstractmethod\n"
        "def f(): 'mine'\n"
        "g = functools.wraps(f)(json.dumps)\nabstractmethod(json.dumps)\n"
        "print(g.__name__, g.__doc__, json.dumps.__name__)\n"
    )
    assert outcome.printed == "f mine dumps\n"
    assert (json.dumps.__name__, json.dumps.__doc__) == (name, doc)
    assert not hasattr(json.dumps, "__isabstractmethod__")


# Every form that binds a name, applied to the name of a guard, then one attribute read.
EVIL = "evil = lambda obj, name: 'PWNED'\n"
BINDINGS = [
    "{g} = evil\nkeep(keep.x)",
    "{g}: int = evil\nkeep(keep.x)",
    "for {g} in [evil]: keep(keep.x)",
    "for ({g}, [y]) in [(evil, 'a')]: keep(keep.x)",
    "({g} := evil)\nkeep(keep.x)",
    "[{g}, *y] = [evil]\nkeep(keep.x)",
    "*{g}, y = evil, 1\n{g} = {g}[0]\nkeep(keep.x)",
    "def f({g}): keep(keep.x)\nf(evil)",
    "def f({g}, /): keep(keep.x)\nf(evil)",
    "def f(*, {g}): keep(keep.x)\nf({g}=evil)",
    "def f({g}=evil): keep(keep.x)\nf()",
    "def f(*{g}): keep(keep.x)\nf(evil)",
    "def f(**{g}): keep(keep.x)\nf()",
    "(lambda {g}: keep(keep.x))(evil)",
    "(lambda {g}, /: keep(keep.x))(evil)",
    "def {g}(obj, name): return 'PWNED'\nkeep(keep.x)",
    "class {g}:\n    def __init__(self, obj, name): self.looted = 'PWNED'\nkeep(keep.x)",
    "class A:\n    {g} = evil\n    keep(keep.x)",
    "class A:\n    def {g}(obj, name): return 'PWNED'\n    keep(keep.x)",
    "[keep(keep.x) for {g} in [evil]]",
    "{{keep(keep.x): 1 for {g} in [evil]}}",
    "list(keep(keep.x) for {g} in [evil])",
    "import vault as {g}\nkeep(keep.x)",
    "from vault import evil_guard as {g}\nkeep(keep.x)",
    "class W:\n    def __enter__(self): return evil\n    def __exit__(self, *a): pass\nwith W() as {g}: keep(keep.x)",
    "try: raise ValueError\nexcept ValueError as {g}: keep(keep.x)",
    "def f():\n    global {g}\n    {g} = evil\nf()\nkeep(keep.x)",
    "def f():\n    {g} = 1\n    def h():\n        nonlocal {g}\n        {g} = evil\n    h()\n    keep(keep.x)\nf()",
    "del {g}\nkeep(keep.x)",
    "match evil:\n    case {g}: keep(keep.x)",
    "match [evil]:\n    case [*{g}]: keep(keep.x)",
    "match {{'a': evil}}:\n    case {{**{g}}}: keep(keep.x)",
]
GUARDS = ("_getattr_", "__metaclass__", "__builtins__", "_apply_")


def _bind(form: str, guard: str) -> tuple[Outcome, list[Any]]:
    loot: list[Any] = []

    def keep(value: Any) -> None:
        loot.append(value)

    vault = {"keep": keep, "evil_guard": lambda obj, name: "PWNED"}
    return run("from vault import keep\n" + EVIL + form.format(g=guard), vault=vault), loot


@pytest.mark.parametrize("form", BINDINGS)
@pytest.mark.parametrize("guard", GUARDS)
def test_no_form_of_binding_shadows_a_guard(form: str, guard: str) -> None:
    outcome, loot = _bind(form, guard)
    # `keep` has no attribute x: the real guard raises AttributeError, a shadowed one gives loot.
    assert loot == []
    assert outcome.refused


def test_shadowing_would_work_if_names_were_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the defence, most of those forms take over the guard."""
    monkeypatch.setattr(sandbox.policy, "hide", lambda name: name)
    monkeypatch.setattr(sandbox.policy._Policy, "check_name", lambda *args, **kwargs: None)
    taken = [form for form in BINDINGS if _bind(form, "_getattr_")[1] == ["PWNED"]]
    assert len(taken) >= 15


def test_special_methods_outside_the_list_are_refused() -> None:
    names = (
        "new del getattr getattribute setattr delattr init_subclass class_getitem set_name get set prepare reduce "
        "reduce_ex getstate setstate copy deepcopy index slots instancecheck subclasscheck mro_entries await aiter dir "
        "getnewargs sizeof class dict annotations match_args fspath buffer"
    )
    for name in names.split():
        for source in (
            f"class A:\n    def __{name}__(self, *a): pass\n",
            f"class A:\n    __{name}__ = print\n",
            f"class A:\n    from math import pi as __{name}__\n",
            f"def __{name}__(): pass\n",
        ):
            assert sandbox.policy.compile_program(source).findings, source


# What can be reached by attributes alone, from everything that a program is given.


def _explore(start: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    queue = [(name, value, 0) for name, value in start.items()]
    seen: set[Any] = set()
    while queue:
        path, value, level = queue.pop()
        # Bound methods and the like are made anew at each reading: tell them apart by what they are.
        key = id(value) if isinstance(value, (type, types.FunctionType, Facade)) else (type(value), path.split(".")[-1])
        if key in seen:
            continue
        seen.add(key)
        yield path, value
        if level == depth:
            continue
        names = vars(value) if isinstance(value, Facade) else dir(value)
        for name in names:
            for attempt in {name, name.replace("_", sandbox.policy.MARK, 1)}:
                try:
                    found = read_attribute(value, attempt)
                except Exception:
                    continue
                queue.append((f"{path}.{attempt}", found, level + 1))


def _given() -> dict[str, Any]:
    names = program_globals(question="q", write=lambda text: None, run_code=no_code, seed=0, modules=contract_modules())
    registry = workflow.ToolRegistry()
    registry.register("tool", print)
    agent = workflow.AgentNode("a", "prompt", tool_registry=registry)
    graph = workflow.AgentGraph().add_node(agent)
    given = {f"builtin {name}": value for name, value in names["__builtins__"].items() if not name.startswith("__")}
    modules = names["__builtins__"]["__import__"].__closure__[0].cell_contents
    given |= {f"module {name}": module for name, module in modules.items()}
    given |= {
        "agent": agent,
        "chain": workflow.create_simple_chain([agent]),
        "context": workflow.Context.for_question("q"),
        "error": AttributeError("x", obj=json),
        "generator": (x for x in "a"),
        "graph": graph,
        "iterator": iter([]),
        "match": __import__("re").match("a", "a"),
        "message": workflow.Message("m"),
        "registry": registry,
        "request": next(agent.steps(workflow.Context())),
        "tool": registry.get_tool("tool"),
        "traceback": _traceback(),
        "type": workflow.MessageType.ERROR,
    }
    return given


def _traceback() -> Any:
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__


def test_nothing_forbidden_is_reachable_by_attributes() -> None:
    reached = dict(_explore(_given(), depth=3))
    assert len(reached) > 1000
    assert [path for path, value in reached.items() if forbidden(value) and path != "traceback"] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_forbidden_comes_out_of_simple_calls() -> None:
    """Everything reachable is called with small arguments, since a method may take them for what they are not."""
    given = _given()
    choices: list[tuple[Any, ...]] = [(), (1,), ("a",), ([1, 2],), ({"a": 1},), (int,), (type(None),), (Exception,)]
    choices += [
        (lambda *args, **kwargs: 1,),
        (int, "mro"),
        ("{0.__class__}", int),
        (given["error"],),
        (given["agent"],),
    ]
    calls = 0
    for path, function in _explore(given, depth=2):
        if not callable(function) or path == "traceback":
            continue
        for arguments in choices:
            try:
                result = function(*arguments)
            except (Exception, SystemExit):
                continue
            calls += 1
            assert not forbidden(result), (path, arguments, result)
            for place, value in _explore({"result": result}, depth=1):
                assert not forbidden(value), (path, arguments, place, value)
    assert calls > 1000


def test_facades_share_no_mutable_containers() -> None:
    """Every list, dict or set that a module shows is this program's own."""
    first, second = (
        {path: value for path, value in _explore(_given(), depth=2) if path.startswith("module ")} for _ in range(2)
    )
    mutable = {path for path, value in first.items() if isinstance(value, (list, dict, set, bytearray))}
    assert {path for path in mutable if first[path] is second.get(path)} == set()


def test_the_explorer_finds_what_is_there() -> None:
    """The control: a facade that leaks a module or a frame through an object is noticed."""
    leak = types.SimpleNamespace(module=json)
    assert forbidden(leak.module)
    names = _given() | {"leak": _Leak()}
    assert any(path == "leak.inside.loot" for path, _ in _explore(names, depth=3))


class _Inside:
    loot = ("anything",)


_Leak = ProgramMeta("_Leak", (), {"inside": ProgramMeta("_Inside", (_Inside,), {"loot": 1})()})
