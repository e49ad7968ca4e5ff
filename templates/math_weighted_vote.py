"""Two reasoners and one solver who computes with code vote; the computed answer weighs more.

Use when code can settle the problem but its translation into code may go wrong: two agreeing reasoners overrule it.
"""

# /// template
# pattern = "weighted vote"
# domain = "math"
# structure = "ensemble"
# agent_calls = [3, 6]
# ///

import subprocess
import sys

from workflow import AgentNode, EnsembleNode, ToolRegistry, Workflow

# The constant below says what is special about this problem.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)


def execute_code(code: str) -> str:
    """Run a Python program and report what it printed."""
    try:
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "Error: the program ran longer than 30 seconds."
    report = ""
    if result.stdout:
        report += f"stdout:\n{result.stdout[-4000:]}\n"
    if result.stderr:
        report += f"stderr:\n{result.stderr[-2000:]}\n"
    return report or "(nothing was printed)"


tools = ToolRegistry()
tools.register(
    name="execute_code",
    func=execute_code,
    description="Run a Python program in a fresh process and return what it prints.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "a complete Python program that prints"}},
        "required": ["code"],
    },
)

ANSWER_FORMAT = (
    "\n\nFOR THIS PROBLEM:\n" + GUIDANCE + "\n"
    "OUTPUT: your reasoning, then the final answer in its simplest form, once, in \\boxed{}. Answers are compared as "
    "written, so put nothing but the answer in the box."
)

direct = AgentNode(
    name="DirectReasoner",
    system_prompt=(
        "You are a mathematician. Solve the problem by the most direct method, step by step, with exact values, and "
        "check the result by putting it back into the problem."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
alternative = AgentNode(
    name="AlternativeReasoner",
    system_prompt=(
        "You are a mathematician who avoids the obvious method. Solve the problem another way: count the complement, "
        "work backwards, change the coordinates or the variable, or use a generating function or an invariant."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
computing = AgentNode(
    name="ComputingSolver",
    system_prompt=(
        "You solve mathematical problems by computation. Write a Python program that enumerates or computes the "
        "answer exactly, straight from the definitions in the problem, and run it with the tool execute_code. Check "
        "the program on a small instance whose result you know. Mend and run again if needed."
    )
    + ANSWER_FORMAT,
    tool_registry=tools,
    max_turns=4,
)

vote = EnsembleNode(
    name="WeightedVote",
    agents=[computing, direct, alternative],
    strategy="weighted_vote",
    weights=[1.5, 1.0, 1.0],
)

workflow = Workflow(name="math_weighted_vote")
workflow.add_node(vote)
