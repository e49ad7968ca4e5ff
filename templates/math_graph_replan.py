"""A planner, a solver and a verifier in a graph: the verifier sends the work back to whichever of them erred.

Use when the first plan may be the wrong idea altogether, so that redoing the calculation alone would not help.
"""

# /// template
# pattern = "agent graph with replanning"
# domain = "math"
# structure = "graph"
# agent_calls = [3, 9]
# ///

import re

from workflow import AgentGraph, AgentNode, Context

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)
CHECKS = (
    "- Every condition of the problem is used, and none was added.\n"
    "- The result is what the problem asks for, in the form it asks for.\n"
)

planner = AgentNode(
    name="Planner",
    system_prompt=(
        "You plan solutions of mathematical problems. Choose a method, say why it applies, and list the steps with "
        "what each yields. If a verifier rejected an earlier plan, choose a different method and say how it avoids "
        "what went wrong. Do not carry the plan out.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: the plan inside <delivery>...</delivery>."
    ),
    max_turns=1,
)
solver = AgentNode(
    name="Solver",
    system_prompt=(
        "You carry out the latest plan for a mathematical problem, step by step, with exact values and every "
        "calculation written out. If a verifier named an error in your work, mend it first.\n"
        "OUTPUT: the calculations and the answer in \\boxed{}, all inside <delivery>...</delivery>."
    ),
    max_turns=1,
)
verifier = AgentNode(
    name="Verifier",
    system_prompt=(
        "You verify the latest solution of a mathematical problem.\n\n"
        "APPROACH:\n"
        "1. Test the answer against the problem's own conditions, by another route than the solver's.\n"
        "2. If it fails, decide whether the plan or only its execution is at fault, and name the first wrong step.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: your findings; the best answer known so far, corrected by you where you can, once, in \\boxed{}; and "
        "as a last line of its own the word Next, a colon, and ACCEPT (the answer stands), SOLVER (the execution is "
        "at fault) or PLANNER (the plan is at fault)."
    ),
    max_turns=1,
)


def next_step(context: Context) -> str:
    """Where the verifier sends the work; after two returns its own answer stands."""
    named = re.findall(r"next\W+(accept|solver|planner)\b", context.messages[-1].content, re.IGNORECASE)
    returns = context.get_state("returns", 0)
    if not named or returns >= 2:
        return "accept"
    context.set_state("returns", returns + 1)
    return named[-1].lower()


workflow = AgentGraph(name="math_graph_replan", max_steps=9)
workflow.add_node(planner)
workflow.add_node(solver)
workflow.add_node(verifier)
workflow.set_entry_point("Planner")
workflow.add_edge("Planner", "Solver")
workflow.add_edge("Solver", "Verifier")
workflow.add_conditional_edge("Verifier", next_step, {"solver": "Solver", "planner": "Planner"})
