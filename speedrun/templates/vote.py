"""Five agents solve the problem independently; the majority wins.

Use when each may go wrong in a way of its own.
"""

# /// template
# pattern = "majority vote"
# domain = "math"
# structure = "ensemble"
# agent_calls = [5, 5]
# ///

from workflow import AgentNode, EnsembleNode, Workflow

solvers = [
    AgentNode("Ann", "Solve the problem step by step. Write the answer in \\boxed{}.", max_turns=1),
    AgentNode("Ben", "Solve the problem step by step. Write the answer in \\boxed{}.", max_turns=1),
    AgentNode("Cleo", "Solve the problem step by step. Write the answer in \\boxed{}.", max_turns=1),
    AgentNode("Dan", "Solve the problem step by step. Write the answer in \\boxed{}.", max_turns=1),
    AgentNode("Eve", "Solve the problem step by step. Write the answer in \\boxed{}.", max_turns=1),
]
workflow = Workflow("vote").add_node(EnsembleNode("Vote", solvers, strategy="majority_vote"))
