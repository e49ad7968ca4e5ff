"""The page of a comparison of MASPRM: EM with intervals, calls, values, tokens, paired differences beside the paper's.

Runs nothing. What people write under `READING` stays when a page is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from speedrun.intervals import Paired, Rates, interval, paired
from speedrun.masprm.guided_arms import COMPARISONS, VALUES, WALL, SearchComparison
from speedrun.masprm.search_runs import Job, KeptRun, Searched
from speedrun.masprm.value_pages import models_table, values_page, wall_page
from viewer.charts import Dot, dots, png, scatter

READING = "## Reading"
TESTED = {"GSM8K": 1319, "MATH": 2000}
"""Problems of the paper's test sets."""
Found = Mapping[Job, KeptRun]
SEEDS = (
    "Each seed has a cold start, problems, labels and models of values of its own; all arms of a seed draw the same "
    "first replies. In brackets 95 % intervals of a bootstrap over seeds, then over problems."
)


def write_page(name: str, found: Found, command: str, folder: Path) -> Path:
    """The page, and its pictures beside it."""
    page = folder / f"{name}.md"
    if name == VALUES:
        body = values_page(found, folder)
    elif name == WALL:
        body = wall_page(found)
    else:
        body = _arms_page(name, COMPARISONS[name], found, folder)
    title, *lines = body
    text = "\n".join([f"# {title}", "", f"`{command}`. {SEEDS}", "", *lines]).rstrip() + "\n"
    written = page.read_text(encoding="utf-8").partition(READING) if page.exists() else ("", "", "")
    page.write_text(text + f"\n{written[1]}{written[2]}" * bool(written[1]), encoding="utf-8")
    return page


def runs_of(found: Found, arm: str, play: str) -> list[KeptRun]:
    """A run for each seed."""
    return [run for job, run in found.items() if (job.task, job.name, job.play) == ("arm", arm, play)]


def solved(runs: Iterable[KeptRun]) -> list[Rates]:
    return [{each.problem: float(each.correct) for each in run.searched} for run in runs]


def _arms_page(name: str, comparison: SearchComparison, found: Found, folder: Path) -> list[str]:
    lines = [comparison.title, "EM is the share of held-out problems answered rightly; AC, MC and tokens are the mean "]
    lines[-1] += "calls of agents, states that V or Y scored, and generated tokens of a problem; read are the tokens "
    lines[-1] += "that V and Y read."
    lines += ["", comparison.note] if comparison.note else []
    for play, arms in comparison.plays.items():
        picture = f"{name}-{play}.png" if len(comparison.plays) > 1 else f"{name}.png"
        _picture(name, play, arms, found, folder / picture)
        lines += ["", f"## {play}", ""] if len(comparison.plays) > 1 else [""]
        lines += [*_table(comparison, play, arms, found), "", f"![EM]({picture})", ""]
        lines += _differences(comparison, play, found)
    return [*lines, "", *_starts(found), "", *models_table(found)]


def _table(comparison: SearchComparison, play: str, arms: Sequence[str], found: Found) -> list[str]:
    sets = comparison.paper
    lines = [
        f"| | EM | seeds | AC | MC | tokens | read | {''.join(f'{each} | ' for each in sets)}".rstrip(),
        f"|---|---|---|---|---|---|---|{'---|' * len(sets)}",
    ]
    for arm in arms:
        runs = runs_of(found, arm, play)
        rates = solved(runs)
        cells = [str(interval(rates)), ", ".join(f"{fmean(of.values()):.3f}" for of in rates)]
        cells += [f"{mean(runs, lambda each: each.calls):.1f}", f"{mean(runs, lambda each: each.scored):.1f}"]
        cells += [f"{mean(runs, lambda each: each.generated):,.0f}", f"{mean(runs, lambda each: each.read):,.0f}"]
        cells += [f"{of[arm]:.1f}" if arm in of else "" for of in sets.values()]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return lines


def mean(runs: Sequence[KeptRun], value: Callable[[Searched], float]) -> float:
    return fmean(fmean(value(each) for each in run.searched) for run in runs)


def _differences(comparison: SearchComparison, play: str, found: Found) -> list[str]:
    sets = ", ".join(f"{name} {TESTED[name]:,}" for name in comparison.paper)
    reported = (
        f" The paper's are in points, with 1.96 standard errors of two shares of its test problems ({sets}), as if "
        "these were not the same ones; it gives none of its own."
    )
    lines = [
        f"Differences, paired on the same problems; {len(comparison.pairs)} are looked at, their intervals are not "
        f"widened for that.{reported if sets else ''}",
        "",
        f"| | EM | seeds | | {''.join(f'{each} | ' for each in comparison.paper)}".rstrip(),
        f"|---|---|---|---|{'---|' * len(comparison.paper)}",
    ]
    for one, other in comparison.pairs:
        gap = paired(*(solved(runs_of(found, arm, play)) for arm in (one, other)))
        cells = [gap.shown, gap.seeds, gap.told]
        cells += [_beside(gap, one, other, of, TESTED[data]) for data, of in comparison.paper.items()]
        lines.append(f"| {one} less {other} | {' | '.join(cells)} |")
    return lines


def _beside(gap: Paired, one: str, other: str, reported: Mapping[str, float], tested: int) -> str:
    """The paper's difference with its error, and whether the miniature agrees; nothing where it has none."""
    if one not in reported or other not in reported:
        return ""
    points = reported[one] - reported[other]
    spread = sum(reported[arm] * (100 - reported[arm]) for arm in (one, other))
    error = 1.96 * (spread / tested) ** 0.5
    if abs(points) <= error:
        agrees = "within its error"
    elif gap.told not in ("above", "below"):
        agrees = "cannot tell"
    else:
        agrees = "agrees" if gap.found.mean * points > 0 else "**not so here**"
    return f"{points:+.1f} ± {error:.1f}: {agrees}"


def _picture(name: str, play: str, arms: Sequence[str], found: Found, path: Path) -> None:
    if name == "frontier":
        placed = []
        for arm in arms:
            runs = runs_of(found, arm, play)
            em = interval(solved(runs))
            x = mean(runs, lambda each: each.generated)
            placed.append(Dot(name=arm, x=x, y=em.mean, low=em.low, high=em.high))
        png(scatter(placed, x_title="generated tokens of a problem", y_title="EM", log=True, height=420), path)
    else:
        of = {arm: [fmean(rates.values()) for rates in solved(runs_of(found, arm, play))] for arm in arms}
        png(dots(of, title=play, value_title="EM (dots: seeds, line: mean)"), path)


def _starts(found: Found) -> list[str]:
    """What the policies that are searched do by themselves."""
    starts = [run for job, run in found.items() if job.task == "start"]
    names = dict.fromkeys(name for run in starts for name in run.figures)
    lines = [
        "The policies by themselves, on validation problems: shares of passes that end right, and of the relay's "
        "steps, among those that begin right:",
        "",
        "| | seeds |",
        "|---|---|",
    ]
    for name in names:
        values = ", ".join(f"{run.figures[name]:.3f}" for run in starts if name in run.figures)
        lines.append(f"| {name} | {values} |")
    return lines
