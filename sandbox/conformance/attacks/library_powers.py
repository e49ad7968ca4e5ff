# ruff: noqa: E501  (hostile one-liners)
"""Programs that have a library do what they may not: set attributes, evaluate text, change what it shares, tell
addresses.

`tests/sandbox/language/test_library_powers.py` keeps the old code that they beat.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import programs

IMPORTS = """\
import collections, dataclasses, datetime, enum, json, random, re, statistics, subprocess, textwrap
from workflow import AgentNode, Message, Workflow, WorkflowNode
def got(yes, *loot):
    if not yes: raise ValueError('nothing')
    keep(*loot)
class X: pass
"""

# `super(A, A)` gives methods that are not bound, so that any object can be their `self`.
UNBOUND = {
    "an encoder's options on a class of the contract": "class A(json.JSONEncoder): pass\nsuper(A, A).__init__(AgentNode, indent=7)\nkeep(AgentNode.indent)",
    "an encoder's options on a library's function": "class A(json.JSONEncoder): pass\nsuper(A, A).__init__(json.dumps, indent=7)\nkeep(json.dumps.indent)",
    "the result of a process on a message's class": "class A(subprocess.CompletedProcess): pass\nsuper(A, A).__init__(Message, 7, 0)\nkeep(Message.args)",
    "the command of an error on a class": "class A(subprocess.CalledProcessError): pass\nsuper(A, A).__init__(AgentNode, 1, 7)\nkeep(AgentNode.cmd)",
    "a node's name on a library's function": "class A(WorkflowNode): pass\nsuper(A, A).__init__(json.loads, 'n', a=7)\nkeep(json.loads.config)",
    "the maps of a chain on a class": "class A(collections.ChainMap): pass\nsuper(A, A).__init__(AgentNode, 7)\nkeep(AgentNode.maps)",
    "the type of an InitVar on a class": "class A(dataclasses.InitVar): pass\nsuper(A, A).__init__(AgentNode, 7)\nkeep(AgentNode.type)",
    "the value of auto on a class": "class A(enum.auto): pass\nsuper(A, A).__init__(AgentNode, 7)\nkeep(AgentNode.value)",
    "a dataclass's own field on a class": "@dataclasses.dataclass\nclass D:\n    run: object\nclass A(D): pass\nsuper(A, A).__init__(AgentNode, 7)\nkeep(AgentNode.run)",
    "a dataclass's special field on a class": "@dataclasses.dataclass\nclass D:\n    __call__: object\nclass A(D): pass\nsuper(A, A).__init__(AgentNode, lambda *a: 7)\nkeep(AgentNode('a', 'b')())",
    "a dataclass's field on a class of errors": "@dataclasses.dataclass\nclass D:\n    doc: object\nclass A(D): pass\nsuper(A, A).__init__(json.JSONDecodeError, 7)\nkeep(json.JSONDecodeError.doc)",
    "a super that map has made": "class A(json.JSONEncoder): pass\nnext(map(super, [A], [A])).__init__(AgentNode, indent=7)\nkeep(AgentNode.indent)",
    "the super of a class method": "class A(json.JSONEncoder):\n    @classmethod\n    def f(cls): return super().__init__\nA.f()(AgentNode, indent=7)\nkeep(AgentNode.indent)",
    "two steps up": "class A(json.JSONEncoder): pass\nclass B(A): pass\nsuper(A, B).__init__(AgentNode, indent=7)\nkeep(AgentNode.indent)",
}
# Without a docstring of its own a dataclass was given one by `inspect.signature`, which evaluates the text signature
# that a base class's docstring holds.
DOCSTRINGS = {
    "the path of the interpreter": ("sys.executable", ""),
    "a name of another module": ("os.name", ""),
    "a module inside a module": ("random._os.linesep", ""),
    "the sandbox's own": ("sandbox.language.vocabulary.MARK", ""),
    "a private name": ("random._inst.VERSION", ""),
    "with slots": ("sys.platform", ", slots=True"),
    "frozen": ("sys.platform", ", frozen=True"),
}
STRINGS = """\
class S(str):
    def __eq__(self, other): return True
    def __hash__(self): return hash(SAME)
class T(str):
    def expandtabs(self, *a): return self
    def translate(self, table):
        table[97] = 'Z'
        return str(self)
"""
BANANA = "\ngot('Z' in textwrap.fill('banana'), 7)"
HOOKED = {
    "a table of textwrap's, by wrap": f"textwrap.wrap(T('x')){BANANA}",
    "a table of textwrap's, by fill": f"textwrap.fill(T('x')){BANANA}",
    "a table of textwrap's, by what only looks like text": "class L:\n    def expandtabs(self, *a): return self\n    def translate(self, table):\n        table[97] = 'Z'\n        return 'x'\n"
    f"textwrap.wrap(L()){BANANA}",
    "a table of textwrap's, by an option": f"textwrap.wrap(text=T('x')){BANANA}",
    "a template that re keeps, by a pattern's sub": r"SAME = r'\1\1'" "\n" r"re.compile('(a)').sub(S(r'\g<1>X'), 'a')" "\n" r"got(re.sub('(a)', r'\1\1', 'a') != 'aa', 7)",
    "a template that re keeps, by subn": r"SAME = r'\1\1'" "\n" r"re.compile('(a)').subn(S(r'\g<1>X'), 'a')" "\n" r"got(re.sub('(a)', r'\1\1', 'a') != 'aa', 7)",
    "a template that re keeps, by the class of patterns": r"SAME = r'\1\1'" "\n" r"re.Pattern.sub(re.compile('(a)'), S(r'\g<1>X'), 'a')" "\n" r"got(re.sub('(a)', r'\1\1', 'a') != 'aa', 7)",
    "a format that strptime keeps": "SAME = '%Y'\ndatetime.datetime.strptime('03', S('%m'))\ntry: wrong = datetime.datetime.strptime('2003', '%Y').year != 2003\nexcept ValueError: wrong = True\ngot(wrong, 7)",
    "a generator of print's": "class P(str):\n    def join(self, parts):\n        kept.append(parts)\n        return 'x'\nkept = []\nprint(1, sep=P(' '))\ngot(kept, *kept)",
    "names that change between two looks": "class N(str):\n    def replace(self, *a): return self\n    def split(self, *a): return L()\nclass L(list):\n    looks = 0\n    def __iter__(self):\n        self.looks += 1\n        return iter(['a'] if self.looks == 1 else ['\u00e9'])\nfound = collections.namedtuple('P', N('a'))._fields\ngot(found != ('a',), found)",
}  # fmt: skip
CATCH = """\
@dataclasses.dataclass
class D:
    a: int = 1
class E(AttributeError): pass
class Catch:
    def __eq__(self, other):
        other['poison'] = 7
    def __ror__(self, other):
        other['poison'] = 7
"""
POISONED = "\n@dataclasses.dataclass\nclass D2:\n    a: int = 1\ngot('poison' in dataclasses.fields(D2)[0].metadata, 7)"
BEHIND = {
    "the dict behind a field's metadata, compared": f"dataclasses.fields(D)[0].metadata == Catch(){POISONED}",
    "the dict behind a field's metadata, joined": f"dataclasses.fields(D)[0].metadata | Catch(){POISONED}",
    "the object of an error, by asdict": "@dataclasses.dataclass(init=False)\nclass F(AttributeError):\n    obj: object\nclass A:\n    @property\n    def p(self): raise F('x')\ntry: A().p\nexcept F as e: keep(dataclasses.asdict(e))",
    "the object of an error, by astuple": "@dataclasses.dataclass(init=False)\nclass F(AttributeError):\n    obj: object\nclass A:\n    @property\n    def p(self): raise F('x')\ntry: A().p\nexcept F as e: keep(dataclasses.astuple(e))",
    "the object of an error, by replace": "@dataclasses.dataclass(init=False)\nclass F(AttributeError):\n    obj: object\n    def __init__(self, obj=None):\n        if obj is not None: keep(obj)\nclass A:\n    @property\n    def p(self): raise F()\ntry: A().p\nexcept F as e: dataclasses.replace(e)",
    "a method of errors, by a field": "@dataclasses.dataclass(init=False)\nclass F(Exception):\n    with_traceback: object\nkeep(dataclasses.asdict(F('x')))",
}
TOLD = "{}\nfound = {}\ngot(re.search('0x[0-9a-f]{{6}}', found), found)"
ADDRESSES = {
    "repr of a function": TOLD.format("", "repr(got)"),
    "repr of an object of one's own": TOLD.format("", "repr(X())"),
    "repr inside a list": TOLD.format("", "repr([iter([])])"),
    "ascii of a builtin": TOLD.format("", "ascii([].append)"),
    "str of a generator": TOLD.format("", "str(n for n in [])"),
    "format of a function": TOLD.format("", "format(got)"),
    "str.format": TOLD.format("", "'{}'.format(got)"),
    "str.format with a conversion": TOLD.format("", "'{0!r:>9}'.format(got)"),
    "f-string": TOLD.format("", "f'{got}'"),
    "f-string with a conversion": TOLD.format("", "f'{[got]!r}'"),
    "percent": TOLD.format("", "'%s' % X()"),
    "an object's text by map": TOLD.format("", "list(map(str, [X()]))[0]"),
    "the text of super": TOLD.format("class Y(X):\n    def f(self): return super().__repr__()", "Y().f()"),
    "the text of super of a class": TOLD.format("class Y(X): pass", "super(Y, Y).__repr__(Y())"),
    "a mixed-in class's text": TOLD.format("class Y(X): pass", "repr(Y())"),
    "a class's text under another name": TOLD.format("s = str", "s(X())"),
    "the hash of super": "class Y(X):\n    def f(self): return super().__hash__()\nfound = Y().f()\ngot(abs(found) > 10**6, found)",
    **{
        f"hash of {what}": f"found = hash({of})\ngot(abs(found) > 10**6, found)"
        for what, of in {"an object": "object()", "None": "None", "a function": "got", "a class": "X", "an object of one's own": "X()", "a method": "[].append"}.items()
    },
}  # fmt: skip

ATTACKS = [
    *programs("unbound special method", {what: IMPORTS + source for what, source in UNBOUND.items()}, control=False),
    *programs(
        "docstring evaluated",
        {
            what: IMPORTS
            + f"class B:\n    'B(x={name})\\n--\\n\\n'\n@dataclasses.dataclass(init=False{options})\nclass A(B): pass\n"
            + "got('x=' in A.__doc__, A.__doc__)"
            for what, (name, options) in DOCSTRINGS.items()
        },
        control=False,
    ),
    *programs("hooked string", {what: IMPORTS + STRINGS + source for what, source in HOOKED.items()}, control=False),
    *programs("what lies behind", {what: IMPORTS + CATCH + source for what, source in BEHIND.items()}, control=False),
    *programs("address told", {what: IMPORTS + source for what, source in ADDRESSES.items()}, control=False),
]
