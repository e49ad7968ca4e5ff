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
ALONE = {
    "one agent, step by step": "single, step by step",
    "one agent, at once": "single, at once",
    "one agent with the tool": "tool, at once",
}
"""That policy's Executor with a program of one agent for all problems, no RL either: what it is called -> which program
of the bank."""
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
    valid_only: bool = False
    """Whether designs without a valid program are not learned from."""
    start: str = START
    kl_roles: Literal["active", "all"] = "active"
    """For a shared policy: a setting of the speedrun, too."""
    rates_of: str | None = None
    """The arm whose choice of learning rates it takes; its own where None. Arms that a page compares learn at one rate
    where they can."""
    tuned: bool = True
    """Whether its learning rates are chosen on validation problems: the recipe's, times one of `FACTORS`."""


FACTORS = (0.5, 1.0, 2.0)
"""The grid that the learning rates of each arm are chosen from."""


RATES = ("5e-5", "1e-4", "4e-4")
"""The learning rates at which sharing is compared."""
RECIPE = "1e-4"
"""That of the recipe, at which shared policies are compared otherwise."""
WEAK = "objective.kl_coefficient=0.2"
"""Two fifths of the recipe's."""


def _at(rate: str, *overrides: str, **more: Any) -> Arm:
    """An arm with one learning rate for both roles, which is not tuned."""
    rates = (f"policies.{role}.learning_rate={rate}" for role in ("designer", "executor"))
    return Arm(overrides=(*rates, *overrides), tuned=False, **more)


ARMS: dict[str, Arm] = {
    BASE: Arm(),
    "designer only": Arm(overrides=('schedule="designer-only"',)),
    "executor only": Arm(overrides=('schedule="executor-only"',)),
    "designer only, shuffled": Arm(overrides=('schedule="designer-only"',), shuffled=True, rates_of="designer only"),
    "executor only, shuffled": Arm(overrides=('schedule="executor-only"',), shuffled=True, rates_of="executor only"),
    "designer only, weak KL": Arm(overrides=('schedule="designer-only"', WEAK), rates_of="designer only"),
    "designer only, weak KL, shuffled": Arm(
        overrides=('schedule="designer-only"', WEAK), shuffled=True, rates_of="designer only"
    ),
    "designer only, weak KL, 2e-4": _at("2e-4", 'schedule="designer-only"', WEAK),
    "designer only, weak KL, 2e-4, valid designs alone": _at("2e-4", 'schedule="designer-only"', WEAK, valid_only=True),
    "designer only, weak KL, 2e-4, shuffled": _at("2e-4", 'schedule="designer-only"', WEAK, shuffled=True),
    "designer only, weak KL, 2e-4, shuffled, one update": _at(
        "2e-4", 'schedule="designer-only"', WEAK, "objective.mini_batches=1", shuffled=True
    ),
    "designer only, half": Arm(overrides=('schedule="designer-only"',), half=True, rates_of="designer only"),
    "executor only, half": Arm(overrides=('schedule="executor-only"',), half=True, rates_of="executor only"),
    "coupled": Arm(overrides=('schedule="coupled"',)),
    "coupled, half": Arm(overrides=('schedule="coupled"',), half=True, rates_of="coupled"),
    f"coupled, {RECIPE}": _at(RECIPE, 'schedule="coupled"'),
    f"coupled, half, {RECIPE}": _at(RECIPE, 'schedule="coupled"', half=True),
    "shared, designer only, half": _at(RECIPE, 'schedule="designer-only"', shared=True, half=True),
    "shared, executor only, half": _at(RECIPE, 'schedule="executor-only"', shared=True, half=True),
    "shared, coupled, half": _at(RECIPE, 'schedule="coupled"', shared=True, half=True),
    "shared, coupled by trajectory, half": _at(
        RECIPE, 'schedule="coupled"', 'objective.aggregation="trajectory"', shared=True, half=True
    ),
    "2x8": Arm(overrides=("rollout.designs=2", "rollout.executions=8"), rates_of=BASE),
    "8x2": Arm(overrides=("rollout.designs=8", "rollout.executions=2"), rates_of=BASE),
    "16x1": Arm(overrides=("rollout.designs=16", "rollout.executions=1"), rates_of=BASE),
    "K=1": Arm(overrides=("stage_length=1",), rates_of=BASE),
    "K=5": Arm(overrides=("stage_length=5",), rates_of=BASE),
    "K=20": Arm(overrides=("stage_length=20",), rates_of=BASE),
    **{f"separate, {rate}": _at(rate) for rate in RATES},
    **{f"separate, half, {rate}": _at(rate, start=HALF) for rate in RATES},
    **{f"shared, {rate}": _at(rate, shared=True) for rate in RATES},
    **{f"shared, KL on both roles, {rate}": _at(rate, shared=True, kl_roles="all") for rate in RATES},
}

CONTROL = "executor only, shuffled"
"""Learns nothing, and is asked what all arms of its seed are asked."""
WITH_FIXED = (START, "executor only", BASE)
"""Whose Executors are tried with each program of the bank, too."""
TURNS = (("sum", "vote, at once", "single, step by step"), ("chain", "single, step by step", "vote, step by step"))
"""Kind, the program that is better before RL, the one that is better once the Executor alone has learned: what stages
are for. Chosen before anything was measured."""


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
    validity: bool = False
    """Whether it is about what RL does to the share of valid programs. Then it asks nothing of the gate, whose shuffled
    arms are among its own."""


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
        {**{name: name for name in ALONE}, "SFT": START, "SFT and RL": BASE},
        "Qwen3-8B averages 27.2 % as a single agent, 32.2 % after SFT, 38.3 % after RL; on math its designs move from "
        "ensembles (37 to 51 % of them, then 9 to 11 %) to reflection (21 to 41 %, then 45 to 73 %).",
        (*(("SFT", name) for name in ALONE), ("SFT and RL", "one agent with the tool"), ("SFT and RL", "SFT")),
        "the single agents are the fine-tuned Executor, too, where the paper's is the model before SFT",
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
            "coupled": "coupled",
            "coupled at the recipe's rate, half the steps": f"coupled, half, {RECIPE}",
            "coupled at the recipe's rate": f"coupled, {RECIPE}",
            "Designer only, half the steps": "designer only, half",
            "Designer only": "designer only",
            "Executor only, half the steps": "executor only, half",
            "Executor only": "executor only",
            "one policy, stagewise": f"shared, {RECIPE}",
            "one policy, coupled, half the steps": "shared, coupled, half",
            "one policy, coupled by trajectory, half the steps": "shared, coupled by trajectory, half",
            "one policy, Designer only, half the steps": "shared, designer only, half",
            "one policy, Executor only, half the steps": "shared, executor only, half",
        },
        "Stagewise 44.8 % on math, executor-only 39.6 %, designer-only 38.6 %, coupled 36.7 %.",
        (
            *(
                ("stagewise", name)
                for name in (
                    "coupled, half the steps",
                    "coupled",
                    "coupled at the recipe's rate, half the steps",
                    "coupled at the recipe's rate",
                    "Designer only, half the steps",
                    "Designer only",
                    "Executor only, half the steps",
                    "Executor only",
                )
            ),
            *(
                ("one policy, stagewise", f"one policy, {name}, half the steps")
                for name in ("coupled", "coupled by trajectory", "Designer only", "Executor only")
            ),
            ("one policy, coupled, half the steps", "one policy, coupled by trajectory, half the steps"),
        ),
        "an arm with half the steps has as many updates of a role as stages give it, and half of the executions and "
        "tokens; coupled with all the steps has twice the updates of both roles, one role alone with all the steps "
        "twice its own. Rates are those that each arm's own grid chose, below; at the recipe's rate is that of stages. "
        "By trajectory, on one policy, the Executor's replies outweigh the designs by their number",
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
        "weights: two separate policies have twice as many, two of half the size as many; KL on both roles is a second "
        "mean, over the tokens of the role that is only held, so its sum is twice as large",
    ),
    "stage-length": Comparison(
        "Steps per stage (Figure 4; K = 1, 10, 30 of the paper, scaled)",
        {"K=1": "K=1", "K=5": "K=5", "K=10": BASE, "K=20, each role once": "K=20"},
        "One-step alternation is unstable and collapses; the longest stages (30 steps) end best.",
        (("K=10", "K=1"), ("K=10", "K=5"), ("K=20, each role once", "K=10")),
        "which role learns last, and for how long without a pause",
    ),
    "valid-programs": Comparison(
        "What spoils programs",
        {
            "before RL": START,
            "Designer alone learns": "designer only",
            "rewards shuffled": "designer only, shuffled",
            "weak KL": "designer only, weak KL",
            "weak KL, shuffled": "designer only, weak KL, shuffled",
            "weak KL, twice the rate": "designer only, weak KL, 2e-4",
            "weak KL, twice the rate, from valid designs alone": "designer only, weak KL, 2e-4, valid designs alone",
            "weak KL, twice the rate, shuffled": "designer only, weak KL, 2e-4, shuffled",
            "the same, one optimizer step a rollout": "designer only, weak KL, 2e-4, shuffled, one update",
        },
        "its reward has a term for the format of designs, Eq. 10, and it says no share of valid ones.",
        (
            ("weak KL", "Designer alone learns"),
            ("weak KL, shuffled", "rewards shuffled"),
            ("weak KL, twice the rate, shuffled", "weak KL, shuffled"),
            ("weak KL, twice the rate, from valid designs alone", "weak KL, twice the rate"),
            ("the same, one optimizer step a rollout", "weak KL, twice the rate, shuffled"),
        ),
        validity=True,
        unequal="the KL's coefficient, 0.5 in the recipe and 0.2 where it is weak, and the rate, 1e-4 and twice that; "
        "four optimizer steps a rollout but where one is said",
    ),
}
