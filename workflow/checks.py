"""Argument checks for the contract's classes: pydantic validates, the errors name node, argument and fix.

Arguments that older programs pass and that mean nothing here are accepted and ignored; any other unknown one is
an error. The static check of whole programs is `designer.check`, not here.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, validate_call

from workflow.failures import ContractError

IGNORED_ARGUMENTS = frozenset(
    {
        "ai_client",
        "tokenizer",
        "server_address",
        "ppo_trainer_config",
        "enable_thinking",
        "enable_conversation_logging",
    }
)

_OTHER_NAMES = "_other_names"

P = ParamSpec("P")
R = TypeVar("R")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    shortened = (other for other in names if len(name) > 2 and other.startswith(name))
    return close[0] if close else next(shortened, None)


def contract(function: Callable[P, R]) -> Callable[P, R]:
    """Validate a method's arguments against its annotations.

    Raises `ContractError` that names the class, the node (if it has a name), the argument, the value and the
    nearest valid name.
    """
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    validated: list[Callable[..., R]] = []

    @functools.wraps(function)
    def checked(self: Any, *args: Any, **kwargs: Any) -> R:
        if not IGNORED_ARGUMENTS.isdisjoint(kwargs):
            kwargs = {key: value for key, value in kwargs.items() if key not in IGNORED_ARGUMENTS}
        if not validated:
            # Built on first use: annotations may name classes defined further down.
            validated.append(validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function))
        try:
            return validated[0](self, *args, **kwargs)
        except ValidationError as error:
            places = ["self", *names]
            raise ContractError(_explain(self, function.__name__, names, places, args, kwargs, error)) from None

    return checked  # type: ignore[return-value]  # same parameters, with `self` made explicit


def other_names(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept arguments under further names, which the published contract has: `input_message="question"`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def renamed(*args: P.args, **kwargs: P.kwargs) -> R:
            for other, name in names.items():
                if other in kwargs:
                    if name in kwargs:
                        raise ContractError(f"{function.__qualname__}: {other!r} is {name!r}; give one of them")
                    kwargs[name] = kwargs.pop(other)
            return function(*args, **kwargs)

        setattr(renamed, _OTHER_NAMES, names)
        return renamed

    return decorate


def other_names_of(function: Callable[..., Any]) -> dict[str, str]:
    """The further names that a function of the contract accepts, each with the one that it stands for."""
    return getattr(function, _OTHER_NAMES, {})


class Record:
    """Base of the contract's data: a plain class whose declared slots are checked whenever they are assigned.

    Not a pydantic model: programs hold these objects, and whatever pydantic adds to an object they could call.
    """

    __slots__ = ()

    def _fill(self, **values: Any) -> None:
        """Set slots to values that have been checked."""
        fill = object.__setattr__
        for name, value in values.items():
            fill(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        adapter = _adapters(type(self)).get(name)
        if adapter is not None:
            try:
                value = adapter.validate_python(value)
            except ValidationError as error:
                raise ContractError(_explain(self, "__init__", [name], [name], (), {name: value}, error)) from None
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _adapters(type(self)):
            raise ContractError(f"{type(self).__name__}: {name!r} cannot be deleted; assign another value")
        object.__delattr__(self, name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _adapters(type(self)))

    __hash__ = None  # type: ignore[assignment]  # they may change

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _adapters(type(self)))
        return f"{type(self).__name__}({fields})"


@functools.cache
def _adapters(cls: type) -> dict[str, TypeAdapter[Any]]:
    """The declared fields of a record, in order, with the checks of their values."""
    owner = next(base for base in cls.__mro__ if Record in base.__bases__)
    config = ConfigDict(arbitrary_types_allowed=True)
    hints = {name: hint for name, hint in get_type_hints(owner).items() if name in owner.__slots__}
    return {name: TypeAdapter(hint, config=config) for name, hint in hints.items()}


def _explain(
    self: Any,
    method: str,
    names: list[str],
    places: list[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: ValidationError,
) -> str:
    given = kwargs.get("name", args[0] if args and names[:1] == ["name"] else getattr(self, "name", None))
    owner = type(self).__name__ + ("" if method == "__init__" else f".{method}")
    who = f"{owner} {given!r}" if isinstance(given, str) else owner
    problems = []
    for item in error.errors():
        place = item["loc"][0] if item["loc"] else ""
        argument = places[place] if isinstance(place, int) and place < len(places) else str(place)
        where = ".".join(str(part) for part in (argument, *item["loc"][1:]))
        if item["type"] == "unexpected_keyword_argument":
            hint = nearest(argument, names)
            fix = f"did you mean {hint!r}?" if hint else f"valid arguments: {', '.join(names)}"
            problems.append(f"unknown argument {argument!r}; {fix}")
        elif item["type"] in (
            "missing",
            "missing_argument",
            "missing_positional_only_argument",
            "missing_keyword_only_argument",
        ):
            problems.append(f"argument {where!r} is missing")
        elif item["type"] == "unexpected_positional_argument":
            problems.append(f"too many positional arguments; valid arguments: {', '.join(names)}")
        else:
            value = repr(item.get("input"))
            shown = value if len(value) <= 80 else value[:77] + "..."
            problems.append(f"argument {where!r}: {item['msg']} (got {shown})")
    return f"{who}: " + "; ".join(problems)
