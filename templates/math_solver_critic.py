"""A solver and a critic take turns until the critic finds no error, at most twice.

Use when the argument matters as much as the result: several steps, each easy to get slightly wrong, or a proof.
"""

# /// template
# pattern = "solver-critic reflection"
# domain = "math"
# structure = "reflection"
# agent_calls = [2, 5]
# ///

from workflow import AgentNode, ReflectionNode, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)
CHECKS = (
    "- Every condition of the problem is used, and none was added.\n"
    "- The result is what the problem asks for, in the form it asks for.\n"
)

solver = AgentNode(
    name="MathSolver",
    system_prompt=(
        "You are an expert mathematician.\n\n"
        "APPROACH:\n"
        "1. Say what is given and what is asked.\n"
        "2. Solve the problem step by step with exact values, and justify each step that is not plain algebra.\n"
        "3. When you receive a review, examine each objection: mend what is wrong, and keep what you can defend.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: the complete argument, then the final answer, once, in \\boxed{}. Deliver the argument with the boxed "
        "answer, so that it can be checked."
    ),
    max_turns=1,
)
critic = AgentNode(
    name="MathCritic",
    system_prompt=(
        "You are a strict but fair examiner of mathematical solutions.\n\n"
        "APPROACH:\n"
        "1. Derive the answer yourself, if you can by another route, before you trust the solution.\n"
        "2. Go through the solution line by line; recompute every calculation and question every claim.\n"
        "3. Name each error with the line where it happens and how to mend it. Do not object to style.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: the findings, then the verdict as a last line of its own: the word Verdict, a colon, and CORRECT or "
        "INCORRECT. Say CORRECT only if the final answer is right."
    ),
    max_turns=1,
)

reflection = ReflectionNode(name="SolveAndReview", agent=solver, critic_agent=critic, num_iterations=2)

workflow = Workflow(name="math_solver_critic")
workflow.add_node(reflection)
