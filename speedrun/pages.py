"""The page of a comparison: accuracies with intervals, paired differences, the gate, designs. Runs nothing; what RL is
like as it goes on is in `speedrun.page_curves`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from statistics import fmean

from speedrun.intervals import Paired, Rates, gaps, interval, over_sets, paired
from speedrun.page_curves import budgets, curves, spoilt, validity
from speedrun.systems import System, mean_of, rates_of
from speedrun.tuning import factor_of
from speedrun.variants import ARMS, COMPARISONS, GATE, TURNS, Comparison
from tasks.data import KINDS
from trainer.evaluate import shares
from trainer.run import StepReport

HELD = "The gate of the instrument held when this was made; [its verdict](gate.json) is of all seeds so far."
"""Of the gate, on the page of another comparison: seeds may be tried later that say otherwise."""


def page_of(
    name: str,
    systems: Sequence[System],
    command: str,
    rates: Mapping[str, Mapping[float, Rates]] | None = None,
    *,
    file: str = "",
    sets: Mapping[str, str] | None = None,
    control: Sequence[Sequence[StepReport]] = (),
) -> str:
    """`command` makes the page; `rates`: of the arms that are tuned, which validation problems were right at each
    factor; `file`: how its files are called, by default as the comparison is; `sets`: which problems are alike
    (`speedrun.number_sets`); `control`: see `curves`."""
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
        "numbers counts. Shares of them answered correctly, one attempt each, sampled as in training; greedy, and in "
        "parentheses: at temperature 0, on the first half. In brackets 95 % intervals of a bootstrap over seeds, then "
        "over problems.",
        "",
        f"In the paper: {comparison.paper}",
        "",
        *_accuracies(systems),
        "",
        f"![Accuracy]({file}.png)",
        "",
        *_differences(comparison, systems, sets or {}),
        "",
    ]
    if comparison.unequal:
        lines += [f"Not equal beside what is compared: {comparison.unequal}.", ""]
    if versions > 1:
        lines += [f"The runs are of {versions} versions of the project's code.", ""]
    if comparison.validity:
        lines += validity(comparison, systems)
    else:
        lines += [*gate(systems, sets)[1], ""] if name == GATE else [HELD, ""]
    lines += [
        *_tuned(rates or {}),
        *budgets(systems),
        "",
        *curves(systems, control),
        "",
        *spoilt(systems, _began(comparison, systems)),
        "",
        f"![Valid programs](valid-programs-{file}.png)",
        "",
        *_designs(systems),
        "",
        *_fixed(systems),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _began(comparison: Comparison, systems: Sequence[System]) -> dict[str, System]:
    """Of each arm the row that it began from, where the page has it."""
    rows = dict(zip(comparison.systems.values(), systems, strict=True))
    return {
        system.name: rows[ARMS[arm].start] for arm, system in rows.items() if arm in ARMS and ARMS[arm].start in rows
    }


def gate(systems: Sequence[System], sets: Mapping[str, str] | None = None) -> tuple[bool, list[str]]:
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
    turns = [[_turn(system, *turn) for system in (before, learning[0])] for turn in TURNS]
    said = "; ".join(
        f"{_named(turn)} {was.shown}, then {became.shown}" for turn, (was, became) in zip(TURNS, turns, strict=True)
    )
    found.append(
        (
            any(was.told == "above" and became.told == "below" for was, became in turns),
            f"the worse of two programs for a kind of problem is the better one once the Executor has learned, paired: "
            f"{said}",
        )
    )
    passed = all(holds for holds, _ in found)
    lines = [f"**The gate {'holds' if passed else 'FAILS: no comparison is made'}.**", ""]
    lines += [f"- {'yes' if holds else 'NO'}: {said}" for holds, said in found]
    if sets:
        both = [[over_sets(_turned(system, *turn), sets) for system in (before, learning[0])] for turn in TURNS]
        drawn = "; ".join(f"{turn[0]} {was}, then {became}" for turn, (was, became) in zip(TURNS, both, strict=True))
        lines += ["", f"The last one with sets of numbers drawn in place of problems, which decides nothing: {drawn}."]
    return passed, lines


def _turned(system: System, kind: str, first: str, later: str) -> list[Rates]:
    """How much better `first` is than `later`, problem by problem."""
    return gaps(rates_of(system.fixed[first], kind), rates_of(system.fixed[later], kind))


def _turn(system: System, kind: str, first: str, later: str) -> Paired:
    return paired(rates_of(system.fixed[first], kind), rates_of(system.fixed[later], kind))


def _named(turn: tuple[str, str, str]) -> str:
    return "{}, `{}` less `{}`".format(*turn)


def _differences(comparison: Comparison, systems: Sequence[System], sets: Mapping[str, str]) -> list[str]:
    """What the comparison is about, seed by seed and problem by problem, and what it would take to tell."""
    by_name = {system.name: system for system in systems}
    lines = [
        f"Differences, paired on the same problems; {len(comparison.pairs)} are looked at, their intervals are not "
        "widened for that. Above or below: the interval says so, and so does a t test over the seeds. Problems of the "
        "same numbers in another order are alike, in whichever seed: over sets is the interval with sets of numbers "
        "drawn in place of problems:",
        "",
        "| | difference | seeds | | over sets |",
        "|---|---|---|---|---|",
    ]
    for one, other in comparison.pairs:
        gap = paired(by_name[one].rates(), by_name[other].rates())
        drawn = over_sets(gaps(by_name[one].rates(), by_name[other].rates()), sets)
        cells = [gap.shown, gap.seeds, gap.told, f"[{drawn.low:+.3f}, {drawn.high:+.3f}]"]
        lines.append(f"| {one} less {other} | {' | '.join(cells)} |")
    return lines


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
        kinds = " | ".join(_both(mean_of(system.rates(kind)), mean_of(rates_of(system.greedy, kind))) for kind in KINDS)
        greedy = interval(rates_of(system.greedy))
        lines.append(f"| {system.name} | {system.accuracy} | {own} | {greedy} | {kinds} |")
    return lines


def _both(sampled: float, greedy: float) -> str:
    return f"{_share(sampled)} ({_share(greedy)})" if not isnan(greedy) else _share(sampled)


def _share(value: float) -> str:
    return "" if isnan(value) else f"{value:.2f}"


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
    known = [turn for turn in TURNS if {turn[1], turn[2]} <= set(names)]
    lines += ["", "What stages are for is that these two change as the Executor learns:", ""] if known else []
    for system in shown:
        said = (f"{_named(turn)} {_turn(system, *turn).shown}, {_turn(system, *turn).told}" for turn in known)
        lines += [f"- {system.name}: {'; '.join(said)}"] if known else []
    return lines
