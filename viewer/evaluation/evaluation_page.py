"""The page of one evaluation: accuracy with intervals, structures, cost against accuracy, failures, lengths, diversity.

Every rate and sum is `trainer.evaluate`'s, as `metaagent eval` prints it. Single attempts are in
`viewer.evaluation.attempt_pages`, two evaluations side by side in `viewer.evaluation.changes_page`. Nothing here reads
a file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from trainer.evaluate import PassRate, grouped, pass_rate
from viewer.charts import Rate, Spec, cost_scatter, rate_bars
from viewer.evaluation.attempt_rows import Row
from viewer.evaluation.evaluation_data import Evaluation
from viewer.html import count, figure, percent, render
from viewer.means import mean
from viewer.sites import Page, link

Value = TypeVar("Value")
MOST_GROUPS = 60
"""Tasks and verdicts of a page; the others are counted."""
ALL = "all attempts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the pages of an evaluation are in their site."""

    name: str
    base: str = ""
    """Before each of its routes."""
    links: tuple[tuple[str, str, bool], ...] = ()
    """Of the site's main pages: name, address, and whether it is the page itself."""

    def route(self, page: str, /, **asked: str | int) -> str:
        """Of one of its pages, and what that is asked; fields without a value are left out."""
        query = urlencode({name: value for name, value in asked.items() if value != ""}, errors="replace")
        return self.base + page + ("?" + query if query else "")

    def to(self, page: str, /, **asked: str | int) -> str:
        """The same as an address."""
        return link(self.route(page, **asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Attempts of one kind: how often they are right, and what each took on average."""

    rate: PassRate
    tokens: float
    calls: float
    cost_usd: float | None
    """Over those whose cost is known."""
    seconds: float


def groups_of(rows: Iterable[Row], name: Callable[[Row], str]) -> dict[str, Group]:
    """Attempts by name, the largest group first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return {key: _group(some) for key, some in ordered}


def _group(rows: Sequence[Row]) -> Group:
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    return Group(
        rate=pass_rate(grouped((row.problem, row.correct) for row in rows)),
        tokens=sum(row.tokens for row in rows) / len(rows),
        calls=sum(row.calls for row in rows) / len(rows),
        cost_usd=mean(costs) if costs else None,
        seconds=mean([row.seconds for row in rows]),
    )


def evaluation_page(evaluation: Evaluation, place: Place) -> Page:
    """All that is known of the attempts as a whole."""
    report, rows = evaluation.report, evaluation.rows
    tasks, tasks_left = most(groups_of((row for row in rows if row.task), lambda row: row.task))
    domains = groups_of(rows, lambda row: row.domain)
    structures = groups_of(rows, lambda row: row.structure_name)
    everything = groups_of(rows, lambda row: ALL)
    verdicts, verdicts_left = most(dict(Counter(row.verdict for row in rows if not row.correct).most_common()))
    whole = [_bar("attempts", group, place.route("attempts"), "all") for group in everything.values()]
    by_task = [_bar(name, group, place.route("attempts", task=name)) for name, group in tasks.items()]
    by_domain = [_bar(name, group, place.route("attempts", domain=name), "domain") for name, group in domains.items()]
    by_structure = [_bar(name, group, place.route("attempts", structure=name)) for name, group in structures.items()]
    body = render(
        "evaluation.html",
        place=place,
        evaluation=evaluation,
        report=report,
        tables=[
            (f"By {kind}", kind, groups) for kind, groups in (("task", tasks), ("domain", domains)) if len(groups) > 1
        ],
        tasks_left=tasks_left,
        structures=structures,
        everything=everything.get(ALL),
        several=report.attempts > report.problems,
        accuracy_chart=rate_bars(
            [*whole, *by_task, *(by_domain if len(domains) > 1 else [])], "right (95 % intervals)"
        ),
        structure_chart=rate_bars(by_structure, "right (95 % intervals)"),
        cost_charts=_cost_charts([(kind, each) for kind, each in (("structure", structures), ("task", tasks)) if each]),
        costs=report.usage.usage.cost_usd is not None,
        verdicts=verdicts,
        verdicts_left=verdicts_left,
        wrong=sum(not row.correct for row in rows),
        settings=settings(evaluation.made_by),
    )
    return Page(title=f"{place.name}: evaluation", body=body)


def settings(made_by: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """What `evaluation.json` says, as names and texts; what stands in a part of it as `part.name`."""
    found: dict[str, str] = {}
    for name, value in made_by.items():
        if isinstance(value, dict) and value and prefix.count(".") < 3:
            found |= settings(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return found


def rate_told(name: str, rate: PassRate) -> str:
    """In one line, with its interval."""
    return (
        f"{name}: {percent(rate.estimate)} ({percent(rate.low)} to {percent(rate.high)}), "
        f"{count(rate.attempts)} attempts at {count(rate.problems)} problems"
    )


def most(found: dict[str, Value]) -> tuple[dict[str, Value], int]:
    """The first `MOST_GROUPS`, and how many more there are."""
    return dict(list(found.items())[:MOST_GROUPS]), max(len(found) - MOST_GROUPS, 0)


def _bar(name: str, group: Group, route: str, kind: str = "") -> Rate:
    rate = group.rate
    told = rate_told(f"{kind} {name}" if kind else name, rate)
    return Rate(name=name, kind=kind, value=rate.estimate, low=rate.low, high=rate.high, told=told, route=route)


def _cost_charts(named: Sequence[tuple[str, Mapping[str, Group]]]) -> list[Spec]:
    """Tokens, agent calls and, where it is known, money against accuracy: a chart of structures, and one of tasks."""
    costs: list[tuple[str, Callable[[Group], float | None]]] = [
        ("tokens", lambda group: group.tokens),
        ("agent calls", lambda group: group.calls),
        ("dollars", lambda group: group.cost_usd),
    ]
    charts = []
    for title, cost in costs:
        for kind, groups in named:
            points = [
                Rate(
                    name=name,
                    cost=taken,
                    value=group.rate.estimate,
                    low=group.rate.low,
                    high=group.rate.high,
                    told=f"{rate_told(name, group.rate)}; {figure(taken)} {title}",
                    group=kind,
                )
                for name, group in groups.items()
                if (taken := cost(group)) is not None
            ]
            if points:
                charts.append(cost_scatter(points, f"{title} per attempt", f"right, by {kind}"))
    return charts
