"""Writes a tree as it grows, and goes on with one that a kill broke off: the same search, its replies taken from the
file first. What stands there is compared line by line, so that a file never says two things."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from engine.known_engines import Identity
from search.methods import Node, Reply, SearchRefused
from search.problem.program_space import LIMIT, ProgramSpace
from search.problem.tree_file import (
    LABEL,
    AnyLine,
    ChosenLine,
    NodeLine,
    SimulationLine,
    StateLine,
    TreeDamaged,
    TreeHeader,
    line_text,
    read_lines,
    read_tree,
)
from workflow.completion import Completion

_LABELS = b'"method": "label"'
"""In the header of labels; in a text of JSON its quotes would be escaped."""


class TreeUnsteady(TreeDamaged):
    """A tree that cannot be gone on with, and is not damaged: its program's code said something else this time, and
    what code said is not kept."""


class TreeWriter:
    """A `TreeLog` into a file. `goes_on` keeps what is there; otherwise it is written anew.

    Raises `TreeDamaged` for a file that is no tree, and ValueError for one of another search. Its methods raise
    `TreeUnsteady` or `TreeDamaged` where what is there is not what the search does now.
    """

    def __init__(self, path: Path, header: TreeHeader, *, goes_on: bool = False) -> None:
        self.path = path
        self._there: list[AnyLine] = []
        self._at = 0
        if goes_on and path.exists():
            self._there, torn = read_lines(path)
            if self._there:
                _agree(path, self._there[0], header)
            if torn:
                _cut_to_lines(path)
        elif not goes_on:
            _spare_labels(path)
        self.recorded: dict[int, list[Reply]] = defaultdict(list)
        """Replies by the parent's id, in their order."""
        prompts: dict[int, list[int] | None] = {}
        for line in self._there:
            if isinstance(line, NodeLine):
                self.recorded[line.parent].append(_reply(line, prompts))
        self._file = path.open("ab" if goes_on else "wb")
        self.space: ProgramSpace | None = None
        """Of the search, once it is there."""
        self._write(self._there[0] if self._there else header)

    def drawn(self, node: Node) -> None:
        assert node.parent is not None
        assert node.action is not None
        reply, elder = node.action.reply, node.parent.children[0].action
        assert elder is not None
        completion, failure = (reply, None) if isinstance(reply, Completion) else (None, reply)
        if completion is not None and node.number and isinstance(elder.reply, Completion):
            same = completion.prompt_token_ids == elder.reply.prompt_token_ids
            completion = replace(completion, prompt_token_ids=None) if same else completion
        self._write(
            NodeLine(
                id=node.id,
                parent=node.parent.id,
                key=node.action.key,
                path=node.action.key.rpartition("#")[0],
                agent=node.action.agent,
                depth=node.depth,
                completion=completion,
                failure=failure,
                psi=node.psi,
                value=node.value,
                virtual=node.virtual,
                copies=node.copies,
            ),
            node.parent,
        )

    def arrived(self, node: Node) -> None:
        if node.end is not None:
            end = node.end
            said = StateLine(
                id=node.id,
                terminal=True,
                answer=end.answer,
                graded=end.reward,
                verdict=end.verdict,
                failure=end.failure,
                timed_out=end.timed_out,
            )
        else:
            assert self.space is not None
            request = self.space.request(node)
            said = StateLine(
                id=node.id, terminal=False, agent=request.agent, messages=request.messages or [], tools=request.tools
            )
        self._write(said, node)

    def simulated(self, leaf: Node, value: float) -> None:
        self._write(SimulationLine(path=[node.id for node in leaf.path], value=value))

    def chosen(self, node: Node, stopped_by: str) -> None:
        self._write(ChosenLine(id=node.id, stopped_by=stopped_by))

    def close(self) -> None:
        self._file.close()

    def _write(self, line: AnyLine, at: Node | None = None) -> None:
        """`at` is the state that the line follows from."""
        text = line_text(line)
        if self._at < len(self._there):
            before = line_text(self._there[self._at])
            if before != text:
                said = _difference(before.rstrip(), text.rstrip())
                raise (TreeUnsteady if self._may_differ(self._there[self._at], at) else TreeDamaged)(
                    f"{self.path}:{self._at + 1} is not what the search does now: {said}. "
                    "Fix: delete the file; the tree is then searched anew"
                )
        else:
            self._file.write(text.encode())
            self._file.flush()
        self._at += 1

    def _may_differ(self, there: AnyLine, at: Node | None) -> bool:
        late = isinstance(there, StateLine) and there.failure == LIMIT
        return late or (at is not None and self.space is not None and self.space.may_differ(at))


def is_whole(path: Path, header: TreeHeader, simulations: int) -> bool:
    """Whether a label tree has all its simulations, or its program asks nobody. Raises `TreeDamaged`, and ValueError
    for one of another search."""
    if not path.exists() or b"\n" not in path.read_bytes():
        return False  # not even its header is whole
    record = read_tree(path)
    _agree(path, record.header, header)
    return record.root.end is not None or len(record.simulations) == simulations


def _spare_labels(path: Path) -> None:
    """Raises `SearchRefused` for what may be a tree of labels, which costs more than a search, however damaged it is:
    for all that has lines, the first of which is no header of a search, or that has the header of labels anywhere."""
    if not path.is_file():
        return
    whole, _, rest = path.read_bytes().rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    methods = [_method(line) for line in lines]
    if LABEL in methods or _LABELS in whole + rest:
        raise SearchRefused(f"{path} is a tree of labels, and would be lost. Fix: another file")
    if lines and methods[0] is None:
        raise SearchRefused(f"{path} is no tree of a search, and would be lost. Fix: another file")


def _method(line: bytes) -> object:
    """Of a search, as its header says; None where the line is no header."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    settings = said.get("settings") if isinstance(said, dict) and said.get("type") == "tree" else None
    return settings.get("method") if isinstance(settings, dict) else None


def _agree(path: Path, there: AnyLine, header: TreeHeader) -> None:
    assert isinstance(there, TreeHeader)  # as files are read
    if Identity(there.engine, there.engine_digest).is_same(Identity(header.engine, header.engine_digest)):
        there = there.model_copy(update={"engine": header.engine, "engine_digest": header.engine_digest})
    then, now = there.model_dump(mode="json"), header.model_dump(mode="json")
    then, now = then | then.pop("settings"), now | now.pop("settings")
    for name in now | then:
        if then.get(name) != now.get(name):
            said = _difference(json.dumps(then.get(name)), json.dumps(now.get(name)))
            raise ValueError(f"{path} was searched with {name} {said}. Fix: the same settings, or another folder")


def _reply(line: NodeLine, prompts: dict[int, list[int] | None]) -> Reply:
    """With the prompt's ids that its eldest sibling's line has."""
    if line.completion is None:
        assert line.failure is not None  # as lines are checked
        return line.failure
    first = prompts.setdefault(line.parent, line.completion.prompt_token_ids)
    if line.completion.prompt_token_ids is not None or first is None:
        return line.completion
    return replace(line.completion, prompt_token_ids=first)


def _cut_to_lines(path: Path) -> None:
    with path.open("r+b") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)
        os.fsync(file.fileno())


def _difference(then: str, now: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), min(len(then), len(now)))
    start = max(0, at - 20)
    return f"{then[start : at + 60]}, now {now[start : at + 60]}"
