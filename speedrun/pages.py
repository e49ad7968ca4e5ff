"""The page of a comparison: accuracies with intervals, paired differences, budgets, curves, designs. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from statistics import fmean, variance

from speedrun.intervals import Interval, Rates, difference, interval
from speedrun.report import pattern
from speedrun.tuning import factor_of
from speedrun.variants import COMPARISONS, GATE
from tasks.data import KINDS
from trainer.evaluate import Attempt, shares
from trainer.run import StepReport
from workflow.usage import PolicyRole

ROLES: tuple[PolicyRole, ...] = ("designer", "executor")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One row of a comparison; each list has an entry per seed."""

    name: str
    sampled: Sequence[Sequence[Attempt]]
    """Attempts at the held-out problems, sampled as in training."""
    greedy: Sequence[Sequence[Attempt]]
    steps: Sequence[Sequence[StepReport]] = ()
    """Of its RL, if it had any."""
    fixed: Mapping[str, Sequence[Sequence[Attempt]]] = field(default_factory=dict)
    """By a program's name, attempts at the validation problems with this system's Executor."""

    def rates(self, kind: str | None = None) -> list[Rates]:
        return rates_of(self.sampled, kind)

    @property
    def accuracy(self) -> Interval:
        return interval(self.rates())


def rates_of(seeds: Sequence[Sequence[Attempt]], kind: str | None = None) -> list[Rates]:
    """Of each seed, the attempts' grades by problem, of one kind or of all."""
    return [{each.problem: float(each.correct) for each in seed if kind in (None, each.task)} for seed in seeds]


def mean_of(seeds: Sequence[Rates]) -> float:
    """NaN where no seed has a problem of this kind."""
    means = [fmean(rates.values()) for rates in seeds if rates]
    return fmean(means) if means else nan


def page_of(
    name: str, systems: Sequence[System], seeds: int, rates: Mapping[str, Mapping[float, float]] | None = None
) -> str:
    """`rates`: of the arms that are tuned, the share of validation problems right at each factor."""
    comparison = COMPARISONS[name]
    lines = [
        f"# {comparison.title}",
        "",
        f"`python -m speedrun.compare {name} --seeds {seeds}`. Each seed has a cold start, problems and samples of its "
        "own. Shares of held-out problems answered correctly; in brackets 95 % intervals of a bootstrap over seeds, "
        f"then over problems. Differences are paired on the same problems; {len(systems) - 1} are shown, and not "
        "corrected for their number.",
        "",
        f"In the paper: {comparison.paper}",
        "",
        *_accuracies(systems),
        "",
        f"![Accuracy]({name}.png)",
        "",
    ]
    if comparison.unequal:
        lines += [f"Not equal beside what is compared: {comparison.unequal}.", ""]
    if name == GATE:
        lines += [*gate(systems)[1], ""]
    lines += [
        *_tuned(rates or {}),
        *_budgets(systems),
        "",
        *_curves(systems),
        "",
        *_designs(systems),
        "",
        *_fixed(systems),
    ]
    return "\n".join(lines).rstrip() + "\n"


def gate(systems: Sequence[System]) -> tuple[bool, list[str]]:
    """Whether the instrument can show anything, with a line for each of its conditions. `systems` are those of
    `COMPARISONS[GATE]`, in that order: before, each role alone, each role alone with shuffled rewards."""
    before, *learning = systems[:3]
    found = []
    for system in learning:
        gained = system.accuracy.apart(before.accuracy) and mean_of(system.rates()) > mean_of(before.rates())
        found.append((gained, f"{system.name}: {system.accuracy}, {before.accuracy} before; above, intervals apart"))
    for system in systems[3:]:
        mean = mean_of(system.rates())
        found.append((mean in before.accuracy, f"{system.name}: {mean:.3f}, within {before.accuracy} of before"))
    best = max((mean_of(rates_of(seeds)) for seeds in before.fixed.values()), default=0.0)
    found.append((0.3 <= best <= 0.5, f"the best fixed program before RL: {best:.3f}, from 0.3 to 0.5"))
    passed = all(holds for holds, _ in found)
    lines = [f"**The gate {'holds' if passed else 'FAILS: no comparison is made'}.**", ""]
    return passed, [*lines, *(f"- {'yes' if holds else 'NO'}: {said}" for holds, said in found)]


def _tuned(rates: Mapping[str, Mapping[float, float]]) -> list[str]:
    """Nothing where no arm is tuned."""
    if not rates:
        return []
    factors = sorted({factor for of in rates.values() for factor in of})
    lines = [
        "The recipe's learning rates are multiplied, for each arm, by what was right most often on the validation "
        "problems of another seed:",
        "",
        f"| | {' | '.join(f'{factor:g}' for factor in factors)} |",
        f"|---|{'---|' * len(factors)}",
    ]
    for name, of in rates.items():
        cells = (f"**{of[f]:.3f}**" if f == factor_of(name, rates) else f"{of[f]:.3f}" for f in factors)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _accuracies(systems: Sequence[System]) -> list[str]:
    first = systems[0]
    lines = [
        f"| | sampled | against {first.name} | seeds | greedy | {' | '.join(KINDS)} |",
        f"|---|---|---|---|---|{'---|' * len(KINDS)}",
    ]
    for system in systems:
        against = "" if system is first else _signed(difference(system.rates(), first.rates()))
        own = ", ".join(f"{fmean(rates.values()):.3f}" for rates in system.rates())
        kinds = " | ".join(f"{mean_of(system.rates(kind)):.2f}" for kind in KINDS)
        greedy = interval(rates_of(system.greedy))
        lines.append(f"| {system.name} | {system.accuracy} | {against} | {own} | {greedy} | {kinds} |")
    return lines


def _signed(found: Interval) -> str:
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _budgets(systems: Sequence[System]) -> list[str]:
    """What each arm spent, per seed in the mean."""
    lines = [
        "What each spent, per seed:",
        "",
        "| | Designer's updates | Executor's updates | designs | executions | tokens generated |",
        "|---|---|---|---|---|---|",
    ]
    for system in systems:
        if not any(system.steps):
            continue
        updates = [fmean(sum(role in step.active for step in steps) for steps in system.steps) for role in ROLES]
        spent = [
            fmean(sum(step.designs for step in steps) for steps in system.steps),
            fmean(sum(step.executions for step in steps) for steps in system.steps),
            fmean(sum(u.completion_tokens for step in steps for u in step.usage.values()) for steps in system.steps),
        ]
        lines.append(f"| {system.name} | {' | '.join(f'{value:,.0f}' for value in [*updates, *spent])} |")
    return lines


def _curves(systems: Sequence[System]) -> list[str]:
    lines = [
        "On training problems, in the first and in the last quarter of the steps. Moving: the last quarter against the "
        "one before it, which is no more than chance where it is within its bounds.",
        "",
        "| | right, first | right, last | moving | valid programs, first | valid programs, last |",
        "|---|---|---|---|---|---|",
    ]
    for system in systems:
        if not any(system.steps):
            continue
        right, ready = (
            [fmean(getattr(step, name) for step in steps) for steps in zip(*system.steps, strict=True)]
            for name in ("correct", "ready")
        )
        quarter = max(len(right) // 4, 1)
        moved, bound = moving(right, quarter)
        shown = [fmean(right[:quarter]), fmean(right[-quarter:])]
        valid = [fmean(ready[:quarter]), fmean(ready[-quarter:])]
        said = f"{moved:+.3f}, {'flat' if abs(moved) <= bound else 'NOT flat'} within {bound:.3f}"
        lines.append(f"| {system.name} | {shown[0]:.3f} | {shown[1]:.3f} | {said} | {valid[0]:.1%} | {valid[1]:.1%} |")
    return lines


def moving(values: Sequence[float], quarter: int) -> tuple[float, float]:
    """How far the mean of the last `quarter` values is from that of those before, and two standard errors of that."""
    before, last = values[-2 * quarter : -quarter] or values[:1], values[-quarter:]
    spread = sum(variance(each) / len(each) for each in (before, last) if len(each) > 1)
    return fmean(last) - fmean(before), 2 * spread**0.5


def _designs(systems: Sequence[System]) -> list[str]:
    by_kind = {
        (system.name, kind): shares(
            pattern(each.graph, each.program) for seed in system.sampled for each in seed if each.task == kind
        )
        for system in systems
        for kind in KINDS
    }
    patterns = sorted({each for found in by_kind.values() for each in found})
    return [
        "Designs by kind of problem, all seeds together:",
        "",
        f"| | kind | {' | '.join(patterns)} |",
        f"|---|---|{'---|' * len(patterns)}",
        *(
            f"| {system} | {kind} | {' | '.join(f'{found.get(each, 0):.0%}' for each in patterns)} |"
            for (system, kind), found in by_kind.items()
        ),
    ]


def _fixed(systems: Sequence[System]) -> list[str]:
    """Each program of the bank as the only one: what there is for a Designer to find, and whether it changes."""
    shown = [system for system in systems if system.fixed]
    if not shown:
        return []
    lines = [
        "With one program for all validation problems; the best of each column is bold:",
        "",
        f"| program | {' | '.join(f'{system.name}: {kind}' for system in shown for kind in ('all', *KINDS))} |",
        f"|---|{'---|' * len(shown) * (1 + len(KINDS))}",
    ]
    names = list(shown[0].fixed)
    columns = [
        [mean_of(rates_of(system.fixed[name], kind)) for name in names] for system in shown for kind in (None, *KINDS)
    ]
    for place, name in enumerate(names):
        cells = [f"**{c[place]:.2f}**" if c[place] == max(c) else f"{c[place]:.2f}" for c in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines
