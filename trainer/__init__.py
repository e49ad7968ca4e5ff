"""Trains both policies: rollout tree, reward, credit, loss, stages, update backends, checkpoints, SFT.

What needs no model (`samples`, `reward`, `credit`, `stages`, `config`, `rollout`) imports without torch;
`torch_backend` and what it is made of (`forward`, `shared_prompts`, `loss`, `micro_batches`, `master_adamw`,
`torch_model`) need the extra `train`. It runs no program itself (`sandbox` does) and prints nothing (`metaagent`).
"""
