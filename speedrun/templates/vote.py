"""Five agents solve the problem independently; the majority wins.

Use when there are many steps and each may go wrong.
"""

# /// template
# pattern = "majority vote"
# domain = "math"
# structure = "ensemble"
# agent_calls = [5, 5]
# ///

from workflow import AgentNode, EnsembleNode, Workflow

task = "Solve the problem step by step. Write the answer in \\boxed{}."
solvers = [AgentNode(name, task, max_turns=1) for name in ("Ann", "Ben", "Cleo", "Dan", "Eve")]
workflow = Workflow("vote").add_node(EnsembleNode("Vote", solvers, strategy="majority_vote"))
