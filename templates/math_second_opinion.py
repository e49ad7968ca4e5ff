"""One solver answers; only if it is unsure does a second one solve, and only if they differ does a judge decide.

Use when most such problems are easy and a few are not: extra agents are called only where they are needed.
"""

# /// template
# pattern = "conditional second opinion"
# domain = "math"
# structure = "conditional"
# agent_calls = [1, 3]
# ///

import re

from workflow import AgentNode, ConditionalWorkflow, Context

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
    name="FirstSolver",
    system_prompt=(
        "You are a careful mathematician. Solve the problem step by step with exact values, then check the result by "
        "a second, shorter route.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: your reasoning inside <delivery>...</delivery>, with the final answer, once, in \\boxed{}. Last, a "
        "line of its own: the word Confidence, a colon, and HIGH if the second route confirmed the answer, else LOW."
    ),
    max_turns=1,
)
second_solver = AgentNode(
    name="SecondSolver",
    system_prompt=(
        "You are a mathematician who is asked for a second opinion. Solve the problem by a method other than the one "
        "you are shown, without leaning on its result. Then compare both, and say where they part if they do.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: your reasoning inside <delivery>...</delivery>, with your own answer, once, in \\boxed{}."
    ),
    max_turns=1,
)
judge = AgentNode(
    name="Judge",
    system_prompt=(
        "You are a senior mathematician. Two solutions of one problem disagree. Find the first step where they part, "
        "decide by your own calculation who is right there, and follow the right one to the end.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: your decision and its reason, then the final answer, once, in \\boxed{}."
    ),
    max_turns=1,
)


def is_unsure(context: Context) -> bool:
    """True unless the first solver boxed an answer and called its confidence high."""
    text = context.messages[-1].content
    confidence = re.findall(r"confidence\W+(high|low)", text, re.IGNORECASE)
    return "\\boxed" not in text or not confidence or confidence[-1].lower() != "high"


def answers_differ(context: Context) -> bool:
    """True if a second opinion was given and its box differs from the first one."""
    boxes = []
    for message in context.messages:
        if message.sender in ("FirstSolver", "SecondSolver"):
            found = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", message.content)
            boxes.append(found[-1].replace(" ", "") if found else "")
    return len(boxes) == 2 and boxes[0] != boxes[1]


workflow = ConditionalWorkflow(name="math_second_opinion")
workflow.add_node(solver)
workflow.add_node(second_solver, condition=is_unsure)
workflow.add_node(judge, condition=answers_differ)
