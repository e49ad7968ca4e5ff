"""Two mathematicians argue for two rounds, each trying to break the other's solution; a judge decides.

Use when the problem has a tempting wrong answer or an ambiguous reading that only an opponent will expose.
"""

# /// template
# pattern = "debate with judge"
# domain = "math"
# structure = "debate"
# agent_calls = [5, 5]
# ///

from workflow import AgentNode, DebateNode, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)
CHECKS = (
    "- Every condition of the problem is used, and none was added.\n"
    "- The result is what the problem asks for, in the form it asks for.\n"
)

builder = AgentNode(
    name="Builder",
    system_prompt=(
        "You are a mathematician in a debate. You build: solve the problem by the most direct rigorous method.\n"
        "When you see another argument, compare it with yours step by step. Concede what is right, show by a concrete "
        "counterexample or calculation what is wrong, and change your answer only for a reason that you can state.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: the decisive steps, then your present answer, once, in \\boxed{}."
    ),
    max_turns=1,
)
skeptic = AgentNode(
    name="Skeptic",
    system_prompt=(
        "You are a mathematician in a debate. You doubt: solve the problem while looking for the trap in it, such as "
        "an unstated assumption, a case left out, something counted twice, or a boundary value.\n"
        "When you see another argument, attack its weakest step with a concrete counterexample or calculation. If it "
        "holds, say so and adopt it.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: the decisive steps, then your present answer, once, in \\boxed{}."
    ),
    max_turns=1,
)
judge = AgentNode(
    name="DebateJudge",
    system_prompt=(
        "You are a senior mathematician who decides a debate.\n\n"
        "APPROACH:\n"
        "1. List the points on which the debaters disagree. If they agree, test the weakest step of their argument.\n"
        "2. Decide each point by your own calculation, not by who sounds surer.\n"
        "3. Derive the final answer from the points that you decided.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: your decisions with their reasons, then the final answer, once, in \\boxed{}."
    ),
    max_turns=1,
)

debate = DebateNode(name="MathDebate", debaters=[builder, skeptic], judge=judge, num_rounds=2)

workflow = Workflow(name="math_debate_judge")
workflow.add_node(debate)
