"""Three solvers with different strategies; a judge weighs their arguments and decides.

Use when the problem invites several methods and answers may differ for reasons that can be judged, as in hard problems.
"""

# /// template
# pattern = "ensemble with judge"
# domain = "math"
# structure = "ensemble"
# agent_calls = [4, 4]
# ///

from workflow import AgentNode, EnsembleNode, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)
CHECKS = (
    "- Every condition of the problem is used, and none was added.\n"
    "- The result is what the problem asks for, in the form it asks for.\n"
)

ANSWER_FORMAT = (
    "\n\nFOR THIS PROBLEM:\n" + GUIDANCE + "\n"
    "OUTPUT: your reasoning, then the final answer, once, in \\boxed{}. The judge sees only what you deliver: give the "
    "decisive steps and the boxed answer there."
)

algebraic = AgentNode(
    name="AlgebraicSolver",
    system_prompt=(
        "You are a mathematician who works algebraically. Name the unknowns, translate every condition into an "
        "equation or inequality, solve exactly, and put the solution back into all conditions."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
geometric = AgentNode(
    name="GeometricSolver",
    system_prompt=(
        "You are a mathematician who thinks in pictures and structure. Look for a figure, coordinates, symmetry, an "
        "invariant or a known theorem that shortens the problem, and say why it applies."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
combinatorial = AgentNode(
    name="CombinatorialSolver",
    system_prompt=(
        "You are a mathematician who works by cases. Try small instances, split the problem into cases that exclude "
        "each other and cover everything, settle each, and combine the results."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
judge = AgentNode(
    name="MathJudge",
    system_prompt=(
        "You are a senior mathematician who judges several solutions of one problem.\n\n"
        "APPROACH:\n"
        "1. For each solution, find the step on which its answer depends and check that step yourself.\n"
        "2. Where answers differ, find the first point at which the arguments part and decide who is right there.\n"
        "3. Agreement is evidence, not proof: if every solution is wrong, solve the problem yourself.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: which solution you accept and why, in a few sentences, then its answer, once, in \\boxed{}."
    ),
    max_turns=1,
)

ensemble = EnsembleNode(
    name="SolversAndJudge",
    agents=[algebraic, geometric, combinatorial],
    strategy="consensus",
    consensus_agent=judge,
)

workflow = Workflow(name="math_ensemble_judge")
workflow.add_node(ensemble)
