"""MASPRM in miniature (its Tables 1 to 4, Figure 1, B.9): a relay of four agents, one small policy, two cores.

Not here: the method itself (`search`, `trainer.values`, `trainer.evaluate`), and templates (`templates`).
"""
