"""Sums up the attempts of an evaluation, one after the other, and keeps none of them. Making them is
`trainer.evaluate.evaluation`'s business, showing a report `metaagent.commands.eval`'s and `viewer`'s."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from search.problem import SearchReport
from trainer.evaluate.attempts import Attempt
from trainer.evaluate.metrics import (
    AgentCounts,
    Diversity,
    PassRate,
    Spread,
    pass_at_powers,
    pass_rate,
    spread,
)
from workflow.answers import Domain
from workflow.failures import FailureKind
from workflow.graph import Structure
from workflow.usage import PolicyRole, Tally

Name = TypeVar("Name")
Grades = dict[str, list[bool]]
"""By a problem's id."""
_SPENT = ("agent_calls", "scored", "generated_tokens", "prompt_tokens", "scored_tokens", "depth", "seconds")
_MANY = 1000
"""Tallies that wait to be added up."""
NO_PROGRAM = "none"
"""What stands in `EvalReport.structures` for designs that may not run."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class StructureRow(_Frozen):
    """One structure: its share of the attempts, and how often these are correct."""

    share: float
    attempts: int
    correct: float


class SearchMeans(_Frozen):
    """Means per attempt of what searches spent: AC, MC and Tok of MASPRM's tables (section 5.1)."""

    method: str
    guide: str
    agent_calls: float
    scored: float
    generated_tokens: float
    prompt_tokens: float
    scored_tokens: float
    depth: float
    seconds: float
    stopped: int
    """Attempts that a budget ended."""


class EvalReport(_Frozen):
    """What an evaluation found. Rates and shares are in [0, 1]; none is given where there are no attempts."""

    problems: int
    attempts: int
    accuracy: PassRate | None
    """Mean over problems of each one's pass rate."""
    pass_at: dict[int, float]
    """pass@k for powers of two, up to the fewest attempts of any problem."""
    by_task: dict[str, PassRate]
    """By the tasks' names; empty where none were given."""
    by_domain: dict[Domain, PassRate]
    answered: float
    """Share of attempts with an answer in the form that the domain asks for."""
    structures: dict[str, StructureRow]
    failures: dict[FailureKind, int]
    diversity: Diversity
    """Of sampled designs, each counted; a program of the bank or a given one counts once."""
    reply_tokens: dict[PolicyRole, Spread]
    """Completion tokens per reply."""
    turns: Spread | None = None
    """Actions of the attempts that solved their game; None where there are none."""
    search: SearchMeans | None = None
    """Where runs were searched for."""
    usage: Tally
    """All calls, with their cost where it is known."""
    usage_by_role: dict[PolicyRole, Tally]
    attempt_s: Spread
    """Seconds per attempt: design, run and grade."""


class EvalSums:
    """What a report on attempts is made of, kept small: `add` them in any order, and ask for the `report` at any time.

    Per attempt it holds a few numbers, and per problem its id; no program and no graph.
    """

    def __init__(self) -> None:
        self.grades: Grades = {}
        self._by_task: dict[str, Grades] = {}
        self._by_domain: dict[Domain, Grades] = {}
        self._structures: dict[Structure | None, list[int]] = {}
        self._answered = 0
        self._failures: Counter[FailureKind] = Counter()
        self._agents = AgentCounts()
        self._given: set[str | None] = set()
        self._replies: dict[PolicyRole, list[int]] = {}
        self._turns: list[int] = []
        self._searches: defaultdict[str, float] = defaultdict(float)
        self._search: SearchReport | None = None
        self._tallies: dict[PolicyRole, list[Tally]] = {}
        self._seconds = array("d")

    def add(self, attempt: Attempt) -> None:
        for grades in (
            self.grades,
            self._by_domain.setdefault(attempt.domain, {}),
            *([self._by_task.setdefault(attempt.task, {})] if attempt.task else []),
        ):
            grades.setdefault(attempt.problem, []).append(attempt.correct)
        row = self._structures.setdefault(attempt.structure, [0, 0])
        row[0] += 1
        row[1] += attempt.correct
        self._answered += attempt.answered
        if attempt.failure is not None:
            self._failures[attempt.failure] += 1
        if attempt.graph is not None and (attempt.designer == "policy" or attempt.program not in self._given):
            self._agents.add(attempt.graph)
            if attempt.designer != "policy":
                self._given.add(attempt.program)
        for role, tokens in attempt.reply_tokens.items():
            self._replies.setdefault(role, []).extend(tokens)
        for role, tally in attempt.usage.items():
            tallies = self._tallies.setdefault(role, [])
            tallies.append(tally)
            if len(tallies) > _MANY:
                tallies[:] = [Tally.total(tallies)]
        if attempt.correct and attempt.turns is not None:
            self._turns.append(attempt.turns)
        if attempt.search is not None:
            self._search = attempt.search
            for name in _SPENT:
                self._searches[name] += getattr(attempt.search, name)
            self._searches["stopped"] += attempt.search.stopped_by != ""
            self._searches["attempts"] += 1
        self._seconds.append(attempt.duration_s)

    def report(self) -> EvalReport:
        roles: tuple[PolicyRole, ...] = ("designer", "executor")
        by_role: dict[PolicyRole, Tally] = {
            role: Tally.total(self._tallies[role]) for role in roles if role in self._tallies
        }
        attempts = len(self._seconds)
        return EvalReport(
            problems=len(self.grades),
            attempts=attempts,
            accuracy=pass_rate([*self.grades.values()]) if self.grades else None,
            pass_at=pass_at_powers([*self.grades.values()]),
            by_task=_rates(self._by_task),
            by_domain=_rates(self._by_domain),
            answered=self._answered / max(attempts, 1),
            structures={
                name or NO_PROGRAM: StructureRow(share=made / attempts, attempts=made, correct=correct / made)
                for name, (made, correct) in sorted(self._structures.items(), key=lambda item: -item[1][0])
            },
            failures=dict(self._failures.most_common()),
            diversity=self._agents.diversity(),
            reply_tokens={role: spread(self._replies[role]) for role in roles if self._replies.get(role)},
            turns=spread(self._turns) if self._turns else None,
            search=self._searched(),
            usage=Tally.total(by_role.values()),
            usage_by_role=by_role,
            attempt_s=spread(self._seconds),
        )

    def _searched(self) -> SearchMeans | None:
        last = self._search
        if last is None:
            return None
        means = {name: self._searches[name] / self._searches["attempts"] for name in _SPENT}
        return SearchMeans(method=last.method, guide=last.guide, stopped=int(self._searches["stopped"]), **means)


def report_of(attempts: Iterable[Attempt]) -> EvalReport:
    """The report on some attempts; their order does not matter."""
    sums = EvalSums()
    for attempt in attempts:
        sums.add(attempt)
    return sums.report()


def _rates(groups: Mapping[Name, Grades]) -> dict[Name, PassRate]:
    return {name: pass_rate([*grades.values()]) for name, grades in groups.items()}
