"""Trains both policies: rollout tree, reward, credit, loss, stages, update backends, checkpoints, SFT.

What needs no model (`samples`, `reward`, `credit`, `stages`, `config`, `rollout`) imports without torch; `loss` and
`torch_backend` need the extra `train`. It runs no program itself (`sandbox` does) and prints nothing (`metaagent`).
"""
