"""The page of a comparison of AT-GRPO: levels solved with intervals, paired differences, budgets, curves. Runs
nothing."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from statistics import fmean

from speedrun.at_grpo import start_gate
from speedrun.at_grpo.kept_runs import KeptRun
from speedrun.at_grpo.levels import GAMES, GameName
from speedrun.at_grpo.matchups import (
    ARMS,
    COMPARISONS,
    DETOURS,
    DIRECT,
    FACTORS,
    GREEDY,
    NO_TREE,
    SAMPLED,
    Comparison,
)
from speedrun.at_grpo.playing_runs import WATCHED_LEVELS
from speedrun.intervals import Rates, interval, paired
from speedrun.page_curves import moving
from speedrun.pages import rates_table
from trainer.run import StepReport
from viewer.charts import Series, Spec, Steps, beside, dots, png
from viewer.charts import lines as charted

SETS = {SAMPLED: "sampled", GREEDY: "greedy", DETOURS: "where distance misleads", DIRECT: "as far, without detours"}
LEAST = 4
"""Points of a curve, to say whether it moves."""


@dataclass(frozen=True, slots=True)
class System:
    """One row; a run for each seed."""

    name: str
    runs: Sequence[KeptRun]

    def rates(self, levels: str) -> list[Rates]:
        return [{each.problem: float(each.solved) for each in run.played[levels]} for run in self.runs]

    @property
    def turns(self) -> float | None:
        """Of sampled attempts that solved their level."""
        found = [each.turns for run in self.runs for each in run.played[SAMPLED] if each.solved]
        return fmean(found) if found else None

    @property
    def learned(self) -> bool:
        return any(run.steps for run in self.runs)

    @property
    def parts(self) -> bool:
        """Whether its RL goes on with one of K replies, so that what it solves there is no measure of the policy."""
        return not {*NO_TREE, 'rollout.branching="none"'} & {*ARMS[self.name].overrides}

    @property
    def of_decisions(self) -> bool:
        """Whether rewards are compared within a decision, not within a question."""
        return not {*NO_TREE} <= {*ARMS[self.name].overrides}

    @property
    def watched(self) -> list[int]:
        """The steps after which the checkpoints of all seeds were looked at."""
        steps = [{report.step for report in run.watched} for run in self.runs]
        return sorted(set.intersection(*steps)) if steps else []

    def curve(self, value: Callable[[StepReport], float | None]) -> list[float]:
        """The mean over the seeds that have the value, at each step that all seeds made; NaN where none has."""
        return _means(value, [run.steps for run in self.runs])

    def seen(self, value: Callable[[StepReport], float | None]) -> list[float]:
        """The same at the `watched` steps."""
        steps = self.watched
        return _means(value, [[report for report in run.watched if report.step in steps] for run in self.runs])


def _means(value: Callable[[StepReport], float | None], runs: Sequence[Sequence[StepReport]]) -> list[float]:
    steps = ([value(step) for step in steps] for steps in zip(*runs, strict=False))
    known = ([each for each in values if each is not None] for values in steps)
    return [fmean(values) if values else nan for values in known]


@dataclass(frozen=True, slots=True)
class Shown:
    """One game of a comparison. `rates`: by arm that was tuned, which validation levels were solved at each factor;
    `factors`: which were taken; `before`: what starts solve, by the number of agents."""

    game: GameName
    systems: Sequence[System]
    rates: Mapping[str, Mapping[float, Rates]]
    factors: Mapping[str, float]
    before: start_gate.Solved = field(default_factory=dict)


def write_page(name: str, shown: Sequence[Shown], command: str, folder: Path) -> Path:
    """The page, and its pictures beside it."""
    comparison = COMPARISONS[name]
    lines = [
        f"# {comparison.title}",
        "",
        f"`{command}`. Each seed has a cold start, levels and samples of its own. Shares of held-out levels that are "
        "solved, one attempt each, sampled as in training; greedy: at temperature 0. In brackets 95 % intervals of a "
        "bootstrap over seeds, then over levels.",
        "",
        f"In the paper: {comparison.paper}",
    ]
    for each in shown:
        picture = f"{name}-{each.game}.png".replace("_", "-")
        levels = SAMPLED if SAMPLED in comparison.sets else comparison.sets[0]
        solved = {system.name: [fmean(of.values()) for of in system.rates(levels)] for system in each.systems}
        about = f"share of held-out levels solved, {SETS[levels]} (dots: seeds, line: mean)"
        png(dots(solved, title=GAMES[each.game].title, value_title=about), folder / picture)
        lines += ["", f"## {GAMES[each.game].title}", "", *_solved(each.systems), "", f"![Levels solved]({picture})"]
        lines += ["", *_differences(comparison, each.systems)]
        lines += ["", *start_gate.table(each.before)] if each.before else []
        if any(system.learned for system in each.systems):
            lines += ["", *budgets(each.systems)]
            moves = _curves(each.systems)
            lines += ["", *moves] if moves else []
        if each.rates:
            lines += ["", *tuned(each)]
        if name == "curves":
            lines += ["", *_agents(each, folder)]
    lines += ["", comparison.about]
    if comparison.unequal:
        lines += ["", f"Not equal beside what is compared: {comparison.unequal}."]
    versions = len({run.code for each in shown for system in each.systems for run in system.runs})
    if versions > 1:
        lines += ["", f"The runs are of {versions} versions of the project's code."]
    page = folder / f"{name}.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def _solved(systems: Sequence[System]) -> list[str]:
    others = [name for name in (DETOURS, DIRECT) if all(name in run.played for each in systems for run in each.runs)]
    lines = [
        f"| {' | '.join(['', 'sampled', 'seeds', 'greedy', 'turns to solve', *map(SETS.__getitem__, others)])} |",
        "|---|---|---|---|---|" + "---|" * len(others),
    ]
    for system in systems:
        own = ", ".join(f"{fmean(of.values()):.3f}" for of in system.rates(SAMPLED))
        turns = "" if system.turns is None else f"{system.turns:.2f}"
        cells = [interval(system.rates(SAMPLED)), own, interval(system.rates(GREEDY)), turns]
        cells += [interval(system.rates(name)) for name in others]
        lines.append(f"| {system.name} | {' | '.join(map(str, cells))} |")
    return lines


def _differences(comparison: Comparison, systems: Sequence[System]) -> list[str]:
    by_name = {system.name: system for system in systems}
    lines = [
        f"Differences, paired on the same levels; {len(comparison.pairs)} are looked at, their intervals are not "
        "widened for that:",
        "",
        f"| | {SETS[comparison.sets[0]]} | seeds | | {SETS[comparison.sets[1]]} | |",
        "|---|---|---|---|---|---|",
    ]
    for one, other in comparison.pairs:
        cells = []
        for levels in comparison.sets:
            gap = paired(by_name[one].rates(levels), by_name[other].rates(levels))
            cells += [gap.shown, gap.seeds, gap.told]
        del cells[4]
        lines.append(f"| {one} less {other} | {' | '.join(cells)} |")
    return lines


def budgets(systems: Sequence[System]) -> list[str]:
    lines = [
        "What each spent on RL, per seed; training ends with a budget of generated tokens. Rewards are compared "
        "within a question, or within a decision: the replies to one call, or (no tree) those of one agent at one "
        "turn of a question. Groups without variance teach nothing:",
        "",
        "| | steps | levels | replies learned from | tokens generated | questions without variance "
        "| decisions without variance |",
        "|---|---|---|---|---|---|---|",
    ]
    tokens: dict[str, float] = {}
    for system in systems:
        if system.learned:
            count = len(system.runs)
            steps = [step for run in system.runs for step in run.steps]
            spent = [
                len(steps) / count,
                sum(step.questions for step in steps) / count,
                sum(step.lengths["executor"].count for step in steps if "executor" in step.lengths) / count,
                sum(use.completion_tokens for step in steps for use in step.usage.values()) / count,
            ]
            silent = fmean(each for step in steps for each in _silent(step))
            silents = ["", f"{silent:.1%}"] if system.of_decisions else [f"{silent:.1%}", ""]
            lines.append(f"| {system.name} | {' | '.join([*(f'{value:,.0f}' for value in spent), *silents])} |")
            tokens[system.name] = spent[-1] / ARMS[system.name].share
    most, least = max(tokens, key=tokens.__getitem__), min(tokens, key=tokens.__getitem__)
    if tokens[most] > 1.05 * tokens[least]:
        share = "" if all(ARMS[name].share == 1 for name in tokens) else ", each measured by its part of the budget"
        lines += ["", f"{most} generated {tokens[most] / tokens[least]:.2f} times the tokens of {least}{share}."]
    return lines


def _silent(step: StepReport) -> list[float]:
    """Of each agent, or, where whole runs are rewarded, of all."""
    return [each.silent for each in step.agents.values()] or list(step.silent.values())


def _curves(systems: Sequence[System]) -> list[str]:
    """Those of arms that part are of their checkpoints, and left out where these were not looked at."""
    lines = [
        "In the first and in the last quarter of the steps: on training levels; of arms that go on with one of K "
        f"replies, checkpoints on {WATCHED_LEVELS} validation levels, one reply at a time. Change: the last quarter "
        "less that before it, and two standard errors of that. Beyond them a curve still moves; within them it may.",
        "",
        "| | solved, first | solved, last | change |",
        "|---|---|---|---|",
    ]
    for system in systems:
        solved = (system.seen if system.parts else system.curve)(lambda step: step.correct)
        if system.learned and len(solved) >= LEAST:
            quarter = max(len(solved) // 4, 2)
            moved, bound = moving(solved, quarter)
            said = f"{moved:+.3f} ± {bound:.3f}{', still moves' if abs(moved) > bound else ''}"
            lines.append(f"| {system.name} | {fmean(solved[:quarter]):.3f} | {fmean(solved[-quarter:]):.3f} | {said} |")
    return lines if len(lines) > 4 else []


def tuned(shown: Shown) -> list[str]:
    shares = {name: {factor: fmean(each.values()) for factor, each in of.items()} for name, of in shown.rates.items()}
    lines = [
        "The recipe's learning rate was tried times these factors, on the validation levels of another seed; one other "
        "than 1 is taken where it is better beyond chance. Other arms have the rate of the one that they vary:",
        "",
        *rates_table(shares, shown.factors),
    ]
    edges = {min(FACTORS): "lower", max(FACTORS): "higher"}
    ends = [
        f"{name} takes {factor:g}, the last one that was tried: {edges[factor]} ones may be better."
        for name, factor in shown.factors.items()
        if factor in edges
    ]
    return [*lines, "", *ends] if ends else lines


def _agents(shown: Shown, folder: Path) -> list[str]:
    """Levels solved, each agent's reward and the turns to solve, over the steps."""
    found = [
        f"Each checkpoint, and step 0, on the same {WATCHED_LEVELS} validation levels, one reply at a time, in the "
        "mean over the seeds. Rewards are those of turns.",
        "",
    ]
    for system in shown.systems:
        agents = sorted({agent for run in system.runs for step in run.watched for agent in step.agents})
        rewards = {
            agent: system.seen(lambda step, agent=agent: step.agents[agent].reward if agent in step.agents else None)
            for agent in agents
        }
        steps = Steps(spans=[(step, step) for step in system.watched])
        panels = [
            _over(steps, "share solved", {"levels solved": system.seen(lambda step: step.correct)}),
            _over(steps, "reward of a turn", rewards),
            _over(steps, "turns", {"turns to solve": system.seen(lambda step: step.turns_to_solve)}),
        ]
        picture = f"curves-{shown.game}-{'apart' if ARMS[system.name].apart else 'shared'}.png".replace("_", "-")
        png(beside(panels, system.name), folder / picture)
        found += [f"![{system.name}: levels solved, rewards and turns]({picture})", ""]
    return found[:-1]


def _over(steps: Steps, name: str, series: Mapping[str, Sequence[float]]) -> Spec:
    return charted(steps, [Series(name=line, values=values) for line, values in series.items()], value_title=name)
