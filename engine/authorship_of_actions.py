"""Whose an action in a game is: an agent's reply, or what its code printed, acts once, and what a program dictates to
an agent is nobody's.

Actions are compared by what they say, moves and numbers, not by how they are written. Whether one is legal is for the
games. As with answers (`engine.authorship`), an agent that is told an action in words, and then writes it, has said it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflow.answers import game_answer
from workflow.tools import parse_tool_calls

MAX_ACTION = 64 << 10
"""Characters that are read for an action, from the end of a text."""
MAX_TOLD = 1 << 20
"""Characters of an agent's instructions that are searched, from their end."""
_WORD = re.compile(r"[^\W\d_]+|\d+")
_MOVE, _NUMBER = (rf"(?<![^\W_]){piece}(?![^\W_])" for piece in ("[UDLR]", r"\d+"))
_RUN = re.compile(rf"{_MOVE}(?:[\s,;'\"]*+{_MOVE})*+" rf"|{_NUMBER}(?:[\s,;'\"\[\]()]*+{_NUMBER})*+")
"""Moves of one list, or numbers, whose lists may be within one another, with no words between them."""
SHORTEST = 3
"""Numbers of an edit: fewer are no action."""

MOST_RUNS = 64
"""Of moves and numbers in a reply, from its end, that may be shown to others."""

LONGEST = 3000
"""Moves or numbers of an action; more are read by no game."""

Key = str
"""The moves or numbers of an action, in their order, each with a space behind it."""


@dataclass(slots=True)
class _Own:
    """What one reply of an agent, or code of its, may act as."""

    agent: str
    keys: frozenset[Key]
    used: bool = False


class Actions:
    """Hears what `engine.authorship.Authorship` hears. An agent's actions are what its reply says, and what stands in
    its tool calls. One that its instructions hold is its own only where agents had said it before, or one after another
    the parts of it, or where they hold other actions, too, and so leave a choice. What the host says, the question and
    what is seen of the game, is no part of instructions."""

    def __init__(self, question: str) -> None:
        self._host = {question.strip()} - {""}
        """What the host has said."""
        self._own: list[_Own] = []
        self._had: dict[Key, list[int]] = {}
        """All that agents have said of their own, with the numbers of the replies that said it: as an action, or as
        moves and numbers beside words."""
        self._alone = True
        """Whether only agents' code has run so far: what other code has left in files is not an agent's."""

    def seen(self, text: str) -> None:
        """Of the game."""
        self._host.add(text.strip())

    def heard(self, agent: str, text: str, told: Sequence[str]) -> None:
        said = {key for each in _said_in(text) if (key := _key(each))}
        beside = {run for run in map(_key, _RUN.findall(text[-MAX_ACTION:])[-MOST_RUNS:]) if _is_list(run)}
        told_runs = self._runs(told) if said or beside else set()
        own = {key for key in said | beside if not self._is_dictated(key, told_runs)}
        self._keep(agent, own & said, own)

    def ran(self, agent: str | None, stdout: str) -> None:
        """Code of an agent's own, or with None of somebody else's."""
        self._alone = self._alone and agent is not None
        key = _key(game_answer(stdout[-MAX_ACTION:]) or "")
        if agent is not None and self._alone and key:
            self._keep(agent, {key}, {key})

    def _keep(self, agent: str, actions: set[Key], said: set[Key]) -> None:
        for key in said:
            self._had.setdefault(key, []).append(len(self._own))
        self._own.append(_Own(agent, frozenset(actions)))

    def of(self, text: str, commit: bool) -> str | None:
        """Who acts so; None where nobody does, and where a text is no action."""
        key = _key(game_answer(text[-MAX_ACTION:]) or "")
        for own in reversed(self._own):
            if key and not own.used and key in own.keys:
                own.used = commit
                return own.agent
        return None

    def _runs(self, told: Sequence[str]) -> set[Key]:
        """What instructions hold of moves and numbers."""
        runs: set[Key] = set()
        for text in told:
            text = text[-MAX_TOLD:]
            for said in sorted(self._host, key=len, reverse=True):
                text = text.replace(said, " . ")
            runs |= {_key(run) for run in _RUN.findall(text)}
        return runs - {""}

    def _is_dictated(self, key: Key, runs: set[Key]) -> bool:
        whole = {run for run in runs if _holds(run, key)}
        parts = {run for run in runs if run.count(" ") > 1 and _holds(key, run)}
        if not whole and not _made_of(key, dict.fromkeys(parts)):
            return False
        if all(_made_of(run, self._had) for run in whole or parts):
            return False
        return not any(_is_action(run) and run[0].isdigit() == key[0].isdigit() for run in runs - whole - parts)


def _said_in(text: str) -> Iterator[str]:
    """What a reply may act as: its last action, and values in its tool calls."""
    action = game_answer(text[-MAX_ACTION:])
    if action is not None:
        yield action
    for call in parse_tool_calls(text):
        values: list[Any] = list((call.arguments or {}).values())
        for value in values:
            yield value if isinstance(value, str) else json.dumps(value)


def _key(action: str) -> Key:
    """Its moves and numbers, and words that are neither, so that no prose passes for an action; what has none of these,
    such as an empty list, as it is. Empty where it is too long."""
    words = _WORD.findall(action) or action.split()
    return "".join(f"{word} " for word in words) if len(words) <= LONGEST else ""


def _holds(run: Key, key: Key) -> bool:
    return f" {key}" in f" {run}"


def _is_action(run: Key) -> bool:
    return run.count(" ") >= SHORTEST or not run[0].isdigit()


def _is_list(run: Key) -> bool:
    """Whether it is more than what any talk of the game mentions."""
    return run.count(" ") >= (SHORTEST if run[:1].isdigit() else 2)


def _made_of(run: Key, had: Mapping[Key, Sequence[int] | None]) -> bool:
    """Whether a run is one thing after another that agents had said, in the order in which they did, each once: a
    program that has heard single moves is not to make a way of them. With None for its numbers a key may come again and
    again."""
    reached = {0: 0}
    for at in (0, *(space.end() for space in re.finditer(" ", run))):
        if at not in reached:
            continue
        for key, numbers in had.items():
            if not run.startswith(key, at):
                continue
            place = 0 if numbers is None else bisect_left(numbers, reached[at])
            if numbers is None or place < len(numbers):
                after = 0 if numbers is None else numbers[place] + 1
                reached[at + len(key)] = min(after, reached.get(at + len(key), after))
    return len(run) in reached
