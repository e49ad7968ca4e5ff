"""AT-GRPO in miniature (Stronger-MAS, Tables 1, 2, 4 and 6, Figures 5 and 6): two games, small policies, two cores.

Not here: the method itself (`trainer`), and the games (`tasks.environments`).
"""
