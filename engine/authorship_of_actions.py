"""Whose an action in a game is: an agent's reply, or what its code printed, acts once, and what a program dictates to
an agent is nobody's.

Actions are compared by what they say, moves and numbers, not by how they are written. Whether one is legal is for the
games. As with answers (`engine.authorship`), an agent that is told an action in words, or which of several to take, and
then writes it, has said it; and a program may choose among what agents have proposed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from workflow.answers import game_answer
from workflow.tools import parse_tool_calls

MAX_ACTION = 64 << 10
"""Characters that are read for an action, from the end of a text."""
MAX_TOLD = 1 << 20
"""Characters of an agent's instructions that are searched, from their end."""
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_MOVE, _NUMBER = (rf"(?<![^\W_]){piece}(?![^\W_])" for piece in ("[UDLR]", r"\d+"))
_RUN = re.compile(rf"{_MOVE}(?:[\W_]{{1,16}}+{_MOVE})*+" rf"|{_NUMBER}(?:(?:[\s,;'\"\[\]()]++|[./|-]){_NUMBER})*+")
"""Moves of one list, or numbers, whose lists may be within one another, with no words between them."""
_BLOCK = re.compile(r"\[[\s,'\"\[\]\dUDLR]*+")
"""Where lists in brackets stand, one or more."""
_ACTION = re.compile(r"(?:[UDLR] )++|(?:\d++ )++")
SHORTEST = 3
"""Numbers of an edit: fewer are no action."""
MOST_LISTS = 3
"""Of moves and numbers beside words, from the end of a reply: whoever enumerates proposes nothing."""
MOST_CALLS = 16
"""Values in tool calls that may be actions."""
MOST_MOVES = 64
"""Of a list whose beginnings are known, and of a part of an action that is looked for in instructions."""

LONGEST = 3000
"""Moves or numbers of an action; more are read by no game."""

Key = str
"""The moves or numbers of an action, in their order, each with a space behind it."""


@dataclass(slots=True)
class _Own:
    """What one reply of an agent, or code of its, may act as."""

    agent: str
    keys: Collection[Key]
    used: bool = False


class Actions:
    """Hears what `engine.authorship.Authorship` hears. An agent's actions are what its reply says, and what stands in
    its tool calls. One that its instructions hold is its own only where agents had said it, or all of its edits, or had
    done it move by move, or where they hold other actions, too, and so leave a choice. What the host says, the question
    and what is seen of the game, is no part of instructions."""

    def __init__(self, question: str) -> None:
        self._host = {question.strip()} - {""}
        """What the host has said."""
        self._own: list[_Own] = []
        self._had: set[Key] = set()
        """All that agents have said of their own, also beside words, and the beginnings of it."""
        self._edits: set[Key] = set()
        """Of all that they have said, but for long lists."""
        self._done: list[Key] = []
        """Actions of theirs, in the order in which they were committed."""
        self._told: dict[str, Sequence[str]] = {}
        """What each agent was told last."""
        self._alone = True
        """Whether only agents' code has run so far: what other code has left in files is not an agent's."""

    def seen(self, text: str) -> None:
        """Of the game."""
        self._host.add(text.strip())

    def heard(self, agent: str, text: str, told: Sequence[str]) -> None:
        self._told[agent] = told
        self._keep(agent, {_key(each) for each in _said_in(text)}, _lists_in(text))

    def ran(self, agent: str | None, stdout: str) -> None:
        """Code of an agent's own, or with None of somebody else's."""
        self._alone = self._alone and agent is not None
        if agent is not None and self._alone:
            self._keep(agent, {_key(game_answer(stdout[-MAX_ACTION:]) or "")}, _lists_in(stdout))

    def of(self, text: str, commit: bool) -> str | None:
        """Who acts so; None where nobody does, and where a text is no action."""
        key = _key(game_answer(text[-MAX_ACTION:]) or "")
        for own in reversed(self._own):
            if key and not own.used and key in own.keys:
                own.used = commit
                self._done += [key] * commit
                return own.agent
        return None

    def _keep(self, agent: str, actions: Iterable[Key], lists: Iterable[Key]) -> None:
        """What an agent says or its code prints, as far as it is its own."""
        actions, said = {*actions} - {""}, {*actions, *lists} - {""}
        runs = self._runs(self._told.get(agent, ())) if said - self._had else set[Key]()
        own = {key for key in said if not self._is_dictated(key, runs)}
        self._own.append(_Own(agent, own & actions))
        self._had |= own
        for words in (key.split() for key in own if _ACTION.fullmatch(key)):
            if words[0].isalpha():
                self._had |= {f"{' '.join(words[:count])} " for count in range(2, min(len(words), MOST_MOVES))}
            elif len(words) % SHORTEST == 0 and len(words) <= SHORTEST * MOST_LISTS:
                self._edits |= {*_edits_of(words)}

    def _runs(self, told: Sequence[str]) -> set[Key]:
        """What instructions hold of moves and numbers."""
        runs: set[Key] = set()
        for text in told:
            text = _unescaped(text[-MAX_TOLD:])
            for said in sorted(self._host, key=len, reverse=True):
                text = text.replace(said, " . ")
            runs |= {_words(run) for run in _RUN.findall(text)} | {run for run, _ in _in_brackets(text)}
        return runs

    def _is_dictated(self, key: Key, runs: set[Key]) -> bool:
        if key in self._had:
            return False
        whole = {run for run in _holding(runs, key) if run == key or not _is_alphabet(run)}
        parts = _pieces(key, runs)
        own = {run for run in whole or parts if self._was_said(run)}
        if own == whole if whole else not _made_of(key, parts) or _made_of(key, own):
            return False
        least = 1 if key.count(" ") == 1 else 2
        return not any(
            run[0].isdigit() == key[0].isdigit() and run.count(" ") >= (SHORTEST if run[0].isdigit() else least)
            for run in runs - whole - parts
            if not _is_alphabet(run)
        )

    def _was_said(self, run: Key) -> bool:
        if run in self._had:
            return True
        if run[0].isdigit():
            words = run.split()
            return len(words) % SHORTEST == 0 and self._edits.issuperset(_edits_of(words))
        return f" {run}" in f" {''.join(self._done)}"


def _said_in(text: str) -> Iterator[str]:
    """What a reply may act as: its last action, and values in its tool calls."""
    action = game_answer(text[-MAX_ACTION:])
    if action is not None:
        yield action
    values = (value for call in parse_tool_calls(text) for value in (call.arguments or {}).values())
    for value in islice(values, MOST_CALLS):
        yield value if isinstance(value, str) else json.dumps(value)


def _lists_in(text: str) -> list[Key]:
    """The last lists that stand in a text, beside words or not."""
    text = _unescaped(text[-MAX_ACTION:])
    found = {run: end for match in _RUN.finditer(text) if _is_list(run := _words(match[0])) for end in [match.end()]}
    found |= {run: end for run, end in _in_brackets(text) if run[0].isalpha() or _is_list(run)}
    return sorted(found, key=lambda run: found[run])[-MOST_LISTS:]


def _in_brackets(text: str) -> Iterator[tuple[Key, int]]:
    """Each list of moves or numbers with where it ends; those that it holds are a part of it."""
    for block in _BLOCK.finditer(text):
        depth, begins = 0, block.start()
        for at in range(block.start(), block.end()):
            if text[at] == "[":
                begins = at if depth == 0 else begins
                depth += 1
            elif text[at] == "]" and depth:
                depth -= 1
                if depth == 0 and _ACTION.fullmatch(run := _words(text[begins:at])):
                    yield run, at


def _is_list(run: Key) -> bool:
    """Whether it is more than what any talk of the game mentions."""
    return run.count(" ") >= (SHORTEST if run[0].isdigit() else 2)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text) if "\\u" in text else text


def _key(action: str) -> Key:
    """Its moves and numbers, and words that are neither, so that no prose passes for an action; what has none of these,
    such as an empty list, as it is. Empty where it is too long."""
    action = _unescaped(action)
    words = _WORD.findall(action) or action.split()
    return "".join(f"{word} " for word in words) if len(words) <= LONGEST else ""


def _words(run: str) -> Key:
    return "".join(f"{word} " for word in _WORD.findall(run))


def _edits_of(words: Sequence[str]) -> Iterator[Key]:
    return (f"{' '.join(words[at : at + SHORTEST])} " for at in range(0, len(words), SHORTEST))


def _holding(runs: Iterable[Key], key: Key) -> set[Key]:
    return {run for run in runs if len(run) >= len(key) and f" {key}" in f" {run}"}


def _is_alphabet(run: Key) -> bool:
    """Whether it lists what moves there are, at least three and none twice."""
    return run[:1].isalpha() and run.count(" ") > 2 and len(set(run.split())) == run.count(" ")


def _pieces(key: Key, runs: set[Key]) -> set[Key]:
    """The runs that stand in an action and are more than what any talk of the game mentions."""
    words = key.split()
    sizes = {run.count(" ") for run in runs} & {*range(2 if words[0].isalpha() else SHORTEST, MOST_MOVES + 1)}
    found = (f"{' '.join(words[at : at + size])} " for size in sizes for at in range(len(words) - size + 1))
    return {piece for piece in found if piece in runs}


def _made_of(key: Key, pieces: Collection[Key]) -> bool:
    """Whether an action is one piece after another, which may come again."""
    reached = {0}
    sizes = {len(piece) for piece in pieces}
    for at in (0, *(space.end() for space in re.finditer(" ", key))):
        if at in reached:
            reached |= {at + size for size in sizes if key[at : at + size] in pieces}
    return len(key) in reached
