"""Programs that bind the name of a guard, in every form that binds a name, and then read an attribute.

Where a guard is shadowed, the read gives `evil`'s loot. There are no guards in plain Python, so the control of these
is a policy whose names are not hidden (see the tests).
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import Attack, programs

GUARDS = ("_getattr_", "_getitem_", "_getiter_", "_write_", "__metaclass__", "__builtins__", "_apply_")
"""Names that compiled programs call; what the policy really calls them is its own affair."""

EVIL = "def evil(obj, name): return 'ESCAPED'\n"
FORMS = {
    "assignment": "{g} = evil\nkeep(keep.x)",
    "annotated assignment": "{g}: int = evil\nkeep(keep.x)",
    "for": "for {g} in [evil]: keep(keep.x)",
    "for with a pattern": "for ({g}, [y]) in [(evil, 'a')]: keep(keep.x)",
    "walrus": "({g} := evil)\nkeep(keep.x)",
    "walrus in a comprehension": "[{g} := evil for _ in [1]]\nkeep(keep.x)",
    "list pattern": "[{g}, *y] = [evil]\nkeep(keep.x)",
    "star": "*{g}, y = evil, 1\n{g} = {g}[0]\nkeep(keep.x)",
    "argument": "def f({g}): keep(keep.x)\nf(evil)",
    "positional-only argument": "def f({g}, /): keep(keep.x)\nf(evil)",
    "keyword-only argument": "def f(*, {g}): keep(keep.x)\nf({g}=evil)",
    "default": "def f({g}=evil): keep(keep.x)\nf()",
    "star argument": "def f(*{g}): keep(keep.x)\nf(evil)",
    "double star argument": "def f(**{g}): keep(keep.x)\nf()",
    "lambda": "(lambda {g}: keep(keep.x))(evil)",
    "positional-only argument of a lambda": "(lambda {g}, /: keep(keep.x))(evil)",
    "star argument of a lambda": "(lambda *{g}: keep(keep.x))(evil)",
    "def": "def {g}(obj, name): return 'ESCAPED'\nkeep(keep.x)",
    "class": "class {g}:\n    def __init__(self, obj, name): self.looted = 'ESCAPED'\nkeep(keep.x)",
    "class body": "class A:\n    {g} = evil\n    keep(keep.x)",
    "method": "class A:\n    def {g}(obj, name): return 'ESCAPED'\n    keep(keep.x)",
    "list comprehension": "[keep(keep.x) for {g} in [evil]]",
    "dict comprehension": "{{keep(keep.x): 1 for {g} in [evil]}}",
    "generator": "list(keep(keep.x) for {g} in [evil])",
    "import": "import math as {g}\nkeep(keep.x)",
    "from import": "from math import pow as {g}\nkeep(keep.x)",
    "with": "class W:\n    def __enter__(self): return evil\n    def __exit__(self, *a): pass\n"
    "with W() as {g}: keep(keep.x)",
    "except": "try: raise ValueError\nexcept ValueError as {g}: keep(keep.x)",
    "except*": "try: raise ExceptionGroup('', [ValueError()])\nexcept* ValueError as {g}: keep(keep.x)",
    "global": "def f():\n    global {g}\n    {g} = evil\nf()\nkeep(keep.x)",
    "nonlocal": "def f():\n    {g} = 1\n    def h():\n        nonlocal {g}\n        {g} = evil\n    h()\n"
    "    keep(keep.x)\nf()",
    "del": "del {g}\nkeep(keep.x)",
    "match": "match evil:\n    case {g}: keep(keep.x)",
    "match of a list": "match [evil]:\n    case [*{g}]: keep(keep.x)",
    "match of a dict": "match {{'a': evil}}:\n    case {{**{g}}}: keep(keep.x)",
    "match as": "match evil:\n    case _ as {g}: keep(keep.x)",
    "type parameter": "def f[{g}](): keep(keep.x)\nf()",
}


def shadowing(form: str, guard: str) -> str:
    return EVIL + FORMS[form].format(g=guard)


ATTACKS: list[Attack] = programs(
    "guard shadowed", {form: shadowing(form, "_getattr_") for form in FORMS}, control=False
)
