"""Reads actions out of what agents wrote: JSON, and nothing is ever evaluated.

What a reply's action is (after the last `####`, or the delivery) is said by `workflow.answers`; whether it is legal, by
each game.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from workflow.answers import game_answer
from workflow.nesting import depth_of

STEPS: dict[str, tuple[int, int]] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
"""Rows and columns that each move goes."""
MOST = 1000
"""Moves or edits of one action."""
LONGEST = 1 << 16
"""Characters of one action."""
DEEPEST = 3
"""Brackets within one another, of which no action needs more than two."""
_BARE = re.compile(r"\[\s*+'?[UDLR]'?\s*+(?:,\s*+'?[UDLR]'?\s*+)*+\]")


class UnreadableError(ValueError):
    """A text is no action; the message says why."""


def moves_in(text: str) -> tuple[str, ...]:
    """The moves that a text makes: a JSON list of U, D, L, R; the letters may do without quotes, as in the paper's
    prompts, or with Python's. Raises `UnreadableError`."""
    said = _said(text)
    value = re.findall("[UDLR]", said) if _BARE.fullmatch(said) else _json(said)
    if not isinstance(value, list):
        raise UnreadableError(f"a list of moves is needed, not {shown(value)}")
    check_length(value)
    for move in value:
        if not isinstance(move, str) or move not in STEPS:
            raise UnreadableError(f"{shown(move)} is no move: U, D, L and R are")
    return tuple(value)


def json_in(text: str) -> Any:
    """The JSON that a text acts with. Raises `UnreadableError`."""
    return _json(_said(text))


def check_length(value: list[Any]) -> None:
    """Raises `UnreadableError` for more moves or edits than are read."""
    if len(value) > MOST:
        raise UnreadableError(f"{len(value):,} of them; at most {MOST:,} are read")


def shown(value: Any) -> str:
    """A JSON value in a message."""
    said = json.dumps(value)
    return said if len(said) <= 60 else said[:57] + "..."


def _said(text: str) -> str:
    said = game_answer(text)
    if said is None:
        raise UnreadableError("nothing is said")
    if len(said) > LONGEST:
        raise UnreadableError(f"an action of {len(said):,} characters; at most {LONGEST:,} are read")
    return said


def _json(said: str) -> Any:
    if depth_of(said) > DEEPEST:
        raise UnreadableError("no JSON: nested too deep")
    try:
        return json.loads(said, parse_constant=_no_number)
    except ValueError as error:
        raise UnreadableError(f"no JSON: {error}") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
