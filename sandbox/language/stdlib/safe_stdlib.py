"""Stand-ins for parts of the standard library whose originals would be unsafe or not repeatable in a program.

Inert `typing` names, seeded random numbers, decorators that never touch what they did not make, output streams. Not
here: time (`clock`), `subprocess` (`subprocess_calls`), and which module offers which name (`importable`).
"""

from __future__ import annotations

import collections
import collections.abc
import functools
import random
import re
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NoReturn

from sandbox.language.access import read_attribute
from sandbox.language.classes import Generic, NamedTuple, Protocol, TypedDict, runtime_checkable
from sandbox.language.stdlib.data_classes import own_class
from sandbox.language.texts import over_plain, plain_text

_RANDOM_FUNCTIONS = (
    "betavariate choice choices expovariate gammavariate gauss getrandbits lognormvariate normalvariate paretovariate "
    "randbytes randint random randrange sample seed shuffle triangular uniform vonmisesvariate weibullvariate"
)


def random_values(seed: int) -> dict[str, object]:
    """`random`, seeded by the run: the same seed gives the same sequence, also after `seed()` with no argument."""

    class Random(random.Random):
        _run_seed, _unseeded = 0, 0

        def __init__(self, x: Any = None) -> None:
            super().__init__(self._default() if x is None else x)

        def seed(self, a: Any = None, version: int = 2) -> None:
            super().seed(self._default() if a is None else a, version)

        @staticmethod
        def _default() -> str:
            Random._unseeded += 1
            return f"{Random._run_seed}/{Random._unseeded}"

    Random.__module__, Random.__qualname__ = "random", "Random"
    Random._run_seed = seed
    shared = Random(seed)
    return {"Random": Random, **picked(shared, _RANDOM_FUNCTIONS)}


def reseed(values: Mapping[str, Any], seed: int) -> None:
    """Make `random_values`, of which nothing has been used yet, those of another seed.

    The library's own generator, too, which `NormalDist.samples` draws from.
    """
    values["Random"]._run_seed = seed
    values["seed"](seed)
    random.seed(seed)


class TypingName:
    """A name from `typing`: may be subscripted, joined with `|` and, where it stands for a class, tested against."""

    __slots__ = ("_label", "_origin")
    __iter__ = None  # else Python would ask for item 0, 1, 2, ... without end

    def __init__(self, label: str, origin: type | None = None) -> None:
        self._label, self._origin = label, origin

    def __getitem__(self, parameters: object) -> TypingName:
        return self

    def __or__(self, other: object) -> TypingName:
        return self

    __ror__ = __or__

    def __instancecheck__(self, instance: object) -> bool:
        if self._origin is None:
            raise TypeError(f"isinstance() cannot test against typing.{self._label}; use a class")
        return isinstance(instance, self._origin)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        if self._origin is None:
            raise TypeError(f"typing.{self._label} cannot be a base class in a program")
        return (self._origin,)

    def __repr__(self) -> str:
        return f"typing.{self._label}"


_ABSTRACT = (
    "Callable Collection Container Generator Hashable Iterable Iterator Mapping MutableMapping MutableSequence "
    "MutableSet Reversible Sequence Sized"
)
_CONCRETE: dict[str, type] = {
    "Counter": collections.Counter,
    "DefaultDict": collections.defaultdict,
    "Deque": collections.deque,
    "Dict": dict,
    "FrozenSet": frozenset,
    "List": list,
    "OrderedDict": collections.OrderedDict,
    "Set": set,
    "Tuple": tuple,
}
_BARE = (
    "Annotated Any AnyStr Awaitable ClassVar Concatenate Final Literal LiteralString Never NoReturn NotRequired "
    "Optional Required Self Text Type TypeAlias TypeGuard Union"
)


def abstract_values() -> dict[str, object]:
    """`collections.abc`: names for annotations and `isinstance`; they cannot be registered with."""
    return {name: TypingName(name, getattr(collections.abc, name)) for name in f"{_ABSTRACT} Set".split()}


def typing_values() -> dict[str, object]:
    """`typing`: names only. Nothing here evaluates an annotation."""

    def cast(typ: object, val: Any) -> Any:
        return val

    def parameter(name: str, *constraints: object, **options: object) -> TypingName:
        return TypingName(str(name))

    def new_type(name: str, tp: object) -> Callable[[Any], Any]:
        return lambda value: value

    def unchanged(value: Any) -> Any:
        return value

    names: dict[str, object] = {name: TypingName(name, getattr(collections.abc, name)) for name in _ABSTRACT.split()}
    names |= {name: TypingName(name, origin) for name, origin in _CONCRETE.items()}
    names |= {name: TypingName(name) for name in _BARE.split()}
    names |= dict.fromkeys(("TypeVar", "ParamSpec"), parameter)
    names |= dict.fromkeys(("final", "overload", "no_type_check"), unchanged)
    names |= {"runtime_checkable": runtime_checkable}
    names |= {"Generic": Generic, "Protocol": Protocol, "NamedTuple": NamedTuple, "TypedDict": TypedDict}
    return names | {"cast": cast, "NewType": new_type, "TYPE_CHECKING": False}


def renamed(function: FunctionType, like: FunctionType) -> FunctionType:
    """A copy of `function` that carries the name and docstring of `like`; neither of them is changed."""
    twin = FunctionType(
        function.__code__, function.__globals__, like.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__, twin.__doc__ = like.__qualname__, like.__doc__
    return twin


def wraps(wrapped: object) -> Callable[[Any], Any]:
    """`functools.wraps` without its extra arguments: copies name and docstring between plain functions."""

    def decorate(wrapper: Any) -> Any:
        if type(wrapped) is FunctionType and type(wrapper) is FunctionType:
            return renamed(wrapper, wrapped)
        return wrapper

    return decorate


def abstractmethod(function: Any) -> Any:
    """`abc.abstractmethod` on a copy of the function."""
    if type(function) is not FunctionType:
        raise TypeError("abstractmethod goes on a plain function; put property or classmethod above it")
    twin = renamed(function, function)
    twin.__isabstractmethod__ = True  # type: ignore[attr-defined]  # what ABCMeta looks for
    return twin


def total_ordering(cls: Any) -> Any:
    own_class(cls, "total_ordering")
    return functools.total_ordering(cls)


def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
    """`functools.lru_cache`, with or without parentheses; of what is called, nothing but the call is asked."""

    def decorate(function: Any) -> Any:
        if not callable(function):
            raise TypeError(f"the first argument must be callable, not {type(function).__name__}")
        called = function if type(function) is FunctionType else lambda *args, **kwargs: function(*args, **kwargs)
        return functools.lru_cache(limit, bool(typed))(called)

    if callable(maxsize) and not isinstance(maxsize, int):
        limit = 128
        return decorate(maxsize)
    limit = None if maxsize is None else int(maxsize)
    return decorate


def cache(function: Any) -> Any:
    return lru_cache(None)(function)


def regex_values() -> dict[str, object]:
    """`re`, whose functions are handed plain text, whatever class of strings a program has."""
    functions = "compile escape findall finditer fullmatch match search split sub subn"
    values = "A ASCII DOTALL I IGNORECASE M MULTILINE Match NOFLAG Pattern S U UNICODE VERBOSE X error"
    return {**picked(re, values), **{name: over_plain(found) for name, found in picked(re, functions).items()}}  # type: ignore[arg-type]


def exit_program(code: object = None) -> NoReturn:
    raise SystemExit(code)


class Output:
    """Where a program prints: its run's one sink, or what it has redirected its output to last."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.targets: list[Any] = []

    def __call__(self, text: str) -> None:
        if self.targets:
            read_attribute(self.targets[-1], "write")(text)
        else:
            self._write(text)


class Stream:
    """`sys.stdout` of a program: writes go to the run's one print sink."""

    encoding = "utf-8"

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        text = plain_text(text)
        self._write(text)
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


def picked(module: object, names: str) -> Mapping[str, object]:
    """The named values of a real module, as a facade's contents."""
    return {name: getattr(module, name) for name in names.split()}
