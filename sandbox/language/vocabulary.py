"""The words of the language of programs: which names there are, which there are not, and what to write instead.

Tables and the hiding of private names only; the compiler is `sandbox.language.compiler`, the run-time checks are
`sandbox.language.access`.
"""

from __future__ import annotations

MARK = "\u02cd"
"""Takes the place of a leading underscore (U+02CD looks like one) in every name of a program, so that no name which
the program writes can be one of the guards' or of a library's private names."""

_MAGIC = (
    "__init__ __post_init__ __call__ __enter__ __exit__ __repr__ __str__ __format__ __hash__ __bool__ "
    "__int__ __float__ __len__ __iter__ __next__ __reversed__ __contains__ __getitem__ __setitem__ __delitem__ "
    "__missing__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ "
    "__neg__ __pos__ __abs__ __invert__ __round__ __floor__ __ceil__ "
    "__add__ __sub__ __mul__ __matmul__ __truediv__ __floordiv__ __mod__ __divmod__ __pow__ "
    "__and__ __or__ __xor__ __lshift__ __rshift__ "
    "__radd__ __rsub__ __rmul__ __rmatmul__ __rtruediv__ __rfloordiv__ __rmod__ __rdivmod__ __rpow__ "
    "__rand__ __ror__ __rxor__ __rlshift__ __rrshift__ "
    "__iadd__ __isub__ __imul__ __imatmul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ "
    "__iand__ __ior__ __ixor__ __ilshift__ __irshift__ "
    "__getattr__ __setattr__ __delattr__ __new__ __init_subclass__ __class_getitem__ __set_name__ "
    "__get__ __set__ __delete__ __await__ __aenter__ __aexit__ __aiter__ __anext__"
)
MAGIC_METHODS = frozenset(_MAGIC.split())
"""Special methods that a class of a program may define."""

_READABLE = (
    "__class__ __name__ __qualname__ __doc__ __module__ __dict__ __annotations__ __cause__ __context__ __members__"
)
READABLE = frozenset(_READABLE.split())
"""Special attributes that a program may read, through the guard `_special_`."""

BY_CLASS = frozenset({"__init__", "__new__", "__setattr__", "__delattr__"})
"""Special methods that a program may also name on a class, as in `Base.__init__(self)`."""

_MODULE_NAMES = "__all__ __version__ __author__ __doc__ __file__ __license__ __email__ __date__"
MODULE_NAMES = frozenset(_MODULE_NAMES.split())
"""Special names that a program may bind and read as variables."""

NAMES_OF_ATTRIBUTES = frozenset({"__slots__", "__match_args__"})
"""Special names of a class body whose value is a list of names, written out."""

UNAVAILABLE = {
    "open": "programs have no files; pass data through messages or context.state",
    "input": "the problem's text is in the variable question",
    "exec": 'run code with subprocess.run([sys.executable, "-c", code])',
    "compile": 'run code with subprocess.run([sys.executable, "-c", code])',
    "globals": "use the variables by name",
    "locals": "use the variables by name",
    "memoryview": "use bytes or bytearray",
    "breakpoint": "use print",
    "help": "use print",
    "__import__": "write an import statement",
}
"""Builtins that programs do not have, with what to do instead."""

SYNTAX_FIXES = {
    "TypeAlias": ("type statements", "write a plain assignment"),
    "TypeVar": ("type parameters", "leave them out"),
    "ParamSpec": ("type parameters", "leave them out"),
    "TypeVarTuple": ("type parameters", "leave them out"),
    "TemplateStr": ("template strings", "write an f-string"),
}
DUNDER_FIXES = {
    "__len__": "write len(x)",
    "__str__": "write str(x)",
    "__repr__": "write repr(x)",
    "__iter__": "write iter(x)",
    "__next__": "write next(x)",
    "__getitem__": "write x[key]",
    "__contains__": "write key in x",
    "__call__": "write x(...)",
    "__wrapped__": "keep the original function under a name of your own",
}


def hide(name: str) -> str:
    """The name under which a program's `_name` or `__name` is kept. Special names (`__name__`) are left as they are."""
    special = len(name) > 4 and name.startswith("__") and name.endswith("__")
    return MARK + name[1:] if name.startswith("_") and name != "_" and not special else name


def mangled(name: str, owner: str) -> str:
    """What Python itself makes of `__name` in the body of a class: `_Owner__name`."""
    owner = owner.lstrip("_")
    private = name.startswith("__") and not name.endswith("__")
    return f"_{owner}{name}" if private and owner else name


def shown(text: str) -> str:
    """Text of an error as the program's author wrote its names."""
    return text.replace(MARK, "_")
