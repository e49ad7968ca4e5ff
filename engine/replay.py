"""Replies from a file or a Trace in place of a model, strict about what is asked.

A replayed run shows what the code does with known replies. So that it cannot hide a change, a call that was not
recorded, comes twice, or asks something else than the recording, fails with the first difference. Nothing is
ever made up here, and no reply is used twice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import stat
from collections.abc import Iterable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import to_json

from workflow.checks import nearest
from workflow.completion import ChatMessage, Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed, LimitExceeded, LimitKind
from workflow.trace import LimitHit, RunStarted, Trace

MAX_FILE = 256 << 20
"""Bytes."""
REPLAY_FIX = 'each line is one JSON object, such as {"agent": "Solver", "reply": "..."}, or one event of a trace'
_COMPARED = 500
_AROUND = 40
"""Characters shown on each side of the place where two texts part."""


class PassedLimit(BaseModel):
    """What ended a run at one of its calls, as the conversation had outgrown the model: see `LimitExceeded`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit_kind: LimitKind
    limit: float
    used: float

    def error(self) -> LimitExceeded:
        return LimitExceeded(self.limit_kind, self.limit, self.used)


class ReplayEntry(BaseModel):
    """One reply and what must be asked to get it; whatever is None is not checked.

    By hand, `agent` and `reply` are enough: `{"agent": "Solver", "reply": "..."}`. An agent's entries without a
    `key` are used in the order of the file.
    """

    model_config = ConfigDict(extra="forbid")

    agent: str
    reply: str | None = None
    """Text of the reply; instead of `completion`."""
    completion: Completion | None = None
    limit: PassedLimit | None = None
    """In place of a reply: the limit that the call passed, which ends the run again."""
    key: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    sampling: Sampling | None = None
    question_contains: str | None = None
    """Must occur in a user turn."""
    prompt_sha256: str | None = None
    """`prompt_sha256` of the messages, where spelling them out would be too long."""

    @model_validator(mode="after")
    def _exactly_one_reply(self) -> ReplayEntry:
        if [self.reply, self.completion, self.limit].count(None) != 2:
            raise ValueError("give one of reply, completion and limit")
        return self


class ReplayEngine:
    """Gives the recorded replies. `source` is a Trace, a list of entries, or a file with either.

    A file holds one JSON object per line (events of a Trace, or entries), or one JSON list of entries.
    Raises `EngineFailed` for a file that cannot be read as such.
    """

    def __init__(self, source: str | Path | Trace | Sequence[ReplayEntry]) -> None:
        self.name = "replay"
        if isinstance(source, (str, Path)):
            self.name = f"replay:{source}"
            source = _read(self.name, Path(source).expanduser())
        self.started: RunStarted | None = source.started if isinstance(source, Trace) else None
        """How the run of a Trace began."""
        self._entries = entries_of(source) if isinstance(source, Trace) else list(source)
        self._used = [False] * len(self._entries)
        self._by_key: dict[str, int] = {}
        for index, entry in enumerate(self._entries):
            if entry.key is not None and self._by_key.setdefault(entry.key, index) != index:
                raise EngineFailed(self.name, f"two entries have the key {entry.key!r}. Fix: remove one", 0)

    def was_given(self, key: str, agent: str, reply: Completion) -> None:
        """See `engine.protocol.GivesOnce`."""
        by_key = self._by_key.get(key)
        for index in range(len(self._entries)) if by_key is None else (by_key,):
            entry = self._entries[index]
            own = by_key is not None or (entry.key is None and entry.agent == agent)
            given = not self._used[index] and entry.limit is None
            if own and given and _said(entry, self.name).text == reply.text:
                self._used[index] = True
                return

    async def complete(self, request: CompletionRequest) -> Completion:
        who = f"call {request.key!r} of agent {request.agent!r}"
        index = self._find(request, who)
        entry = self._entries[index]
        wrong = difference(entry, request)
        if wrong:
            raise EngineFailed(
                self.name, f"{who} is not the recorded one: {wrong}\nFix: undo the change, or record anew"
            )
        self._used[index] = True
        if entry.limit is not None:
            raise entry.limit.error()
        return _said(entry, self.name)

    async def close(self) -> None:
        return None

    def unused(self) -> list[ReplayEntry]:
        """Entries that nobody asked for, in the order of the recording."""
        return [entry for entry, used in zip(self._entries, self._used, strict=True) if not used]

    def _find(self, request: CompletionRequest, who: str) -> int:
        index = self._by_key.get(request.key)
        if index is not None:
            if self._used[index]:
                raise EngineFailed(self.name, f"{who} was asked before; each reply is given once. Fix: record anew")
            return index
        unkeyed = [i for i, e in enumerate(self._entries) if e.key is None and e.agent == request.agent]
        for i in unkeyed:
            if not self._used[i]:
                return i
        if unkeyed:
            raise EngineFailed(
                self.name,
                f"{who} was not recorded: all {len(unkeyed)} replies of this agent are used. "
                "Fix: add an entry, or record anew",
            )
        guess = _near(request.key, self._by_key) or _near(request.agent, (e.agent for e in self._entries))
        hint = f" (the nearest recorded is {guess!r})" if guess else ""
        raise EngineFailed(self.name, f"{who} was not recorded{hint}. Fix: add an entry, or record anew")


def _said(entry: ReplayEntry, engine: str) -> Completion:
    return entry.completion or Completion(text=entry.reply or "", model=engine)


def entries_of(trace: Trace) -> list[ReplayEntry]:
    """The agent calls of a run that got a reply, as strict entries; where one of them passed a limit, it and those that
    were stopped with it, too."""
    hits = (event for event in trace.events if isinstance(event, LimitHit))
    limits = [PassedLimit(limit_kind=hit.limit_kind, limit=hit.limit, used=hit.used) for hit in hits]
    passed = {str(limit.error()): limit for limit in limits}
    turns = trace.agent_turns
    limit = next((passed[turn.error] for turn in turns if turn.error in passed), None)
    return [
        ReplayEntry(
            agent=turn.agent,
            key=turn.key,
            messages=turn.messages,
            tools=turn.tools,
            sampling=turn.sampling,
            completion=turn.completion,
            limit=limit if turn.completion is None else None,
        )
        for turn in turns
        if turn.completion is not None or limit is not None
    ]


def record_replies(trace: Trace, path: str | Path) -> int:
    """Write the agent calls of a run to a file for `ReplayEngine`, one per line; returns how many."""
    entries = entries_of(trace)
    lines = [entry.model_dump_json(exclude_none=True) + "\n" for entry in entries]
    Path(path).write_text("".join(lines), encoding="utf-8")
    return len(entries)


def prompt_sha256(messages: list[ChatMessage]) -> str:
    """Hexadecimal SHA-256 of the messages as compact JSON with sorted keys, in UTF-8."""
    canonical = json.dumps(messages, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _near(name: str, known: Iterable[str]) -> str | None:
    """Among the first and short ones: comparing texts costs more than reading them."""
    short = dict.fromkeys(each for each in itertools.islice(known, _COMPARED) if len(each) <= _COMPARED)
    return nearest(name, short) if len(name) <= _COMPARED else None


def _read_text(path: Path) -> str:
    """Raises OSError for what is no file, such as a device, which would never end, and for what is too large."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError("it is no file")
    if about.st_size > MAX_FILE:
        raise OSError(f"it has {about.st_size:,} bytes, more than {MAX_FILE:,}")
    return path.read_text(encoding="utf-8-sig")  # editors of some systems begin files with a mark


def _read(engine: str, path: Path) -> Trace | list[ReplayEntry]:
    try:
        text = _read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise EngineFailed(engine, f"cannot read {path}: {error}. Fix: name a replay or trace file", 0) from error
    try:
        if text.lstrip().startswith("["):
            items = json.loads(text)
        else:
            lines = list(StringIO(text))  # unlike splitlines, ends lines at "\n" only
            first = next((json.loads(line) for line in lines if line.strip()), None)
            if isinstance(first, dict) and "type" in first:
                return Trace.from_lines(lines)
            items = [json.loads(line) for line in lines if line.strip()]
    except (ValueError, RecursionError) as error:
        reason = f"{path} is neither a replay file nor a trace: {error}. Fix: {REPLAY_FIX}"
        raise EngineFailed(engine, reason, 0) from error
    entries = []
    for number, item in enumerate(items, 1):
        try:
            entries.append(ReplayEntry.model_validate(item))
        except ValidationError as error:
            raise EngineFailed(engine, f"{path}, entry {number}: {_wrong(error)}", 0) from error
    return entries


def _wrong(error: ValidationError) -> str:
    """What is wrong with an entry, and what mends it."""
    errors = error.errors(include_url=False)
    extra = [each for each in errors if each["type"] == "extra_forbidden" and len(each["loc"]) == 1]
    if extra:
        keys = [str(each["loc"][0]) for each in extra]
        guess = nearest(keys[0][:80], ReplayEntry.model_fields)
        mend = f"write {guess}" if guess else f"leave {', '.join(key[:80] for key in keys[:5])} out"
        known = ", ".join(ReplayEntry.model_fields)
        return f"there is no key {keys[0][:80]!r}. Fix: {mend}; the keys are {known}"
    place = ".".join(str(part)[:80] for part in errors[0]["loc"]) or "the entry"
    return f"{errors[0]['msg']} ({place}). Fix: an entry has agent and reply at least"


def difference(entry: ReplayEntry, request: CompletionRequest) -> str | None:
    """The first thing in which the request is not what was recorded, in words, or None."""
    if entry.agent != request.agent:
        return f"the recorded agent is {entry.agent!r}"
    messages = request.messages
    if messages is None:
        return "it asks with token ids, and recordings hold messages"
    if entry.messages is not None:
        for number, (recorded, asked) in enumerate(zip(entry.messages, messages, strict=False)):
            if recorded["role"] != asked["role"]:
                return f"message {number} is a {asked['role']} turn, recorded was a {recorded['role']} turn"
            if recorded["content"] != asked["content"]:
                return f"message {number} ({asked['role']}) " + _parting(recorded["content"], asked["content"])
        if len(entry.messages) != len(messages):
            return f"it has {len(messages)} messages, recorded were {len(entry.messages)}"
    if entry.prompt_sha256 is not None and entry.prompt_sha256 != prompt_sha256(messages):
        return f"prompt_sha256 of its messages is {prompt_sha256(messages)}, recorded was {entry.prompt_sha256}"
    if entry.question_contains is not None:
        said = [message["content"] for message in messages if message["role"] == "user"]
        if not any(entry.question_contains in text for text in said):
            return f"no user turn contains {entry.question_contains!r}; the last is {(said or [''])[-1][-200:]!r}"
    if entry.tools is not None and _as_json(entry.tools) != _as_json(request.tools):
        return "its tools " + _parting(_as_json(entry.tools), _as_json(request.tools))
    if entry.sampling is not None:
        recorded = replace(entry.sampling, logprobs=request.sampling.logprobs)  # draws nothing else
        if recorded != request.sampling:
            return "its sampling " + _parting(to_json(recorded).decode(), to_json(request.sampling).decode())
    return None


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _parting(recorded: str, asked: str) -> str:
    """Where two texts part, with a little of both."""
    pairs = enumerate(zip(recorded, asked, strict=False))
    place = next((i for i, (a, b) in pairs if a != b), min(len(recorded), len(asked)))
    cut = slice(max(0, place - _AROUND), place + _AROUND)
    return f"differs from character {place}:\n  recorded: {recorded[cut]!r}\n  asked:    {asked[cut]!r}"
