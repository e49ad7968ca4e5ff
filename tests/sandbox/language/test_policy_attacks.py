"""The corpus's attacks on the policy, in this process, where what a program hands to `keep` can be looked at.

Each is first shown to work in plain Python, then to get nothing forbidden under the policy, however it was refused.
The same attacks run in jails in `test_attacks`. Also: everything that attributes and simple calls can reach.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import importlib
import json
import pathlib
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from policy_helper import Outcome, contract_modules, no_code, run, run_plain

import sandbox.language.compiler
import sandbox.language.hiding
import sandbox.language.vocabulary
import workflow
from sandbox.conformance.attacks import ESCAPED, hooks, introspection, libraries, logs, modules
from sandbox.conformance.attacks.shadowing import FORMS, GUARDS, shadowing
from sandbox.language.access import read_attribute
from sandbox.language.classes import Facade, ProgramMeta
from sandbox.language.guards import program_globals
from sandbox.language.vocabulary import MAGIC_METHODS
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
    # A stand-in says "<module 'json'>"; a real module says where it is from, too.
    return isinstance(value, str) and ("__builtins__" in value or re.search(r"<module '[\w.]+' ", value) is not None)


def attack(source: str, *, plain: bool) -> tuple[list[Any], Outcome, list[Any]]:
    """Run an attack; return all it kept, what happened, and what of it is forbidden."""
    kept: list[Any] = []

    def keep(*loot: Any) -> None:
        kept.extend(loot)

    if plain:
        outcome = run_plain(source, {"keep": keep})
    else:
        outcome = run("from vault import keep\n" + source, vault={"keep": keep})
    return kept, outcome, [value for value in kept if forbidden(value)]


READS = {attack.id: attack for attack in introspection.ATTACKS}
OPENED = {attack.id: attack for attack in (*hooks.ATTACKS, *libraries.ATTACKS, *logs.ATTACKS)}
UNSEEN = {
    "base", "special method found by the class", "self of a bound method", "type with three arguments", "a descriptor",
    "__set_name__", "__reduce__ by copy", "frame of what a generator waits for", "except* in a function",
}  # fmt: skip
"""What these get in plain Python is worth something only in company: no single value of it is forbidden."""


@pytest.mark.parametrize("name", READS)
def test_reading_attacks_reach_nothing(name: str) -> None:
    kept, outcome, loot = attack(READS[name].source, plain=True)
    assert kept, f"the attack must work in plain Python, or it tests nothing: {outcome.reason}"
    assert loot or READS[name].name in UNSEEN, f"the oracle must see that {kept!r} is forbidden"
    _, outcome, loot = attack(READS[name].source, plain=False)
    assert loot == []
    assert outcome.refused or "answer" in READS[name].ends


@pytest.mark.parametrize("name", OPENED)
def test_attacks_on_what_was_opened_come_away_with_empty_hands(name: str) -> None:
    each = OPENED[name]
    source = each.source.replace("@CANARY@", __file__).replace("@VICTIM@", "/nowhere/at/all").replace("@MARK@", "")
    kept, outcome, _ = attack(source, plain=False)
    assert kept == []
    assert outcome.refused or "answer" in each.ends
    if each.control:
        kept, outcome, _ = attack(source, plain=True)
        assert kept, f"the attack must work in plain Python, or it tests nothing: {outcome.reason}"


MODULES = (
    "os.system os._exit subprocess.os ctypes importlib pickle marshal socket threading._active gc.get_objects "
    "inspect builtins json.codecs json.decoder re.enum random._os statistics.sys dataclasses.sys typing.sys "
    "collections._sys string._re copy.copyreg functools.namedtuple enum.sys fractions.sys sys.modules "
    "decimal.DefaultContext textwrap.re heapq.sys random.SystemRandom functools.update_wrapper operator.call "
    "dataclasses.make_dataclass string.Formatter typing.get_type_hints typing.ForwardRef sys._getframe "
    "sys.settrace abc.get_cache_token enum.EnumType copy.dispatch_table"
)


@pytest.mark.parametrize("path", MODULES.split())
def test_modules_and_their_insides_cannot_be_had(path: str) -> None:
    """By import, from-import, attribute, getattr. The refusal says what there is instead."""
    module, _, name = path.partition(".")
    if not name:
        outcome = run(f"import {module}\n{module}")
        assert isinstance(outcome.error, ImportError)
        assert "available modules: abc, array" in outcome.reason
        return
    for source in (
        f"from {module} import {name}\n{name}",
        f"import {path}\n{path}",
        f"import {path} as x\nx",
        f"import {module}\n{module}.{name}",
        f"import {module}\ngetattr({module}, {name!r})",
    ):
        outcome = run(source)
        assert outcome.refused, source
        assert outcome.findings or isinstance(outcome.error, (ImportError, AttributeError)), outcome.reason


def test_names_that_could_do_harm_are_names_of_our_own() -> None:
    source = "import abc, operator, types, uuid, contextlib, logging, string, array, csv, os, pathlib\n"
    names = "abc.ABCMeta operator.attrgetter operator.methodcaller types.SimpleNamespace uuid.uuid1 "
    names += "contextlib.contextmanager logging.Logger string.Template array.array csv.reader csv.DictReader "
    names += "os.path os.environ"
    outcome = run(source + f"got = [{names.replace(' ', ', ')}]\n")
    assert outcome.reason == ""
    for path, value in zip(names.split(), outcome.variables["got"], strict=True):
        module, _, name = path.partition(".")
        assert value is not getattr(importlib.import_module(module), name), path
    assert outcome.variables["pathlib"].Path is pathlib.PurePosixPath


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


@pytest.mark.parametrize("source", modules.CHANGES)
def test_nothing_shared_can_be_changed(source: str, shared_state: None) -> None:
    outcome = run("def keep(*loot): print(*loot)\n" + source)
    assert outcome.refused
    assert outcome.printed == ""
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


def _bind(form: str, guard: str) -> tuple[Outcome, list[Any]]:
    loot: list[Any] = []

    def keep(value: Any) -> None:
        loot.append(value)

    return run("from vault import keep\n" + shadowing(form, guard), vault={"keep": keep}), loot


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("guard", GUARDS)
def test_no_form_of_binding_shadows_a_guard(form: str, guard: str) -> None:
    outcome, loot = _bind(form, guard)
    # `keep` has no attribute x: the real guard raises AttributeError, a shadowed one gives loot.
    assert loot == []
    assert outcome.refused


def test_shadowing_would_work_if_names_were_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the defence, most of those forms take over the guard."""
    monkeypatch.setattr(sandbox.language.hiding, "hide", lambda name: name)
    monkeypatch.setattr(sandbox.language.compiler._Policy, "check_name", lambda *args, **kwargs: None)
    taken = [form for form in FORMS if _bind(form, "_getattr_")[1] == [ESCAPED]]
    assert len(taken) >= 15


def test_special_methods_outside_the_list_are_refused() -> None:
    names = (
        "del getattribute prepare reduce reduce_ex getstate setstate copy deepcopy index slots instancecheck "
        "subclasscheck mro_entries dir getnewargs sizeof class dict annotations match_args fspath buffer complex "
        "length_hint subclasshook objclass isabstractmethod wrapped text_signature globals code"
    )
    for name in names.split():
        assert f"__{name}__" not in MAGIC_METHODS
        for source in (
            f"class A:\n    def __{name}__(self, *a): pass\n",
            f"class A:\n    __{name}__ = print\n",
            f"class A:\n    from math import pi as __{name}__\n",
        ):
            assert sandbox.language.compiler.compile_program(source).findings, source
    for name in (*names.split(), *(name.strip("_") for name in MAGIC_METHODS)):
        assert sandbox.language.compiler.compile_program(f"def __{name}__(): pass\n").findings, name


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
            for attempt in {name, name.replace("_", sandbox.language.vocabulary.MARK, 1)}:
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
        "coroutine": _coroutine(),
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


async def _awaited() -> None: ...


def _coroutine() -> Any:
    coroutine = _awaited()
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
    return coroutine


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
