"""Runs that part: a program is run up to an agent call, and on from there with any number of replies.

What stands on it (tree sampling, beam search, MCTS) decides which replies to take. Not here: rewards, values, training;
nothing of torch.
"""

from search.branching import Branching, Decision, Ended, OpenRuns, candidate_seed
from search.paths import AgentStep, CodeStep, GameStep, Path
from search.programs import Program, jailed, trusted

__all__ = [
    "AgentStep",
    "Branching",
    "CodeStep",
    "Decision",
    "Ended",
    "GameStep",
    "OpenRuns",
    "Path",
    "Program",
    "candidate_seed",
    "jailed",
    "trusted",
]
