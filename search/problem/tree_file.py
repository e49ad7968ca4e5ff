"""Trees on disk: a header, then a line of JSON for whatever a search did, in its order, from which all numbers follow.

N, W and Q stand nowhere: `fold` gets them from the lines. Rows for a model of values are made in `trainer.values`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from search.methods import Action, End, Node
from workflow.answers import Domain
from workflow.completion import ChatMessage, Completion
from workflow.failures import Failure

LABEL = "label"
"""The method of label trees, as headers have it."""


class TreeDamaged(ValueError):
    """A file that is no tree; names the file and the line."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class TreeHeader(_Line):
    type: Literal["tree"] = "tree"
    version: Literal[1] = 1
    settings: dict[str, Any]
    """How the tree was searched: method, its settings, budget, sampling, seed, guide."""
    problem: str
    """Its id."""
    problem_digest: str
    question: str
    domain: Domain
    program: str
    """Hexadecimal, of the program's text."""
    engine: str
    engine_digest: str = ""
    """See `engine.known_engines`."""
    weights_version: int | None = None


class NodeLine(_Line):
    """A state that was drawn, by the reply that leads to it."""

    type: Literal["node"] = "node"
    id: int = Field(ge=1)
    """0 is the root, which has no line."""
    parent: int = Field(ge=0)
    key: str
    """Of the agent's call."""
    path: str
    """Where in the program it was made."""
    agent: str
    depth: int = Field(ge=1)
    completion: Completion | None = None
    """Its `prompt_token_ids` are left out where they are those of its parent's first child."""
    failure: Failure | None = None
    """Where the call itself went past a limit."""
    psi: float | None = None
    value: float | None = None
    """V, or what else guided the search."""
    virtual: bool = False
    """Whether N began with 1 and W with V."""
    copies: int = 1
    """Replies of this text, merged into one."""

    @model_validator(mode="after")
    def _exactly_one_reply(self) -> NodeLine:
        if (self.completion is None) == (self.failure is None):
            raise ValueError("give either completion or failure")
        return self


class StateLine(_Line):
    """Where a run has come."""

    type: Literal["state"] = "state"
    id: int = Field(ge=0)
    terminal: bool
    agent: str = ""
    """Who is asked, and what; of a state that is not terminal."""
    messages: list[ChatMessage] = []
    tools: list[dict[str, Any]] = []
    answer: str | None = None
    """Of a terminal one, as far as `failure`."""
    graded: float | None = None
    """R: 1 right, -1 wrong; None where nothing grades it."""
    verdict: str = ""
    failure: str | None = None
    timed_out: bool = False
    """As of `search.methods.End`."""


class SimulationLine(_Line):
    type: Literal["simulation"] = "simulation"
    path: list[int] = Field(min_length=1)
    """Ids, from the root's child to the leaf."""
    value: float
    """That was backed up."""


class ChosenLine(_Line):
    """How the search ended; labels have none."""

    type: Literal["chosen"] = "chosen"
    id: int = Field(ge=0)
    """0 where no run had ended."""
    stopped_by: str = ""
    """Which budget ended it."""


AnyLine = TreeHeader | NodeLine | StateLine | SimulationLine | ChosenLine
_LINE: TypeAdapter[AnyLine] = TypeAdapter(Annotated[AnyLine, Field(discriminator="type")])


def line_text(line: AnyLine) -> str:
    """One line of JSON, with its newline; what has its default is left out, but for a line's type."""
    said = {"type": line.type} | line.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(said, ensure_ascii=False).encode(errors="replace").decode() + "\n"


@dataclass(slots=True)
class TreeRecord:
    """A tree that was read. Its nodes have N and W as the lines give them."""

    header: TreeHeader
    nodes: dict[int, Node]
    states: dict[int, StateLine] = field(default_factory=dict)
    """By the node's id."""
    simulations: list[SimulationLine] = field(default_factory=list)
    chosen: ChosenLine | None = None
    torn: bool = False
    """Whether its last line was cut off by a kill."""

    @property
    def root(self) -> Node:
        return self.nodes[0]


def read_lines(path: Path) -> tuple[list[AnyLine], bool]:
    """All lines, and whether a last one was dropped for having no newline. Raises `TreeDamaged` for any other that is
    none, and OSError. Nobody is told to delete a file whose first line is no header: it is somebody else's."""
    text = path.read_bytes()
    whole, _, rest = text.rpartition(b"\n")
    lines: list[AnyLine] = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        lines.append(_line(path, number, line))
    return lines, bool(rest)


def read_header(path: Path) -> TreeHeader:
    """Of a tree of which no more is read. Raises `TreeDamaged` and OSError."""
    with path.open("rb") as file:
        first = file.readline()
    header = _line(path, 1, first.removesuffix(b"\n"))
    if not isinstance(header, TreeHeader) or not first.endswith(b"\n"):
        raise _no_tree(path)
    return header


def _line(path: Path, number: int, text: bytes) -> AnyLine:
    try:
        line = _LINE.validate_json(text)
    except ValidationError as error:
        if number == 1 and not _begins_tree(text):
            raise _no_tree(path) from None
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise TreeDamaged(
            f"{path}:{number} is no line of a tree: {where}: {first['msg']}. Fix: delete the file"
        ) from None
    if number == 1 and not isinstance(line, TreeHeader):
        raise _no_tree(path)
    return line


def _begins_tree(line: bytes) -> bool:
    """Whether it is a header, though perhaps a damaged one."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("type") == "tree"


def _no_tree(path: Path) -> TreeDamaged:
    return TreeDamaged(
        f"{path}:1 is no tree's header. Fix: a file that metaagent label or search wrote, or move this one away"
    )


def read_tree(path: Path) -> TreeRecord:
    """Raises `TreeDamaged` and OSError."""
    lines, torn = read_lines(path)
    if not lines or not isinstance(lines[0], TreeHeader):
        raise _no_tree(path)
    record = TreeRecord(lines[0], {0: Node(0)}, torn=torn)
    for number, line in enumerate(lines[1:], 2):
        try:
            fold(record, line)
        except ValueError as error:
            raise TreeDamaged(
                f"{path}:{number} does not follow from the lines before: {error}. Fix: delete the file"
            ) from None
    return record


def _node(record: TreeRecord, number: int) -> Node:
    if number not in record.nodes:
        raise ValueError(f"there is no node {number}")
    return record.nodes[number]


def _check_backed_up(record: TreeRecord, leaf: Node, value: float) -> None:
    """Labels are grades of ends, and no search has more simulations than its settings say."""
    settings, end = record.header.settings, leaf.end
    if settings.get("method") == LABEL and (end is None or end.reward != value):
        graded = "no graded end" if end is None or end.reward is None else f"R = {end.reward:g}"
        raise ValueError(f"a simulation backed up {value:g} from node {leaf.id}, which has {graded}")
    if not math.isfinite(value):
        raise ValueError(f"a simulation backed up {value}")
    most = settings.get("simulations")
    if isinstance(most, int) and len(record.simulations) >= most:
        raise ValueError(f"it is one simulation more than the {most} of the settings")


def fold(record: TreeRecord, line: AnyLine) -> None:
    """Take one more line in. Raises ValueError where it does not follow from those before."""
    if record.chosen is not None:
        raise ValueError("the search had decided")
    match line:
        case NodeLine():
            if line.id in record.nodes:
                raise ValueError(f"node {line.id} is there")
            parent = _node(record, line.parent)
            if parent.end is not None or line.depth != parent.depth + 1:
                state = "an end" if parent.end is not None else f"at depth {parent.depth}"
                raise ValueError(f"node {line.id} at depth {line.depth} comes after node {parent.id}, which is {state}")
            if line.virtual and line.value is None:
                raise ValueError(f"node {line.id} has a virtual visit without a value")
            completion = line.completion
            if completion is not None and completion.prompt_token_ids is None and parent.children:
                elder = parent.children[0].action
                if elder is not None and isinstance(elder.reply, Completion):
                    completion.prompt_token_ids = elder.reply.prompt_token_ids
            reply = completion or line.failure
            assert reply is not None  # as lines are checked
            node = Node(
                line.id, parent, Action(line.key, line.agent, reply), len(parent.children), line.psi, line.value
            )
            node.copies = line.copies
            if line.virtual:
                node.virtual, node.visits, node.total = True, 1, line.value or 0.0
            parent.children.append(node)
            record.nodes[line.id] = node
        case StateLine():
            node = _node(record, line.id)
            if line.id in record.states or (line.terminal and node.children):
                said = "there are replies to it" if line.terminal and node.children else "its state is there"
                raise ValueError(f"node {line.id}: {said}")
            if line.graded not in (None, 1, -1):
                raise ValueError(f"node {line.id} has R = {line.graded:g}, and R is 1 or -1")
            record.states[line.id] = line
            node.seen = True
            if line.terminal:
                node.end = End(line.answer, line.failure, line.graded, line.verdict, line.timed_out)
        case SimulationLine():
            leaf = _node(record, line.path[-1])
            if [node.id for node in leaf.path] != line.path:
                raise ValueError(f"{line.path} is no path")
            _check_backed_up(record, leaf, line.value)
            leaf.back_up(line.value)
            record.simulations.append(line)
        case ChosenLine():
            _node(record, line.id)
            record.chosen = line
        case _:
            raise ValueError("a second header")
