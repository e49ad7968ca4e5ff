"""The paper's comparisons as changes to one RL recipe: which runs each table or figure needs, and what the paper says.

Only names and overrides; `speedrun.compare` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = "stagewise"
SHARED = "shared"
"""One policy for both roles: a setting of the speedrun, no override."""

OVERRIDES: dict[str, tuple[str, ...]] = {
    BASE: (),
    "flat": ("rollout.questions=32", "rollout.designs=8", "rollout.executions=1", 'credit="flat"'),
    "coupled": ('schedule="coupled"',),
    "designer-only": ('schedule="designer-only"',),
    "executor-only": ('schedule="executor-only"',),
    SHARED: (),
    "K1": ("stage_length=1",),
    "K10": ("stage_length=10",),
}
"""By name, the changes to `recipes/speedrun.toml`. Steps and executions per step are the same for all."""

BEFORE = "before"
"""A system that needs no run of its own: the checkpoint that all runs start from."""

ALONE = "single-agent"
"""One that needs none either: that checkpoint's Executor with the program of one agent."""

CROSS: dict[str, tuple[bool, bool]] = {"trained-designer": (True, False), "trained-executor": (False, True)}
"""Systems of roles with different checkpoints: whether designer and executor are those that `BASE` has trained."""


@dataclass(frozen=True, slots=True)
class Comparison:
    title: str
    systems: dict[str, str]
    """What a row is called -> the variant, or `BEFORE`."""
    paper: str
    """What the paper reports, in one sentence."""


COMPARISONS: dict[str, Comparison] = {
    "training": Comparison(
        "One agent, after SFT, after RL (Tables 1, 2, 6 and 10)",
        {"single agent": ALONE, "SFT": BEFORE, "SFT and RL": BASE},
        "Qwen3-8B averages 27.2 % as a single agent, 32.2 % after SFT, 38.3 % after RL; on math its designs move from "
        "ensembles (37 to 51 % of them, then 9 to 11 %) to reflection (21 to 41 %, then 45 to 73 %).",
    ),
    "tree": Comparison(
        "Hierarchical rollouts against flat ones (Table 3)",
        {"M=4, N=4": BASE, "M=8, N=1, twice the questions": "flat"},
        "The tree of 4 designs with 4 executions each is above 8 designs run once: AIME24 40.0 against 33.3 %.",
    ),
    "schedule": Comparison(
        "Which role learns when (Table 4, Figure 3)",
        {
            "before RL": BEFORE,
            "stagewise": BASE,
            "coupled": "coupled",
            "designer only": "designer-only",
            "executor only": "executor-only",
        },
        "Stagewise 44.8 % on math, executor-only 39.6 %, designer-only 38.6 %, coupled 36.7 %.",
    ),
    "sharing": Comparison(
        "One policy for both roles or two (Table 5)",
        {"a policy for each": BASE, "one for both": SHARED},
        "Shared is above separate: AIME24 40.0 against 33.3 %.",
    ),
    "stage-length": Comparison(
        "Steps per stage (Figure 4; K = 1, 10, 30 of the paper, scaled)",
        {"K=1": "K1", "K=5": BASE, "K=10": "K10"},
        "One-step alternation is unstable and collapses; the longest stages (30 steps) end best.",
    ),
    "cross": Comparison(
        "Which role brings the gain",
        {
            "neither trained": BEFORE,
            "designer trained": "trained-designer",
            "executor trained": "trained-executor",
            "both trained": BASE,
        },
        "Training both roles is above training either one (Table 4); reward rises sharply in executor stages.",
    ),
}
