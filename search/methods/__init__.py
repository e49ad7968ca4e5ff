"""Search over an agents' tree: MCTS for labels and for answers, beam search, votes (MASPRM, section 4).

Pure: replies, ends of runs and what a state is worth come from a `Space` and a `Guide`. Not here: engines, programs and
files (`search.problem`), models of values (`trainer.values`).
"""

from search.methods.beam import BeamSettings, beam
from search.methods.budget import Budget, BudgetSpent, Spent
from search.methods.guides import FAILED_PSI, Guide, Likelihood, Oracle
from search.methods.mcts import MctsSettings, best_path, guided, label, mcts, run_on, uct
from search.methods.nodes import Action, AsksNobody, End, Node, Reply, SearchRefused, likelihood
from search.methods.states import Space, Tree, TreeLog, together
from search.methods.straight import MajoritySettings, majority, straight
from search.methods.votes import Vote, plurality

__all__ = [
    "FAILED_PSI",
    "Action",
    "AsksNobody",
    "BeamSettings",
    "Budget",
    "BudgetSpent",
    "End",
    "Guide",
    "Likelihood",
    "MajoritySettings",
    "MctsSettings",
    "Node",
    "Oracle",
    "Reply",
    "SearchRefused",
    "Space",
    "Spent",
    "Tree",
    "TreeLog",
    "Vote",
    "beam",
    "best_path",
    "guided",
    "label",
    "likelihood",
    "majority",
    "mcts",
    "plurality",
    "run_on",
    "straight",
    "together",
    "uct",
]
