"""One agent solves the problem.

Use when the steps are few and sure.
"""

# /// template
# pattern = "one agent"
# domain = "math"
# structure = "single"
# agent_calls = [1, 1]
# ///

from workflow import AgentNode, Workflow

solver = AgentNode("Solver", "Solve the problem step by step. Write the answer in \\boxed{}.", max_turns=1)
workflow = Workflow("single").add_node(solver)
