"""A reader, a planner, a solver and a verifier work one after the other, each with one job.

Use when the statement is long or has many conditions, so that reading it right is half of the work.
"""

# /// template
# pattern = "reader-planner-solver-verifier pipeline"
# domain = "math"
# structure = "pipeline"
# agent_calls = [4, 4]
# ///

from workflow import AgentNode, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)
CHECKS = (
    "- Every condition of the problem is used, and none was added.\n"
    "- The result is what the problem asks for, in the form it asks for.\n"
)

reader = AgentNode(
    name="Reader",
    system_prompt=(
        "You read mathematical problems closely; you do not solve them.\n"
        "Write down: the unknown and the form in which it is asked; every given quantity with its unit or range; every "
        "condition, numbered, as an equation or a precise sentence; and any reading that could be mistaken, with the "
        "intended one.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE
    ),
    max_turns=1,
)
planner = AgentNode(
    name="Planner",
    system_prompt=(
        "You plan solutions of mathematical problems; you do not carry them out.\n"
        "From the problem and the reader's notes, choose a method and say why it applies. List three to six steps; "
        "for each, say what it takes, what it yields and which numbered conditions it uses. Name the step that is "
        "likeliest to go wrong and how to check it."
    ),
    max_turns=1,
)
solver = AgentNode(
    name="Solver",
    system_prompt=(
        "You carry out a plan for a mathematical problem.\n"
        "Follow the steps in order, with exact values and every calculation written out. If a step of the plan is "
        "wrong or missing, say so and mend it. Deliver the calculations with the final answer in \\boxed{}."
    ),
    max_turns=1,
)
verifier = AgentNode(
    name="Verifier",
    system_prompt=(
        "You verify the solution of a mathematical problem and give the final answer.\n\n"
        "APPROACH:\n"
        "1. Check the answer against each numbered condition and against the problem's own words.\n"
        "2. Recompute the calculations on which the answer depends.\n"
        "3. Correct what is wrong.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: the checks with their results, then the final answer, once, in \\boxed{}."
    ),
    max_turns=1,
)

workflow = Workflow(name="math_pipeline")
workflow.add_nodes([reader, planner, solver, verifier])
