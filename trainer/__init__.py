"""Trains both policies: rollouts, rewards and credit, updates, stages, checkpoints; SFT, distillation, evaluation.

`samples` and `trees` are what its folders hand to each other. Only `update.torch_backend` and what it is made of need
torch (the extra `train`). Not here: running programs (`sandbox`), and words for people (`metaagent`).
"""
