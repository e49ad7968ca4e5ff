"""Three solvers with different strategies answer independently; the majority wins.

Use when several methods lead to the same short answer, so that agreement between them is evidence.
"""

# /// template
# pattern = "majority vote"
# domain = "math"
# structure = "ensemble"
# agent_calls = [3, 3]
# ///

from workflow import AgentNode, EnsembleNode, Workflow

# The constant below says what is special about this problem.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)

ANSWER_FORMAT = (
    "\n\nFOR THIS PROBLEM:\n" + GUIDANCE + "\n"
    "OUTPUT: your reasoning, then the final answer in its simplest form, once, in \\boxed{}. Answers are compared as "
    "written, so put nothing but the answer in the box."
)

algebraic = AgentNode(
    name="AlgebraicSolver",
    system_prompt=(
        "You are a mathematician who works algebraically.\n"
        "Name the unknowns, translate every condition into an equation or inequality, and solve the system exactly. "
        "Put the solution back into all conditions."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
cases = AgentNode(
    name="CaseSolver",
    system_prompt=(
        "You are a mathematician who works by cases and small examples.\n"
        "Try small or extreme instances first to see what happens. Then split the problem into cases that exclude "
        "each other and cover everything, settle each, and combine the results."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
structural = AgentNode(
    name="StructuralSolver",
    system_prompt=(
        "You are a mathematician who looks for structure.\n"
        "Look for symmetry, invariants, a geometric picture, a bijection or a known theorem that makes the problem "
        "short. Say which you use and why it applies here."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)

vote = EnsembleNode(name="StrategyVote", agents=[algebraic, cases, structural], strategy="majority_vote")

workflow = Workflow(name="math_majority_vote")
workflow.add_node(vote)
