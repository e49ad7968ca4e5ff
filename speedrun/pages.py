"""The page of a comparison: accuracies with intervals, paired differences, budgets, curves, designs. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from statistics import fmean, variance

from speedrun.intervals import Interval, Rates, beyond_seeds, interval, paired
from speedrun.kept import Result
from speedrun.tuning import factor_of
from speedrun.variants import COMPARISONS, GATE, TURNS, Comparison
from tasks.data import KINDS
from trainer.evaluate import shares
from trainer.run import StepReport
from workflow.usage import PolicyRole

ROLES: tuple[PolicyRole, ...] = ("designer", "executor")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One row of a comparison; each list has an entry per seed."""

    name: str
    sampled: Sequence[Sequence[Result]]
    """Attempts at the held-out problems, sampled as in training."""
    greedy: Sequence[Sequence[Result]]
    steps: Sequence[Sequence[StepReport]] = ()
    """Of its RL, if it had any."""
    fixed: Mapping[str, Sequence[Sequence[Result]]] = field(default_factory=dict)
    """By a program's name, attempts at the validation problems with this system's Executor."""
    codes: frozenset[str] = frozenset()
    """Which versions of the project ran it."""

    def rates(self, kind: str | None = None) -> list[Rates]:
        return rates_of(self.sampled, kind)

    @property
    def accuracy(self) -> Interval:
        return interval(self.rates())


def rates_of(seeds: Sequence[Sequence[Result]], kind: str | None = None) -> list[Rates]:
    """Of each seed, the attempts' grades by problem, of one kind or of all."""
    return [{each.problem: float(each.correct) for each in seed if kind in (None, each.kind)} for seed in seeds]


def mean_of(seeds: Sequence[Rates]) -> float:
    """NaN where no seed has a problem of this kind."""
    means = [fmean(rates.values()) for rates in seeds if rates]
    return fmean(means) if means else nan


HELD = "The gate of the instrument held when this was made; [its verdict](gate.json) is of all seeds so far."
"""Of the gate, on the page of another comparison: seeds may be tried later that say otherwise."""


def page_of(
    name: str,
    systems: Sequence[System],
    command: str,
    rates: Mapping[str, Mapping[float, Rates]] | None = None,
    *,
    file: str = "",
) -> str:
    """`command` makes the page; `rates`: of the arms that are tuned, which validation problems were right at each
    factor; `file`: how its files are called, by default as the comparison is."""
    file = file or name
    comparison = COMPARISONS[name]
    held_out = systems[0].rates()
    versions = len(frozenset().union(*(system.codes for system in systems)))
    distinct = len({problem for rates in held_out for problem in rates})
    lines = [
        f"# {comparison.title}",
        "",
        f"`{command}`. Each seed has a cold start, problems and samples of its own; by chance "
        f"{distinct} of {sum(map(len, held_out))} held-out problems are different ones, if the order of their "
        "numbers counts. Shares of them answered correctly, one attempt each, sampled as in training; greedy: at "
        "temperature 0, on the first half. In brackets 95 % intervals of a bootstrap over seeds, then over problems.",
        "",
        f"In the paper: {comparison.paper}",
        "",
        *_accuracies(systems),
        "",
        f"![Accuracy]({file}.png)",
        "",
        *_differences(comparison, systems),
        "",
    ]
    if comparison.unequal:
        lines += [f"Not equal beside what is compared: {comparison.unequal}.", ""]
    if versions > 1:
        lines += [f"The runs are of {versions} versions of the project's code.", ""]
    if comparison.validity:
        lines += _validity(comparison, systems)
    else:
        lines += [*gate(systems)[1], ""] if name == GATE else [HELD, ""]
    lines += [
        *_tuned(rates or {}),
        *_budgets(systems),
        "",
        *_curves(systems),
        "",
        f"![Valid programs](valid-programs-{file}.png)",
        "",
        *_designs(systems),
        "",
        *_fixed(systems),
    ]
    return "\n".join(lines).rstrip() + "\n"


def gate(systems: Sequence[System]) -> tuple[bool, list[str]]:
    """Whether the instrument can show anything, with a line for each of its conditions; above and below as everywhere
    (`Paired.told`). `systems` are those of
    `COMPARISONS[GATE]`, in that order: before, each role alone, each role alone with shuffled rewards."""
    before, *learning = systems[:3]
    found = []
    for system in learning:
        gap = paired(system.rates(), before.rates())
        gained = system.accuracy.apart(before.accuracy) and gap.told == "above"
        said = f"{system.name}: {system.accuracy}, {before.accuracy} before; intervals apart; paired {gap.shown}, above"
        found.append((gained, said))
    for system in systems[3:]:
        mean, gap = mean_of(system.rates()), paired(system.rates(), before.rates())
        said = f"{system.name}: {mean:.3f}, within {before.accuracy} of before; paired {gap.shown}, not above"
        found.append((mean in before.accuracy and gap.told != "above", said))
    best = max((mean_of(rates_of(seeds)) for seeds in before.fixed.values()), default=0.0)
    found.append((0.3 <= best <= 0.5, f"the best fixed program before RL: {best:.3f}, from 0.3 to 0.5"))
    turned = [_turn(before, learning[0], *turn) for turn in TURNS]
    found.append(
        (
            any(holds for holds, _ in turned),
            "the worse of two programs for a kind of problem is the better one once the Executor has learned, paired: "
            + "; ".join(said for _, said in turned),
        )
    )
    passed = all(holds for holds, _ in found)
    lines = [f"**The gate {'holds' if passed else 'FAILS: no comparison is made'}.**", ""]
    return passed, [*lines, *(f"- {'yes' if holds else 'NO'}: {said}" for holds, said in found)]


def _turn(before: System, after: System, kind: str, first: str, later: str) -> tuple[bool, str]:
    """Whether `first` is above `later` before, and below it after."""
    was, became = (
        paired(rates_of(system.fixed[first], kind), rates_of(system.fixed[later], kind)) for system in (before, after)
    )
    said = f"{kind}, `{first}` less `{later}` {was.shown}, then {became.shown}"
    return was.told == "above" and became.told == "below", said


def _differences(comparison: Comparison, systems: Sequence[System]) -> list[str]:
    """What the comparison is about, seed by seed and problem by problem, and what it would take to tell."""
    by_name = {system.name: system for system in systems}
    lines = [
        f"Differences, paired on the same problems; {len(comparison.pairs)} are looked at, their intervals are not "
        "widened for that. Above or below: the interval says so, and so does a t test over the seeds:",
        "",
        "| | difference | seeds | |",
        "|---|---|---|---|",
    ]
    for one, other in comparison.pairs:
        gap = paired(by_name[one].rates(), by_name[other].rates())
        lines.append(f"| {one} less {other} | {gap.shown} | {gap.seeds} | {gap.told} |")
    return lines


def _validity(comparison: Comparison, systems: Sequence[System]) -> list[str]:
    """How many programs were valid in all steps together, and by how much more than in other arms, seed by seed."""
    valid = {
        system.name: [fmean(step.ready for step in steps) for steps in system.steps]
        for system in systems
        if any(system.steps)
    }
    lines = ["The share of valid programs over all steps, of each seed:", "", "| | mean | seeds |", "|---|---|---|"]
    for name, own in valid.items():
        lines.append(f"| {name} | {fmean(own):.1%} | {', '.join(f'{each:.1%}' for each in own)} |")
    lines += ["", "Differences, in points; above or below where a t test over the seeds says so:", ""]
    lines += ["| | difference | seeds | |", "|---|---|---|---|"]
    for one, other in comparison.pairs:
        gaps = [100 * (mine - theirs) for mine, theirs in zip(valid[one], valid[other], strict=True)]
        told = ("above" if fmean(gaps) > 0 else "below") if beyond_seeds(gaps) else "cannot tell"
        seeds = ", ".join(f"{gap:+.1f}" for gap in gaps)
        lines.append(f"| {one} less {other} | {fmean(gaps):+.1f} | {seeds} | {told} |")
    return [*lines, ""]


def _tuned(rates: Mapping[str, Mapping[float, Rates]]) -> list[str]:
    """Nothing where no arm is tuned."""
    if not rates:
        return []
    return [
        "The recipe's learning rates were tried times these factors, on the validation problems of another seed; one "
        "other than 1 is taken where it is better beyond chance. Other arms have the rates of the one that they vary:",
        "",
        *rates_table(
            {name: {factor: fmean(each.values()) for factor, each in of.items()} for name, of in rates.items()},
            {name: factor_of(name, rates) for name in rates},
        ),
        "",
    ]


def rates_table(rates: Mapping[str, Mapping[float, float]], taken: Mapping[str, float]) -> list[str]:
    """By arm, the share that was right at each factor; that of the one that was taken is bold."""
    factors = sorted({factor for of in rates.values() for factor in of})
    lines = [f"| | {' | '.join(f'{factor:g}' for factor in factors)} |", f"|---|{'---|' * len(factors)}"]
    for name, of in rates.items():
        cells = (f"**{of[factor]:.3f}**" if factor == taken[name] else f"{of[factor]:.3f}" for factor in factors)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _accuracies(systems: Sequence[System]) -> list[str]:
    lines = [f"| | sampled | seeds | greedy | {' | '.join(KINDS)} |", f"|---|---|---|---|{'---|' * len(KINDS)}"]
    for system in systems:
        own = ", ".join(f"{fmean(rates.values()):.3f}" for rates in system.rates())
        kinds = " | ".join(_share(mean_of(system.rates(kind))) for kind in KINDS)
        greedy = interval(rates_of(system.greedy))
        lines.append(f"| {system.name} | {system.accuracy} | {own} | {greedy} | {kinds} |")
    return lines


def _share(value: float) -> str:
    return "" if isnan(value) else f"{value:.2f}"


def _budgets(systems: Sequence[System]) -> list[str]:
    """What each arm spent, per seed in the mean."""
    lines = [
        "What each spent, per seed; left out: executions that a clock ended, and questions too long for the Designer:",
        "",
        "| | Designer's updates | Executor's updates | designs | executions | tokens generated | left out |",
        "|---|---|---|---|---|---|---|",
    ]
    for system in systems:
        if not any(system.steps):
            continue
        updates = [fmean(sum(role in step.active for step in steps) for steps in system.steps) for role in ROLES]
        spent = [
            fmean(sum(step.designs for step in steps) for steps in system.steps),
            fmean(sum(step.executions for step in steps) for steps in system.steps),
            fmean(sum(u.completion_tokens for step in steps for u in step.usage.values()) for steps in system.steps),
            fmean(sum(step.timed_out + step.outgrown for step in steps) for steps in system.steps),
        ]
        lines.append(f"| {system.name} | {' | '.join(f'{value:,.0f}' for value in [*updates, *spent])} |")
    return lines


def _curves(systems: Sequence[System]) -> list[str]:
    lines = [
        "On training problems, in the first and in the last quarter of the steps. Change: the last quarter less that "
        "before it, and two standard errors of that. Beyond them a curve still moves; within them it may. Where stages "
        "alternate the two quarters can be stages of different roles.",
        "",
        "| | right, first | right, last | change | valid programs, first | last | of each seed, in its worst step |",
        "|---|---|---|---|---|---|---|",
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
        said = f"{moved:+.3f} ± {bound:.3f}{', still moves' if abs(moved) > bound else ''}"
        worst = ", ".join(f"{min(step.ready for step in steps):.0%}" for steps in system.steps)
        cells = [f"{shown[0]:.3f}", f"{shown[1]:.3f}", said, f"{valid[0]:.1%}", f"{valid[1]:.1%}", worst]
        lines.append(f"| {system.name} | {' | '.join(cells)} |")
    return lines


def moving(values: Sequence[float], quarter: int) -> tuple[float, float]:
    """How far the mean of the last `quarter` values is from that of those before, and two standard errors of that."""
    before, last = values[-2 * quarter : -quarter] or values[:1], values[-quarter:]
    spread = sum(variance(each) / len(each) for each in (before, last) if len(each) > 1)
    return fmean(last) - fmean(before), 2 * spread**0.5


def _designs(systems: Sequence[System]) -> list[str]:
    by_kind = {
        (system.name, kind): shares(each.pattern for seed in system.sampled for each in seed if each.kind == kind)
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
        "With one program for all problems of the validation set; the best of each column is bold:",
        "",
        f"| program | {' | '.join(f'{system.name}: {kind}' for system in shown for kind in ('all', *KINDS))} |",
        f"|---|{'---|' * len(shown) * (1 + len(KINDS))}",
    ]
    names = list(shown[0].fixed)
    columns = [
        [mean_of(rates_of(system.fixed[name], kind)) for name in names] for system in shown for kind in (None, *KINDS)
    ]
    for place, name in enumerate(names):
        cells = [f"**{c[place]:.2f}**" if c[place] == max(c) else _share(c[place]) for c in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines
