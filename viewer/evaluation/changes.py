"""What changed between two evaluations of the same problems, and which role brought it.

Attempts are paired by problem (its id and its digest) and number. Pairs are crossed with what became of the design, as
MetaAgent-X does (section 4.4 and Appendix C, "Which role brings the improvement?"): what is solved now under the same
structural pattern is the Executor's improvement, what is solved after a flip to another pattern the Designer's. Beside
that reading stands the difference in accuracy, cut into the same parts, with paired intervals. Pure functions of rows;
nothing here reads or shows anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, get_args

from trainer.evaluate import Interval, PassRate, grouped, mcnemar, mean_interval, pass_rate
from viewer.evaluation.attempt_rows import Row

Key = TypeVar("Key", bound=Hashable)
Outcome = Literal["fixed", "broken", "same right", "same wrong"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Design = Literal["same program", "same structure", "designer flip", "new program", "lost program", "no program"]
"""What became of the design, from before to after: the same text; another program of the same structure; another
structure; a program that may run where there was none, or none where there was one; none either time."""
DESIGNS: tuple[Design, ...] = get_args(Design)
SAME_PATTERN: tuple[Design, ...] = ("same program", "same structure")


class Pair(NamedTuple):
    """One attempt at a problem in both evaluations; see `paired`."""

    before: Row
    after: Row
    outcome: Outcome
    design: Design


def paired(before: Row, after: Row) -> Pair:
    return Pair(before, after, _outcome(before, after), _design(before, after))


def _outcome(before: Row, after: Row) -> Outcome:
    if before.correct:
        return "same right" if after.correct else "broken"
    return "fixed" if after.correct else "same wrong"


def _design(before: Row, after: Row) -> Design:
    if before.structure is None or after.structure is None:
        if before.structure == after.structure:
            return "no program"
        return "new program" if before.structure is None else "lost program"
    if before.structure != after.structure:
        return "designer flip"
    return "same program" if before.program and before.program == after.program else "same structure"


@dataclass(frozen=True, slots=True)
class Matched:
    """The pairs, in the order of the later evaluation, and attempts that have no other half."""

    pairs: list[Pair]
    only_before: int
    only_after: int
    other_text: int
    """Attempts of the later one at a problem that has the id of an earlier one, and is another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Pairs by their outcome."""

    fixed: int = 0
    broken: int = 0
    same_right: int = 0
    same_wrong: int = 0

    @property
    def pairs(self) -> int:
        return self.fixed + self.broken + self.same_right + self.same_wrong

    @property
    def net(self) -> int:
        return self.fixed - self.broken

    @property
    def right_before(self) -> int:
        return self.broken + self.same_right

    @property
    def right_after(self) -> int:
        return self.fixed + self.same_right


@dataclass(frozen=True, slots=True)
class Part:
    """Pairs whose design fared alike."""

    counts: Counts
    gain: Interval
    """What they add to the difference in accuracy; over all parts the means add up to it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The accuracy of the same attempts before and after: means over problems of each one's pass rate."""

    before: PassRate
    after: PassRate
    gain: Interval
    """After less before, paired by problem."""
    counts: Counts


@dataclass(frozen=True, slots=True)
class ProblemChange:
    """One problem: how many of its paired attempts were right."""

    problem: str
    task: str
    attempts: int
    before: int
    after: int

    @property
    def gain(self) -> float:
        return (self.after - self.before) / self.attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    matched: Matched
    all: Difference | None
    """None where nothing is paired, and then the rest is empty, too."""
    by_task: dict[str, Difference]
    parts: dict[Design, Part]
    """Those that occur, in the order of `DESIGNS`."""
    fixed_by: dict[Design, PassRate]
    """The share of what was fixed that fell to each part; of a problem that was fixed in several attempts the mean."""
    same_pattern: PassRate | None
    """The same of both parts with an unchanged structure; None where nothing was fixed."""
    flows: dict[tuple[str, str], Counts]
    """By the structures before and after, the most frequent first."""
    problems: list[ProblemChange]
    """Those that gained most first."""
    p_value: float | None
    """Of McNemar's exact test. None with several attempts at a problem, which are not independent."""

    @property
    def attempts_each(self) -> int:
        """The most paired attempts at one problem."""
        return max((each.attempts for each in self.problems), default=0)


def match(before: Iterable[Row], after: Iterable[Row]) -> Matched:
    """Each attempt with the one of the same number at the same problem."""
    earlier = {(row.problem, row.attempt): row for row in before}
    pairs: list[Pair] = []
    unmatched = other_text = 0
    for row in after:
        half = earlier.get((row.problem, row.attempt))
        if half is not None and half.digest == row.digest:
            pairs.append(paired(half, row))
            continue
        unmatched += half is None
        other_text += half is not None
    return Matched(pairs, len(earlier) - len(pairs) - other_text, unmatched, other_text)


def compare(before: Iterable[Row], after: Iterable[Row]) -> Changes:
    """What changed from one evaluation to the other."""
    matched = match(before, after)
    pairs = matched.pairs
    by_design = _grouped(pairs, lambda pair: pair.design)
    by_problem = _grouped(pairs, lambda pair: pair.after.problem)
    flows = {names: _counts(some) for names, some in _grouped(pairs, _structures).items()}
    problems = [_problem(some) for some in by_problem.values()]
    fixed = [pair for pair in pairs if pair.outcome == "fixed"]
    whole = _difference(pairs) if pairs else None
    return Changes(
        matched=matched,
        all=whole,
        by_task={
            task: _difference(some)
            for task, some in sorted(_grouped(pairs, lambda pair: pair.after.task).items())
            if task
        },
        parts={
            name: Part(_counts(by_design[name]), mean_interval(_gains(by_problem.values(), of=name)))
            for name in DESIGNS
            if name in by_design
        },
        fixed_by={name: _share(fixed, name) for name in DESIGNS if any(pair.design == name for pair in fixed)},
        same_pattern=_share(fixed, *SAME_PATTERN) if fixed else None,
        flows=dict(sorted(flows.items(), key=lambda item: (-item[1].pairs, item[0]))),
        problems=sorted(problems, key=lambda each: (-each.gain, each.problem)),
        p_value=mcnemar(whole.counts.fixed, whole.counts.broken) if whole and len(problems) == len(pairs) else None,
    )


def _structures(pair: Pair) -> tuple[str, str]:
    return pair.before.structure_name, pair.after.structure_name


def _grouped(pairs: Iterable[Pair], key: Callable[[Pair], Key]) -> dict[Key, list[Pair]]:
    groups: dict[Key, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(key(pair), []).append(pair)
    return groups


def _counts(pairs: Iterable[Pair]) -> Counts:
    found = Counter(pair.outcome for pair in pairs)
    return Counts(
        fixed=found["fixed"],
        broken=found["broken"],
        same_right=found["same right"],
        same_wrong=found["same wrong"],
    )


def _problem(pairs: Sequence[Pair]) -> ProblemChange:
    row = pairs[0].after
    right = (sum(pair.before.correct for pair in pairs), sum(pair.after.correct for pair in pairs))
    return ProblemChange(row.problem, row.task, len(pairs), *right)


def _difference(pairs: Sequence[Pair]) -> Difference:
    return Difference(
        before=pass_rate(grouped((pair.before.problem, pair.before.correct) for pair in pairs)),
        after=pass_rate(grouped((pair.after.problem, pair.after.correct) for pair in pairs)),
        gain=mean_interval(_gains(_grouped(pairs, lambda pair: pair.after.problem).values())),
        counts=_counts(pairs),
    )


def _gains(problems: Iterable[Sequence[Pair]], of: Design | None = None) -> Iterator[float]:
    """Of each problem, what the pairs whose design fared so (None: all) add to the gain of its pass rate."""
    for pairs in problems:
        gain = 0
        for before, after, _, design in pairs:
            if of is None or design == of:
                gain += after.correct - before.correct
        yield gain / len(pairs)


def _share(pairs: Sequence[Pair], *designs: Design) -> PassRate:
    """Of pairs whose design fared in one of these ways."""
    return pass_rate(grouped((pair.after.problem, pair.design in designs) for pair in pairs))
