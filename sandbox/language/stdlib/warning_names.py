"""`warnings` for programs: filters raise, drop or hand on what is warned of; what nobody collects is seen by nobody."""

from __future__ import annotations

import re
from typing import Any

from sandbox.language.classes import is_class
from sandbox.language.texts import plain_text, text_of


class WarningMessage:
    """What `catch_warnings(record=True)` collects."""

    def __init__(self, message: Warning, category: type[Warning]) -> None:
        self.message, self.category = message, category
        self.filename, self.lineno = "program.py", 0


def warnings_values() -> dict[str, object]:
    """`warnings` for one program."""
    filters: list[tuple[str, str, type[Warning]]] = []
    collected: list[WarningMessage] | None = None

    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: object = None, **_: object) -> None:
        if isinstance(message, Warning):
            category = type(message)
        category = UserWarning if category is None else category
        if not is_class(category) or not issubclass(category, Warning):
            raise TypeError(f"category must be a Warning subclass, not {text_of(category, 'r')}")
        warning = message if isinstance(message, Warning) else category(message)
        text = text_of(warning, "s")
        action = next(
            (
                action
                for action, pattern, kind in filters
                if issubclass(category, kind) and re.match(pattern, text, re.IGNORECASE)
            ),
            "default",
        )
        if action == "error":
            raise warning
        if action == "ignore" or collected is None:
            return
        said = ((text_of(each.message, "s"), each.category) for each in collected)
        if action != "once" or (text, category) not in said:
            collected.append(WarningMessage(warning, category))

    def filterwarnings(
        action: str, message: str = "", category: Any = Warning, module: str = "", lineno: int = 0, append: bool = False
    ) -> None:
        if action not in ("default", "error", "ignore", "always", "module", "once"):
            raise ValueError(f"invalid action: {action!r}")
        if not is_class(category) or not issubclass(category, Warning):
            raise TypeError("category must be a Warning subclass")
        filters.insert(len(filters) if append else 0, (action, plain_text(message), category))

    def simplefilter(action: str, category: Any = Warning, lineno: int = 0, append: bool = False) -> None:
        filterwarnings(action, "", category, append=append)

    def resetwarnings() -> None:
        filters.clear()

    class catch_warnings:
        """`warnings.catch_warnings`: filters are as they were when its block ends."""

        def __init__(self, *, record: bool = False, action: str | None = None, **options: Any) -> None:
            self._record, self._action, self._options = record, action, options
            self._before = list(filters), collected

        def __enter__(self) -> list[WarningMessage] | None:
            nonlocal collected
            self._before = list(filters), collected
            if self._action is not None:
                simplefilter(self._action, **self._options)
            if self._record:
                collected = []
            return collected if self._record else None

        def __exit__(self, *of: object) -> None:
            nonlocal collected
            filters[:], collected = self._before

    def showwarning(*given: object, **options: object) -> None: ...

    functions = (warn, filterwarnings, simplefilter, resetwarnings, showwarning)
    return {"catch_warnings": catch_warnings, **{function.__name__: function for function in functions}}
