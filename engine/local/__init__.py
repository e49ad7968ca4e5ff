"""Completions from a model in this process, by transformers and torch (the extra `local`, imported on first use).

Not here: training it (`trainer.update`).
"""

from engine.local.transformers import TransformersEngine

__all__ = [
    "TransformersEngine",
]
