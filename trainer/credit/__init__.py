"""From a run to what it is worth: rewards (Eq. 10), credit rules (Eqs. 4 to 7), advantages, and which role learns when
(stages, Eq. 9).

A new reward goes into `reward` (of runs) or `turn_reward` (of turns), a new credit rule into `rules`. Not here: tokens,
losses and weights (`trainer.update`).
"""

from trainer.credit.advantages import ROLES, credited, outcomes, samples_by_policy, silent_by_agent, silent_groups
from trainer.credit.reward import (
    FORMAT_WEIGHT,
    Correctness,
    RewardFunction,
    conversations,
    correctness,
    paper_reward,
)
from trainer.credit.rules import RULES, SINGLE_TURNS, Outcome, RuleName
from trainer.credit.stages import STAGE_LENGTH, Schedule, active_roles
from trainer.credit.turn_parts import Shaping, TurnRole
from trainer.credit.turn_reward import TurnReward, check_turns, turn_reward

__all__ = [
    "FORMAT_WEIGHT",
    "ROLES",
    "RULES",
    "SINGLE_TURNS",
    "STAGE_LENGTH",
    "Correctness",
    "Outcome",
    "RewardFunction",
    "RuleName",
    "Schedule",
    "Shaping",
    "TurnReward",
    "TurnRole",
    "active_roles",
    "check_turns",
    "conversations",
    "correctness",
    "credited",
    "outcomes",
    "paper_reward",
    "samples_by_policy",
    "silent_by_agent",
    "silent_groups",
    "turn_reward",
]
