"""What rollouts and evaluations are summed up by: pass rates with their uncertainty, shares, diversity, lengths.

Pure functions over plain values, used by training for every step and by `trainer.evaluate.evaluation`'s report. Nothing
here runs a program, reads a file or prints.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from workflow.failures import FailureKind
from workflow.graph import GraphNode, structure

Z95 = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""
Key = TypeVar("Key", bound=Hashable)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class PassRate(_Frozen):
    """A pass rate in [0, 1] with a 95% confidence interval that respects clustering by problem; see `pass_rate`."""

    estimate: float
    low: float
    high: float
    problems: int
    attempts: int


def pass_rate(grades: Sequence[Sequence[bool]]) -> PassRate:
    """The mean over problems of each problem's share of correct attempts; `grades` has the attempts of one problem per
    entry, at least one each, and at least one problem.

    The interval is Wilson's score interval (Wilson 1927) with an effective number of attempts n in place of their
    number (Kish 1965; as Korn and Graubard 1998 and Franco et al. 2019 do for clustered proportions): n is
    p (1 - p) / (variance of the problems' rates / problems), at least the number of problems and at most the number of
    attempts. With one attempt per problem it is Wilson's interval as it stands. It never leaves [0, 1], and has a
    width also where all attempts are graded alike; attempts of one problem then count as one. In simulations with
    beta-distributed problems it covers 0.92 to 0.96 from 30 problems on, with ten problems down to 0.83 where most are
    never solved.
    """
    if not grades or not all(grades):
        raise ValueError("a pass rate needs at least one problem, and at least one attempt for each")
    rates = [sum(each) / len(each) for each in grades]
    problems, attempts = len(rates), sum(map(len, grades))
    p = math.fsum(rates) / problems
    variance = math.fsum((rate - p) ** 2 for rate in rates) / problems**2
    binomial = p * (1 - p)
    if binomial <= 0:
        n = float(problems)
    else:
        n = float(attempts) if variance == 0 else min(max(binomial / variance, problems), attempts)
    shrunk = 1 + Z95**2 / n
    centre = (p + Z95**2 / (2 * n)) / shrunk
    margin = Z95 * math.sqrt(binomial / n + Z95**2 / (4 * n**2)) / shrunk
    # At 0 and 1 the interval ends exactly there; rounding must not leave the estimate outside.
    low, high = min(max(centre - margin, 0.0), p), max(min(centre + margin, 1.0), p)
    return PassRate(estimate=p, low=low, high=high, problems=problems, attempts=attempts)


def pass_at_k(attempts: int, correct: int, k: int) -> float:
    """The chance that one of k attempts drawn from these is correct: 1 - C(n - c, k) / C(n, k), the unbiased estimator
    of Chen et al. 2021 (HumanEval), Eq. 1. Raises ValueError for k above `attempts`."""
    if not 0 <= correct <= attempts or not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} of {correct} correct among {attempts} attempts: needs 1 <= k <= attempts")
    return 1 - math.comb(attempts - correct, k) / math.comb(attempts, k)


def pass_at_powers(grades: Sequence[Sequence[bool]]) -> dict[int, float]:
    """pass@k for k = 1, 2, 4, ... up to the fewest attempts of any problem, each the mean over problems."""
    fewest = min(map(len, grades), default=0)
    powers = [1 << bit for bit in range(fewest.bit_length())]
    return {k: math.fsum(pass_at_k(len(each), sum(each), k) for each in grades) / len(grades) for k in powers}


def shares(values: Iterable[Key]) -> dict[Key, float]:
    """The share of each value among all, the most frequent first (equally frequent ones in their order)."""
    counts = Counter(values)
    total = sum(counts.values())
    return {value: count / total for value, count in counts.most_common()}


def structure_shares(graphs: Iterable[GraphNode]) -> dict[str, float]:
    """How often each structure was designed (MetaAgent-X, Table 6), by the names of `workflow.graph.structure`."""
    return shares(str(structure(graph)) for graph in graphs)


def failure_counts(failures: Iterable[FailureKind | None]) -> dict[FailureKind, int]:
    """How many runs ended in each kind of failure; None is a run that did not fail."""
    counts: Counter[FailureKind] = Counter(kind for kind in failures if kind is not None)
    return dict(counts.most_common())


class Spread(_Frozen):
    """Of some numbers, such as completion tokens per reply. All 0 where there are none."""

    count: int = 0
    mean: float = 0.0
    p95: float = 0.0
    """The smallest of the numbers that at least 95% of them do not exceed (nearest rank)."""
    max: float = 0.0


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread()
    rank = -(-95 * len(ordered) // 100)
    return Spread(count=len(ordered), mean=math.fsum(ordered) / len(ordered), p95=ordered[rank - 1], max=ordered[-1])


class Diversity(_Frozen):
    """How different the agents of some designs are (MetaAgent-X, Appendix C, "Per-query design diversity")."""

    designs: int = 0
    agents: int = 0
    role_names: int = 0
    """Distinct names of agents."""
    unique_prompts: float = 0.0
    """Share of agents whose system prompt no other agent of these designs has, byte for byte."""
    top_names: dict[str, int] = {}
    """The ten most frequent names with how many agents have them (Table 9)."""


class AgentCounts:
    """The agents of designs, counted as they come; no design is kept. An agent that its workflow uses in several places
    (same name, same prompt) counts once."""

    def __init__(self) -> None:
        self._designs = 0
        self._names: Counter[str] = Counter()
        self._prompts: Counter[str] = Counter()

    def add(self, graph: GraphNode) -> None:
        agents = {(node.name, node.prompt) for node in graph.walk() if node.base == "AgentNode"}
        self._designs += 1
        self._names.update(name for name, _ in agents)
        self._prompts.update(prompt for _, prompt in agents)

    def diversity(self) -> Diversity:
        agents = self._names.total()
        return Diversity(
            designs=self._designs,
            agents=agents,
            role_names=len(self._names),
            unique_prompts=sum(count == 1 for count in self._prompts.values()) / agents if agents else 0.0,
            top_names=dict(sorted(self._names.items(), key=lambda item: (-item[1], item[0]))[:10]),
        )


def diversity(graphs: Iterable[GraphNode]) -> Diversity:
    """Of the agents of some designs, as `AgentCounts` counts them."""
    counts = AgentCounts()
    for graph in graphs:
        counts.add(graph)
    return counts.diversity()


def grouped(pairs: Iterable[tuple[Key, bool]]) -> list[list[bool]]:
    """Grades with the problem they belong to, as one list per problem: what `pass_rate` takes."""
    groups: dict[Key, list[bool]] = {}
    for key, grade in pairs:
        groups.setdefault(key, []).append(grade)
    return list(groups.values())
