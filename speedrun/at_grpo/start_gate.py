"""Whether a game's starts leave something to learn, and something to learn from: what teams solve before RL, on
validation levels. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from speedrun.at_grpo.kept_runs import KeptRun
from speedrun.at_grpo.levels import GameName
from speedrun.at_grpo.playing_runs import team

LOW, HIGH = 0.3, 0.5
GATED = {1: "single agent", 2: "MAS"}
"""By the number of agents; larger teams are shown, and not asked to be within."""
Solved = Mapping[int, Sequence[float]]
"""By the number of agents, the share that each seed's start solves."""


def solved_before(starts: Sequence[KeptRun], agents: Iterable[int]) -> dict[int, list[float]]:
    return {
        count: [fmean(each.solved for each in start.played[team(count)]) for start in starts]
        for count in sorted({*GATED, *agents})
    }


def check(game: GameName, found: Solved) -> None:
    """Raises ValueError where the mean over the seeds is not from `LOW` to `HIGH`."""
    wrong = []
    for count, name in GATED.items():
        if not LOW <= (mean := fmean(found[count])) <= HIGH:
            what = "raise" if mean > HIGH else "lower"
            wrong.append(
                f"{game}, {name} ({count} of its agents): {mean:.3f} of the validation levels are solved before RL, "
                f"not {LOW} to {HIGH}. Fix: {what} the teacher's chances of a mistake, GAMES[{game!r}].chances in "
                "speedrun/at_grpo/levels.py"
            )
    if wrong:
        raise ValueError("\n".join(wrong))


def table(found: Solved) -> list[str]:
    lines = [
        f"Before RL each seed's start solves of its validation levels, sampled ({' and '.join(GATED.values())} have to "
        f"solve {LOW} to {HIGH} in the mean, or no page is made):",
        "",
        "| agents | solved | seeds |",
        "|---|---|---|",
    ]
    for count, shares in found.items():
        lines.append(f"| {count} | {fmean(shares):.3f} | {', '.join(f'{share:.3f}' for share in shares)} |")
    return lines
