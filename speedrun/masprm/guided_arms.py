"""What the comparisons of MASPRM search with: programs, models of values, arms, and what each page needs and the paper
says.

Only names and settings; `speedrun.masprm.search_runs` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from search.problem import SearchSettings
from speedrun.masprm.chains import AGENTS, KINDS, Kind, relay_program
from templates import load_templates
from trainer.values import View
from workflow.limits import Limits

LIMITS = Limits(agent_calls=32, tokens=16_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A program and the problems that it is asked."""

    problems: Kind
    program: str
    taught: str
    """Whose cold start its policy had: `relay` or `bank`."""
    max_tokens: int
    """Of a reply."""
    jailed: bool
    """Whether it runs in the sandbox, as code of agents does; else it is this process's own workflow."""


BANK = {"ensemble": "math_ensemble_judge", "reflection": "math_solver_critic", "tool": "math_program_of_thought"}
"""Templates that the relay is not."""


def _bank() -> Mapping[str, Play]:
    programs = {template.name: template.program for template in load_templates()}
    return {
        name: Play(problems="sum", program=programs[of], taught="bank", max_tokens=96, jailed=name == "tool")
        for name, of in BANK.items()
    }


PLAYS: Mapping[str, Play] = {
    **{
        kind: Play(problems=kind, program=relay_program(AGENTS[kind]), taught="relay", max_tokens=24, jailed=False)
        for kind in KINDS
    },
    **_bank(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of values: what it learned from, and how it reads."""

    play: str = "sum"
    simulations: int = 40
    view: View = "local"
    weigh_visits: bool = False

    @property
    def like(self) -> View:
        """Whose rows say for how many steps it learns: ends of runs are fewer than states."""
        return "local" if self.view == "outcome" else self.view

    @property
    def labels(self) -> str:
        """The trees' name."""
        return f"{self.play}, N = {self.simulations}"


MODELS: Mapping[str, Model] = {
    "V": Model(),
    "Y": Model(view="outcome"),
    "V, N = 10": Model(simulations=10),
    "V, N = 160": Model(simulations=160),
    "V, transcript": Model(view="transcript"),
    "V, by visits": Model(weigh_visits=True),
    **{f"V of {play}": Model(play=play) for play in PLAYS if play != "sum"},
}
SHARED = ("V", "Y")
"""What arms of several comparisons are guided by: kept in the repository."""
OWN, PERFECT, GRADER = "own", "perfect", "grader"
"""In place of a model's name: that of the program itself; the relay, which knows whether a step was right; the grader,
which knows ends alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    search: SearchSettings
    prm: str | None = None
    """Of `MODELS`, or one of the three above."""
    orm: str | None = None

    def models(self, play: str) -> list[str]:
        """That have to be trained for it."""
        named = [model_of(name, play) for name in (self.prm, self.orm) if name is not None]
        return [name for name in named if name in MODELS]


def model_of(name: str, play: str) -> str:
    return ("V" if play == "sum" else f"V of {play}") if name == OWN else name


def _beam(beam: int, samples: int, prm: str | None) -> Arm:
    return Arm(search=SearchSettings(method="beam", beam=beam, samples=samples), prm=prm)


def _mcts(prm: str | None, simulations: int = 20, **more: float) -> Arm:
    return Arm(search=SearchSettings(method="mcts", simulations=simulations, **more), prm=prm)  # pyright: ignore[reportArgumentType]


def _majority(runs: int) -> Arm:
    return Arm(search=SearchSettings(method="majority", samples=runs))


MIX = 0.5
"""lambda where V and Y are mixed; the paper does not say its own."""
RUNS, WIDTHS, SIMULATIONS = (1, 3, 10, 20), ((1, 3), (3, 10)), (5, 10, 40)
"""Of the frontier, beside what the tables have."""
ARMS: Mapping[str, Arm] = {
    "greedy": Arm(search=SearchSettings(method="greedy")),
    "majority 5": _majority(5),
    "beam 1/5, psi": _beam(1, 5, None),
    "beam 1/5, V": _beam(1, 5, "V"),
    "beam 3/5, V": _beam(3, 5, "V"),
    "MCTS, psi": _mcts(None),
    "MCTS, V": _mcts("V"),
    "MCTS of 5 children, V": _mcts("V", children=5),
    "MCTS, grader": _mcts(GRADER),
    "beam 1/5, perfect V": _beam(1, 5, PERFECT),
    "beam 3/5, perfect V": _beam(3, 5, PERFECT),
    "MCTS, perfect V": _mcts(PERFECT),
    "MCTS, Y": Arm(search=SearchSettings(method="mcts", mix=1.0), orm="Y"),
    "MCTS, V and Y": Arm(search=SearchSettings(method="mcts", mix=MIX), prm="V", orm="Y"),
    "majority 5, weighted by V": Arm(search=SearchSettings(method="majority", samples=5, weights="values"), prm="V"),
    "best of 5 by Y": Arm(search=SearchSettings(method="majority", samples=5, weights="outcome"), orm="Y"),
    "beam 1/5, own V": _beam(1, 5, OWN),
    "beam 3/5, own V": _beam(3, 5, OWN),
    "MCTS, own V": _mcts(OWN),
    **{f"majority {runs}": _majority(runs) for runs in RUNS},
    **{f"beam {beam}/{samples}, V": _beam(beam, samples, "V") for beam, samples in WIDTHS},
    **{f"MCTS {n}, {by}": _mcts(prm, n) for n in SIMULATIONS for by, prm in (("psi", None), ("V", "V"))},
}
TABLE = ("greedy", "majority 5", "beam 1/5, psi", "beam 1/5, V", "beam 3/5, V", "MCTS, psi", "MCTS, V")
UPPER = ("MCTS, grader", "beam 1/5, perfect V", "beam 3/5, perfect V", "MCTS, perfect V")
TRANSFERRED = ("greedy", "beam 1/5, psi", "beam 1/5, V", "beam 1/5, own V", "MCTS, psi", "MCTS, V", "MCTS, own V")
IN_BANK = (
    *("greedy", "majority 5", "beam 1/5, psi", "beam 1/5, own V", "beam 3/5, own V", "MCTS, psi", "MCTS, own V"),
    "MCTS, grader",
)
READ = ("V", "V, N = 10", "V, N = 160", "V, transcript", "V, by visits")
"""Models that `values` looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchComparison:
    title: str
    plays: Mapping[str, tuple[str, ...]]
    """By program, its arms."""
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By data set, the arms' EM in percent, as the paper has it."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Whose difference is looked at, the first less the second."""
    note: str = ""
    """What else is to be known."""


def _reported(arms: tuple[str, ...], *shares: float) -> Mapping[str, float]:
    return dict(zip(arms, shares, strict=True))


_OUTCOME = (
    *("MCTS, psi", "MCTS, V", "MCTS, Y", "MCTS, V and Y"),
    *("majority 5", "majority 5, weighted by V", "best of 5 by Y", "MCTS, grader"),
)
COMPARISONS: Mapping[str, SearchComparison] = {
    "guidance": SearchComparison(
        title="Guided by V, by likelihood, by nothing (Tables 1 and 2)",
        plays={"sum": (*TABLE, "MCTS of 5 children, V", *UPPER)},
        paper={
            "GSM8K": _reported(TABLE, 43.9, 59.7, 53.9, 57.1, 65.4, 60.8, 72.4),
            "MATH": _reported(TABLE, 25.1, 36.0, 34.8, 39.7, 41.1, 35.8, 47.3),
        },
        pairs=(
            ("majority 5", "greedy"),
            ("beam 1/5, psi", "greedy"),
            ("beam 1/5, V", "beam 1/5, psi"),
            ("beam 1/5, V", "majority 5"),
            ("beam 3/5, V", "majority 5"),
            ("beam 3/5, V", "beam 1/5, V"),
            ("MCTS, V", "MCTS, psi"),
            ("MCTS, V", "beam 3/5, V"),
            ("MCTS of 5 children, V", "MCTS, V"),
            ("MCTS of 5 children, V", "beam 3/5, V"),
            ("MCTS, perfect V", "MCTS, V"),
            ("MCTS, perfect V", "beam 3/5, perfect V"),
        ),
        note="The last four are no results: the grader knows which ends are right and nothing before; a perfect V "
        "knows after each step whether all went right so far, but not which of the steps to come are hard.",
    ),
    "outcome": SearchComparison(
        title="Values of steps, values of answers, both (Table 3)",
        plays={"sum": _OUTCOME},
        paper={
            "GSM8K": _reported(_OUTCOME[:-1], 60.8, 72.4, 65.3, 74.6, 59.7, 63.8, 61.4),
            "MATH": _reported(_OUTCOME[:-1], 35.8, 47.3, 38.3, 48.0, 36.0, 38.4, 37.6),
        },
        pairs=(
            ("MCTS, V", "MCTS, Y"),
            ("MCTS, V and Y", "MCTS, V"),
            ("MCTS, Y", "MCTS, psi"),
            ("MCTS, grader", "MCTS, V"),
            ("MCTS, grader", "MCTS, V and Y"),
            ("majority 5, weighted by V", "majority 5"),
            ("best of 5 by Y", "majority 5"),
        ),
        note=f"Y alone is lambda = 1 with likelihood on the way, both is lambda = {MIX:g}; the paper says no lambda. "
        "Y learns for as many steps as V, from the ends of the same trees. The grader is no result: it is a perfect Y "
        "alone, without likelihood on the way.",
    ),
    "transfer": SearchComparison(
        title="Trained on one kind, used on others (Table 4)",
        plays=dict.fromkeys(("long", "rest"), TRANSFERRED),
        paper={"MATH": {"MCTS, psi": 35.8, "MCTS, V": 44.2, "MCTS, own V": 47.3}},
        pairs=(
            ("MCTS, V", "MCTS, psi"),
            ("MCTS, own V", "MCTS, V"),
            ("beam 1/5, V", "beam 1/5, psi"),
            ("beam 1/5, own V", "beam 1/5, V"),
        ),
        note="V learned from sums of five numbers, and is not touched; own V learned from trees of this kind.",
    ),
    "frontier": SearchComparison(
        title="What tokens buy (Figure 1)",
        plays={
            "sum": (
                "greedy",
                *(f"majority {runs}" for runs in sorted({*RUNS, 5})),
                "beam 1/5, psi",
                *(f"beam {beam}/{samples}, V" for beam, samples in sorted({*WIDTHS, (1, 5), (3, 5)})),
                *(f"MCTS{n}, {by}" for by in ("psi", "V") for n in (" 5", " 10", "", " 40")),
                "MCTS, V and Y",
            )
        },
        paper={"GSM8K": {"greedy": 43.9, "MCTS, V and Y": 74.6}},
        pairs=(("MCTS, V and Y", "greedy"), ("beam 1/5, V", "majority 10"), ("MCTS 5, V", "majority 20")),
    ),
    "programs": SearchComparison(
        title="The same guidance for programs of the bank",
        plays=dict.fromkeys(BANK, IN_BANK),
        pairs=(
            ("beam 1/5, own V", "beam 1/5, psi"),
            ("beam 1/5, own V", "majority 5"),
            ("MCTS, own V", "MCTS, psi"),
            ("MCTS, own V", "greedy"),
        ),
        note="The paper has one graph of four agents. Here each program has its own labels and V.",
    ),
}
VALUES, WALL = "values", "wall"
"""Comparisons that are no tables of arms."""
NAMES = (*COMPARISONS, VALUES, WALL)
