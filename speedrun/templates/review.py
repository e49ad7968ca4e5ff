"""One agent solves the problem, another checks it, until the check holds.

Use when an answer is hard to find and easy to check.
"""

# /// template
# pattern = "check and revise"
# domain = "math"
# structure = "reflection"
# agent_calls = [2, 5]
# ///

from workflow import AgentNode, ReflectionNode, Workflow

solver = AgentNode("Solver", "Solve the problem step by step. Write the answer in \\boxed{}.", max_turns=1)
critic = AgentNode("Critic", "Check the answer. End with Verdict: CORRECT or Verdict: INCORRECT.", max_turns=1)
review = ReflectionNode("Review", solver, 2, "Is it right?", critic, "Find a better answer.")
workflow = Workflow("review").add_node(review)
