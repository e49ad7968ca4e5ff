"""The same solver works five times independently; the most frequent answer wins.

Use when the answer is short and comparable, such as a number or a letter, and slips are likelier than a wrong method.
"""

# /// template
# pattern = "self-consistency"
# domain = "math"
# structure = "ensemble"
# agent_calls = [5, 5]
# ///

from workflow import AgentNode, EnsembleNode, Workflow

# The constant below says what is special about this problem.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)

PROMPT = (
    "You are a careful mathematician. Solve the problem from scratch.\n\n"
    "APPROACH:\n"
    "1. Say what is asked.\n"
    "2. Reason step by step with exact values; write out every calculation.\n"
    "3. Look back over the steps once for slips in arithmetic, signs and counting.\n\n"
    "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
    "OUTPUT: your reasoning, then the final answer in its simplest form, once, in \\boxed{}. Answers are compared as "
    "written, so put nothing but the answer in the box."
)

vote = EnsembleNode(
    name="MajorityOfFive",
    agents=[AgentNode(name=f"Solver{number}", system_prompt=PROMPT, max_turns=1) for number in range(1, 6)],
    strategy="majority_vote",
)

workflow = Workflow(name="math_self_consistency")
workflow.add_node(vote)
