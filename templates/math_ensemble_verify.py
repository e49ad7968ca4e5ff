"""Three solvers vote; a verifier with a code tool then tests the winning answer and corrects it if it fails.

Use when a vote narrows the answer down and the result can be tested by substitution, enumeration or numerics.
"""

# /// template
# pattern = "ensemble then verify"
# domain = "math"
# structure = "ensemble"
# agent_calls = [4, 7]
# ///

import subprocess
import sys

from workflow import AgentNode, EnsembleNode, ToolRegistry, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)
CHECKS = (
    "- Every condition of the problem is used, and none was added.\n"
    "- The result is what the problem asks for, in the form it asks for.\n"
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

STRATEGIES = {
    "DirectSolver": "Use the most direct method and write out every calculation.",
    "BackwardSolver": "Work backwards from what is asked, and reduce it step by step to what is given.",
    "CaseSolver": "Try small instances first, then split the problem into cases that exclude each other and cover all.",
}

ANSWER_FORMAT = (
    " Keep values exact and check the result against the problem.\n\n"
    "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
    "OUTPUT: your reasoning, then the final answer in its simplest form, once, in \\boxed{}. Answers are compared as "
    "written. The verifier sees only what you deliver: give the argument and the boxed answer there."
)

vote = EnsembleNode(
    name="SolverVote",
    agents=[
        AgentNode(name=name, system_prompt="You are an expert mathematician. " + strategy + ANSWER_FORMAT, max_turns=1)
        for name, strategy in STRATEGIES.items()
    ],
    strategy="majority_vote",
)

verifier = AgentNode(
    name="Verifier",
    system_prompt=(
        "You verify a proposed answer to a mathematical problem.\n\n"
        "APPROACH:\n"
        "1. Read the problem yourself, before the proposed solution.\n"
        "2. Test the answer independently with the tool execute_code: put it back into the conditions, enumerate a "
        "finite search space, or compute it numerically to high precision.\n"
        "3. If it fails, find the error and solve the problem correctly.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: what you tested and what came out, then the answer that stands, once, in \\boxed{}."
    ),
    tool_registry=tools,
    max_turns=4,
)

workflow = Workflow(name="math_ensemble_verify")
workflow.add_nodes([vote, verifier])
