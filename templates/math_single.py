"""One solver reasons step by step to a boxed answer.

Use when one line of reasoning settles the problem: a direct computation, a known formula, a short word problem.
"""

# /// template
# pattern = "single agent"
# domain = "math"
# structure = "single"
# agent_calls = [1, 1]
# ///

from workflow import AgentNode, Workflow

# The constant below says what is special about this problem.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)

solver = AgentNode(
    name="MathSolver",
    system_prompt=(
        "You are an expert mathematician who solves problems by careful reasoning.\n\n"
        "APPROACH:\n"
        "1. Say what is asked and name the quantities involved.\n"
        "2. Choose the shortest reliable method and carry it out step by step, with exact values.\n"
        "3. Check the result: put it back into the problem, or estimate its size.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: your reasoning, then the final answer, once, in \\boxed{}."
    ),
    max_turns=1,
)

workflow = Workflow(name="math_single")
workflow.add_node(solver)
