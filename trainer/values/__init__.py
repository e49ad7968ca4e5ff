"""Models of values: what states of a search are worth, learned from label trees (MASPRM), and scored in batches.

`V` of a state after an action, or of a question with a final answer, is in [-1, 1]. Not here: the search that makes the
trees and asks for values (`search`), losses and optimizers (`trainer.update`). `TorchScorer` needs the extra `train`
and is loaded on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from trainer.values.scorer_file import (
    SCORER,
    ScorerFile,
    ScorerRefused,
    read_scorer,
    scorer_folder,
    view_of,
    write_scorer,
)
from trainer.values.scripted_scorer import ScriptedScorer
from trainer.values.state_views import VIEWS, StateTokens, StateView, Unreadable, View
from trainer.values.training import (
    LORA_DROPOUT,
    WEIGHT_DECAY,
    ValueResult,
    ValueSettings,
    ValueStep,
    train_values,
)
from trainer.values.tree_rows import (
    Row,
    RowsRefused,
    TreeRows,
    held_out_problems,
    question_digest,
    rows_of_trees,
    tree_files,
)
from trainer.values.value_metrics import Accuracy, CalibrationBin, ValueMetrics, value_metrics
from trainer.values.value_reward import value_reward

if TYPE_CHECKING:
    from trainer.values.torch_scorer import TorchScorer

__all__ = [
    "LORA_DROPOUT",
    "SCORER",
    "VIEWS",
    "WEIGHT_DECAY",
    "Accuracy",
    "CalibrationBin",
    "Row",
    "RowsRefused",
    "ScorerFile",
    "ScorerRefused",
    "ScriptedScorer",
    "StateTokens",
    "StateView",
    "TorchScorer",
    "TreeRows",
    "Unreadable",
    "ValueMetrics",
    "ValueResult",
    "ValueSettings",
    "ValueStep",
    "View",
    "held_out_problems",
    "question_digest",
    "read_scorer",
    "rows_of_trees",
    "scorer_folder",
    "train_values",
    "tree_files",
    "value_metrics",
    "value_reward",
    "view_of",
    "write_scorer",
]


def __getattr__(name: str) -> Any:
    if name == "TorchScorer":
        return importlib.import_module("trainer.values.torch_scorer").TorchScorer
    raise AttributeError(f"module 'trainer.values' has no attribute {name!r}")
