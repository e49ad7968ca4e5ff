"""The M x N matrix of a tree as it is shown: a row for each design, a cell for each execution, and the calls of agents
where these are credited one by one.

Values for a template. What is on disk is read by `viewer.runs.question_tree`, and credited by
`viewer.runs.tree_credit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from viewer.html import figure
from viewer.means import mean
from viewer.reading import STOPPED
from viewer.runs.question_tree import DesignOnDisk, RunOfDesign, TreeOnDisk
from viewer.runs.tree_credit import Credit, Credited
from workflow.graph import structure

STRONG = 2.0
"""An advantage this far from 0 has the full colour."""
MOST_CALLS = 400
"""Of one run that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One execution in the matrix."""

    execution: int
    route: str | None
    """Of its page, where there is a trace."""
    mark: str
    mark_class: str
    means: str
    reward: str
    filled: int
    """Percent of the largest reward."""
    advantage: str
    tone: str
    """`up` or `down` by the advantage's sign, empty for none."""
    strength: int
    """Percent of the full colour."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One agent's call, or one trajectory, with the replies that are compared."""

    agent: str
    where: str
    replies: list[Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    reward: str
    advantage: str
    tone: str
    strength: int
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """All calls of one execution."""

    design: int
    execution: int
    route: str | None
    calls: list[Call]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One design."""

    index: int
    name: str
    """Its structure, or what became of it."""
    failed: str
    """Why it could not run."""
    findings: list[str]
    reply: str | None
    """What the Designer wrote, where no program came of it."""
    program: str | None
    same_as: int | None
    """An earlier design with the same program."""
    repaired: bool
    mean: str
    advantage: str
    tone: str
    strength: int
    cells: list[Cell]
    best_and_worst: str | None
    """Route of a comparison within the design."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Makes rows and calls of a tree. `place` is the path of its folder, `base` stands before all routes; with
    `by_turn` an execution has no advantage of its own."""

    tree: TreeOnDisk
    credit: Credit | None
    place: str
    base: str
    by_turn: bool

    def rows(self) -> list[Row]:
        rewards = [run.reward for _, run in self.tree.runs if run.reward is not None]
        largest = max([1.0, *(abs(reward) for reward in rewards)])
        first: dict[str, int] = {}
        rows = []
        for design in self.tree.designs:
            same = first.setdefault(design.program, design.index) if design.program else design.index
            rows.append(self._row(design, largest, None if same == design.index else same))
        return rows

    def calls(self) -> list[Calls]:
        """Of runs with samples."""
        return [
            Calls(
                design=design.index,
                execution=run.execution,
                route=self._route(run),
                calls=[_call(group) for group in calls[:MOST_CALLS]],
                left_out=max(0, len(calls) - MOST_CALLS),
            )
            for design, run in self.tree.runs
            if (calls := _by_call(self._samples(design, run)))
        ]

    def _row(self, design: DesignOnDisk, largest: float, same_as: int | None) -> Row:
        record = design.design
        rewards = [0.0 if design.is_rejected else run.reward for run in design.runs]
        known = [reward for reward in rewards if reward is not None]
        advantage = self.credit.designs.get(design.index) if self.credit is not None else None
        error = record.error if record is not None else None
        return Row(
            index=design.index,
            name=_name(design),
            failed=design.wrong or (f"{error.kind}: {error.message}" if error is not None else ""),
            findings=[str(finding) for finding in record.findings] if record is not None else [],
            reply=record.replies[-1] if record is not None and record.source is None and record.turns else None,
            program=design.program,
            same_as=same_as,
            repaired=record is not None and record.repaired,
            mean=figure(mean(known)) if known and len(known) == len(rewards) else "–",
            advantage=signed(advantage),
            tone=tone(advantage),
            strength=strength(advantage),
            cells=[self._cell(design, run, largest) for run in design.runs],
            best_and_worst=best_and_worst(design, self.place, self.base),
        )

    def _cell(self, design: DesignOnDisk, run: RunOfDesign, largest: float) -> Cell:
        samples = self._samples(design, run)
        advantages = [each.advantage for each in samples if each.advantage is not None]
        advantage = mean(advantages) if advantages and not self.by_turn else None
        mark, mark_class, means = _mark(design, run)
        reward = 0.0 if design.is_rejected else run.reward
        summary = run.summary
        plain = mark in "✓✗" and (summary is None or summary.failure is None)
        left_out = ", left out" if summary is not None and summary.timed_out else ""
        return Cell(
            execution=run.execution,
            route=self._route(run),
            mark=mark,
            mark_class=mark_class,
            means=means,
            reward="–" if reward is None else figure(reward),
            filled=0 if reward is None else round(100 * min(1.0, abs(reward) / largest)),
            advantage=_counted(samples) if self.by_turn and samples else signed(advantage),
            tone=tone(advantage),
            strength=strength(advantage),
            note="" if plain else means.partition(":")[0] + left_out,
        )

    def _samples(self, design: DesignOnDisk, run: RunOfDesign) -> list[Credited]:
        return self.credit.executions.get((design.index, run.execution), []) if self.credit is not None else []

    def _route(self, run: RunOfDesign) -> str | None:
        return None if run.summary is None else f"{self.base}run/{self.place}/{run.file}"


def _by_call(samples: list[Credited]) -> list[list[Credited]]:
    """Samples of one run, those together that are replies to one call."""
    return [list(group) for _, group in groupby(samples, lambda each: each.call or (each.path, each.turn))]


def _counted(samples: list[Credited]) -> str:
    calls = len(_by_call(samples))
    return f"{calls} call{'' if calls == 1 else 's'}"


def _call(samples: list[Credited]) -> Call:
    first = samples[0]
    return Call(
        agent=first.agent,
        where=first.call or f"{first.path}, reply {first.turn}",
        replies=[
            Reply(
                reward=figure(each.reward),
                advantage=signed(each.advantage),
                tone=tone(each.advantage),
                strength=strength(each.advantage),
                chosen=each.chosen and len(samples) > 1,
            )
            for each in sorted(samples, key=lambda each: each.number)
        ],
    )


def signed(advantage: float | None) -> str:
    return "–" if advantage is None else "0" if advantage == 0 else f"{advantage:+.2f}"


def tone(advantage: float | None) -> str:
    return "" if not advantage else "up" if advantage > 0 else "down"


def strength(advantage: float | None) -> int:
    return 0 if not advantage else round(100 * min(1.0, abs(advantage) / STRONG))


def _mark(design: DesignOnDisk, run: RunOfDesign) -> tuple[str, str, str]:
    summary = run.summary
    if design.is_rejected:
        return "∅", "bad", "not run"
    if summary is None:
        return "·", "less", "no trace yet"
    if summary.state == "broken":
        return "!", "bad", f"broken: {summary.wrong}"
    if summary.state == "unfinished":
        return "…", "warn", "not ended"
    if summary.failure == STOPPED:
        return "…", "warn", STOPPED
    if summary.failure is not None:
        return "✗", "bad", "timed out" if summary.timed_out else summary.failure.replace("_", " ")
    if summary.correct is None:
        return "–", "less", "not graded"
    return ("✓", "good", "correct") if summary.correct else ("✗", "bad", "wrong")


def _name(design: DesignOnDisk) -> str:
    record = design.design
    if record is not None and record.error is not None:
        return record.error.kind.replace("_", " ")
    if record is not None and record.graph is not None:
        return structure(record.graph)
    return "given program" if design.program is not None else "no design"


def best_and_worst(design: DesignOnDisk, place: str, base: str = "") -> str | None:
    """Route of a comparison of a design's best run with its worst; None where none is better than another."""
    rewarded = [(run.reward, run.file) for run in design.runs if run.reward is not None]
    if len({reward for reward, _ in rewarded}) < 2:
        return None
    best, worst = (each(rewarded, key=lambda one: one[0])[1] for each in (max, min))
    return compare_route(f"{place}/{best}", f"{place}/{worst}", base)


def compare_route(left: str, right: str, base: str = "") -> str:
    """Of two traces by their paths."""
    return f"{base}compare?left={quote(left)}&right={quote(right)}"
