# ruff: noqa: E501  (hostile one-liners)
"""Programs that plant something into an object of ours or of a library's, and have library code act on it.

The red team's chain had four links: a key planted in a contract object, the half-made state that a copy hands out, an
object that says of itself how it is to be made, and so any attribute of any object. Here is each link in many
spellings, and their like for the libraries that programs may import. `tests/sandbox/language/test_planting.py` keeps
the old code that they beat.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import programs

BASE = """\
import collections, copy, dataclasses
from workflow import AgentNode, Context, Message, ToolRegistry, Workflow
registry = ToolRegistry()
registry.register("t", lambda: 0)
def plant(key, hook): return registry.get_tool("t").model_copy(update={key: hook})
class X: pass
@dataclasses.dataclass
class D:
    a: object = None
Pair = collections.namedtuple("Pair", "a b")
def holding(part):
    x = X(); x.part = part
    return x
def agent(part):
    a = AgentNode("a", "b"); a.part = part
    return a
def half_made(key, hook):
    # an object of the program with a key on it that no assignment would let through
    def see(memo):
        for state in list(memo.values()):
            if type(state) is dict: state[key] = hook
        return 1
    x = X(); x.first = 1; x.part = plant("__deepcopy__", see)
    return copy.deepcopy(x)
def write(target, values):
    # any attribute of any object
    return copy.copy(half_made("__reduce_ex__", lambda protocol: (lambda: target, (), (None, values))))
"""

# What a planted object is held by when it is copied.
HOLDERS = {
    "nothing": "{}",
    "a list": "[1, {}]",
    "a tuple": "({}, 1)",
    "a dict": "dict(k={})",
    "a list in a dict": "dict(k=[{}])",
    "a deque": "collections.deque([{}])",
    "an ordered dict": "collections.OrderedDict(k={})",
    "a default dict": "collections.defaultdict(list, k={})",
    "a counter": "collections.Counter(k={})",
    "a chain map": "collections.ChainMap(dict(k={}))",
    "a named tuple": "Pair({}, 1)",
    "an object": "holding({})",
    "a dataclass": "D({})",
    "a message": "Message('x', metadata=dict(k={}))",
    "a context": "Context(state=dict(k={}))",
    "an agent": "agent({})",
    "an error": "ValueError({})",
}
TRIGGERS = {
    "deepcopy": "copy.deepcopy({})",
    "asdict": "dataclasses.asdict(D({}))",
    "astuple": "dataclasses.astuple(D({}))",
}
TARGETS = {
    "the contract's message": ("Message", "{'delivery': 7}", "keep(Message('x').delivery)"),
    "the contract's agent": ("AgentNode", "{'run': 7}", "keep(AgentNode('a', 'b').run)"),
    "the contract's workflow": ("Workflow", "{'run': keep}", "Workflow('w').run('q')"),
    "the contract's context": ("Context", "{'question': 7}", "keep(Context().question)"),
    "the contract's registry": ("ToolRegistry", "{'list_tools': keep}", "registry.list_tools()"),
    "a library's function": (
        "copy.deepcopy",
        "{'__dataclass_fields__': {}}",
        "keep(dataclasses.fields(copy.deepcopy))",
    ),
    "a private name of an object": (
        "registry",
        "{'_tools': {'u': 7}}",
        "if registry.list_tools() == ['u']: keep(registry)",
    ),
    "the name of a function": (
        "half_made",
        "{'__name__': 'eval'}",
        "if half_made.__name__ == 'eval': keep(half_made)",
    ),
    "the attributes of an object": (
        "registry",
        "{'__dict__': {'_tools': {}}}",
        "if not registry.list_tools(): keep(registry)",
    ),
}
HOOK = "half_made({!r}, lambda *given: keep(given))"
MESSAGE = "from workflow import Context, Message\nm = Message('x', metadata={'a': []})\n"

ATTACKS = [
    *programs(
        "planted key",
        {
            f"{trigger} of {holder}": BASE + call.format(held.format('plant("__deepcopy__", keep)'))
            for trigger, call in TRIGGERS.items()
            for holder, held in HOLDERS.items()
        },
        control=False,
    ),
    *programs(
        "an object's own word",
        {
            "copy of an object with __reduce_ex__": BASE + f"copy.copy({HOOK.format('__reduce_ex__')})",
            **{
                f"deepcopy of {holder} with {key}": BASE + f"copy.deepcopy({held.format(HOOK.format(key))})"
                for key in ("__reduce_ex__", "__deepcopy__")
                for holder, held in HOLDERS.items()
            },
        },
        control=False,
    ),
    *programs(
        "any attribute of any object",
        {what: BASE + f"write({target}, {values})\n{loot}" for what, (target, values, loot) in TARGETS.items()},
        control=False,
    ),
    *programs(
        "a message's own",
        {
            "a keyword of the constructor": "from workflow import Message\nkeep(Message(**{'content': 'x', '__deepcopy__': 1}))",
            "a special keyword of a context": "from workflow import Context\nkeep(Context(**{'__dict__': {}}))",
            "setattr on a message": MESSAGE + "setattr(m, '__deepcopy__', keep); keep(m)",
            "a model's config": MESSAGE + "keep(Message.model_config)",
            "a model's dump": MESSAGE + "keep(m.model_dump())",
            "replace with a special field": MESSAGE
            + "import dataclasses\nkeep(dataclasses.replace(m, **{'__class__': int}))",
            "the maker that checks nothing": MESSAGE + "keep(Message.of_agent(1, 2, 3))",
            "the maker by its name": MESSAGE + "keep(Message._made(1, 2, 3, 4))",
            "the filler that checks nothing": MESSAGE + "m._fill(content=keep); keep(m)",
        },
        control=False,
    ),
    *programs(
        "library on a foreign object",
        {
            "a field of a dataclass": "import dataclasses\n@dataclasses.dataclass\nclass X:\n    a: int = 1\ndataclasses.fields(X)[0].default = keep\nkeep(X())",
            "fields of what is no dataclass": "import dataclasses\nkeep(dataclasses.fields(dataclasses.field))",
            "insides of a JSON decoder": "import json\nkeep(json.JSONDecoder().scan_once)",
            "memo of a JSON decoder": "import json\nkeep(json.JSONDecoder().memo)",
            "parse_object of a JSON decoder": "import json\nkeep(json.JSONDecoder().parse_object)",
            "the decoder behind the decoder": "import json\nkeep(json.JSONDecoder()._decoder)",
            "an unknown option of loads": "import json\nkeep(json.loads('1', object_hooks=keep))",
            "an unknown option of dumps": "import json\nkeep(json.dumps(1, _one_shot=keep))",
            "the object of an error": "try: None.x\nexcept AttributeError as e: keep(e.obj)",
            "the object of an error of one's own": "class E(AttributeError): pass\nkeep(E(obj=keep).obj)",
            "the request of an agent": "from workflow import AgentNode, Context\nkeep(next(AgentNode('a', 'b').steps(Context.for_question('q'))).messages)",
            "the request of an agent, changed": "from workflow import AgentNode, Context\ncall = next(AgentNode('a', 'b').steps(Context.for_question('q')))\ncall.agent = 'b'\nkeep(call)",
            "a tool, changed": BASE + "t = registry.get_tool('t')\nt.func = keep\nkeep(t)",
            "a tool's class, changed": BASE + "t = registry.get_tool('t')\ntype(t).func = keep\nkeep(t)",
        },
        control=False,
    ),
]
