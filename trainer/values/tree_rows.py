"""What a model of values learns from: the visited edges of label trees as rows, and their problems in two parts.

A row is a state after an action with y = Q of its edge (MASPRM, section 4.1), or for an outcome model the question with
a final answer and y = R. What is left out is counted by reason. Not here: how a state is read
(`trainer.values.state_views`), what is learned (`trainer.values.training`).
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from search.methods import Node
from search.paths import AgentStep
from search.problem import LABEL, TreeRecord, read_header, read_tree
from search.scoring import ScoredState
from tasks import asked_in_math500, normal_form
from trainer.values.state_views import StateTokens, StateView, Unreadable
from workflow.answers import Domain
from workflow.completion import Completion

EPSILON = 1e-4
"""Targets are kept within [-1 + EPSILON, 1 - EPSILON] (Appendix B.4)."""

_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


class RowsRefused(ValueError):
    """Files that are no label trees; names the file and says what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    problem: str
    """`question_digest` of what it asks."""
    agent: str
    """Who acted last."""
    depth: int
    tokens: StateTokens
    target: float
    visits: int
    """N of the edge."""


@dataclass(slots=True)
class TreeRows:
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Of all that there is a tree of, rising, those without a row included; by `question_digest`, as one question under
    two ids is one problem."""
    math500: list[str] = field(default_factory=list)
    """Ids of problems that stand in MATH-500. Their trees give no row and count nowhere else: what is trained on is no
    test."""
    trees: int = 0
    torn: list[str] = field(default_factory=list)
    """Files whose last line was cut off by a kill: they are read without it."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows, and under `trees with ...` trees, by why they were left out."""


def tree_files(paths: Sequence[Path]) -> list[Path]:
    """Files as they are given, and of folders their `trees/*.jsonl`, or without such a folder their `*.jsonl`; each
    once, whatever it is called. Raises `RowsRefused` where there is none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = path / "trees" if (path / "trees").is_dir() else path
            files = sorted(inside.glob("*.jsonl"))
            if not files:
                raise RowsRefused(f"{path} has no tree (*.jsonl). Fix: a folder that metaagent label wrote")
            found += files
        else:
            found.append(path)
    return list({path.resolve(): path for path in reversed(found)}.values())[::-1]


def rows_of_trees(
    paths: Sequence[Path], view: StateView, *, min_visits: int = 1, root_window: float | None = None
) -> TreeRows:
    """All rows, tree by tree in the order of the files, node by node.

    Edges with fewer than `min_visits` simulations are left out, and trees whose |Q| at the root is beyond
    `root_window`. An outcome model (`view.view`) has a row for each graded end of a run, whatever its visits. Of two
    copies of a tree the longer one counts. Raises `RowsRefused` for trees that were not made for labels and for a
    separator that stands in their replies, `TreeDamaged` and OSError. Trees with an end that a clock brought, or
    graded, are left out: their values say as much of the machine.
    """
    found = TreeRows()
    problems: set[str] = set()
    tests: dict[str, str] = {}
    files, copies = _label_files(tree_files(paths))
    if copies:
        found.dropped["trees that are there twice"] = copies
    spelt = 0
    for path in files:
        record = read_tree(path)
        spelt += sum(_spells(node, view.separator) for node in record.nodes.values())
        if spelt:
            continue  # it will be refused, with how many there are
        problem = question_digest(record.header.question, record.header.domain)
        if asked_in_math500(record.header.question):
            tests.setdefault(problem, record.header.problem)
            continue
        found.trees += 1
        found.torn += [str(path)] if record.torn else []
        problems.add(problem)
        if any(node.end is not None and node.end.timed_out for node in record.nodes.values()):
            found.dropped["trees with an end that a clock brought"] += 1
            continue
        values = [simulation.value for simulation in record.simulations]
        root = math.fsum(values) / max(1, len(values))
        if root_window is not None and abs(root) > root_window:
            found.dropped[f"trees with |Q| at the root beyond {root_window:g}"] += 1
            continue
        for node, state, target, visits in _states(path, record, view.view == "outcome"):
            if view.view != "outcome" and visits < min_visits:
                found.dropped[f"fewer than {min_visits} visits"] += 1
                continue
            try:
                tokens = view.tokens(state)
            except Unreadable as why:
                found.dropped[str(why)] += 1
                continue
            except ValueError as error:
                raise RowsRefused(f"{path}, node {node.id}: {error}") from error
            found.rows.append(Row(problem, state.turns[-1].agent, node.depth, tokens, target, visits))
    if spelt:
        raise RowsRefused(
            f"{view.separator!r} stands in {spelt:,} replies of the trees, and is to stand at their ends alone. Fix: a "
            "separator that nobody writes"
        )
    found.problems, found.math500 = sorted(problems), sorted(tests.values())
    return found


def _states(path: Path, record: TreeRecord, ends: bool) -> Iterator[tuple[Node, ScoredState, float, int]]:
    """Each state with its node, its target and N. N and W are those of simulations: no virtual visit counts."""
    counts: Counter[int] = Counter()
    totals: dict[int, list[float]] = {}
    for simulation in record.simulations:
        for number in simulation.path:
            counts[number] += 1
            totals.setdefault(number, []).append(simulation.value)
    for number, node in record.nodes.items():
        end = node.end
        if ends and node.parent is not None and end is not None and end.reward is not None:
            answer = "" if end.answer is None else end.answer
            yield node, _state(path, record, node, answer), clamped(end.reward), counts[number]
        elif not ends and counts[number]:
            target = clamped(math.fsum(totals[number]) / counts[number])
            yield node, _state(path, record, node, None), target, counts[number]


def _state(path: Path, record: TreeRecord, node: Node, answer: str | None) -> ScoredState:
    turns = []
    for each in node.path:
        assert each.parent is not None
        assert each.action is not None
        asked = record.states.get(each.parent.id)
        if asked is None:
            raise RowsRefused(
                f"{path}: node {each.id} was drawn from state {each.parent.id}, of which no line says what was asked. "
                "Fix: delete the file"
            )
        action = each.action
        turns.append(
            AgentStep.model_construct(
                key=action.key, agent=action.agent, messages=asked.messages, tools=asked.tools, reply=action.reply
            )
        )
    return ScoredState(record.header.question, tuple(turns), answer)


def _label_files(paths: Sequence[Path]) -> tuple[list[Path], int]:
    """One file of each tree, the longest, and how many more there are. Raises `RowsRefused` for trees of searches,
    whatever stands in them: a guide chose their runs, and their problems may be those of a test."""
    others: list[tuple[Path, object]] = []
    found: dict[str, list[Path]] = {}
    for path in paths:
        header = read_header(path)
        method = header.settings.get("method")
        if method != LABEL:
            others.append((path, method))
        known = header.model_copy(update={"engine": header.engine_digest or header.engine})
        found.setdefault(known.model_dump_json(), []).append(path)
    if others:
        path, method = others[0]
        more = f"; {len(others):,} of {len(paths):,} trees are none" if len(others) > 1 or len(paths) > 1 else ""
        raise RowsRefused(
            f"{path} is no tree of labels: its header has method {method!r}, not {LABEL!r}{more}. Fix: trees of "
            "metaagent label alone"
        )
    kept = [max(same, key=lambda path: path.stat().st_size) for same in found.values()]
    return kept, len(paths) - len(kept)


def _spells(node: Node, text: str) -> bool:
    return node.action is not None and isinstance(node.action.reply, Completion) and text in node.action.reply.text


def clamped(target: float) -> float:
    return min(max(target, -1 + EPSILON), 1 - EPSILON)


def question_digest(question: str, domain: Domain = "math") -> str:
    """Tells problems apart by what they ask, however it is written: an id, a tolerance or a gold answer makes no other
    problem. Of math it is what tells whether a problem stands in MATH-500. Of code spaces, quotes and how a letter is
    composed do not count; of games, whose maps are made of signs and blanks, how a letter is composed and how lines
    end."""
    composed = unicodedata.normalize("NFC", question)
    if domain == "game":
        said = re.sub(r"\r\n?", "\n", composed).strip("\n")
    else:
        said = normal_form(question) if domain == "math" else ""
        said = said or " ".join(composed.translate(_QUOTES).split())
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=16).hexdigest()


def held_out_problems(problems: Sequence[str], share: float, seed: int) -> set[str]:
    """The digests of `round(share * problems)` problems to validate on: those whose hash with the seed is smallest, so
    that it does not matter how many rows they have, or which."""
    distinct = set(problems)
    ranked = sorted(distinct, key=lambda problem: hashlib.sha256(f"{seed} {problem}".encode()).digest())
    return set(ranked[: round(share * len(distinct))])
