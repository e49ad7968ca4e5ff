"""What the comparisons train: arms as changes to one RL recipe, which arms each page needs, and what the paper says.

Only names and settings; `speedrun.arms` runs them, `speedrun.compare` writes the pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from speedrun.tiny_policy import Architecture

START = "start"
"""What every arm of a seed begins from: the policy that was taught on that seed's cold start. It has no RL."""
HALF = "start, half"
"""The same with a policy of half as many weights."""
STARTS = (START, HALF)
HALVED = Architecture(width=80, inner=248)
ALONE = "single agent"
"""That policy's Executor with the program of one agent; no RL either."""
BASE = "stagewise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    overrides: tuple[str, ...] = ()
    """Changes to `recipes/speedrun.toml`."""
    half: bool = False
    """Whether it has half of the recipe's steps: with one role active, or both, as many updates of each as stages give
    it."""
    shared: bool = False
    """One policy for both roles: a setting of the speedrun, no override."""
    shuffled: bool = False
    """Whether rewards are dealt anew among the executions of a question, so that nothing can be learned from them."""
    start: str = START
    kl_roles: Literal["active", "all"] = "active"
    """For a shared policy: a setting of the speedrun, too."""
    rates_of: str | None = None
    """The arm whose choice of learning rates it takes; its own where None."""
    tuned: bool = True
    """Whether its learning rates are chosen on validation problems: the recipe's, times one of `FACTORS`."""


FACTORS = (0.5, 1.0, 2.0)
"""The grid that the learning rates of each arm are chosen from."""


RATES = ("5e-5", "1e-4", "4e-4")
"""The learning rates at which sharing is compared."""


def _at(rate: str, **more: Any) -> Arm:
    """An arm with one learning rate for both roles, which is what is compared."""
    rates = tuple(f"policies.{role}.learning_rate={rate}" for role in ("designer", "executor"))
    return Arm(overrides=rates, tuned=False, **more)


ARMS: dict[str, Arm] = {
    BASE: Arm(),
    "designer only": Arm(overrides=('schedule="designer-only"',)),
    "executor only": Arm(overrides=('schedule="executor-only"',)),
    "designer only, shuffled": Arm(overrides=('schedule="designer-only"',), shuffled=True, rates_of="designer only"),
    "executor only, shuffled": Arm(overrides=('schedule="executor-only"',), shuffled=True, rates_of="executor only"),
    "designer only, half": Arm(overrides=('schedule="designer-only"',), half=True),
    "executor only, half": Arm(overrides=('schedule="executor-only"',), half=True),
    "coupled": Arm(overrides=('schedule="coupled"',)),
    "coupled, half": Arm(overrides=('schedule="coupled"',), half=True),
    "coupled by trajectory, half": Arm(
        overrides=('schedule="coupled"', 'objective.aggregation="trajectory"'), half=True
    ),
    "2x8": Arm(overrides=("rollout.designs=2", "rollout.executions=8")),
    "8x2": Arm(overrides=("rollout.designs=8", "rollout.executions=2")),
    "16x1": Arm(overrides=("rollout.designs=16", "rollout.executions=1")),
    "K=1": Arm(overrides=("stage_length=1",)),
    "K=5": Arm(overrides=("stage_length=5",)),
    "K=20": Arm(overrides=("stage_length=20",)),
    **{f"separate, {rate}": _at(rate) for rate in RATES},
    **{f"separate, half, {rate}": _at(rate, start=HALF) for rate in RATES},
    **{f"shared, {rate}": _at(rate, shared=True) for rate in RATES},
    **{f"shared, KL on both roles, {rate}": _at(rate, shared=True, kl_roles="all") for rate in RATES},
}

WITH_FIXED = (START, "executor only")
"""Whose Executors are tried with each program of the bank, too: is the best one another after RL?"""


@dataclass(frozen=True, slots=True)
class Comparison:
    title: str
    systems: dict[str, str]
    """What a row is called -> the arm, `START` or `ALONE`."""
    paper: str
    """What the paper reports, in one sentence."""
    pairs: tuple[tuple[str, str], ...]
    """Rows whose difference is looked at, the first less the second."""
    unequal: str = ""
    """What is not the same for all arms, beside what is compared."""


GATE = "gate"
COMPARISONS: dict[str, Comparison] = {
    GATE: Comparison(
        "Whether either role can learn at all",
        {
            "before RL": START,
            "Executor alone learns": "executor only",
            "Designer alone learns": "designer only",
            "Executor, rewards shuffled": "executor only, shuffled",
            "Designer, rewards shuffled": "designer only, shuffled",
        },
        "nothing of the kind. No other comparison means anything where this one fails.",
        tuple(
            (name, "before RL")
            for name in (
                "Executor alone learns",
                "Designer alone learns",
                "Executor, rewards shuffled",
                "Designer, rewards shuffled",
            )
        ),
    ),
    "training": Comparison(
        "One agent, after SFT, after RL (Tables 1, 2, 6 and 10)",
        {"single agent": ALONE, "SFT": START, "SFT and RL": BASE},
        "Qwen3-8B averages 27.2 % as a single agent, 32.2 % after SFT, 38.3 % after RL; on math its designs move from "
        "ensembles (37 to 51 % of them, then 9 to 11 %) to reflection (21 to 41 %, then 45 to 73 %).",
        (("SFT", "single agent"), ("SFT and RL", "SFT")),
    ),
    "tree": Comparison(
        "Hierarchical rollouts against flat ones (Table 3)",
        {"M=2, N=8": "2x8", "M=4, N=4": BASE, "M=8, N=2": "8x2", "M=16, N=1": "16x1"},
        "The tree of 4 designs with 4 executions each is above 8 designs run once: AIME24 40.0 against 33.3 %.",
        tuple(("M=4, N=4", name) for name in ("M=2, N=8", "M=8, N=2", "M=16, N=1")),
        "designs a step, 32, 64, 128 and 256, at equal executions and updates; and the tokens that they take",
    ),
    "schedule": Comparison(
        "Which role learns when (Table 4, Figure 3)",
        {
            "before RL": START,
            "stagewise": BASE,
            "coupled, half the steps": "coupled, half",
            "coupled by trajectory, half the steps": "coupled by trajectory, half",
            "coupled": "coupled",
            "Designer only, half the steps": "designer only, half",
            "Designer only": "designer only",
            "Executor only, half the steps": "executor only, half",
            "Executor only": "executor only",
        },
        "Stagewise 44.8 % on math, executor-only 39.6 %, designer-only 38.6 %, coupled 36.7 %.",
        tuple(
            ("stagewise", name)
            for name in (
                "coupled, half the steps",
                "coupled by trajectory, half the steps",
                "coupled",
                "Designer only",
                "Executor only",
            )
        ),
        "executions and tokens: arms with half the steps have half as many, and as many updates of each role as stages",
    ),
    "sharing": Comparison(
        "One policy for both roles or two (Table 5)",
        {
            "before RL": START,
            "before RL, half the size": HALF,
            **{
                name: name
                for rate in RATES
                for how in ("separate", "separate, half", "shared", "shared, KL on both roles")
                for name in (f"{how}, {rate}",)
            },
        },
        "Shared is above separate: AIME24 40.0 against 33.3 %.",
        tuple(
            (f"{one}, {rate}", f"{other}, {rate}")
            for rate in RATES
            for one, other in (
                ("shared", "separate"),
                ("shared", "separate, half"),
                ("shared, KL on both roles", "shared"),
            )
        ),
        "weights: two separate policies have twice as many, two of half the size as many",
    ),
    "stage-length": Comparison(
        "Steps per stage (Figure 4; K = 1, 10, 30 of the paper, scaled)",
        {"K=1": "K=1", "K=5": "K=5", "K=10": BASE, "K=20, each role once": "K=20"},
        "One-step alternation is unstable and collapses; the longest stages (30 steps) end best.",
        (("K=10", "K=1"), ("K=10", "K=5"), ("K=20, each role once", "K=10")),
        "which role learns last, and for how long without a pause",
    ),
}
