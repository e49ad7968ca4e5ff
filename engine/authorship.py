"""Which agent a run's answer comes from: an answer that stands in no agent's own words was made by the program.

The reader is the grader's (`workflow.answers`): what would be graded of the answer, its box or its code, must be just
what it reads in one reply of an agent, and an agent's answer is its last one. Pure: it keeps what was heard in one run
and asks nobody. Whether an answer is right is for `tasks`. What no reader of text can see is who had a thought first:
an agent that is told the answer in words, and then writes it, has said it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

from engine.authorship_of_actions import Actions
from workflow.answers import Domain, code_answers, final_answer, math_answers
from workflow.completion import ChatMessage
from workflow.place import Place
from workflow.text import (
    blocks,
    boxes,
    delivery,
    echoed_lines,
    fences,
    kept,
    marked_lines,
    stands_in,
    without_blocks,
    without_lines,
)
from workflow.tools import parse_tool_calls

MAX_READ = 256 << 10
"""Characters of a reply that are read for an answer, from its end, and the longest answer of a run."""

MAX_PRINTED = 16 << 10
"""Characters that are read of what an agent's code printed, from its end."""

REPEATABLE = 8
"""Pieces of code in one reply, the last ones, that others may repeat."""

RUNNABLE = 32
"""Pieces of code in one reply, the last ones, that count as the agent's own where they are run. Each is looked for in
the whole prompt."""

SEARCHED = 1 << 20
"""Characters of replies, the latest first, that are searched for an answer that nobody could grade."""

_TAG = re.compile(r"</?(?:solution|delivery)>", re.IGNORECASE)
_DOMAINS: tuple[Domain, ...] = ("math", "code")
"""Whose answers are marked as such. A game's may be any text, and is compared as text."""


@dataclass(frozen=True)
class Said:
    """An agent's own words in one reply, and the answers that they give."""

    agent: str
    text: str
    answers: dict[Domain, str]


class Authorship:
    """Hears the replies of one run as they end; `of(answer)` names the agent.

    Who is heard before whom follows from `place`, not from what came first. Where a game is played that holds for all
    that came between two actions, whose order is what happened.
    """

    def __init__(self, question: str = "", *, plays: bool = False) -> None:
        """`plays`: whether the run plays a game, so that its answer is an action."""
        self._question, self._plays = question, plays
        self._told: list[tuple[Place, Callable[[_Reader], None]]] = []
        self._playing = _Reader(question, plays=True)
        self._unheard: list[tuple[Place, Callable[[_Reader], None]]] = []
        """What `_playing` is told when the next action comes."""
        self._has_acted = False

    def heard(
        self,
        agent: str,
        messages: Sequence[ChatMessage],
        reply: str,
        tools: Sequence[dict[str, Any]] = (),
        place: Place = (),
    ) -> None:
        """A reply to these turns, by an agent that was shown these tools."""
        self._tell(place, lambda reader: reader.heard(agent, messages, reply, tools))

    def ran(self, code: str, stdout: str, stdin: str = "", place: Place = ()) -> None:
        """What code printed: an agent's own, where the agent wrote the code, and it was given nothing to repeat."""
        self._tell(place, lambda reader: reader.ran(code, stdout, stdin))

    def seen(self, text: str) -> None:
        """What the host has said of the game."""
        self._tell((), lambda reader: reader.seen(text))

    def of_action(self, text: str, *, commit: bool = False) -> str | None:
        """The agent one of whose replies acts in a game as this text does, or whose code printed it, the latest first.
        With `commit` that reply is used up: it acts once."""
        self._has_acted |= commit
        return self._played_so_far().of_action(text, commit=commit) if self._plays else None

    def of(self, answer: str) -> str | None:
        """The agent that gave this answer, the latest first; None where no agent did.

        Of a game it is an action (`of_action`). Where nothing could be graded, the whole text counts, or its lines
        (nodes drop lines that echo a prompt), or its delivery; that looks through the latest `SEARCHED` characters.
        """
        if self._has_acted:
            return self._played_so_far().of(answer)
        return _having_heard(_Reader(self._question, plays=self._plays), self._told).of(answer)

    def _played_so_far(self) -> _Reader:
        unheard, self._unheard = self._unheard, []
        return _having_heard(self._playing, unheard)

    def _tell(self, place: Place, tell: Callable[[_Reader], None]) -> None:
        self._told.append((place, tell))
        if self._plays:
            self._unheard.append((place, tell))


def _having_heard(reader: _Reader, told: list[tuple[Place, Callable[[_Reader], None]]]) -> _Reader:
    for _, tell in sorted(told, key=itemgetter(0)):
        tell(reader)
    return reader


class _Reader:
    """Hears replies one after another.

    An agent's own words are its reply without what it repeats from its instructions. Instructions are all that stands
    in its turns and tools, whatever the role, and is neither in the question, nor in earlier own words, nor printed by
    code that an agent wrote itself. Its answer is its last one; where what follows is an echo, it is the only one that
    is none. An answer is nobody's where the instructions dictate it: they hold no other box than this one, or they
    hold this very code.
    """

    def __init__(self, question: str, *, plays: bool) -> None:
        self._actions = Actions(question) if plays else None
        self._said: list[Said] = []
        self._codes: dict[str, str] = {}
        """What agents had run: code of their own that stands in a call or a fence, and whose it is."""
        self._lines: set[str] = set()
        """Marked lines that may be repeated."""
        self._mentioned: set[str] = set()
        """Boxes that agents wrote, also where they were not their answer."""
        self._given: set[str] = set()
        """Boxes that may be repeated: answers, and what stands in the question."""
        self._shown: list[str] = []
        """Texts whose code may be repeated, as `_even` makes them: what agents wrote, and the question."""
        self._show(question)

    def heard(self, agent: str, messages: Sequence[ChatMessage], reply: str, tools: Sequence[dict[str, Any]]) -> None:
        reply = reply[-MAX_READ:]
        told = [*(turn["content"] for turn in messages), *_texts_in(tools)]
        echoes = echoed_lines(reply, told) - self._lines
        text = without_lines(reply, echoes)
        answers: dict[Domain, str] = {}
        boxed = self._boxed(reply, echoes)
        if boxed is not None and not self._is_dictated(boxed, told):
            answers["math"] = boxed
        if "<" in reply or "```" in reply:  # else there is no code, and no call
            code = self._coded(reply, told)
            if code is not None:
                answers["code"] = code
            self._remember_code(agent, text, told)
        self._said.append(Said(agent, text, answers))
        if self._actions is not None:
            self._actions.heard(agent, text, told)
        self._lines.update(marked_lines(text), marked_lines(delivery(text)[0]))
        self._mentioned |= _boxes_in(text)
        if "math" in answers:
            self._given.add(_key(answers["math"]))

    def _remember_code(self, agent: str, text: str, told: list[str]) -> None:
        calls = [call.arguments or {} for call in parse_tool_calls(text)]
        codes = [value for arguments in calls for value in arguments.values() if isinstance(value, str)]
        codes += [body for _, body in fences(text)]
        solutions = blocks("solution", text)[-REPEATABLE:]
        if codes or solutions:
            even = [_even(text) for text in told]
            own = [body for body in codes[-RUNNABLE:] if not self._is_told(body, even)]
            self._codes.update((code.strip(), agent) for code in own)
            own += [body for body in solutions if not self._is_told(body, even)]
            self._shown += [_even(body) for body in own[-REPEATABLE:]]

    def ran(self, code: str, stdout: str, stdin: str) -> None:
        agent = self._codes.get(code.strip())
        if not stdin and agent is not None:
            self._show(stdout[-MAX_PRINTED:])
        if self._actions is not None:
            self._actions.ran(agent if not stdin else None, stdout)

    def of(self, answer: str) -> str | None:
        if self._actions is not None:
            return self._actions.of(answer, commit=False)
        wanted: list[tuple[Domain, str]] = [
            (domain, found) for domain in _DOMAINS if (found := _graded(answer, domain)) is not None
        ]
        if wanted:
            giving = [[said.agent for said in self._said if said.answers.get(key) == found] for key, found in wanted]
            return giving[0][-1] if all(giving) else None
        text, lines = answer.strip(), _lines(answer)
        handed_on = delivery(answer)
        room = SEARCHED
        for said in reversed(self._said):
            room -= len(said.text)
            if room < 0:
                return None
            if text and (stands_in(text, said.text) or (len(lines) > 1 and lines <= _lines(said.text))):
                return said.agent
            if handed_on[1] == "delivery" and handed_on == delivery(said.text):
                return said.agent
        return None

    def of_action(self, text: str, *, commit: bool) -> str | None:
        return self._actions.of(text, commit) if self._actions is not None else None

    def seen(self, text: str) -> None:
        if self._actions is not None:
            self._actions.seen(text)

    def _show(self, text: str) -> None:
        """From now on this may be repeated."""
        self._lines |= marked_lines(text)
        self._given |= _boxes_in(text)
        self._shown.append(_even(text))

    def _boxed(self, reply: str, echoes: set[str]) -> str | None:
        """The agent's last box."""
        found = math_answers(reply)
        if not found or not echoes:
            return (found[-1][0] or None) if found else None
        lines = reply.splitlines(keepends=True)
        starts = list(accumulate(map(len, lines), initial=0))
        is_echo = [line.strip() in echoes for line in lines]
        own = [
            (answer, end)
            for answer, start, end in found
            if not all(is_echo[bisect_right(starts, start) - 1 : bisect_right(starts, end)])
        ]
        return _last([answer for answer, _ in own], found[-1][2] == own[-1][1] if own else False)

    def _coded(self, reply: str, told: list[str]) -> str | None:
        """The agent's last code."""
        last = _graded(reply, "code")
        if last is None:
            return None
        shown = [_even(text) for text in told]
        if not self._is_told(last, shown):
            return last
        given = {block.strip() for text in told for block in blocks("solution", text)}
        rest = [_trimmed(code) for code in code_answers(without_blocks("solution", reply, given))]
        return _last([code for code in rest if not self._is_told(code, shown)], ends_it=False)

    def _is_told(self, code: str, told: list[str]) -> bool:
        """Whether the instructions hold this code, in whatever fence, and nothing that may be repeated does."""
        lines = _even(code)
        return any(lines in text for text in told) and not any(lines in text for text in self._shown)

    def _is_dictated(self, answer: str, told: list[str]) -> bool:
        """Whether the instructions hold this box, and leave no choice."""
        key = _key(answer)
        if key in self._given or not any("box" in text for text in told):
            return False
        if sum(map(len, told)) > MAX_READ:
            return any(f"{{{answer}}}" in text for text in told)
        if not any(key in _boxes_in(text) for text in told):
            return False
        choices = {_key(box) for text in told for box, _, _ in math_answers(text)}
        known = self._mentioned | self._given
        return len(choices if key in known else choices - known) <= 1


def _graded(text: str, domain: Domain) -> str | None:
    answer = final_answer(text, domain)
    return answer if answer is None or domain == "math" else _trimmed(answer)


def _last(own: list[str], ends_it: bool) -> str | None:
    """The last of an agent's own answers, which the reply ends with; else the only one: no echo chooses among many."""
    return (own[-1] or None) if own and (ends_it or len(set(own)) == 1) else None


def _trimmed(code: str) -> str:
    return code.strip("\n").rstrip()


def _key(box: str) -> str:
    return "".join(box.split())


def _even(text: str) -> str:
    """The lines that hold anything, without the spaces around them: code is the same in any fence and at any depth."""
    lines = map(str.strip, (_TAG.sub("\n", text) if "<" in text else text).splitlines())
    return "\n".join(["", *filter(None, lines), ""])


@kept
def _boxes_in(text: str) -> frozenset[str]:
    """What could be read as an answer if it stood alone: all boxes in no other box, and those with none within them."""
    found = boxes(text)
    innermost = [text[start:end] for before, (start, end) in pairwise([(0, 0), *found]) if before[1] <= start]
    return frozenset(map(_key, innermost)).union(_key(answer) for answer, _, _ in math_answers(text))


def _texts_in(tools: Sequence[dict[str, Any]]) -> Iterator[str]:
    """All text of tool schemas."""
    level: list[Any] = list(tools)
    while level:
        value = level.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            level += [*value, *value.values()]
        elif isinstance(value, list):
            level += value


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}
